"""Results that are opened by their folders."""

from __future__ import annotations

from pathlib import Path

import pytest

import bigforest as bf


@pytest.mark.parametrize(
    ("opened", "words"),
    [
        (bf.Comparison, "not a comparison; check the path, or make one with compare"),
        (bf.Explanation, "not an explanation; check the path, or make one with explain_forest"),
    ],
)
def test_open__what_is_not_there(opened: type, words: str, tmp_path: Path) -> None:
    with pytest.raises(bf.ConfigError, match=words):
        opened(tmp_path / "nothing")
    with pytest.raises(bf.ConfigError, match="a path was expected"):
        opened(3)


def test_open__an_explanation_again(tmp_path: Path) -> None:
    forest = bf.train(bf.simulate("trunk", rows=60, dims=3), "target", trees=3)
    made = forest.explain(parts="importance", out=tmp_path / "why")
    again = bf.Explanation(str(tmp_path / "why"))
    assert again.tables == made.tables
    assert again["importance"].equals(made["importance"])
    assert list(again) == again.tables and len(again) == len(again.tables)
