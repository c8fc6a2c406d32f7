"""The commands that make tables, images and simulate: options, output, errors."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from PIL import Image

import bigforest
from cli.show import choice_lines, mean_error, number_cells, percent, print_table, rounded, share_error, size
from cli.tables import images, simulate
from tests.commands import Run, contents, folder, run

__all__ = ["folder", "run"]  # fixtures

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "data" / "mnist-images-idx3-ubyte.gz"


@pytest.mark.parametrize(
    ("total", "text"),
    [
        (0, "0 B"),
        (5, "5 B"),
        (999, "999 B"),
        (1234, "1.2 kB"),
        (34_567, "35 kB"),
        (9_940_000, "9.9 MB"),
        (10**15, "1000 TB"),
    ],
)
def test_size(total: int, text: str) -> None:
    assert size(total) == text


@pytest.mark.parametrize(
    ("command", "function"), [(images, bigforest.images_to_features), (simulate, bigforest.simulate)]
)
def test_defaults__are_those_of_the_function(command: Any, function: Any) -> None:
    ours, theirs = inspect.signature(command).parameters, inspect.signature(function).parameters
    assert {name: p.default for name, p in ours.items() if name in theirs} == {
        name: p.default for name, p in theirs.items() if name in ours
    }


def test_images__then_train_then_predict(run: Run, folder: Path) -> None:
    run("images", DIGITS, "--out", "digits.parquet", "--size", "20x20", "--crop", "--threshold", "128")
    assert (run.code, run.err) == (0, "")
    for expected in ("100", "400", "20 x 20", "digits.parquet"):
        assert expected in run.out
    facts = run.json("train", "digits.parquet", "--task", "classification", "--trees", "3")
    assert (facts["target"], facts["features"], facts["classes"]) == ("target", 400, 10)
    facts = run.json("images", DIGITS, "--out", "digits.parquet", "--features", "neighbours", "--overwrite")
    assert (facts["rows"], facts["size"], facts["labelled"], facts["skipped"]) == (100, [28, 28], True, 0)


def test_images__of_a_folder_name_what_is_damaged(run: Run, folder: Path) -> None:
    for label in "ab":
        (folder / "pictures" / label).mkdir(parents=True)
        Image.fromarray(np.full((3, 3), 7, np.uint8)).save(folder / "pictures" / label / "x.png")
    (folder / "pictures/a/bad.png").write_bytes(b"bad")
    run("images", "pictures", "--out", "f.parquet", "--names")
    assert run.code == 0
    assert run.err.startswith("note: pictures: image a/bad.png is damaged")
    assert "1 damaged image" in run.out
    assert pl.read_parquet("f.parquet")["image"].to_list() == ["a/x.png", "b/x.png"]
    before = contents(folder)
    run("images", "pictures", "--out", "g.parquet", "--on-corrupt", "refuse")
    assert (run.code, run.out, run.err.count("\n")) == (2, "", 1)
    assert "a/bad.png" in run.err
    assert contents(folder) == before


@pytest.mark.parametrize(
    ("kind", "options", "bayes"),
    [
        ("trunk", ["--dims", "10", "--affine", "--outliers", "5"], "4.35 %, closed form"),
        ("multimodal", ["--dims", "2"], "Monte Carlo"),
        ("multimodal", ["--dims", "70"], "not worked out"),
        ("shapes", ["--noise", "0.05", "--truth"], "5.00 %, closed form"),
    ],
)
def test_simulate__prints_the_bayes_error(run: Run, folder: Path, kind: str, options: list[str], bayes: str) -> None:
    run("simulate", kind, "--rows", "50", *options)
    assert (run.code, run.err) == (0, "")
    assert bayes in run.out
    facts = run.json("simulate", kind, "--rows", "50", *options, "--out", "again")
    table = pl.read_parquet(f"{kind}.parquet")
    assert table.equals(pl.read_parquet("again"))
    assert (facts["rows"], facts["dims"]) == (table.height, sum(name[0] == "x" for name in table.columns))
    assert (facts["bayes"] is None) == (bayes == "not worked out")


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["images", "nothing", "--out", "f"], 2, "no such file"),
        (["images", "things.parquet", "--out", "f"], 2, "no column of images"),
        (["images", str(DIGITS), "--out", "f", "--size", "20"], 2, "size must be"),
        (["images", str(DIGITS), "--out", "things.parquet", "--overwrite"], 2, "is not a bigforest image features"),
        (["images", str(DIGITS)], 2, "Missing option '--out'"),
        (["simulate", "trunk", "--rows", "5"], 2, "set --dims"),
        (["simulate", "trunc", "--rows", "5"], 2, "kind must be one of trunk"),
        (["simulate", "trunks", "--rows", "5", "--dims", "2"], 2, "kind must be one of trunk"),
        (["simulate", "trunk", "--dims", "5"], 2, "Missing option '--rows'"),
        (["simulate", "trunk", "--rows", "5", "--dims", "2", "--out", "things.parquet"], 2, "already exists"),
        (["simulate", "shapes", "--rows", "5", "--out", "no/where"], 2, "does not exist"),
    ],
    ids=str,
)
def test_error__is_one_line_and_leaves_nothing(
    run: Run, folder: Path, args: list[str], code: int, message: str
) -> None:
    before = contents(folder)
    run(*args)
    assert (run.code, run.out) == (code, "")
    assert message in run.err
    assert contents(folder) == before


def test_quiet__prints_nothing(run: Run, folder: Path) -> None:
    for args in (["images", str(DIGITS), "--out", "f"], ["simulate", "shapes", "--rows", "5"]):
        run(*args, "--quiet")
        assert (run.code, run.out, run.err) == (0, "", "")


def test_table__of_numbers_is_wider_than_a_narrow_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, setting in {"FORCE_COLOR": "1", "TERM": "dumb", "COLUMNS": "30", "LINES": "9"}.items():
        monkeypatch.setenv(name, setting)
    names = ["a name that is long", "b"]
    print_table(["feature", "decrease", "standard error"], [[name, "1,234,567", "0.1234567"] for name in names])
    lines = capsys.readouterr().out.splitlines()
    assert [*lines[0].split(), *lines[1].split()] == ["standard", "feature", "decrease", "error"]
    assert [line.split()[-2:] for line in lines if "," in line] == [["1,234,567", "0.1234567"]] * 2


@pytest.mark.parametrize("columns", [30, 35, 36, 42, 44, 45, 80])
def test_table__shows_all_numbers_in_any_width(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    for name, setting in {"FORCE_COLOR": "1", "TERM": "dumb", "COLUMNS": str(columns), "LINES": "9"}.items():
        monkeypatch.setenv(name, setting)
    row = ["grow", "1", "267 MB", "1.6 MB", "0.02 s"]
    print_table(["stage", "trees per pass", "memory", "at least", "time"], [row])
    shown = capsys.readouterr().out.splitlines()
    assert re.split(" {2,}", shown[-1]) == row
    assert max(map(len, shown)) <= max(columns, len("stage  trees  memory   least    time"))


def test_compare__reasons_stand_below_the_table(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pl.read_parquet("things.parquet").with_columns(kind=pl.lit("x")).write_parquet("kinds.parquet")
    ranks = {"default": {}, "ranks": {"ranks": True}}
    monkeypatch.setattr("bigforest.training.compare.default_candidates", lambda *_: ranks)
    shown = run("compare", "kinds.parquet", "--trees", "2", "--out", "c").out.splitlines()
    table = shown[: shown.index("")]
    assert table[0].split() == ["candidate", "trees", "loss", "difference", "standard", "error", "time"]
    assert not any("cannot" in line for line in table)
    assert [line.split()[-1] for line in table[1:]].count("winner") == 1
    assert next(line for line in table if "ranks" in line).endswith("retired")
    assert any(line.startswith("ranks  cannot be grown here") for line in shown)


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        *((0.046667, 0.017, "0.047"), (0.046667, 0.04, "0.05"), (2510.4, 160.0, "2,510"), (2510.4, 320.0, "2,500")),
        *((0.5, 0.0, "0.5"), (float("inf"), 1.0, "inf"), (None, 1.0, "unknown")),
        *(
            (6.13e-10, 1.4e-11, "6.13e-10"),
            (1.005e19, 4e18, "1.0e+19"),
            (1e-12, 0.02, "0.000"),
            (-2e15, 3e13, "-2.00e+15"),
        ),
        *((-0.03, 0.6, "0.0"), (3, 0.2, "3.00")),
    ],
)
def test_rounded__to_the_place_of_the_standard_error(value: float | None, error: float, text: str) -> None:
    assert rounded(value, error) == text


def test_percent__of_more_rows_has_more_decimals() -> None:
    assert [percent(0.046667, rows) for rows in (None, 30, 150, 10_000)] == ["4.67 %", "5 %", "4.7 %", "4.67 %"]
    assert percent(0.0, 150) == "0.0 %" and share_error(1.0, 0) == mean_error(1.0, 0) == float("inf")


def test_number_cells__the_largest_has_four_digits_and_all_as_many_decimals() -> None:
    assert number_cells([0.168254, 0.0005, None, -0.01]) == ["0.1683", "0.0005", "", "-0.0100"]
    assert number_cells([12345.6, 0.5]) == ["12346", "0"]
    assert number_cells([5.8382438709680424e16, -2.0]) == ["5.838e+16", "-2.000e+00"]
    assert number_cells([6.13e-10]) == ["6.130e-10"]
    assert number_cells([1.5, -0.0001]) == ["1.500", "0.000"]
    assert number_cells([]) == [] and number_cells([0.0, float("nan")]) == ["0", "nan"]


def test_shrinkage__says_what_it_gives_or_that_there_is_none() -> None:
    tried = [{"lambda": 0.0, "loss": 0.25}, {"lambda": 3.0, "loss": 0.125}]
    usual = {"power": 1.0, "tried": [], "cross_fitted": None}
    no_stage = {"rounds": 0.0, "tried": [], "cross_fitted": None}
    [(_, text)] = choice_lines(
        {"shrinkage": {"lambda": 3.0, "tried": tried, "cross_fitted": 0.1875}, "power": usual, "refine": no_stage}
    )
    assert text == "lambda 3: out-of-bag loss 0.125 (cross-fitted 0.1875) instead of 0.25"
    [(_, text)] = choice_lines(
        {"shrinkage": {"lambda": 0.0, "tried": tried, "cross_fitted": 0.25}, "power": usual, "refine": no_stage}
    )
    assert text == "none: no lambda clearly lowers the out-of-bag loss of 0.25"


def test_power__says_what_it_gives() -> None:
    none = {"lambda": 0.0, "tried": [], "cross_fitted": None}
    others = {"shrinkage": none, "refine": {"rounds": 0.0, "tried": [], "cross_fitted": None}}
    tried = [{"power": 1.0, "loss": 0.25}, {"power": 1.5, "loss": 0.125}]
    assert choice_lines({**others, "power": {"power": 1.0, "tried": tried, "cross_fitted": 0.25}}) == []
    assert choice_lines({**others, "power": {"power": 2.0, "tried": [], "cross_fitted": None}}) == [
        ("probabilities", "power 2")
    ]
    [(_, text)] = choice_lines({**others, "power": {"power": 1.5, "tried": tried, "cross_fitted": 0.1875}})
    assert text == "power 1.5: out-of-bag loss 0.125 (cross-fitted 0.1875) instead of 0.25"


def test_refine__says_what_it_gives() -> None:
    tried = [{"rounds": 0.0, "loss": 0.25}, {"rounds": 40.0, "loss": 0.125}]
    others: dict[str, Any] = {
        "shrinkage": {"lambda": 0.0, "tried": [], "cross_fitted": None},
        "power": {"power": 1.0, "tried": [], "cross_fitted": None},
    }
    stage = {"rounds": 40.0, "tried": tried, "cross_fitted": 0.1875}
    assert choice_lines({**others, "refine": stage}) == [
        ("boosted stage", "40 rounds: out-of-bag loss 0.125 (cross-fitted 0.1875) instead of 0.25")
    ]
    held_out = choice_lines({**others, "refine": stage, "calibration": 0.2})
    assert held_out[0][1].endswith("instead of 0.25 on rows that are not held out")
    [(_, text)] = choice_lines({**others, "refine": {"rounds": 1.0, "tried": [], "cross_fitted": None}})
    assert text == "1 round"
    [(_, text)] = choice_lines({**others, "refine": {**stage, "rounds": 0.0}})
    assert text == "none: it does not clearly lower the out-of-bag loss of 0.25"
