"""The report in headless Chromium, where there is one: it runs without errors and requests, and can be used."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from tests.plot.conftest import Report
from tests.thorough import cases

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--host-resolver-rules=MAP * ~NOTFOUND"),
)
# Of WCAG 2.1, for text of usual size.
LEAST_CONTRAST = 4.5
SECONDS = 120

# Before everything else: what goes wrong while the page is made.
LISTEN = """<script>
var troubles = [];
window.addEventListener("error", function (event) { troubles.push("error " + event.message); });
document.addEventListener("securitypolicyviolation", function (event) { troubles.push("asks " + event.blockedURI); });
["error", "warn"].forEach(function (kind) { console[kind] = function (text) { troubles.push(kind + " " + text); }; });
</script>"""
# A window of Chromium is not as narrow as a phone, but a frame in it is; what the page says ends in a text of this one.
FRAME = """<!DOCTYPE html><script>
window.addEventListener("message", function (event) {
  var said = document.createElement("pre");
  said.textContent = event.data;
  document.body.appendChild(said);
});
</script><body><iframe src="probed.html" style="width:WIDTHpx; height:900px; border:0"></iframe></body>"""
# After everything else: the page is used, and says what came of it.
USE = """<script>
window.addEventListener("load", function () {
  var values = function (table, at) {
    return Array.from(table.tBodies[0].rows, function (row) {
      var value = row.cells[at].dataset.value;
      return value === undefined ? row.cells[at].textContent : Number(value);
    });
  };
  var sorted = [];
  document.querySelectorAll("th button").forEach(function (button) {
    var head = button.parentNode, both = [];
    for (var turn = 0; turn < 2; turn++) {
      button.click();
      both.push([head.getAttribute("aria-sort"), values(head.closest("table"), head.cellIndex)]);
    }
    sorted.push(both);
  });
  var parts = Array.from(document.querySelectorAll("details"));
  var closed = parts.filter(function (part) { return !part.open; }).length;
  parts.forEach(function (part) { part.querySelector("summary").click(); });
  var light = function (colour) {
    var part = colour.match(/[\\d.]+/g).slice(0, 3).map(function (own) {
      own = own / 255;
      return own <= 0.03928 ? own / 12.92 : Math.pow((own + 0.055) / 1.055, 2.4);
    });
    return 0.2126 * part[0] + 0.7152 * part[1] + 0.0722 * part[2];
  };
  var back = light(getComputedStyle(document.body).backgroundColor);
  var contrasts = Array.from(document.querySelectorAll("p, h1, h2, h3, td, th, a, summary, figcaption, pre")).map(
    function (own) {
      var ink = light(getComputedStyle(own).color);
      return (Math.max(ink, back) + 0.05) / (Math.min(ink, back) + 0.05);
    });
  var targets = Array.from(document.querySelectorAll("button, summary, a"));
  setTimeout(function () {
    parent.postMessage(JSON.stringify({
      troubles: troubles,
      requests: performance.getEntriesByType("resource").map(function (own) { return own.name; }),
      sorted: sorted,
      closed: closed,
      opened: parts.filter(function (part) { return part.open; }).length,
      contrast: Math.min.apply(null, contrasts),
      dark: back < 0.2,
      unreachable: targets.filter(function (own) { own.focus(); return document.activeElement !== own; }).length,
      sideways: document.scrollingElement.scrollWidth - document.documentElement.clientWidth,
      width: window.innerWidth,
      pictures: Array.from(document.querySelectorAll("svg")).filter(function (own) {
        return own.getBoundingClientRect().height > 10;
      }).length,
    }), "*");
  }, 300);
});
</script>"""


def shown(page: Path, folder: Path, width: int, *, dark: bool) -> dict[str, Any]:
    """What the page says of itself after it has been used in a window of this width."""
    text = page.read_text(encoding="utf-8")
    probed = folder / "probed.html"
    text = text.replace('<meta charset="utf-8">', f'<meta charset="utf-8">{LISTEN}', 1)
    probed.write_text(text.replace("</body>", f"{USE}</body>"), encoding="utf-8")
    (folder / "frame.html").write_text(FRAME.replace("WIDTH", str(width)))
    assert CHROMIUM is not None
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=20000"]
    command += ["--window-size=1400,1000", f"--blink-settings=preferredColorScheme={0 if dark else 1}", "--dump-dom"]
    found = subprocess.run(
        [*command, (folder / "frame.html").as_uri()], capture_output=True, text=True, timeout=SECONDS, check=True
    )
    said = re.search("<pre>(.*?)</pre>", found.stdout, re.DOTALL)
    assert said is not None, found.stdout[-500:] + found.stderr[-500:]
    told: dict[str, Any] = json.loads(unescape(said.group(1)))
    return told


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
@pytest.mark.parametrize(("width", "dark"), cases([(1280, True), (375, False), (1280, False), (375, True)], quick=2))
def test_report__works_in_a_browser(report: Report, tmp_path: Path, width: int, dark: bool) -> None:
    told = shown(report.page, tmp_path, width, dark=dark)
    assert not told["troubles"] and not told["requests"]
    assert told["pictures"] >= 14
    assert told["closed"] == told["opened"] == 5
    assert told["dark"] == dark and told["contrast"] >= LEAST_CONTRAST
    assert not told["unreachable"]
    assert told["width"] == width and told["sideways"] <= 0
    assert len(told["sorted"]) > 5
    for (first, down), (second, up) in told["sorted"]:
        assert (first, second) == ("descending", "ascending")
        if all(isinstance(value, float | int) for value in up):
            assert up == sorted(up) and down == sorted(down, reverse=True)


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
def test_browser__tells_what_goes_wrong(tmp_path: Path) -> None:
    wrong = '<img src="http://example.invalid/x.png"><script>missing();</script><p style="color:#ccc">pale</p>'
    (tmp_path / "wrong.html").write_text(
        '<html><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'\"></head>"
        f'<body style="background:#fff"><div style="width:3000px">{wrong}</div></body></html>'
    )
    told = shown(tmp_path / "wrong.html", tmp_path, 1280, dark=False)
    assert any("missing" in trouble for trouble in told["troubles"])
    assert any("example.invalid" in trouble for trouble in told["troubles"])
    assert told["contrast"] < LEAST_CONTRAST and told["sideways"] > 0
