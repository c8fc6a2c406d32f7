"""Merging forests that were grown separately on the same table.

The trees are in the order of the forests, renumbered, so the merged forest predicts as the forests together. Its
run.parquet keeps the origin of each tree (forest/run_file.py); its configuration has the number of all trees, and
the seed of the first forest, which is used for random draws in prediction only. There is no out-of-bag report: the bags
follow from several seeds, and votes cannot be recovered exactly from the reports of the forests.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from itertools import combinations
from pathlib import Path

from bigforest.columns.dataspec import DataSpec
from bigforest.errors import ConfigError, damaged_forest
from bigforest.events import Listener
from bigforest.forest.decreases import importance
from bigforest.forest.files import write_features, write_levels
from bigforest.forest.forest_files import FOREST
from bigforest.forest.format import CALIBRATED, PRUNED
from bigforest.forest.leaf_targets import copy_targets
from bigforest.forest.leaf_votes import copy_votes
from bigforest.forest.parts import copy_parts
from bigforest.forest.ranks import write_ranks
from bigforest.forest.run_file import Choices, MergedForest, Origin, Power, Shrinkage, write_run
from bigforest.options.values import MAX_TREES
from bigforest.predict.forest import Forest, opened_forest, read_forest, trees_alone
from bigforest.progress import watching
from bigforest.storage.atomic import staged


def merge(
    paths: Sequence[Forest | str | Path], out: str | Path, *, overwrite: bool = False, listener: Listener | None = None
) -> Forest:
    """Merge forests into the forest `out`, with trees in the order of the forests.

    They must have the same dataspec and the same options except for trees and seed. If they are shrunk by different
    lambdas, the merged forest is shrunk by their mean, weighted by the numbers of trees. Memory: a row group of nodes.

    Parameters
    ----------
    paths : sequence of Forest, str or Path
        The forests, at least two.
    out : str or Path
        Folder of the new forest.
    overwrite : bool, default=False
        Replace an existing forest.
    listener : callable, optional
        Called with notices: boosted stages are left out of merged forests.

    Returns
    -------
    Forest

    Raises
    ------
    ConfigError
        If the forests do not match, or have trees in common.
    FormatError
        For a damaged forest.
    OutputExistsError

    Examples
    --------
    >>> import bigforest as bf
    >>> rows = {"size": [1.0, 2.0, 3.0, 4.0], "kind": ["a", "a", "b", "b"]}
    >>> parts = [bf.train(rows, "kind", trees=5, seed=seed, out=f"{seed}.forest") for seed in (1, 2)]
    >>> bf.merge(parts, "both.forest").trees
    10
    """
    sources = [] if isinstance(paths, str | Path) or not isinstance(paths, Iterable) else list(paths)
    if len(sources) < 2:
        raise ConfigError("merging needs at least two forests; give more paths")
    begin = time.perf_counter()
    forests = list(map(opened_forest, sources))
    first = forests[0]
    if first.config.boosts:
        raise ConfigError(
            f"{first.directory} was grown with sampling {first.config.sampling!r}: each tree follows from those before "
            "it, so it cannot be merged; train one forest with more trees"
        )
    with watching(listener) as listener:
        forests = trees_alone(forests, "merging", listener)
    first = forests[0]
    for other in forests[1:]:
        _check_alike(first, other)
    votes = all(forest.has_votes for forest in forests)
    config = replace(first.config, trees=sum(forest.trees for forest in forests), keep_votes=votes)
    merged, origin = replace(first.files.header, config=config), _merged_origin(forests)
    with staged(out, FOREST, overwrite=overwrite) as directory, ExitStack() as reading:
        for forest in forests:
            reading.enter_context(forest.files.same_run())
        directory.mkdir()
        written = 0
        for forest in forests:
            copy_parts(forest.directory, written, directory, merged)
            written += forest.trees
        write_features(directory, merged, importance(directory, merged))
        write_levels(directory, merged)
        if first.ranks is not None:
            write_ranks(directory, first.ranks.knots(), merged)
        headers = [(forest.directory, forest.files.header) for forest in forests]
        if config.keep_targets:
            copy_targets(headers, directory, merged)
        if config.keep_votes:
            copy_votes(headers, directory, merged)
        # Revisions of trees, which merging keeps.
        revised = [stage for forest in forests for stage in forest.files.stages if stage in (PRUNED, CALIBRATED)]
        seconds = {**dict.fromkeys(revised, 0.0), "merge": time.perf_counter() - begin}
        # Mean lambda and power, weighted by trees, the power in quarters: the loss is flat around the best ones.
        trees = [forest.trees for forest in forests]
        lambdas, powers = ([getattr(forest, name).amount for forest in forests] for name in ("shrinkage", "power"))
        choices = Choices(Shrinkage(_mean(lambdas, trees)), Power(round(4 * _mean(powers, trees)) / 4))
        write_run(directory, seconds, 1, merged, origin, choices)
    return read_forest(out)


def _check_alike(first: Forest, other: Forest) -> None:
    where = f"{first.directory} and {other.directory}"
    if first.spec != other.spec:
        raise ConfigError(f"{where} were grown on different tables: {_difference(first.spec, other.spec)}; leave one")
    ours, theirs = asdict(first.config), asdict(other.config)
    for name in ours:
        if name not in ("trees", "seed", "refine") and ours[name] != theirs[name]:
            raise ConfigError(
                f"{where} were grown with different options: {name} {ours[name]!r} and {theirs[name]!r}; "
                "only trees and seed may differ"
            )
    if first.ranks is not None and other.ranks is not None and not first.ranks.equal(other.ranks):
        raise ConfigError(f"{where} were grown on different tables: the ranks of values differ; leave one")
    if not first.levels.equal(other.levels):
        raise ConfigError(f"{where} were grown on different tables: the levels of categories differ; leave one")


def _difference(first: DataSpec, other: DataSpec) -> str:
    if first.target.name != other.target.name:
        return f"the targets are {first.target.name!r} and {other.target.name!r}"
    if first.target != other.target:
        return f"the target {first.target.name!r} has another type, or other classes or numbers"
    if (first.rows, first.dropped) != (other.rows, other.dropped):
        return f"they have {first.rows} and {other.rows} rows"
    names = [set(spec.feature_names) for spec in (first, other)]
    if odd := sorted(names[0] ^ names[1]):
        return f"the feature {odd[0]!r} is not in both"
    pairs = zip(first.features, other.features, strict=True)
    odd_name = next(ours.name for ours, theirs in pairs if ours != theirs)
    return f"the feature {odd_name!r} has another place, type or number of values"


def _mean(amounts: Sequence[float], trees: Sequence[int]) -> float:
    if len(set(amounts)) == 1:
        return amounts[0]
    return math.fsum(amount * (count / sum(trees)) for amount, count in zip(amounts, trees, strict=True))


def _merged_origin(forests: Sequence[Forest]) -> Origin:
    """Return the origin of the trees of the merged forest. Raises ConfigError when the same tree would occur twice."""
    pieces: list[MergedForest] = []
    for forest in forests:
        before = sum(piece.trees for piece in pieces)
        origin = forest.origin
        if origin is None:
            raise ConfigError(f"{forest.directory} does not record its training table; train it again to merge it")
        alone = MergedForest(str(forest.directory.resolve()), forest.config.seed, 0, forest.trees, origin.fingerprint)
        merged = origin.merged or (alone,)
        if sum(piece.trees for piece in merged) != forest.trees:
            raise damaged_forest(f"{forest.directory}: the origin does not cover all trees")
        pieces += [replace(piece, first_tree=piece.first_tree + before) for piece in merged]
    for first, second in combinations(pieces, 2):
        if (first.seed, first.fingerprint) == (second.seed, second.fingerprint):
            raise ConfigError(
                f"{first.forest} and {second.forest} were grown with the same seed {first.seed} on the same table, so "
                f"their first {min(first.trees, second.trees)} trees are the same; train one of them with another seed"
            )
    if sum(piece.trees for piece in pieces) > MAX_TREES:
        raise ConfigError(f"together the forests have more than {MAX_TREES} trees; merge fewer")
    tables = {piece.fingerprint for piece in pieces}
    return Origin(None, (), tables.pop() if len(tables) == 1 else "", tuple(pieces))
