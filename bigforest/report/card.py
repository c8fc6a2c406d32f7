"""Two sections of the report: the forest with its data and options, and how to reproduce it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from bigforest.common.errors import counted, listed
from bigforest.forest.contents import Contents
from bigforest.plot.draw import one_line
from bigforest.predict.html import chosen_of
from bigforest.report import page
from bigforest.schema.config import TrainConfig
from bigforest.schema.train_options import options_in_use, value_text

_LISTED = 10
_VERSIONS = ("bigforest", "python", "numpy", "numba", "polars")


def card(forest: Contents) -> list[str]:
    """The model card: table, target, features, trees, options."""
    spec, config, origin = forest.spec, forest.config, forest.origin
    grown_on = "a table in memory" if origin is None or origin.data is None else origin.data
    if origin is not None and origin.merged:
        grown_on = "; ".join(f"{piece.forest} ({counted(piece.trees, 'tree')})" for piece in origin.merged)
    pairs = [
        ("target", f"{spec.target.name}: {_target(forest)}"),
        ("grown on" if not (origin and origin.merged) else "merged from", grown_on),
        (
            "rows",
            f"{spec.rows:,}" + (f", {spec.dropped:,} more without a target were left out" if spec.dropped else ""),
        ),
        ("features", f"{len(spec.features):,}: {_listed(spec.feature_names)}"),
        ("trees", f"{forest.trees:,}, family {config.family}"),
    ]
    if origin is not None and origin.exclude:
        pairs.append(("columns left out", _listed(list(origin.exclude))))
    if forest.revised:
        pairs.append(("since then", forest.revised))
    pieces = []
    if forest.is_tuned:
        pairs.append(("chosen", chosen_of(forest)))
        candidates = forest.tuning.select(
            "candidate", "trees", "loss", "difference", "standard_error", "seconds", "retired"
        )
        pieces.append(page.folded("The candidates", page.html_table(candidates.columns, candidates.rows())))
    options = [
        (name, value_text(value))
        for name, value in options_in_use(asdict(config)).items()
        if name not in ("trees", "family")
    ]
    return [page.facts(pairs), *pieces, page.folded("All options", page.facts(options))]


def again(forest: Contents) -> list[str]:
    """The command, the call, the versions, and what the table is known by."""
    run, origin = forest.run.row(0, named=True), forest.origin
    pairs = [("seed", str(forest.config.seed)), *((name, str(run[name])) for name in _VERSIONS)]
    if origin is not None and origin.fingerprint:
        pairs.append(("fingerprint of the table", origin.fingerprint))
    if origin is not None and origin.merged:
        note = page.text("The forest was merged from others; each has its own seed and table.")
        return [note, page.facts(pairs)]
    return [
        page.text("The same table, options and seed give the same forest, for any number of threads."),
        page.code(shlex.join(command(forest))),
        page.facts(pairs),
    ]


def command(forest: Contents) -> list[str]:
    """The words of the command that grows the forest again; DATA stands for a table that was in memory."""
    origin, config = forest.origin, forest.config
    words = ["bigforest", "train", (origin.data if origin is not None else None) or "DATA"]
    words += ["--target", forest.spec.target.name]
    for column in origin.exclude if origin is not None else ():
        words += ["--exclude", column]
    plain = TrainConfig.of(family=config.family).settled(forest.spec.target.task)
    for name, value in options_in_use(asdict(config)).items():
        if name in ("trees", "seed", "task") or value != getattr(plain, name):
            words += list(_flags(name, value))
    return words


def _flags(name: str, value: Any) -> Iterator[str]:
    flag = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        yield flag if value else f"--no-{name.replace('_', '-')}"
    elif name == "class_weight" and isinstance(value, tuple):
        yield from (flag, json.dumps({str(label): weight for label, weight in value}, ensure_ascii=False))
    elif isinstance(value, tuple):
        for one in value:
            yield from (flag, str(one))
    else:
        yield from (flag, str(value))


def _target(forest: Contents) -> str:
    if forest.is_regression:
        return "a number"
    return f"{counted(len(forest.classes), 'class')}, {_listed(forest.classes)}"


def _listed(values: list[Any]) -> str:
    return listed([one_line(value) for value in values], _LISTED)
