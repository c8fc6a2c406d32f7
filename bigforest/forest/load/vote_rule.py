"""How the votes of the trees become one answer per row, and how an answer is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.common.errors import ConfigError, FormatError
from bigforest.metrics.conformal import ClassSets, Intervals
from bigforest.schema.dataspec import DataSpec

Vote = Literal["soft", "hard", "stochastic"]
Ties = Literal["lowest", "reject", "random"]
Unseen = Literal["larger", "missing", "error"]

REJECTED = -1
_TEXT = ("String", "Categorical", "Enum")


@dataclass(frozen=True, slots=True)
class VoteRule:
    """How rows are answered, and votes are combined. Numbers that trees predict are averaged, whatever the vote.

    vote  "soft": the class with the largest mean of leaf posteriors (Ho 1995). "hard": the class most trees
          vote for (Breiman 2001); a tree votes for the most frequent class of the leaf, the lowest of equals.
          "stochastic": class y with the probability that "soft" gives it (Tomasi 2017, section 3).
    ties  among classes with exactly equal votes: "lowest", "reject" (no answer, Ho 1995), or "random". Equal
          means equal as float64 sums over the trees in their order, which is exact for hard votes and for
          pure leaves.
    seed  of the draws. Those of a row depend on the seed and on the number of the row, on nothing else.
    unseen  what a level of a category is that was not there in training: it goes with the "larger" child of every node
          on the category, is as if it were "missing", or an "error".
    quantiles  of the numbers that trees predict, besides: shares from 0 to 1 (Meinshausen 2006).
    trees  numbers of the trees that answer, ascending; all where there are none.
    conformal  intervals of numbers, or sets of classes, besides.
    least_share  of the votes: a row whose predicted class has less is REJECTED.
    """

    vote: str
    ties: str
    seed: int
    unseen: str = "larger"
    quantiles: tuple[float, ...] = ()
    trees: tuple[int, ...] = ()
    conformal: Intervals | ClassSets | None = None
    least_share: float = 0.0

    def __post_init__(self) -> None:
        if not all(0.0 <= share <= 1.0 for share in self.quantiles) or len(set(self.quantiles)) < len(self.quantiles):
            raise ConfigError(f"quantiles must be different numbers from 0 to 1, not {list(self.quantiles)}")
        if self.vote not in get_args(Vote):
            raise ConfigError(f"vote must be one of {', '.join(get_args(Vote))}, not {self.vote!r}")
        if self.ties not in get_args(Ties):
            raise ConfigError(f"ties must be one of {', '.join(get_args(Ties))}, not {self.ties!r}")
        if self.unseen not in get_args(Unseen):
            raise ConfigError(f"unseen must be one of {', '.join(get_args(Unseen))}, not {self.unseen!r}")
        if self.vote == "stochastic" and self.ties != "lowest":
            raise ConfigError("a stochastic vote has no ties to decide; drop ties or choose another vote")

    @property
    def quantile_names(self) -> list[str]:
        """The columns of the quantiles: q0.1 and so on."""
        return [f"q{share!r}" for share in self.quantiles]

    @property
    def conformal_names(self) -> list[str]:
        """The columns of intervals or sets, if there are any."""
        if self.conformal is None:
            return []
        return ["low", "high"] if isinstance(self.conformal, Intervals) else ["set"]

    @property
    def ballots(self) -> str:
        """What the trees cast: "soft" or "hard"."""
        return "hard" if self.vote == "hard" else "soft"

    @property
    def draws(self) -> bool:
        """Whether answers depend on the numbers of the rows."""
        return self.vote == "stochastic" or self.ties == "random"

    def decide(self, votes: NDArray[np.float64], numbers: NDArray[np.uint64] | None) -> NDArray[np.int32]:
        """Class of every row, or REJECTED, from the sums of votes [rows, classes].

        numbers [rows] are the numbers of the rows, needed if `draws`. Oracle: tests/naive/predict.py decide.
        """
        if self.vote == "stochastic":
            reached = np.cumsum(votes, axis=1)
            total = reached[:, -1]
            # The product may round up to the total, which no class would exceed.
            point = np.minimum(self._draws(numbers) * total, np.nextafter(total, 0.0))
            return _first(reached > point[:, None])
        answer: NDArray[np.int32] = votes.argmax(axis=1).astype(np.int32)
        if self.ties == "lowest":
            return answer
        equal = votes == votes.max(axis=1, keepdims=True)
        count = equal.sum(axis=1)
        if self.ties == "reject":
            answer[count > 1] = REJECTED
            return answer
        chosen = np.floor(self._draws(numbers) * count) + 1
        return _first(np.cumsum(equal, axis=1) >= chosen[:, None])

    def _draws(self, numbers: NDArray[np.uint64] | None) -> NDArray[np.float64]:
        """A number in [0, 1) for each row."""
        from bigforest.kernels.common.rng import PURPOSE_STOCHASTIC, PURPOSE_TIE, draw_rows, stream_key

        assert numbers is not None
        purpose = PURPOSE_STOCHASTIC if self.vote == "stochastic" else PURPOSE_TIE
        random = np.empty(numbers.size, dtype=np.uint64)
        with np.errstate(over="ignore"):  # without compilation, numpy reports that hashes wrap around
            key = stream_key(np.uint64(self.seed), purpose, np.uint64(0), np.uint64(0))
            draw_rows(np.uint64(key), numbers, random)
        return (random >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _first(true: NDArray[np.bool_]) -> NDArray[np.int32]:
    """Column of the first True of each row."""
    first: NDArray[np.int32] = true.argmax(axis=1).astype(np.int32)
    return first


def answer_width(spec: DataSpec) -> int:
    """Numbers that a tree adds to the votes on a row: one for each class, or the number that it predicts."""
    return max(1, len(spec.target.classes))


def label_type(spec: DataSpec) -> pl.DataType:
    """The Polars type of predictions. Raises FormatError when the dataspec names none that its classes fit."""
    target = spec.target
    if target.task == "regression":
        return pl.Float64()
    found = getattr(pl, target.dtype, None)
    if not (isinstance(found, type) and issubclass(found, pl.DataType)):
        raise FormatError(f"the dataspec says that the target is {target.dtype!r}, which is no type; it is damaged")
    try:
        if found is pl.Enum:
            dtype: pl.DataType = pl.Enum(target.categories)
        elif target.categories:
            name, namespace, physical = target.categories
            dtype = pl.Categorical(pl.Categories(name, namespace, getattr(pl, physical)))
        else:
            dtype = found()
        series = pl.Series(list(target.classes), dtype=pl.String if target.dtype in _TEXT else dtype, strict=True)
        if series.cast(dtype).null_count() or series.to_list() != list(target.classes):
            raise ValueError(f"classes {target.classes[:3]} are of another type")
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        raise FormatError(f"the classes do not fit the target's type {target.dtype}: {error}") from error
    return dtype


def labels(codes: NDArray[np.int32], spec: DataSpec, name: str = "prediction") -> pl.Series:
    """The labels of class codes, null where REJECTED, in the type of the target."""
    classes = _classes(spec).alias(name)
    if spec.target.dtype in _TEXT:
        classes = classes.cast(label_type(spec))
    index = pl.Series(codes)
    return classes.gather(index.replace(REJECTED, None) if (codes == REJECTED).any() else index)


def stored_labels(spec: DataSpec) -> Any:
    """The classes as a pyarrow array, in the type in which the out-of-bag files keep labels.

    That is the target's, but plain strings for every kind of text.
    """
    import pyarrow as pa

    classes = list(spec.target.classes)
    return pa.array(
        classes, None if spec.target.dtype in _TEXT else pl.Series([], dtype=label_type(spec)).to_arrow().type
    )


def proba_names(spec: DataSpec) -> list[str]:
    """Names of the columns of probabilities, p_<class>, in the order of the classes."""
    return ["p_" + (str(c).lower() if isinstance(c, bool) else str(c)) for c in spec.target.classes]


def _classes(spec: DataSpec) -> pl.Series:
    """The classes in the type of the target, or as strings for every kind of text."""
    dtype = pl.String() if spec.target.dtype in _TEXT else label_type(spec)
    return pl.Series(list(spec.target.classes), dtype=dtype)


def label_codes(series: pl.Series, spec: DataSpec) -> NDArray[np.int32] | None:
    """Class code of every row of a target column, -1 where null; None if a label is none of the classes."""
    classes = _classes(spec)
    try:
        given = series.cast(classes.dtype, strict=True)
        if series.dtype.is_numeric() != classes.dtype.is_numeric() or (given.cast(series.dtype) != series).any():
            return None
    except pl.exceptions.PolarsError:
        return None
    codes = given.replace_strict(classes, pl.Series(range(len(classes)), dtype=pl.Int32), default=None)
    if codes.null_count() != series.null_count():
        return None
    found: NDArray[np.int32] = codes.fill_null(-1).to_numpy()
    return found
