"""Merged forests hold the trees of all, in order, predict as they would together, and say where they are from."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import bigforest
from bigforest.errors import ConfigError
from bigforest.events import Event, Notice
from bigforest.forest import nodes as forest_nodes
from bigforest.forest import parts
from bigforest.options.train_config import TrainConfig
from tests.commands import Run, run

__all__ = ["run"]  # a fixture


def frame(rows: int = 150) -> pl.DataFrame:
    draw = np.random.default_rng(2)
    columns = {name: draw.normal(size=rows) for name in ("a", "b", "c")}
    return pl.DataFrame(columns).with_columns(y=pl.Series(draw.integers(0, 3, rows)))


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forests of seeds 0 and 1, of 20 and of 7 trees; not to be touched."""
    folder = tmp_path_factory.mktemp("grown")
    for seed, trees in ((0, 20), (1, 7)):
        bigforest.train(frame(), out=folder / str(seed), seed=seed, trees=trees)
    return folder


def test_merge__trees_in_order(grown: Path, tmp_path: Path) -> None:
    merged = bigforest.merge([grown / "1", grown / "0"], tmp_path / "m")
    one, two = (bigforest.read_forest(grown / name).nodes.collect() for name in ("1", "0"))
    assert merged.nodes.collect().equals(pl.concat([one, two.with_columns(tree=pl.col("tree") + pl.lit(7, pl.UInt32))]))
    assert merged.trees == 27
    assert merged.config == TrainConfig(trees=27, seed=1, min_level=5).for_task("classification").with_defaults()
    assert merged.run["stage"].to_list() == ["merge"]
    merged.check()


def test_merge__forests_and_paths(grown: Path, tmp_path: Path) -> None:
    forests = (bigforest.read_forest(grown / name) for name in "01")
    assert bigforest.merge(forests, tmp_path / "m").trees == 27  # type: ignore[arg-type]
    for unfit in (5, None, [], "0", [grown / "0"]):
        with pytest.raises(bigforest.ConfigError, match="merging needs at least two forests"):
            bigforest.merge(unfit, tmp_path / "n")  # type: ignore[arg-type]


def test_merge__predicts_as_the_trees_do_together(grown: Path, tmp_path: Path) -> None:
    forests = [bigforest.read_forest(grown / name) for name in ("0", "1")]
    merged = bigforest.merge([grown / "0", grown / "1"], tmp_path / "m")
    table = frame(60).select("a", "b", "c")
    for vote in ("soft", "hard"):
        shares = [forest.predict_proba(table, vote=vote).to_numpy() * forest.trees for forest in forests]
        found = merged.predict_proba(table, vote=vote).to_numpy()
        np.testing.assert_allclose(found, sum(shares) / 27, rtol=1e-12)


def test_merge__importance_is_that_of_all_trees(grown: Path, tmp_path: Path) -> None:
    merged = bigforest.merge([grown / "0", grown / "1"], tmp_path / "m")
    gained = (
        merged.nodes.drop_nulls("feature")
        .group_by(pl.col("feature").cast(pl.String).alias("name"))
        .agg(gained=(pl.col("gain") * pl.col("weight")).sum())
        .collect()
    )
    joined = merged.features.join(gained, on="name", maintain_order="left")
    np.testing.assert_allclose(joined["importance"], joined["gained"] / joined["gained"].sum(), rtol=1e-9)


def test_merge__class_weights_of_a_table_and_of_its_store(tmp_path: Path) -> None:
    """Training on a table records the given classes, training on a store all of them, with the same weights."""
    store = bigforest.encode_store(frame(), tmp_path / "store", target="y", class_weight={"1": 3.0})
    forests = [
        bigforest.train(frame(), "y", class_weight={"1": 3.0}, trees=2, refine="off", out=tmp_path / "0"),
        bigforest.train(store, trees=3, seed=1, refine="off", out=tmp_path / "1"),
    ]
    assert bigforest.merge(forests, tmp_path / "m").trees == 5


def test_merge__says_where_the_trees_are_from(grown: Path, tmp_path: Path) -> None:
    bigforest.train(frame(), out=tmp_path / "2", seed=2, trees=3)
    bigforest.merge([grown / "0", grown / "1"], tmp_path / "m")
    merged = bigforest.merge([tmp_path / "2", tmp_path / "m"], tmp_path / "n")
    assert merged.origin is not None
    pieces = [(Path(piece.forest).name, piece.seed, piece.first_tree, piece.trees) for piece in merged.origin.merged]
    assert pieces == [("2", 2, 0, 3), ("0", 0, 3, 20), ("1", 1, 23, 7)]
    alone = bigforest.read_forest(grown / "0").origin
    assert alone is not None
    assert merged.origin.fingerprint == alone.fingerprint


def test_merge__has_no_out_of_bag_report_and_no_more_trees(grown: Path, tmp_path: Path) -> None:
    merged = bigforest.merge([grown / "0", grown / "1"], tmp_path / "m")
    assert not merged.has_oob
    with pytest.raises(bigforest.ConfigError, match=r"was merged from .*, so it has no out-of-bag report"):
        _ = merged.oob
    with pytest.raises(bigforest.ConfigError, match="was merged from other forests, so no trees can be added"):
        bigforest.train(resume=tmp_path / "m", trees=50)
    merged.write(tmp_path / "copy")
    assert bigforest.read_forest(tmp_path / "copy").nodes.collect().equals(merged.nodes.collect())


def test_merge__the_same_trees_twice_are_refused(grown: Path, tmp_path: Path) -> None:
    bigforest.train(frame(), out=tmp_path / "more", seed=1, trees=9)
    bigforest.merge([grown / "0", grown / "1"], tmp_path / "m")
    for paths in (
        [grown / "0", grown / "0"],
        [grown / "1", tmp_path / "more"],
        [tmp_path / "m", grown / "1"],
        [tmp_path / "more", grown / "0", grown / "1"],
    ):
        with pytest.raises(bigforest.ConfigError, match=r"same seed \d on the same table, so their first \d+ trees"):
            bigforest.merge(paths, tmp_path / "n")
    assert not (tmp_path / "n").exists()


def test_merge__same_seed_on_other_values_is_no_repetition(grown: Path, tmp_path: Path) -> None:
    bigforest.train(frame().with_columns(a=pl.col("a") * 2), out=tmp_path / "other", seed=0, trees=4)
    merged = bigforest.merge([grown / "0", tmp_path / "other"], tmp_path / "m")
    assert merged.trees == 24
    assert merged.origin is not None
    assert merged.origin.fingerprint == ""


@pytest.mark.parametrize("option", ["keep_votes", "keep_targets"])
def test_merge__keeps_votes_and_targets_if_all_forests_have_them(tmp_path: Path, option: str) -> None:
    table = frame().with_columns(y=pl.col("a") + pl.col("b")) if option == "keep_targets" else frame()
    kept, other, bare = (
        bigforest.train(
            table, "y", trees=3, seed=seed, threads=1, refine="off", **({} if seed == 2 else {option: True})
        )
        for seed in range(3)
    )

    def use(forest: bigforest.Forest) -> pl.DataFrame:
        return forest.predict(table, quantiles=[0.5]) if option == "keep_targets" else forest.oob_votes.collect()

    for number, forests in enumerate([(kept, bare), (bare, kept)]):
        heard: list[Event] = []
        mixed = bigforest.merge(forests, tmp_path / str(number), listener=heard.append)
        told = [event.message for event in heard if isinstance(event, Notice)]
        assert told == [f"only some of the forests have the files of {option}, so the merged forest has none"]
        mixed.check()
        assert not getattr(mixed.config, option)
        with pytest.raises(ConfigError, match=option):
            use(mixed)
    whole = use(bigforest.merge([kept, other], tmp_path / "whole"))
    assert whole.columns == use(kept).columns
    if option == "keep_votes":
        assert whole.height == use(kept).height + use(other).height


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (frame(149), {}, "they have 150 and 149 rows"),
        (frame().vstack(frame(1).with_columns(y=pl.lit(None, pl.Int64))), {}, "0 and 1 of their rows were not used"),
        (frame(), {"class_weight": "balanced"}, "the weights of rows differ"),
        (frame().drop("c"), {}, "the feature 'c' is not in both"),
        (frame().select("b", "a", "c", "y"), {}, "the feature 'a' has another place, type or number of values"),
        (frame().with_columns(y=pl.col("y") % 2), {}, "the target 'y' has another type, or other classes or numbers"),
        (frame(), {"mtry": "all"}, "different options: mtry 'sqrt' and 'all'"),
        (frame(), {"bootstrap": False}, "different options: bootstrap True and False"),
    ],
)
def test_merge__forests_that_do_not_go_together(
    grown: Path, tmp_path: Path, data: pl.DataFrame, options: dict[str, object], message: str
) -> None:
    bigforest.train(data, "y", out=tmp_path / "other", seed=9, trees=2, **options)
    with pytest.raises(bigforest.ConfigError, match=message):
        bigforest.merge([grown / "0", tmp_path / "other"], tmp_path / "m")
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("first", "both", "difference"),
    [
        ({"missing": ["-9", "x"]}, {"exclude": ["w"]}, "the words of missing are '-9', 'x' and none"),
        ({}, {"weight": "w"}, "the weights of rows differ"),
        ({}, {"group": "w"}, "the groups of rows differ"),
    ],
)
def test_merge__names_what_differs_beside_features_and_target(
    tmp_path: Path, first: dict[str, Any], both: dict[str, Any], difference: str
) -> None:
    for number, options in enumerate([first | both, both]):
        rows = "".join(f"{i},{i % 2},{i % (2 + number) + 1}\n" for i in range(40))
        (tmp_path / f"{number}.csv").write_text(f"x,y,w\n{rows}")
        bigforest.train(tmp_path / f"{number}.csv", "y", out=tmp_path / f"{number}", trees=2, seed=number, **options)
    with pytest.raises(ConfigError, match=difference):
        bigforest.merge([tmp_path / "0", tmp_path / "1"], tmp_path / "both")


def test_merge__needs_two_sound_forests(grown: Path, tmp_path: Path) -> None:
    for paths in ([], [grown / "0"], str(grown / "0")):
        with pytest.raises(bigforest.ConfigError, match="at least two"):
            bigforest.merge(paths, tmp_path / "m")
    shutil.copytree(grown / "1", tmp_path / "damaged")
    part = min((tmp_path / "damaged/trees").iterdir())
    content = bytearray(part.read_bytes())
    content[len(content) // 3] ^= 1
    part.write_bytes(content)
    with pytest.raises(bigforest.FormatError, match="damaged"):
        bigforest.merge([grown / "0", tmp_path / "damaged"], tmp_path / "m")
    part.unlink()
    with pytest.raises(bigforest.FormatError, match=r"damaged|not a forest"):
        bigforest.merge([grown / "0", tmp_path / "damaged"], tmp_path / "m")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["damaged"]


def test_copies__any_size_of_batch(grown: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = bigforest.merge([grown / "0", grown / "1"], tmp_path / "m").nodes.collect()
    monkeypatch.setattr(parts, "PIECE_BYTES", 500)
    monkeypatch.setattr(forest_nodes, "GROUP_NODES", 50)
    assert bigforest.merge([grown / "0", grown / "1"], tmp_path / "n").nodes.collect().equals(expected)


def test_command__merges_and_shows(run: Run, grown: Path, tmp_path: Path) -> None:
    facts = run.json("merge", grown / "0", grown / "1", "--out", tmp_path / "m")
    assert (facts["trees"], facts["oob"]) == (27, None)
    assert [(piece["seed"], piece["first_tree"], piece["trees"]) for piece in facts["merged"]] == [
        (0, 0, 20),
        (1, 20, 7),
    ]
    run("merge", grown / "0", grown / "1", "--out", tmp_path / "m", "--overwrite")
    assert "merged from" in run.out
    run("inspect", tmp_path / "m")
    assert "because the forest was merged" in run.out
    run("oob", tmp_path / "m")
    assert (run.code, run.err.count("\n")) == (2, 1)


def test_merge__oblique_forests_on_ranks(tmp_path: Path) -> None:
    options = {"family": "sparse-oblique", "ranks": True, "projections": 5}
    forests = [bigforest.train(frame(), out=tmp_path / str(seed), seed=seed, trees=3, **options) for seed in (0, 1)]
    merged = bigforest.merge([tmp_path / "0", tmp_path / "1"], tmp_path / "m")
    one, two = (forest.nodes.collect() for forest in forests)
    assert one["terms"].null_count() < one.height
    assert merged.nodes.collect().equals(pl.concat([one, two.with_columns(tree=pl.col("tree") + pl.lit(3, pl.UInt32))]))
    new = frame(60)
    shares = [3 * forest.predict_proba(new).to_numpy() for forest in forests]
    np.testing.assert_allclose(merged.predict_proba(new).to_numpy(), sum(shares) / 6, rtol=1e-12)


@pytest.mark.parametrize("order", ["prune, calibrate", "calibrate, merge", "calibrate, merge, prune"])
def test_calibrated_trees__are_explained_on_the_training_table(grown: Path, tmp_path: Path, order: str) -> None:
    """Their leaves have the counts of other rows, so the rows of the bag are not compared with them."""
    table, forest = frame(), bigforest.read_forest(grown / "0")
    for number, name in enumerate(order.split(", ")):
        out = tmp_path / str(number)
        if name == "merge":
            forest = bigforest.merge([forest, grown / "1"], out)
        else:
            revise = bigforest.prune_forest if name == "prune" else bigforest.calibrate_forest
            forest = revise(forest, table.head(50), out)
    assert forest.revised == ("pruned" if "prune" in order else "calibrated")
    assert forest.explain(table, parts="permutation")["permutation"].height == len(forest.spec.features)


def test_merge__refuses_ranks_of_another_table(tmp_path: Path) -> None:
    one = frame()
    for seed, own in enumerate([one, one.with_columns(pl.col("a") * 2)]):
        bigforest.train(own, out=tmp_path / str(seed), seed=seed, trees=2, ranks=True)
    with pytest.raises(ConfigError, match="the ranks of values differ"):
        bigforest.merge([tmp_path / "0", tmp_path / "1"], tmp_path / "m")


def test_merge__of_subspaces_of_mixed_sizes(tmp_path: Path) -> None:
    """The merged forest keeps the sizes; those of one size alone, or in another order, are other options."""
    options = {"family": "subspace-cap", "trees": 2}
    for name, seed, sizes in (("0", 0, "1,2"), ("1", 1, "1, 2"), ("other", 2, "2,1"), ("one", 3, 2)):
        bigforest.train(frame(), out=tmp_path / name, seed=seed, subspace=sizes, **options)
    merged = bigforest.merge([tmp_path / "0", tmp_path / "1"], tmp_path / "m")
    assert merged.config.subspace == "1,2"
    terms = merged.nodes.select("tree", "terms").explode("terms").unnest("terms").drop_nulls().collect()
    assert terms.group_by("tree").agg(pl.col("feature").n_unique()).sort("tree")["feature"].to_list() == [1, 2, 1, 2]
    merged.check()
    for unfit in ("other", "one"):
        with pytest.raises(ConfigError, match="subspace"):
            bigforest.merge([tmp_path / "0", tmp_path / unfit], tmp_path / "n")
