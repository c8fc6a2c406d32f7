"""Trees read back from the parts of a forest, to be written again in other parts: added to, or merged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from bigforest.config import TrainConfig
from bigforest.encode.dataspec import DataSpec
from bigforest.errors import FormatError
from bigforest.forest.files import Header, header_of, read_table
from bigforest.forest.parts import Nodes, check_nodes, check_parts, part_paths
from bigforest.forest.table import NODES, TreeArrays, part_path, write_part


def read_part(path: Path, header: Header, first_tree: int) -> list[TreeArrays]:
    """The checked trees of a part of the forest `header`, which must begin with tree `first_tree`.

    Raises FormatError when the part is damaged or of another forest.
    """
    table = read_table(path, "trees", NODES, header.identity)[1]
    nodes = check_nodes(table, header.spec, path)
    if nodes.first_tree != first_tree:
        raise FormatError(f"{path} begins with tree {nodes.first_tree}, not {first_tree}; the forest is damaged")
    return _trees(table, nodes)


def stored_trees(directory: Path) -> Iterator[TreeArrays]:
    """All trees of the forest in `directory`, in order, one part at a time in memory. Raises FormatError."""
    paths = part_paths(directory)
    header = check_parts(paths)
    found = 0
    for path in paths:
        trees = read_part(path, header, found)
        found += len(trees)
        yield from trees
    if found != header.config.trees:
        raise FormatError(f"{directory} holds {found} trees, not {header.config.trees}; the forest is damaged")


def is_finished(directory: Path, group: range, spec: DataSpec, config: TrainConfig) -> bool:
    """Whether the part of the trees `group` is there, whole.

    Raises FormatError when it is damaged, is of another forest or holds other trees.
    """
    path = part_path(directory, group.start)
    if not path.exists():
        return False
    try:
        found = len(read_part(path, header_of(spec, config), group.start))
    except FormatError as error:
        raise FormatError(f"{error}; remove this file and resume the run, which grows its trees again") from error
    if found != len(group):
        raise FormatError(f"{path} holds {found} trees, not {len(group)}; remove it and resume the run")
    return True


def recut(source: Path, groups: Sequence[range], directory: Path, spec: DataSpec, config: TrainConfig) -> None:
    """Write the trees of the forest in `source` as the parts `groups` of the forest in `directory`.

    groups  the first parts of that forest, as grow/forest.py cuts it; the trees they cover must be in `source`.

    A part is written as growing its trees would have written it, byte for byte.
    """
    if all(part_path(directory, group.start).exists() for group in groups):
        return
    trees = stored_trees(source)
    for group in groups:
        write_part(directory, group.start, [next(trees) for _ in group], spec, config)


def _trees(table: pa.Table, nodes: Nodes) -> list[TreeArrays]:
    column = {name: table.column(name).chunk(0) for name in ("left", "right", "depth", "threshold", "gain", "weight")}
    whole = TreeArrays(
        feature=nodes.feature,
        left=column["left"].fill_null(0).to_numpy(),
        right=column["right"].fill_null(0).to_numpy(),
        depth=column["depth"].to_numpy(),
        threshold=column["threshold"].fill_null(np.nan).to_numpy(),
        gain=column["gain"].fill_null(np.nan).to_numpy(),
        weight=column["weight"].to_numpy(),
        counts=nodes.counts,
    )
    cuts = nodes.starts[1:-1]
    pieces = [np.split(array, cuts) for array in whole]
    return [TreeArrays(*arrays) for arrays in zip(*pieces, strict=True)]
