"""Reading the nodes of a forest from its parts, some at a time, as checks.py lets them pass."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bigforest.common.errors import FormatError, counted, damaged_forest
from bigforest.forest.format.checks import PROBLEMS, Nodes, check_batch
from bigforest.forest.format.files import (
    Header,
    check_file,
    decoding,
    open_checked,
    open_parquet,
    read_forest_levels,
    read_header,
)
from bigforest.forest.format.schema import nodes_schema
from bigforest.schema.options import MAX_TREES
from bigforest.storage.parquet_footer import ColumnChunk, row_groups
from bigforest.storage.paths import UNFINISHED, is_remote, known_folder

_PART = re.compile(rf"part-(\d{{7,{len(str(MAX_TREES))}}})\.parquet")
# What to do with another folder of bigforest that is given as a forest.
_INSTEAD: dict[str | None, str] = {
    "a store": "it is a store; train one on it first",
    "an unfinished run": "it is an unfinished run; resume it first",
    "a comparison": "it is a comparison; give the folder winner.forest in it",
}

# Bytes of decoded nodes held at a time (not in Limits, as a forest is opened without resources), of one of them besides
# its counts, terms and levels, and of one of those.
PIECE_BYTES = 1 << 20
NODE_BYTES = 80
ENTRY_BYTES = 32
# The column of text in which a word comes more than once.
_WORDS = ("levels.list.element",)


class Span(NamedTuple):
    """Rows `start` to before `stop` of the part `path`, which are whole trees; all of it by default."""

    path: Path
    start: int = 0
    stop: int = sys.maxsize


def part_paths(directory: Path) -> list[Path]:
    """The parts of the forest `directory` in the order of their trees; FormatError without any."""
    if not directory.is_dir():
        what = "it is a file" if directory.exists() else "there is no such folder"
        begun = known_folder(directory.with_name(directory.name + UNFINISHED)) is not None
        hint = "its run is unfinished, resume it first" if begun else "give the folder that training wrote"
        raise FormatError(f"{directory} is not a forest: {what}; {hint}")
    trees = directory / "trees"
    if not is_remote(directory) and trees.is_dir() and not os.access(trees, os.R_OK | os.X_OK):
        raise FormatError(f"{trees} may not be read by this user; check its permissions")
    found = numbered_parts(trees)
    if not found:
        what = _INSTEAD.get(known_folder(directory), "it has no trees/part-*.parquet; check the path")
        raise FormatError(f"{directory} is not a forest: {what}")
    return found


def numbered_parts(folder: Path) -> list[Path]:
    """The files part-*.parquet of a folder by the number of their first tree. Raises FormatError for other names."""
    found = {}
    for path in folder.glob("part-*.parquet"):
        match = _PART.fullmatch(path.name)
        if match is None or int(match[1]) in found:
            raise damaged_forest(f"{path} is not named as a part with a number of its own")
        found[int(match[1])] = path
    return [found[first] for first in sorted(found)]


def parts_in(directory: Path, folder: str | Path) -> list[Path]:
    """`numbered_parts` of a folder of the forest in `directory`, which has some. Raises FormatError."""
    found = numbered_parts(directory / folder)
    if not found:
        raise damaged_forest(f"{directory} has no files {folder}/part-*.parquet")
    return found


def first_tree(path: Path) -> int:
    """The first tree of a part, by its name."""
    found = _PART.fullmatch(path.name)
    assert found is not None
    return int(found[1])


def check_parts(paths: Sequence[Path]) -> tuple[Header, list[Span]]:
    """Check metadata and columns of all parts and that they are of one forest.

    Returns what they agree on, with its levels, and everything that they say they hold.
    """
    header, _ = read_header(paths[0], "trees")
    spans = [check_part(path, header) for path in paths]
    return replace(header, levels=read_forest_levels(paths[0].parent.parent, header)), spans


def check_part(path: Path, header: Header) -> Span:
    """Check metadata and columns of a part of the forest of a header; everything that it says it holds."""
    file = check_file(path, "trees", nodes_schema(header.spec), header.identity)
    return Span(path, 0, file.metadata.num_rows)


def piece_rows(classes: int, entries: float = 0.0) -> int:
    """Nodes decoded at a time: as many as PIECE_BYTES hold, so that offsets into their counts fit in 31 bits too.

    entries  terms and levels of a node, on average
    """
    return max(1, int(PIECE_BYTES / (NODE_BYTES + 4 * classes + ENTRY_BYTES * entries)))


def read_span(span: Span, header: Header) -> Iterator[Nodes]:
    """The checked nodes of a span, some at a time.

    The file is checked first, and all its bytes where the span starts with it. Memory: a few times PIECE_BYTES. Raises
    FormatError for a part that is damaged, once the damage is reached; what came before is sound, but may be a part of
    a tree.
    """
    from bigforest.kernels.predict import flatten

    columns, whole = nodes_schema(header.spec), span.start == 0
    file = open_checked(span.path, "trees", columns, header.identity, _WORDS, whole=whole)
    state = np.zeros(6, np.int64)
    state[flatten.WHOLE] = 1
    waiting = np.empty((0, 2), np.uint32)
    rest = np.empty((1, 1 + len(header.spec.target.classes)), np.uint64)
    done = 0
    for batch in _batches_in(file, span, len(header.spec.target.classes)):
        if done == 0:
            state[flatten.TREE] = batch.column("tree")[0].as_py() - 1
        done += batch.num_rows
        room = int(state[flatten.OPEN]) + batch.num_rows
        if len(waiting) < room:
            waiting, rest = _with_room(waiting, room), _with_room(rest, room + 1)
        yield check_batch(batch, header, span.path, state, waiting, rest)
    if done == 0:
        raise damaged_forest(f"{span.path}: no nodes")
    if done != span.stop - span.start:
        raise damaged_forest(f"{span.path} has fewer rows than it says")
    if state[flatten.WHOLE] == 0:
        raise damaged_forest(f"{span.path}: {PROBLEMS[flatten.WRONG_END]}")


def _with_room(array: NDArray[Any], rows: int) -> NDArray[Any]:
    """The array with this many rows, or twice as many as it has."""
    longer = np.empty((max(rows, 2 * len(array)), array.shape[1]), array.dtype)
    longer[: len(array)] = array
    return longer


def batches(span: Span, classes: int, columns: list[str] | None = None) -> Iterator[Any]:
    """The rows of a span as record batches of about PIECE_BYTES; of the named columns, all when None."""
    yield from _batches_in(open_parquet(span.path), span, classes, columns)


def _batches_in(file: pq.ParquetFile, span: Span, classes: int, columns: list[str] | None = None) -> Iterator[Any]:
    with decoding(span.path):
        begin = 0
        for number, chunks in enumerate(row_groups(span.path)):
            rows = file.metadata.row_group(number).num_rows
            end = begin + rows
            if begin < span.stop and end > span.start:
                size = piece_rows(classes, _entries_per_node(chunks, rows))
                for batch in file.iter_batches(size, row_groups=[number], columns=columns, use_threads=False):
                    first, last = max(span.start - begin, 0), min(span.stop - begin, batch.num_rows)
                    begin += batch.num_rows
                    if first < last:
                        wanted = batch.slice(first, last - first)
                        wanted.validate(full=True)
                        yield wanted
            begin = end


def _entries_per_node(chunks: Sequence[ColumnChunk], rows: int) -> float:
    """Terms and levels of a node of a row group, on average, as its metadata says."""
    values = dict.fromkeys(("terms", "levels"), 0)
    for chunk in chunks:
        name = chunk.name.partition(".")[0]
        if name in values:
            values[name] = max(values[name], chunk.values or 0)
    # A node without any counts as one value.
    return sum(max(0.0, count / max(1, rows) - 1.0) for count in values.values())


def check_order(paths: Sequence[Path], firsts: Sequence[int], trees: Sequence[int], expected: int = 0) -> None:
    """Raise FormatError unless files that begin with the trees `firsts` and hold this many follow from `expected`
    on."""
    for path, first, count in zip(paths, firsts, trees, strict=True):
        if first != expected:
            what = "is missing" if first > expected else "is there more than once"
            raise damaged_forest(f"{path}: tree {min(expected, first)} {what}")
        expected += count


def check_count(directory: Path, trees: int, header: Header) -> None:
    """Raise FormatError unless the `trees` found are those the configuration requested."""
    if trees != header.config.trees:
        raise FormatError(
            f"{directory} holds {counted(trees, 'tree')} and {header.config.trees:,} were asked for; grow it again"
        )
