"""What the texts claim, whether it holds in what was measured, and the page that says so, all from result files."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import polars as pl
from outcome import NEAR, NotPossibleError

HOLDS, FAILS, OPEN = "holds", "does not hold", "cannot be decided here"


class Verdict(NamedTuple):
    """Whether a claim holds, and the figures that say so."""

    verdict: str
    figures: str


class Claim(NamedTuple):
    """A claim of a text, the item that measures it, and what judges its numbers."""

    text: str
    claim: str
    item: str
    judge: Callable[[pl.DataFrame], Verdict]


class Difference(NamedTuple):
    """A mean difference in a setting, and its standard error."""

    setting: str
    mean: float
    error: float

    @property
    def says(self) -> str:
        """Whether it is above 0: by more than NEAR standard errors."""
        if math.isnan(self.error):  # there is a single draw
            return OPEN
        if self.error == 0.0:
            return HOLDS if self.mean > 0.0 else FAILS
        return HOLDS if self.mean > NEAR * self.error else FAILS if self.mean < -NEAR * self.error else OPEN

    def __str__(self) -> str:
        """`p = 2 +0.013 (0.004)`"""
        return f"{self.setting} {round(self.mean, 6):+.4g} ({self.error:.2g})".strip()


def above(
    numbers: pl.DataFrame, column: str, one: str, other: str, by: str = "", value: str = "error"
) -> list[Difference]:
    """Of each setting in `by`, the mean over draws of a value where `column` is `one` less that where it is `other`."""
    wide = numbers.with_columns(pl.col(column).cast(pl.String)).filter(pl.col(column).is_in([one, other]))
    setting = pl.lit("") if not by else pl.col(by).cast(pl.String)
    index = [
        name
        for name in ("set", "kind", "dims", "run", "features", "junk", "draw", by)
        if name in wide.columns and name != column
    ]
    wide = wide.pivot(column, index=list(dict.fromkeys(index)), values=value, aggregate_function="mean")
    found = wide.with_columns(setting=setting, less=pl.col(one) - pl.col(other)).group_by(
        "setting", maintain_order=True
    )
    table = found.agg(pl.col("less").mean().alias("mean"), (pl.col("less").std() / pl.len().sqrt()).alias("error"))
    return [Difference(*row) for row in table.with_columns(pl.col("error").fill_null(math.nan)).rows()]


def everywhere(differences: Iterable[Difference]) -> Verdict:
    """A claim that a difference is above 0 in all settings: it fails where one is below."""
    found = list(differences)
    said = {one.says for one in found}
    verdict = FAILS if FAILS in said else OPEN if OPEN in said else HOLDS
    return Verdict(verdict, ", ".join(map(str, found)))


def _of_kind(kind: str, dims: Iterable[int], one: str, other: str, numbers: pl.DataFrame) -> list[Difference]:
    own = numbers.filter(
        pl.col("dims").is_in(list(dims)), pl.col("method").is_in([one, other]), kind=kind, transform="raw"
    )
    found = above(own.sort("dims", maintain_order=True), "method", one, other, "dims")
    return [difference._replace(setting=f"p = {difference.setting}:") for difference in found]


def _below(kind: str, dims: Iterable[int], pairs: Iterable[tuple[str, str]], numbers: pl.DataFrame) -> Verdict:
    """Whether the first method of each pair errs less than the second at every p."""
    parts = [(better, worse, _of_kind(kind, dims, worse, better, numbers)) for better, worse in pairs]
    verdict = everywhere([one for *_, own in parts for one in own]).verdict
    told = [f"{worse} less {better}: {', '.join(map(str, own))}" for better, worse, own in parts]
    return Verdict(verdict, "; ".join(told))


def _right_on_training(numbers: pl.DataFrame) -> Verdict:
    least = numbers.group_by("method", "features", maintain_order=True).agg(pl.col("trained").min())
    text = ", ".join(f"{method} {features} {share:.4%}" for method, features, share in least.rows())
    return Verdict(HOLDS if (least["trained"] == 1.0).all() else FAILS, f"least share of training rows: {text}")


def _neighbours(numbers: pl.DataFrame) -> Verdict:
    scaled = numbers.with_columns(pl.col("accuracy") * 100.0)
    right = above(scaled, "features", "f2", "f1", "method", "accuracy")
    smaller = above(scaled.with_columns(pl.col("leaves").cast(pl.Float64)), "features", "f1", "f2", "method", "leaves")
    verdict = everywhere([*right, *smaller]).verdict
    return Verdict(verdict, f"points {', '.join(map(str, right))}; leaves fewer {', '.join(map(str, smaller))}")


def _by_trees(more: int, fewer: int, numbers: pl.DataFrame) -> Verdict:
    """Whether accuracy on the test rows, ties rejected, is higher with more trees."""
    own = numbers.filter(pl.col("trees").is_in([more, fewer]), rows="test", ties="reject")
    own = own.with_columns(pl.col("accuracy") * 100.0)
    return everywhere(above(own, "trees", str(more), str(fewer), "run", "accuracy"))


def _no_plateau(numbers: pl.DataFrame) -> Verdict:
    """Whether subspace forests still gain from 200 to 500 trees, beyond the standard error of 10,000 test rows."""
    own = numbers.filter(
        pl.col("method").is_in(["CAP", "PER"]), pl.col("trees").is_in([200, 500]), rows="test", ties="lowest"
    )
    differences = [
        one._replace(error=100.0 * math.sqrt(0.96 * 0.04 / 1e4))
        for one in above(own.with_columns(pl.col("accuracy") * 100.0), "trees", "500", "200", "run", "accuracy")
    ]
    said = [one.says for one in differences]
    verdict = HOLDS if set(said) == {HOLDS} else FAILS
    return Verdict(verdict, f"points gained from 200 to 500 trees: {', '.join(map(str, differences))}")


def _transformed(kind: str, dims: int, transform: str, method: str, numbers: pl.DataFrame) -> Difference:
    """By how much a transformation raises the error of a method; draws of the two are independent."""
    own = numbers.filter(kind=kind, dims=dims, method=method)
    turned, plain = (own.filter(transform=name)["error"] for name in (transform, "raw"))
    error = math.sqrt(sum((part.std() or 0.0) ** 2 / len(part) for part in (turned, plain)))  # type: ignore[operator]
    return Difference(f"{kind}, p = {dims}:", turned.mean() - plain.mean(), error)  # type: ignore[operator]


def _raised(transform: str, method: str, settings: Iterable[tuple[str, int]], numbers: pl.DataFrame) -> Verdict:
    return everywhere(_transformed(kind, dims, transform, method, numbers) for kind, dims in settings)


def _unmoved(transform: str, method: str, settings: Iterable[tuple[str, int]], numbers: pl.DataFrame) -> Verdict:
    found = [_transformed(kind, dims, transform, method, numbers) for kind, dims in settings]
    moved = [one for one in found if abs(one.mean) > NEAR * one.error > 0.0]
    return Verdict(FAILS if len(moved) > 1 else HOLDS, ", ".join(map(str, found)))


def _over_sets(method: str, numbers: pl.DataFrame) -> Verdict:
    """Whether a method errs less than RF on average over the sets."""
    own = numbers.filter(part="draft").group_by("set", "method", maintain_order=True).agg(pl.col("error").mean())
    [less] = above(own.with_columns(draw=pl.lit(0)), "method", "RF", method)
    return Verdict(less.says, f"RF less {method}: {less}, {own['set'].n_unique()} sets")


def _readings(methods: Iterable[str], settings: Iterable[tuple[str, int]], numbers: pl.DataFrame) -> Verdict:
    """Whether the reading floor(p^(2/3)) is nearer to the reference, by all of some methods on all of some settings."""
    wanted = pl.any_horizontal([(pl.col("kind") == kind) & (pl.col("dims") == dims) for kind, dims in settings])
    own = numbers.filter(wanted, pl.col("method").is_in(list(methods)))
    means = own.group_by("reading", "kind", "dims", "method", maintain_order=True).agg(
        pl.col("error").mean(), pl.col("reference").first()
    )
    wide = means.with_columns(off=(pl.col("error") - pl.col("reference")).abs()).pivot(
        "reading", index=["kind", "dims", "method", "reference"], values=["error", "off"]
    )
    nearer = (wide["off_floor"] <= wide["off_ceil, sqrt"]).all()
    text = ", ".join(
        f"{row['kind']} {row['dims']}, {row['method']}: {row['error_ceil, sqrt']:.3f} and {row['error_floor']:.3f} "
        f"(reference {row['reference']:.3f})"
        for row in wide.iter_rows(named=True)
    )
    return Verdict(HOLDS if nearer else FAILS, f"by the first reading and by floor: {text}")


def _surfaces(junk: int, better: str, worse: str, numbers: pl.DataFrame) -> Verdict:
    own = numbers.filter(junk=junk)
    return everywhere(above(own, "method", better, worse, value="accuracy"))


def _out_of_bag(numbers: pl.DataFrame) -> Verdict:
    """Whether the error out of bag is the test error."""
    means = numbers.group_by("set", "F", maintain_order=True).agg(
        pl.col("off").mean().alias("mean"), (pl.col("off").std() / pl.len().sqrt()).alias("error")
    )
    outside = means.filter(pl.col("mean").abs() > NEAR * pl.col("error")).height
    by_set = means.group_by("set").agg(pl.col("mean").mean())["mean"]
    overall = Difference("", float(by_set.mean() or 0.0), float(by_set.std() or 0.0) / math.sqrt(len(by_set)))  # type: ignore[arg-type]
    verdict = HOLDS if overall.says == OPEN else FAILS
    return Verdict(
        verdict,
        f"out of bag less test, points: {overall} over {len(by_set)} sets; {outside} of {means.height} settings are "
        f"further off than {NEAR:g} standard errors",
    )


def _sets_below(better: str, worse: str, numbers: pl.DataFrame) -> Verdict:
    """Whether a method errs less than another on average over sets, in points."""
    own = numbers.group_by("set", "method", maintain_order=True).agg(pl.col("error").mean())
    [less] = above(own.with_columns(draw=pl.lit(0)), "method", worse, better)
    lower = own.pivot("method", index="set", values="error").select((pl.col(better) < pl.col(worse)).sum()).item()
    return Verdict(less.says, f"{worse} less {better}: {less}; lower on {lower} of {own['set'].n_unique()} sets")


_SMALL = (2, 4, 8, 16, 32, 63, 126)
_TURNED = (
    ("trunk", 2),
    ("trunk", 32),
    ("multimodal", 2),
    ("multimodal", 8),
    ("multimodal", 16),
    ("parity", 2),
    ("parity", 3),
)

CLAIMS = (
    Claim("Ho 1995", "Single trees are right on all training rows.", "ho-table-1", _right_on_training),
    Claim("Ho 1995", "Neighbour features give better and smaller trees than pixels.", "ho-table-1", _neighbours),
    Claim("Ho 1995", "Two trees are worse than one where ties are rejected.", "ho-figure-1", partial(_by_trees, 1, 2)),
    Claim("Ho 1995", "Accuracy rises with the trees: from 10 to 40 of CAP.", "ho-figure-1", partial(_by_trees, 40, 10)),
    Claim(
        "Ho 1995",
        "Accuracy rises with the trees: from 5 to 10 perceptron trees.",
        "ho-figure-2",
        partial(_by_trees, 10, 5),
    ),
    Claim("Ho 1995", "There is no plateau, up to 500 trees.", "ho-many-trees", _no_plateau),
    Claim(
        "Randomer forests",
        "RerF(d) errs less than RF and RerF on Trunk, at every p.",
        "rerf-figure-1",
        partial(_below, "trunk", _SMALL, (("RerF(d)", "RF"), ("RerF(d)", "RerF"))),
    ),
    Claim(
        "Randomer forests",
        "RerF errs less than RF on parity at p = 3 and 4.",
        "rerf-figure-1",
        partial(_below, "parity", (3, 4), (("RerF", "RF"),)),
    ),
    Claim(
        "Randomer forests",
        "Every variant of RerF errs less than RF on parity at every p.",
        "rerf-figure-1",
        partial(_below, "parity", range(2, 11), [(one, "RF") for one in ("RerF", "RerF(d)", "RerF(d+r)")]),
    ),
    Claim(
        "Randomer forests",
        "RerF errs less than RF on the multimodal distribution at p = 8, 16 and 32.",
        "rerf-figure-1",
        partial(_below, "multimodal", (8, 16, 32), (("RerF", "RF"),)),
    ),
    Claim(
        "Randomer forests",
        "Differences of means harm on modified Trunk of many dimensions: RF errs less than RerF(d).",
        "rerf-figure-a2",
        partial(_below, "modified-trunk", (63, 126), (("RF", "RerF(d)"),)),
    ),
    Claim(
        "Randomer forests",
        "Rotation raises the error of RF on Trunk at p = 501.",
        "rerf-figure-3",
        partial(_raised, "rotated", "RF", (("trunk", 501),)),
    ),
    Claim(
        "Randomer forests",
        "Scaling raises the error of RerF(d).",
        "rerf-figure-3",
        partial(_raised, "scaled", "RerF(d)", (("trunk", 32), ("multimodal", 8), ("parity", 3))),
    ),
    Claim(
        "Randomer forests",
        "Scaling leaves the error of RerF(d+r) as it is.",
        "rerf-figure-3",
        partial(_unmoved, "scaled", "RerF(d+r)", _TURNED),
    ),
    Claim(
        "Randomer forests",
        "RerF errs less than RF on data sets of up to 1,000 rows.",
        "rerf-figure-4b",
        partial(_over_sets, "RerF"),
    ),
    Claim(
        "Randomer forests",
        "RerF(d+r) errs less than RF on data sets of up to 1,000 rows.",
        "rerf-figure-4b",
        partial(_over_sets, "RerF(d+r)"),
    ),
    Claim(
        "Randomer forests, read again",
        "The reference drew floor(p^(2/3)) directions, not ceil: it is nearer on parity at p = 3 by every RerF.",
        "rerf-readings",
        partial(_readings, ("RerF", "RerF(d)", "RerF(d+r)"), [("parity", 3)]),
    ),
    Claim(
        "Randomer forests, read again",
        "RF drew floor(p^(2/3)) features, not sqrt p: it is nearer where p is large.",
        "rerf-readings",
        partial(_readings, ("RF",), [("trunk", 32), ("trunk", 126), ("multimodal", 16), ("multimodal", 32)]),
    ),
    Claim(
        "Rotation forests",
        "In the plane, rotation forests answer better than random forests.",
        "rotation-picture",
        partial(_surfaces, 0, "rotation forest", "random forest"),
    ),
    Claim(
        "Rotation forests",
        "With 8 columns of junk random forests answer better than rotation forests.",
        "rotation-picture",
        partial(_surfaces, 8, "random forest", "rotation forest"),
    ),
    Claim(
        "bigforest",
        "With 8 columns of junk, axes that are chosen out of bag answer better than random forests.",
        "rotation-picture",
        partial(_surfaces, 8, "rotation, axes chosen", "random forest"),
    ),
    Claim("Tomasi 2017", "The error out of bag is the test error.", "tomasi", _out_of_bag),
    Claim(
        "Breiman 2001",
        "Forest-RI errs less than AdaBoost.",
        "breiman-2001",
        partial(_sets_below, "selection", "AdaBoost"),
    ),
    Claim(
        "Breiman 2001",
        "The better of two F errs less than F = 1.",
        "breiman-2001",
        partial(_sets_below, "selection", "F = 1"),
    ),
    Claim("Breiman 1998", "Arc-x4 errs less than bagging.", "arcing", partial(_sets_below, "arc-x4", "bagging")),
    Claim("Breiman 1998", "AdaBoost errs less than bagging.", "arcing", partial(_sets_below, "AdaBoost", "bagging")),
)


def judge_claims(folder: Path) -> pl.DataFrame:
    """A row per claim, judged by the numbers in a folder of results. Raises NotPossibleError where one is missing."""
    numbers: dict[str, pl.DataFrame] = {}
    for claim in CLAIMS:
        path = folder / f"{claim.item}.parquet"
        if not path.is_file():
            raise NotPossibleError(f"{path} is not there; reproduce {claim.item} first")
        numbers.setdefault(claim.item, pl.read_parquet(path))
    return pl.DataFrame(
        [claim._asdict() | claim.judge(numbers[claim.item])._asdict() for claim in CLAIMS],
        schema=dict.fromkeys(("text", "claim", "item", "verdict", "figures"), pl.String),
    )


def write_index(folder: Path, items: Mapping[str, str]) -> Path:
    """Write FOLDER/index.md: the claims and whether they hold, and the items (what each is, by its name) with their
    verdicts. Raises NotPossibleError where a result is missing."""
    claims = judge_claims(folder)
    count = dict(claims["verdict"].value_counts().rows())
    lines = [
        "# Tables and figures of the texts",
        "`python -m benchmarks.reproduce ITEM --data DIR` makes an item; `all` makes all of them.",
        "## What the texts claim",
        f"Of {claims.height} claims {count.get(HOLDS, 0)} hold, {count.get(FAILS, 0)} do not, and {count.get(OPEN, 0)} "
        "cannot be decided here. A difference "
        f"decides that is more than {NEAR:g} standard errors from none; of a claim about several settings, all of them "
        "must hold. Standard errors are in brackets.",
    ]
    for text, own in claims.group_by("text", maintain_order=True):
        lines.append(f"### {text[0]}")
        rows = [
            f"| {row['claim']} | **{row['verdict']}** | {row['figures']} | [{row['item']}]({row['item']}.md) |"
            for row in own.iter_rows(named=True)
        ]
        lines.append("\n".join(["| claim | verdict | figures | item |", "|---|---|---|---|", *rows]))
    lines.append("## Every number beside its reference")
    rows = [f"| [{name}]({name}.md) | {what} | {_verdicts(folder / f'{name}.md')} |" for name, what in items.items()]
    lines.append("\n".join(["| item | what | numbers by verdict |", "|---|---|---|", *rows]))
    lines.append("\n".join(["```{toctree}", ":hidden:", "", *items, "```"]))
    path = folder / "index.md"
    path.write_text("\n\n".join(lines) + "\n", encoding="utf-8")
    return path


def _verdicts(page: Path) -> str:
    """How many numbers have which verdict, as the page of an item says."""
    found = (
        re.search(r"^Verdicts: (.*?)\. ", page.read_text(encoding="utf-8"), re.MULTILINE) if page.is_file() else None
    )
    if found is None:
        raise NotPossibleError(f"{page} is not there, or not a page of this program; reproduce {page.stem} first")
    return found[1]
