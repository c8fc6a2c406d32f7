"""The shrinkage of a forest and how it was selected: stored in run.parquet only."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Any

from bigforest.schema.options import is_lambda

# The entries of the fields, in their order.
_NAMES = ("lambda", "tried", "losses", "cross_fitted")


@dataclass(frozen=True, slots=True)
class Shrinkage:
    """Hierarchical shrinkage of the values of leaves (Agarwal et al. 2022): see kernels/predict/shrink.py.

    amount        lambda, in rows; 0 where leaves are as grown.
    tried         the lambdas it was chosen from, ascending; none where it was given.
    losses        out-of-bag loss by each of them: log loss, or mean loss of numbers (oob/accumulator.py), by the
                  weights of the rows; none where no row is out of bag.
    cross_fitted  the loss where each half of the rows has the lambda that is best for the other half; None as above.
                  The loss by `amount` is a little too low, as the rows that it is measured on have chosen it.
    """

    amount: float = 0.0
    tried: tuple[float, ...] = ()
    losses: tuple[float, ...] = ()
    cross_fitted: float | None = None

    def entries(self) -> dict[str, Any]:
        """The entry of run.parquet's metadata; none where leaves are as grown and nothing else was tried."""
        if not self.amount and not self.tried:
            return {}
        return {"shrinkage": dict(zip(_NAMES, astuple(self), strict=True))}

    @classmethod
    def parse(cls, raw: Any) -> Shrinkage:
        """Inverse of `entries`, of what may be damaged. Raises ValueError or TypeError."""
        if not isinstance(raw, dict) or set(raw) != set(_NAMES):
            raise ValueError("it has missing or unknown entries")
        tried, losses = raw["tried"], raw["losses"]
        if not isinstance(tried, list) or not isinstance(losses, list) or len(losses) not in (0, len(tried)):
            raise ValueError("the numbers of losses and lambdas differ")
        crossed = raw["cross_fitted"]
        numbers = [raw["lambda"], *tried, *losses, *([] if crossed is None else [crossed])]
        if not all(map(is_lambda, numbers)):
            raise ValueError("a lambda or a loss is not a finite number, 0 or more")
        if sorted(set(tried)) != tried or (tried and raw["lambda"] not in tried) or (crossed is None) == bool(losses):
            raise ValueError("the lambda is not among those that were tried, or these are not ascending")
        return cls(float(raw["lambda"]), tuple(map(float, tried)), tuple(map(float, losses)), crossed)
