"""Charts as files: SVG, PNG, and HTML that needs no network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bigforest.export.trees import library
from bigforest.storage.atomic import staged

FORMATS = ("svg", "png", "html")
_SCALE = 2.0
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>bigforest</title>
<script>{bundle}</script>
</head>
<body>
<div id="picture"></div>
<script>vegaEmbed("#picture", {spec}, {{"mode": "vega-lite", "actions": false}});</script>
</body>
</html>
"""


def converter() -> Any:
    """The library that draws without a browser. Raises ConfigError where it is not installed."""
    return library("vl_convert", "plot")


def svg_of(chart: Any) -> str:
    """The chart as SVG; text from data is escaped by the converter."""
    return converter().vegalite_to_svg(chart.to_dict(), allowed_base_urls=[])


def html_of_chart(chart: Any) -> str:
    """The chart as a page that shows it without network; nothing in the data ends the script it is in."""
    spec = json.dumps(chart.to_dict(), allow_nan=False).replace("<", "\\u003c").replace(">", "\\u003e")
    bundle = converter().javascript_bundle().replace("</script", "<\\/script")
    return _PAGE.format(bundle=bundle, spec=spec)


def write_chart(chart: Any, path: Path, *, overwrite: bool) -> None:
    """Write a chart into a file of one of FORMATS, by the ending of its name. Raises OutputExistsError."""
    kind = path.suffix.removeprefix(".")
    if kind == "png":
        content: bytes = converter().vegalite_to_png(chart.to_dict(), scale=_SCALE, allowed_base_urls=[])
    else:
        content = (svg_of(chart) if kind == "svg" else html_of_chart(chart)).encode()
    with staged(path, overwrite=overwrite, kind="picture", is_ours=Path.is_file) as made:
        made.write_bytes(content)
