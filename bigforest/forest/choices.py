"""Lambda, power and rounds of the boosted stage of a forest, and how they were selected out of bag once the trees were
grown; stored in run.parquet."""

from __future__ import annotations

from dataclasses import astuple, dataclass, field
from typing import Any, ClassVar, Self

from bigforest.options.values import is_lambda, is_power, is_rounds


@dataclass(frozen=True, slots=True)
class Choice:
    """A number that was given, or selected by out-of-bag loss.

    amount        the number.
    tried         the numbers it was chosen from, ascending; none where it was given.
    losses        out-of-bag loss by each of them, by the weights of the rows; none where no row is out of bag.
    cross_fitted  the loss where each half of the rows has the number that is best for the other half; None as above.
                  The loss by `amount` is a little too low, as the rows that it is measured on have chosen it.

    NAMES: the entries of the fields, in their order. USUAL: the amount that changes nothing.
    """

    amount: float
    tried: tuple[float, ...] = ()
    losses: tuple[float, ...] = ()
    cross_fitted: float | None = None

    NAMES: ClassVar[tuple[str, ...]]
    USUAL: ClassVar[float]

    @staticmethod
    def may_be(value: object) -> bool:
        """Return whether this is a valid amount."""
        raise NotImplementedError

    def entry(self) -> dict[str, Any] | None:
        """Return the entry of run.parquet's metadata; None if nothing changes and nothing else was tried."""
        if self.amount == self.USUAL and not self.tried:
            return None
        return dict(zip(self.NAMES, astuple(self), strict=True))

    @classmethod
    def parse(cls, raw: Any) -> Self:
        """Parse an `entry`, which may be damaged. Raises ValueError or TypeError."""
        if not isinstance(raw, dict) or set(raw) != set(cls.NAMES):
            raise ValueError("it has missing or unknown entries")
        amount, tried, losses, crossed = (raw[name] for name in cls.NAMES)
        if not isinstance(tried, list) or not isinstance(losses, list) or len(losses) not in (0, len(tried)):
            raise ValueError(f"the numbers of losses and of each {cls.NAMES[0]} that was tried differ")
        if not all(map(cls.may_be, [amount, *tried])):
            raise ValueError(f"a {cls.NAMES[0]} is not a number that it may be")
        if not all(map(is_lambda, [*losses, *([] if crossed is None else [crossed])])):
            raise ValueError("a loss is not a finite number, 0 or more")
        if sorted(set(tried)) != tried or (tried and amount not in tried) or (crossed is None) == bool(losses):
            raise ValueError(f"the {cls.NAMES[0]} is not among those that were tried, or these are not ascending")
        return cls(float(amount), tuple(map(float, tried)), tuple(map(float, losses)), crossed)


@dataclass(frozen=True, slots=True)
class Shrinkage(Choice):
    """Hierarchical shrinkage of the values of leaves (Agarwal et al. 2022), by lambda, in rows: see
    kernels/predict/leaf_values.py. Its loss is the log loss, or the mean loss of numbers (oob/accumulator.py)."""

    amount: float = 0.0

    NAMES = ("lambda", "tried", "losses", "cross_fitted")
    USUAL = 0.0
    may_be = staticmethod(is_lambda)


@dataclass(frozen=True, slots=True)
class Power(Choice):
    """The power to which shares of classes are raised, see kernels/predict/powers.py. Its loss is the log loss."""

    amount: float = 1.0

    NAMES = ("power", "tried", "losses", "cross_fitted")
    USUAL = 1.0
    may_be = staticmethod(is_power)


@dataclass(frozen=True, slots=True)
class Rounds(Choice):
    """The number of trees of each sequence of the boosted stage, see forest/refinement.py; 0 for none. Its loss is the
    log loss, or the mean loss of numbers (oob/accumulator.py)."""

    amount: float = 0.0

    NAMES = ("rounds", "tried", "losses", "cross_fitted")
    USUAL = 0.0
    may_be = staticmethod(is_rounds)


@dataclass(frozen=True, slots=True)
class Choices:
    """Everything that is selected once the trees are grown."""

    shrinkage: Shrinkage = field(default_factory=Shrinkage)
    power: Power = field(default_factory=Power)
    rounds: Rounds = field(default_factory=Rounds)

    def entries(self) -> dict[str, Any]:
        """Return the entries of run.parquet's metadata."""
        made = {"shrinkage": self.shrinkage.entry(), "power": self.power.entry(), "refine": self.rounds.entry()}
        return {name: entry for name, entry in made.items() if entry is not None}

    def for_other_shares(self, given: float | str, shrinkage: Shrinkage | None = None) -> Choices:
        """Return the choices for other leaf values: lambda without how it was selected, and the power only if it was
        given.

        given      the option `power` of the forest.
        shrinkage  another one.
        """
        kept = Shrinkage(self.shrinkage.amount) if shrinkage is None else shrinkage
        return Choices(kept, Power() if isinstance(given, str) else Power(self.power.amount))
