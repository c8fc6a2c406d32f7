"""The forest with and without its boosted stage, and boosting: losses, areas, time, and the honesty of the estimate.

    python benchmarks/refine.py --data DIR [--sets uci,real,number,feature,sim,noise] [--half report]
        [--contestants ...] [--least-rows 1000] [--max-rows 5000] [--rounds 1] [--trees 100] [--minutes 30]
        [--threads 1]

Sets, their halves and their splits: suite_sets.py; feature/NAME, in which the most varied feature of a UCI set is
predicted from the others, without its classes; and tables whose target is noise. Contestants (suite_fits.py): the
forest without (`refine="off"`) and with the stage (`refine="auto"`), LightGBM, XGBoost and CatBoost at their defaults,
and LightGBM in the processor time of the forest with the stage, with as many trees as a held-out fifth of the rows asks
for. Those that are not installed are passed over. The sets with the fewest cells come first. No set is begun after
`--minutes`; the result says which were run. Measurements in results/refine.parquet are not made again. Contestants take
turns in one process, each after an uncounted small run; seconds are processor seconds.

Writes refine.md and results/refine.parquet beside itself.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from columns import turned
from compare import UNFIT
from datasets import TARGET
from numpy.typing import NDArray
from runs import machine
from suite_fits import BOOSTED, FITS, Asked, Predict, grown, predictor, scores
from suite_sets import HALVES, Set, sets_of
from tables import markdown

import bigforest

PLAIN, REFINED, PEER, EQUAL = "off", "auto", "lightgbm", "lightgbm-equal-time"
CONTESTANTS = (PLAIN, REFINED, PEER, EQUAL, *BOOSTED)
NAMES = {
    PLAIN: "bigforest, refine off",
    REFINED: "bigforest, refine auto",
    PEER: "LightGBM",
    EQUAL: "LightGBM, equal time",
    "xgboost": "XGBoost",
    "catboost": "CatBoost",
}
HERE = Path(__file__).resolve().parent
# Log losses below it count as it: ratios of hardly any loss say nothing.
LEAST_LOSS = 0.001
# A feature with as few values or fewer is no number to predict. One set has the features of cardiotocography-3clases.
_FEW_VALUES, _SAME_FEATURES = 50, "cardiotocography-10clases"
KEY = ("set", "round", "trees", "max_rows", "contestant")
GROUPS = {
    "classes, report": "Classes, reporting half",
    "numbers, report": "Numbers, reporting half",
    "classes, choose": "Classes, choosing half",
    "numbers, choose": "Numbers, choosing half",
    "features, report": "Features as targets, reporting half",
    "features, choose": "Features as targets, choosing half",
    "simulated": "Simulated sets of the suite, both halves",
}
COLUMNS = {
    "contestant": ("contestant", "{}"),
    "sets": ("sets", "{}"),
    "ratio": ("loss / that of refine off", "{:.3f}"),
    "wins": ("less than LightGBM's on", "{}"),
    "score": ("mean accuracy or R2", "{:.4f}"),
    "auc": ("mean AUC", "{:.4f}"),
    "rank_auc": ("rank by AUC", "{:.2f}"),
    "cpu": ("training time / refine off", "{:.2f}"),
    "predict": ("prediction time / refine off", "{:.2f}"),
}

# Measured once, by hand, with the stage of 2026-11-28.
TRIED = """## Tried on the choosing half

Squared error over that of the plain forest, geometric mean over 27 tables of numbers of at most 4,000 rows: 3 real, 8
simulated, and 16 UCI sets whose most varied feature is predicted from the others; without limits by time. Seconds: of
training, over those of the plain forest, median.

| rate, most rounds | leaves | squared error | seconds |
|---|---|---|---|
| .5, 20 (the default) | 15 | .854 | 1.06 |
| .5, 40 | 15 | .851 | 1.10 |
| .3, 40 | 15 | .841 | 1.11 |
| .2, 60 | 15 | .840 | 1.17 |
| .1, 120 | 15 | .842 | 1.29 |
| .06, 240 | 15 | .841 | 1.50 |
| .3, 20 | 31 | .844 | |
| .3, 40 | 8 | .853 | |

More and smaller steps (10 over the rounds, up to 40, within the limits) were tried on all sets: squared error was .958
instead of .961 on the 3 real sets of the choosing half, .912 instead of .911 on the 4 of the reporting half, and .803
instead of .805 on the simulated ones, for twice the trees. They were not taken. With the number of rounds that is best
on the test rows, .3 and 40 has .799: the choice loses more than the trees.

Ways to keep a stage, the loss over that of the plain forest. Tails: 24 tables of numbers with noise of Student's t, 1.2
to 3 degrees of freedom, measured against the targets without noise (.25, 40). Noise: 24 tables, and 120 others.

| kept if the loss decreases by | numbers (.5, 20) | numbers (.3, 40) | classes (.5, 20) | tails | noise kept |
|---|---|---|---|---|---|
| 1 standard error | .854 | .841 | .915 | .871 | 0 |
| 1/2 (the default) | .852 | .841 | .887 | .861 | 0 |
| 0 | .848 | .839 | .886 | .861 | 0 |
| 1/2, decreases of rows cut at 1 % of either end | .852 | .837 | .926 | .861 | 0 |
| 1/2, cut at 5 % | .858 | .845 | .923 | .848 | 0 |

No way is clearly worse on a set. Cutting the decreases, or comparing without the rows of the largest losses (.854 for
.3, 40), is no better on the whole: large losses are also what a stage corrects. Half a standard error loses less to
single outliers than a whole one.

How much of the stage is added, and how its loss is found: 38 tables of numbers (3 real, 8 simulated of the suite, 5
more simulated, 22 features of UCI sets) and 34 sets of classes, of 700 to 4,000 rows, by .5 and 20. With the default 0
of 96 tables of noise, of 700 to 4,000 rows, keep a stage.

| factor of what the stage adds | numbers | classes | numbers (.3, 40) |
|---|---|---|---|
| 1 | .854 | .868 | .855 |
| 1 or 1/2 (the default) | .847 | .864 | .851 |
| 1, 1/2 or 1/4 | .847 | .863 | .851 |
| 1, 3/4, 1/2 or 1/4 | .846 | .865 | .849 |

If the loss of the report need not fall, numbers have .848 by the factor 1, and .845 by the factor of least squares.
With the slope of the forest's own predictions chosen in addition, they have .852. The best number of rounds by the test
rows has .816. Out of bag, the residuals of neighbours know a little of the target of a row, because its trees are in
their predictions. So the loss of the stage is too high out of bag, by up to 12 % after 20 rounds. The weights of the
forest for each pair of rows correct it exactly: .843 in place of .848. This was not taken, as it does not scale.

The times of prediction above are the least of three runs on a machine with a load of about 20, before the trees of the
stage were added up by bits of leaves (kernels/refine/sums.py). With these, the least of 25 runs with the stage and
without in turn, under the same load: tickets-classes 1.20, pendigits 1.17, molec-biol-splice, plant-margin and
statlog-shuttle 1.13 (1.29 before), statlog-landsat and ringnorm 1.11, plant-texture and statlog-image 1.10, digits
1.02, titanic 1.00 times the time without.

On a quiet machine, a run of each of the 106 sets with this code: the same losses; training takes 1.19 times the
processor time with the stage (median), 2.02 on musk-2, at most 1.74 on the others; predicting the test rows 1.05 times
(median), at most 1.28. Training on all of MNIST takes 1.58 times as long, and predicting 142,394 rows of flights 1.22
times with 20 trees and 1.01 with 100, synthetic 1.21 and .98, Covertype 1.15 and 1.17 (these three on a busy machine).

AUC of sets of two classes, with the stage (12 sets of the choosing half); rank: 1 is better than LightGBM, 2 is worse.

| forest | mean AUC | rank | log loss |
|---|---|---|---|
| LightGBM | .8420 | | 1.054 |
| defaults | .8422 | 1.46 | 1.000 |
| min_leaf 3 | .8431 | 1.46 | 1.005 |
| min_leaf 5 | .8436 | 1.46 | 1.005 |
| min_leaf 10 | .8436 | 1.46 | .997 |
| 300 trees | .8425 | 1.38 | .996 |
| bags of .4 of the rows | .8437 | 1.46 | .988 |
| bags of .63, drawn once | .8416 | 1.54 | 1.008 |
| the best of these by out-of-bag AUC | .8424 | 1.38 | 1.003 |
| the best of these by out-of-bag log loss | .8423 | 1.38 | .984 |

None changes AUC clearly, chosen out of bag or not, so the defaults stay.
"""


def _noise(rows: int, classes: int, seed: int) -> pl.DataFrame:
    """A target that no feature predicts; heavy tails if classes is -1."""
    random = np.random.default_rng([rows, seed])
    columns = {f"x{k}": random.standard_normal(rows) for k in range(8)}
    if classes > 0:
        return pl.DataFrame(columns | {TARGET: random.integers(0, classes, rows)})
    return pl.DataFrame(columns | {TARGET: random.standard_t(2, rows) if classes < 0 else random.standard_normal(rows)})


def _feature(read: Callable[[], pl.DataFrame]) -> pl.DataFrame:
    """A feature predicted from the others: the most varied one, the first of several; no rows if it has few values."""
    frame = read().drop(TARGET)
    distinct = [frame[name].n_unique() for name in frame.columns]
    most = int(np.argmax(distinct))
    frame = frame.rename({frame.columns[most]: TARGET}).with_columns(pl.col(TARGET).cast(pl.Float64))
    return frame if distinct[most] > _FEW_VALUES else frame[:0]


def _all_sets(data: Path) -> dict[str, Set]:
    found = sets_of(data)
    for name, one in list(found.items()):
        kind, _, own = name.partition("/")
        if kind == "uci" and name not in UNFIT and own != _SAME_FEATURES:
            found[f"feature/{own}"] = Set(f"feature/{own}", True, partial(_feature, one.read))
    for rows in (1000, 4000):
        for kind, classes in (("normal", 0), ("tails", -1), ("two", 2), ("five", 5)):
            for seed in range(3):
                name = f"noise/{kind}-{rows}-{seed}"
                found[name] = Set(name, classes <= 0, partial(_noise, rows, classes, seed))
    return found


def chosen_sets(options: argparse.Namespace) -> Iterator[Set]:
    """The sets that are asked for, those with the fewest cells first."""
    wanted, found = options.sets.split(","), []
    for name, one in _all_sets(options.data).items():
        asked = name in wanted or name.partition("/")[0] in wanted
        if asked and name not in UNFIT and options.half in (None, one.half):
            table = one.read()
            if table.height >= options.least_rows:
                found.append((min(table.height, options.max_rows) * table.width, name, one))
    for _, _, one in sorted(found, key=lambda each: each[:2]):
        yield one


def losses(found: NDArray[np.float64], truth: NDArray[Any], classes: list[int]) -> NDArray[np.float64]:
    """The log loss of each row, or its squared error."""
    if not classes:
        return (found - truth) ** 2
    held = found[np.arange(len(truth)), np.searchsorted(classes, truth)]
    return -np.log(held.clip(np.finfo(np.float64).eps, 1.0))


def _mean_and_error(values: NDArray[np.float64]) -> tuple[float, float]:
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


def _out_of_bag(forest: bigforest.Forest, classes: list[int]) -> NDArray[np.float64]:
    """The losses of the rows out of bag."""
    rows = forest.oob.rows.drop_nulls("prediction").collect()
    if not classes:
        return losses(rows["prediction"].to_numpy(), rows["truth"].to_numpy(), classes)
    shares = rows.select(f"p_{label}" for label in classes).to_numpy()
    return losses(shares, rows["truth"].cast(pl.Int64).to_numpy(), classes)


def _fitted(contestant: str, train: pl.DataFrame, asked: Asked, took: float) -> tuple[Predict, bigforest.Forest | None]:
    """took: the seconds that EQUAL gets."""
    if contestant in (PLAIN, REFINED):
        forest = grown(train, asked, refine=contestant)
        return predictor(forest, asked), forest
    if contestant == EQUAL:
        return FITS[PEER](train, asked, seconds=took), None
    return (FITS | BOOSTED)[contestant](train, asked), None


def measured(one: Set, round_: int, options: argparse.Namespace, left: list[str], took: float) -> list[dict[str, Any]]:
    """A row for each contestant that is left to be measured on a split; took: the seconds of REFINED, if known."""
    train, test = one.parts(round_, options.max_rows)
    classes = [] if one.regression else sorted(train[TARGET].unique().cast(pl.Int64).to_list())
    test = test.filter(pl.col(TARGET).cast(pl.Int64).is_in(classes)) if classes else test
    truth, asked = test[TARGET].to_numpy(), Asked(options.trees, options.threads, round_, classes)
    found: list[dict[str, Any]] = []
    by_row: dict[str, NDArray[np.float64]] = {}
    for contestant in left:
        begin = time.process_time()
        predict, forest = _fitted(contestant, train, asked, took)
        cpu = time.process_time() - begin
        took = cpu if contestant == REFINED else took
        predict_seconds = []
        for _ in range(3):
            begin = time.process_time()
            predictions = predict(test)
            predict_seconds.append(time.process_time() - begin)
        own = by_row[contestant] = losses(predictions, truth, classes)
        loss, error = _mean_and_error(own)
        key = (one.name, round_, options.trees, options.max_rows, contestant)
        row = dict(zip(KEY, key, strict=True))
        row |= {"half": one.half, "rows": train.height, "test_rows": test.height, "features": train.width - 1}
        row |= {"classes": len(classes), "loss": loss, "loss_error": error, "cpu_seconds": cpu}
        row |= {"predict_seconds": min(predict_seconds)} | scores(predictions, truth, classes)
        row |= {"oob_loss": None, "oob_error": None, "stage_rounds": None, "change_error": None}
        if forest is not None:
            row["oob_loss"], row["oob_error"] = _mean_and_error(_out_of_bag(forest, classes))
            row["stage_rounds"] = int(forest.rounds.amount)
        if contestant == REFINED and PLAIN in by_row:
            row["change_error"] = _mean_and_error(own - by_row[PLAIN])[1]
        found.append(row)
    return found


def by_set(runs: pl.DataFrame) -> pl.DataFrame:
    """The means over the rounds, and the group of each set."""
    kind = pl.when(pl.col("set").str.starts_with("feature/")).then(pl.lit("features"))
    kind = kind.when(pl.col("classes") == 0).then(pl.lit("numbers")).otherwise(pl.lit("classes"))
    group = pl.when(pl.col("set").str.starts_with("sim/")).then(pl.lit("simulated"))
    group = group.when(pl.col("set").str.starts_with("noise/")).then(pl.lit("noise"))
    group = group.otherwise(pl.format("{}, {}", kind, "half"))
    means = ("loss", "loss_error", "score", "auc", "oob_loss", "oob_error", "change_error")
    least = pl.when(pl.col("classes") > 0).then(LEAST_LOSS).otherwise(0.0)
    at_least = (pl.max_horizontal(name, least).alias(name) for name in ("loss", "oob_loss"))
    return (
        runs.with_columns(*at_least)
        .group_by("set", "contestant", maintain_order=True)
        .agg(
            pl.col("half", "rows", "test_rows", "features", "classes").first(),
            pl.col(*means, "stage_rounds", "cpu_seconds", "predict_seconds").mean(),
        )
        .with_columns(group=group)
    )


def against(sets: pl.DataFrame, other: str) -> pl.DataFrame:
    """All rows with the figures of another contestant on the same set, as other_NAME."""
    own = sets.filter(pl.col("contestant") == other)
    figures = ("loss", "score", "auc", "cpu_seconds", "predict_seconds")
    return sets.join(own.select("set", *(pl.col(name).alias(f"other_{name}") for name in figures)), on="set")


def summary(sets: pl.DataFrame) -> pl.DataFrame:
    """A row per contestant: geometric means of the losses over those of PLAIN, and the like."""
    complete = pl.len().over("contestant") == sets["set"].n_unique()
    ranked = sets.filter(complete).select("set", "contestant", rank_auc=pl.col("auc").rank(descending=True).over("set"))
    less = pl.col("other_loss") > pl.col("loss")
    wins = against(sets, PEER).group_by("contestant").agg(wins=pl.format("{} of {}", less.sum(), pl.len()))
    return (
        against(sets, PLAIN)
        .join(ranked, on=["set", "contestant"], how="left", maintain_order="left")
        .group_by("contestant", maintain_order=True)
        .agg(
            sets=pl.len(),
            ratio=(pl.col("loss") / pl.col("other_loss")).log().mean().exp(),
            score=pl.col("score").mean(),
            auc=pl.col("auc").mean(),
            rank_auc=pl.col("rank_auc").mean(),
            cpu=(pl.col("cpu_seconds") / pl.col("other_cpu_seconds")).median(),
            predict=(pl.col("predict_seconds") / pl.col("other_predict_seconds")).median(),
        )
        .join(wins, on="contestant", how="left", maintain_order="left")
        .with_columns(pl.when(pl.col("contestant") != PEER).then(pl.col("wins")).alias("wins"))
    )


def worse(sets: pl.DataFrame) -> str:
    """The sets on which the stage makes the loss worse by more than 1 % and two standard errors, named."""
    pairs = against(sets.filter(pl.col("group") != "noise"), PLAIN).filter(pl.col("contestant") == REFINED)
    by = pl.col("loss") - pl.col("other_loss")
    clear = pairs.filter((by > 0.01 * pl.col("other_loss")) & (by > 2.0 * pl.col("change_error")))
    named = [
        f"{name} ({ratio:.3f} of the loss)"
        for name, ratio in clear.select("set", pl.col("loss") / pl.col("other_loss")).rows()
    ]
    return f"{clear.height} of {pairs.height}" + (": " + ", ".join(named) if named else "")


def costs(sets: pl.DataFrame) -> str:
    """Median and largest ratio of the processor time with and without the stage."""
    pairs = against(sets, PLAIN).filter(pl.col("contestant") == REFINED)
    train = pairs["cpu_seconds"] / pairs["other_cpu_seconds"]
    predict = pairs["predict_seconds"] / pairs["other_predict_seconds"]
    long, slow = pairs.filter(train > 2.0)["set"], (predict > 1.3).sum()
    return (
        f"training takes {train.median():.2f} times the processor time (at most {train.max():.2f}), and predicting the "
        f"test rows {predict.median():.2f} times (at most {predict.max():.2f}); training takes more than twice the "
        f"time on {long.len()} of {pairs.height} sets ({', '.join(long) or 'none'}), predicting more than 1.3 times on "
        f"{slow}"
    )


def honesty(sets: pl.DataFrame) -> str:
    """Out-of-bag losses against those of the test rows."""
    said = []
    inside = sets.filter(pl.col("group") != "noise")
    for contestant in (PLAIN, REFINED):
        own = inside.filter((pl.col("contestant") == contestant) & pl.col("oob_error").is_not_null())
        ratio = (own["oob_loss"] / own["loss"]).log().to_numpy()
        mean, error = _mean_and_error(ratio)
        apart = (own["oob_loss"] - own["loss"]) / (own["oob_error"] ** 2 + own["loss_error"] ** 2).sqrt()
        said.append(
            f"{NAMES[contestant]} {np.exp(mean):.3f} (log {mean:+.4f}, standard error {error:.4f}; median "
            f"{np.exp(np.median(ratio)):.3f}; below the test rows by more than two errors on {(apart < -2.0).sum()} of "
            f"{own.height} sets, above on {(apart > 2.0).sum()})"
        )
    return "; ".join(said)


def simulated(sets: pl.DataFrame) -> str:
    """By how much forests are behind LightGBM on the simulated sets."""
    pairs = against(sets.filter(pl.col("group") == "simulated"), PEER)
    if not pairs.height:
        return "not run"
    parts = []
    for contestant in (PLAIN, REFINED):
        own = pairs.filter(pl.col("contestant") == contestant)
        parts.append(f"{NAMES[contestant]} {(own['other_score'] - own['score']).mean():+.4f}")
    return f"{', '.join(parts)} ({own.height} sets)"


def suite_half(sets: pl.DataFrame, half: str) -> str:
    """Losses on all sets of one half of the suite, the simulated ones among them."""
    suite = sets.filter((pl.col("half") == half) & ~pl.col("set").str.contains("^(noise|feature)/"))
    parts = []
    for kind, classes in (("numbers", pl.col("classes") == 0), ("classes", pl.col("classes") > 0)):
        table = summary(suite.filter(classes))
        rows = {row["contestant"]: row for row in table.rows(named=True)}
        if REFINED in rows and PEER in rows:
            stage, peer = rows[REFINED], rows[PEER]
            parts.append(
                f"{kind} {stage['ratio']:.3f} of the loss of the plain forest, LightGBM {peer['ratio']:.3f} "
                f"({stage['sets']} sets, less than LightGBM's on {stage['wins']})"
            )
    return "; ".join(parts) or "not run"


def report(runs: pl.DataFrame, options: argparse.Namespace, left: list[str]) -> str:
    """The text of refine.md."""
    sets = by_set(runs)
    text = []
    for group, title in GROUPS.items():
        inside = sets.filter(pl.col("group") == group)
        if inside.height:
            table = summary(inside).with_columns(pl.col("contestant").replace(NAMES))
            shown = {key: COLUMNS[key] for key in COLUMNS if table[key].drop_nulls().len()}
            text.append(f"## {title}\n\n{markdown(table, shown)}")
    noise = sets.filter((pl.col("group") == "noise") & (pl.col("contestant") == REFINED))
    kept = noise.filter(pl.col("stage_rounds") > 0)
    pairs = against(sets, REFINED).filter(pl.col("contestant") == "catboost")
    ratio = (pairs["other_loss"] / pairs["loss"]).log().mean()
    partly = (
        f": on the {pairs.height} sets of CatBoost, refine auto has {np.exp(ratio):.3f} of its loss" if ratio else ""
    )
    about = machine(("numpy", "numba", "polars", "scikit-learn"))
    seen = sets["contestant"].unique()
    packages = [f"{NAMES[name]} {version(name)}" for name in (PEER, *BOOSTED) if name in seen and _installed(name)]
    missing = f"Not run for lack of time: {', '.join(left)}." if left else "All sets were run."
    wide = sets.filter(pl.col("group") != "noise").pivot(
        "contestant", index=["set", "half", "rows", "features", "classes"], values=["loss", "cpu_seconds"]
    )
    stage = sets.filter(pl.col("contestant") == REFINED).select("set", pl.col("stage_rounds"))
    wide = wide.join(stage, on="set", how="left", maintain_order="left").sort("set")
    columns = {"set": ("set", "{}"), "half": ("half", "{}"), "rows": ("rows", "{:,}")}
    columns |= {"features": ("features", "{}"), "classes": ("classes", "{}"), "stage_rounds": ("rounds", "{:.0f}")}
    columns |= {f"loss_{name}": (NAMES[name], "{:.4g}") for name in CONTESTANTS if f"loss_{name}" in wide.columns}
    columns |= {f"cpu_seconds_{name}": (f"seconds, {NAMES[name]}", "{:.2f}") for name in (PLAIN, REFINED, PEER)}
    real = sets.filter(pl.col("group") != "noise")
    reported = real.filter(pl.col("half") == "report")["set"].n_unique()
    tables = "\n\n".join(text)
    command = f"python benchmarks/refine.py --data DIR --max-rows {options.max_rows} --rounds {options.rounds}"
    return f"""# The boosted stage, against the plain forest and boosting

`{command}`, {datetime.now(UTC):%Y-%m-%d}:
{real["set"].n_unique()} sets, of which {reported} are of the reporting half. No option or rule was chosen on these,
but two constants of the estimated prediction time were: with 9 and 7 in place of 8.5 and 6.5, statlog-shuttle had
1.191 of the loss of the plain forest, and log loss was .941 of it on the reporting half.
Of larger sets {options.max_rows:,} rows are drawn; a fifth of the rows is for testing where there is no official split.
All forests have {options.trees} trees, the others are at their defaults. {about},
{", ".join(packages)}. The machine was shared with other work. {missing}
Excluded: {", ".join(UNFIT)}, see compare.md. In feature/NAME the feature of a UCI set with the most different values,
if more than {_FEW_VALUES}, is predicted from its other features; its classes are left out.

The loss is the log loss (probabilities at least 2.2e-16; a mean below {LEAST_LOSS} counts as {LEAST_LOSS}), or the
squared error of numbers; its ratio is a geometric mean over the sets. *Equal time* is LightGBM with as many processor
seconds as the forest with the stage took on that set: it holds out a fifth of the rows and takes the number of trees
that is best on these. Times are processor times; their ratios are medians over the sets. Ranks by AUC are among
the contestants that did all sets of a group, on those of two classes. Figures of contestants with fewer sets are of
those sets alone{partly}.

- Worse with the stage than without, by more than 1 % of the loss and two standard errors: {worse(sets)}.
- Pure noise ({noise.height} tables of 1,000 and 4,000 rows, numbers with normal and heavy tails, two and five classes):
  a stage is kept on {kept.height}{": " + ", ".join(kept["set"]) if kept.height else ""}.
- Simulated sets of the suite, by how much LightGBM is ahead in R2 or accuracy: {simulated(sets)}.
- All sets of the reporting half of the suite, real and simulated: {suite_half(sets, "report")}.
- Cost: {costs(real)}.
- Out-of-bag loss over that of the test rows, geometric mean: {honesty(sets)}.

{tables}

{TRIED}
## Each set

The loss of each contestant, the rounds of the stage that were kept (0: none), and processor seconds of training.

{markdown(wide, columns)}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", default="uci,real,number,feature,sim,noise", help="kinds or names")
    parser.add_argument("--half", choices=HALVES, help="only the sets of one half")
    parser.add_argument("--contestants", default=",".join(CONTESTANTS), help="separated by commas")
    parser.add_argument("--least-rows", type=int, default=1000)
    parser.add_argument("--max-rows", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=30.0, help="no set is begun after that")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    begin = time.monotonic()
    kept = HERE / "results" / "refine.parquet"
    found = pl.read_parquet(kept).to_dicts() if kept.exists() else []
    asked = [name for name in options.contestants.split(",") if name in NAMES and _installed(name)]
    left: list[str] = []
    warm: bool | None = None  # whether numbers were predicted last
    for one in chosen_sets(options):
        own = [name for name in asked if name in (PLAIN, REFINED) or not one.name.startswith("noise/")]
        for round_ in range(options.rounds):
            done = {
                row["contestant"]: row["cpu_seconds"]
                for row in found
                if tuple(row[name] for name in KEY[:-1]) == (one.name, round_, options.trees, options.max_rows)
            }
            todo = [name for name in turned(own, round_) if name not in done]
            todo.sort(key=lambda name: name == EQUAL)  # it needs the seconds of another
            if todo and time.monotonic() - begin > 60 * options.minutes:
                left.append(one.name)
                break
            if todo:
                if warm != one.regression:  # loaded and compiled once, uncounted
                    few = argparse.Namespace(**vars(options) | {"trees": 2, "max_rows": min(options.max_rows, 1000)})
                    measured(one, 0, few, todo, 1.0)
                    warm = one.regression
                found += measured(one, round_, options, todo, done.get(REFINED, 1.0))
                print(*found[-len(todo) :], sep="\n", flush=True)
                kept.parent.mkdir(exist_ok=True)
                pl.DataFrame(found, infer_schema_length=None).write_parquet(kept)
    same = (pl.col("trees") == options.trees) & (pl.col("max_rows") == options.max_rows)
    text = report(pl.DataFrame(found, infer_schema_length=None).filter(same), options, left)
    (HERE / "refine.md").write_text(text, encoding="utf-8")
    print(text)


def _installed(contestant: str) -> bool:
    return contestant in (PLAIN, REFINED) or find_spec(contestant.partition("-")[0]) is not None


if __name__ == "__main__":
    main()
