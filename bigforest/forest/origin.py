"""Origin of a forest: the table it was grown on, or the forests it was merged from; stored in run.parquet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class MergedForest:
    """One forest within a merged one: trees first_tree, first_tree + 1, ... are its trees 0, 1, ... of its seed.

    forest       the path it was read from.
    fingerprint  of the table it was grown on, see Origin.
    """

    forest: str
    seed: int
    first_tree: int
    trees: int
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Rule that set the number of trees, see TrainConfig.stop_oob.

    tolerance  of the out-of-bag error.
    most       trees that were requested; with fewer the error had settled.
    """

    tolerance: float
    most: int


@dataclass(frozen=True, slots=True)
class Origin:
    """Training table of a forest, or the forests it was merged from.

    data         absolute path (file, folder, glob or store); None for a table in memory, or when merged.
    exclude      columns left out.
    fingerprint  `Store.fingerprint` of the presorted table; empty when forests of different tables were merged.
    merged       the forests it was merged from, in the order of the trees; empty for one that was grown.
    stop         rule that set the number of trees; None if the number was given.
    """

    data: str | None
    exclude: tuple[str, ...]
    fingerprint: str
    merged: tuple[MergedForest, ...] = ()
    stop: Stop | None = None

    def entries(self) -> dict[str, Any]:
        """Return the entry of run.parquet's metadata."""
        return {"origin": asdict(self)}

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Origin:
        """Parse `entries`, which may be damaged. Raises ValueError, TypeError, LookupError or AttributeError."""
        pieces = tuple(MergedForest(**piece) for piece in raw["merged"])
        stop = None if raw.get("stop") is None else Stop(**raw["stop"])
        origin = cls(**{**raw, "exclude": tuple(raw["exclude"]), "merged": pieces, "stop": stop})
        texts = [origin.fingerprint, *origin.exclude, *(text for p in pieces for text in (p.forest, p.fingerprint))]
        numbers = [number for p in pieces for number in (p.seed, p.first_tree, p.trees)]
        if not all(isinstance(text, str) for text in [*texts, origin.data or ""]):
            raise ValueError("a text is missing")
        if not all(type(number) is int and number >= 0 for number in numbers):
            raise ValueError("a number is missing")
        if stop and not (isinstance(stop.tolerance, float) and type(stop.most) is int):
            raise ValueError("what decided the number of trees is missing")
        return origin
