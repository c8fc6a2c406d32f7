"""One case: which original is damaged and how, and everything that is then tried on it."""

from __future__ import annotations

import json
import random
import shutil
import traceback
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq

import bigforest
from tests.fuzz import corpus, damage

KINDS = ("forest", "store", "table")
# Formats of exports whose libraries are installed.
EXPORTS = ["sql", *(name for name in ("onnx", "treelite", "sklearn") if find_spec(name))]
Step = tuple[str, Callable[[], Any]]


def damaged(kind: str, originals: Path, seed: int, name: str | None, folder: Path) -> tuple[Path, str]:
    """A damaged copy, in `folder`, of an original; and what was done to it. `name` is that of a case of the corpus."""
    draw = random.Random(f"{kind} {seed}")
    if name is not None:
        return corpus.CASES[name](originals, folder)
    found = sorted((originals / kind).iterdir())
    original = found[draw.randrange(len(found))]
    copy = folder / original.name
    shutil.copytree(original, copy) if original.is_dir() else shutil.copyfile(original, copy)
    done = []
    for _ in range(draw.choice([1, 1, 1, 2])):
        if any("another file" in what for what in done):
            break  # a pipe would be waited for
        try:
            done.append({"forest": _forest, "store": _store, "table": _table}[kind](draw, copy))
        except Exception as error:  # not everything can be written to Parquet, and what is damaged not always read
            done.append(f"nothing ({type(error).__name__})")
    return copy, f"{original.name}: {', '.join(done)}"


def _forest(draw: random.Random, forest: Path) -> str:
    files = sorted(path for path in forest.rglob("*") if path.is_file())
    path, act = draw.choice(files), draw.random()
    if draw.random() < 0.2:
        path = draw.choice([path for path in files if path.parent.name == "trees"])
        damage.change_splits(draw, path, "abcdefg")
        return f"splits of {path.name}"
    name = path.relative_to(forest)
    if act < 0.35:
        damage.change_columns(draw, path)
        return f"columns of {name}"
    if act < 0.55:
        damage.change_metadata(draw, files)
        return "metadata"
    if act < 0.75:
        damage.flip(draw, path)
        if draw.random() < 0.8:
            damage.reseal(path)
            return f"bits of {name}, sealed again"
        return f"bits of {name}"
    if act < 0.83:
        damage.cut(draw, path)
        return f"bytes of {name}"
    if act < 0.93:
        damage.replace(draw, path)
        return f"another file than {name}"
    other = draw.choice([*files, path.with_name(draw.choice(["part-x.parquet", "part-" + "9" * 30 + ".parquet"]))])
    shutil.copyfile(path, other) if other != path else path.unlink()
    return f"{name} as {other.relative_to(forest)}"


def _store(draw: random.Random, store: Path) -> str:
    manifest = store / "manifest.json"
    raw = json.loads(manifest.read_text())
    files = sorted(store.iterdir())
    path, act = draw.choice(files), draw.random()
    if act < 0.4:
        part = draw.choice([raw, raw["dataspec"], raw["dataspec"]["features"][0], raw["dataspec"]["target"]])
        part.update(damage.change_json(draw, part, 1))
        manifest.write_text(json.dumps(raw))
        return "manifest"
    if act < 0.8:
        if path == manifest:
            damage.flip(draw, path)
        elif path.suffix == ".parquet":
            damage.change_columns(draw, path)
        elif draw.random() < 0.5:
            damage.flip(draw, path)
        else:
            _change_numbers(draw, path)
        if draw.random() < 0.9 and path != manifest:
            _reseal_store(store, path, raw)
        return f"values of {path.name}"
    if act < 0.9:
        damage.cut(draw, path)
        if draw.random() < 0.5 and path != manifest:
            raw["bytes"][path.name] = path.stat().st_size
            manifest.write_text(json.dumps(raw))
        return f"bytes of {path.name}"
    damage.replace(draw, path)
    return f"another file than {path.name}"


def _change_numbers(draw: random.Random, path: Path) -> None:
    kinds = {"low.bin": "<f8", "high.bin": "<f8", "codes-u8.bin": "u1", "groups.bin": "<u4", "row_numbers.bin": "<u8"}
    numbers = np.fromfile(path, kinds.get(path.name, "<u2"))
    for _ in range(draw.randint(1, 3)):
        some = (
            [np.nan, np.inf, -np.inf, 1e308, -0.0] if numbers.dtype.kind == "f" else [0, 1, np.iinfo(numbers.dtype).max]
        )
        numbers[draw.randrange(numbers.size)] = draw.choice([*some, numbers[draw.randrange(numbers.size)]])
    numbers.tofile(path)


def _reseal_store(store: Path, path: Path, raw: dict[str, Any]) -> None:
    """Make the checksums of a store agree with its files again, of which `path` has changed."""
    spec = raw["dataspec"]
    if path.name.startswith("codes-") or path.name == "target.bin":
        sums = np.fromfile(store / "checksums.bin", "<u4")  # of one block for each feature, then for the target
        content = path.read_bytes()
        if path.name == "target.bin":
            sums[-1] = zlib.crc32(content)
        else:
            size = int(path.stem.removeprefix("codes-u")) // 8
            for number, feature in enumerate(spec["features"]):
                if feature["width"] == size:
                    begin = feature["slot"] * spec["rows"] * size
                    sums[number] = zlib.crc32(content[begin : begin + spec["rows"] * size])
        sums.tofile(store / "checksums.bin")
    raw["bytes"] |= {name: (store / name).stat().st_size for name in raw["bytes"]}
    raw["crc32"] |= {name: zlib.crc32((store / name).read_bytes()) for name in raw["crc32"]}
    (store / "manifest.json").write_text(json.dumps(raw))


def _table(draw: random.Random, table: Path) -> str:
    act = draw.random()
    if act < 0.5 and table.suffix == ".parquet":
        damage.change_columns(draw, table)
        return "columns"
    if act < 0.85:
        damage.flip(draw, table, 8)
        return "bits"
    if act < 0.95:
        damage.cut(draw, table)
        return "bytes"
    damage.replace(draw, table)
    return "another file"


def steps(kind: str, place: Path, what: str, originals: Path, folder: Path) -> Iterator[Step]:
    """What is tried on a damaged forest, store or table, one after the other."""
    if kind == "forest":
        return forest_steps(place, what, originals, folder)
    return {"store": store_steps, "table": table_steps}[kind](place, originals, folder)


def forest_steps(place: Path, what: str, originals: Path, folder: Path) -> Iterator[Step]:
    """Everything that there is to do with a forest."""
    rows = pl.read_parquet(originals / "rows.parquet", use_pyarrow=True)
    found: list[bigforest.Forest] = []
    yield "read_forest", lambda: found.append(bigforest.read_forest(place))
    for forest in found:
        yield "same leaves", lambda forest=forest: _compare_leaves(forest, rows)
        if predicts_as_before(place.name, what):
            yield "same predictions", lambda forest=forest: _compare(forest, originals / "forest" / place.name, rows)
        yield from _uses(forest, rows, originals, folder)
    yield "overwrite", lambda: bigforest.read_forest(originals / "other.forest").write(place, overwrite=True)


def predicts_as_before(original: str, what: str) -> bool:
    """True if a forest with this damage predicts as the original, or not at all.

    Checksums find damage that is not sealed again, and no prediction needs the report.
    """
    name, _, acts = what.partition(": ")
    return name == original and all(
        " of oob/" in act
        or not (act.startswith(("columns of", "metadata", "splits of")) or act.endswith("sealed again"))
        for act in acts.replace(", sealed again", " sealed again").split(", ")
    )


def _compare(forest: bigforest.Forest, original: Path, rows: pl.DataFrame) -> None:
    """Raise an error if a forest predicts other numbers or classes than the original."""
    given, wanted = (one.predict(rows, threads=1) for one in (forest, bigforest.read_forest(original)))
    assert given.equals(wanted), "other predictions than those of the undamaged forest"


def _compare_leaves(forest: bigforest.Forest, rows: pl.DataFrame) -> None:
    """Raise an error if rows reach other leaves than by walking down the nodes of the files."""
    found = forest.apply(rows, threads=1)
    nodes = [node for path in forest.part_files for node in pq.read_table(path).to_pylist()]
    trees = [list(tree) for _, tree in groupby(nodes, itemgetter("tree"))]
    wanted = [[_leaf(tree, row) for tree in trees] for row in rows.iter_rows(named=True)]
    assert found.tolist() == wanted, "other leaves than those of the files"


def _leaf(tree: list[dict[str, Any]], row: dict[str, Any]) -> int:
    place = 0
    while (node := tree[place])["kind"] != "leaf":
        cell = None if node["feature"] is None else row[node["feature"]]
        if node["kind"] == "category":
            left = node["default_left"] != (cell in node["levels"])
        elif node["kind"] == "oblique":
            left = sum(term["weight"] * row[term["feature"]] for term in node["terms"]) <= node["threshold"]
        else:
            left = node["default_left"] if cell is None or cell != cell else cell <= node["threshold"]
        place = node["left" if left else "right"]
    return place


def _revise(revise: Callable[[], Any]) -> None:
    """Call a revision. A kind of forest or of labels that it does not support is not damage."""
    with suppress(bigforest.ConfigError, bigforest.DataError):
        revise()


def _export(forest: bigforest.Forest, to: str) -> None:
    """Convert a forest. What a format does not support is not damage."""
    with suppress(bigforest.ConfigError):
        getattr(forest, f"to_{to}")()


def _uses(forest: bigforest.Forest, rows: pl.DataFrame, originals: Path, folder: Path) -> Iterator[Step]:
    from bigforest_cli.facts import inspection_facts

    yield "check", forest.check
    yield "predict", lambda: forest.predict(rows, threads=1)
    yield "nodes", lambda: forest.nodes.collect()
    yield "inspect", lambda: inspection_facts(forest, trees=True, features=True)
    yield "write", lambda: forest.write(folder / "copy")
    yield "oob", lambda: (repr(forest.oob), forest.oob.rows.collect(), forest.oob.curve, forest.oob.metrics)
    if forest.has_validation:
        yield "validation", lambda: forest.validation
    if forest.is_tuned:
        yield "tuning", lambda: forest.tuning
    if not forest.is_regression:
        yield "proba", lambda: forest.predict_proba(rows, threads=1)
    yield "expr", lambda: rows.select(forest.expr())
    yield "tree", lambda: (len(forest[0]), forest[forest.trees - 1].depth)
    if forest.files.is_refined:
        yield "refinement", lambda: forest.refinement
    for to in EXPORTS:
        yield to, lambda to=to: _export(forest, to)
    if forest.has_targets:
        yield "quantiles", lambda: forest.predict(rows, quantiles=[0.1, 0.9], threads=1)
    for name, revise in (("calibrate", bigforest.calibrate_forest), ("prune", bigforest.prune_forest)):
        made = folder / name
        yield name, lambda revise=revise, made=made: _revise(lambda: revise(forest, rows, made, threads=1))
    both = [forest, originals / "other.forest"]
    yield "merge", lambda: _revise(lambda: bigforest.merge(both, folder / "merged"))


def store_steps(place: Path, originals: Path, folder: Path) -> Iterator[Step]:
    """Train on a store, and write over it."""
    from bigforest.store.store import Store

    yield "plan", lambda: bigforest.plan_training(place, threads=1)
    yield "open", lambda: Store.open(place)
    yield "train", lambda: bigforest.train(place, trees=2, max_depth=4, threads=1).check()
    yield "passes", lambda: bigforest.train(place, trees=1, max_depth=3, threads=1, memory="400MB").check()
    yield "overwrite", lambda: bigforest.encode_store(originals / "rows.parquet", place, target="y", overwrite=True)


def table_steps(place: Path, originals: Path, folder: Path) -> Iterator[Step]:
    """Train on a table, and predict for it."""
    forest = bigforest.read_forest(originals / "other.forest")
    yield "plan", lambda: bigforest.plan_training(place, "y", threads=1)
    yield "train", lambda: bigforest.train(place, "y", trees=1, max_depth=4, threads=1)
    yield "numbers", lambda: bigforest.train(place, "z", trees=1, max_depth=4, threads=1, task="regression", weight="w")
    yield "predict", lambda: bigforest.predict_file(forest, place, folder / "p.parquet", threads=1, keep=["x0"])
    yield "calibrate", lambda: bigforest.calibrate_forest(forest, place, folder / "calibrated", threads=1)


def run(kind: str, place: Path, what: str, originals: Path, folder: Path, tell: Callable[[str], None]) -> str:
    """Try everything on what is damaged; "fine" and how often it was refused, or what was raised that is no
    BigForestError, and by what. `tell` hears of the steps."""
    refused = 0
    for step, call in steps(kind, place, what, originals, folder):
        tell(f"{what}: {step}")
        try:
            call()
        except bigforest.BigForestError:
            refused += 1
        except BaseException as error:
            return f"{what}: {step}: {''.join(traceback.format_exception(error)[-4:])}"
    return f"fine {refused}"
