"""Where out-of-bag rows ended in the trees of a part, and what the leaves cast: files of a run beside the parts.

`votes/part-NNNNNNN.leaves`, NNNNNNN being its first tree, has for every chunk of rows and every tree the rows of the
chunk that are not in the bag of the tree, ascending, and the number of the leaf of each:

    head     int64 [5]: a mark, first tree, trees, rows of the table, rows of a chunk
    chunks   uint16, numbers of rows within the chunk, tree by tree; then uint32, leaves of the same
    counts   uint32 [chunks, trees], rows of each
    checks   uint32 [chunks], CRC-32 of each chunk
    check    uint32, that of head, counts and checks

`votes/part-NNNNNNN.ballots` has what the leaves cast and hold (ballots.py): int64 [3], numbers of trees, nodes and
mixed leaves; int64 [trees + 1], where the nodes of each tree begin; uint32 [nodes], their ballots; the weights of the
leaves; the counts of mixed leaves, or the values of all nodes; and the CRC-32 of all of this. It is a file of its own
because wide weights are counted later.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.common.errors import FormatError
from bigforest.forest.votes.ballots import Ballots
from bigforest.schema.dataspec import DataSpec
from bigforest.storage.paths import copy, local_path, write_atomically

FOLDER = "votes"
_NAME = re.compile(r"part-(\d{7,10})\.leaves")
# Bytes of a row in a tree, and of the ballots of trees that are kept for one file, besides those of the last.
VOTE_BYTES = 6
FILE_BYTES = 16 << 20
_MARK = 0x5345_5641_454C_0002
_MOST_CHUNK = 1 << 14
# Bytes of votes in a row group of oob/rows.parquet, for as many rows as a power of two, and most of these rows.
_STEP_BYTES = 8 << 20
_MOST_STEP = 1 << 16


class LeafChunk(NamedTuple):
    """Rows of a chunk that are out of bag, tree by tree.

    rows    uint16, numbers within the chunk
    leaves  uint32, number of the leaf in its tree
    counts  uint32 [trees], rows of each tree
    """

    rows: NDArray[np.uint16]
    leaves: NDArray[np.uint32]
    counts: NDArray[np.uint32]


class LeafFile(NamedTuple):
    """A file of leaves that is whole.

    path    without its ending.
    trees   whose leaves these are.
    counts  uint32 [chunks, trees].
    checks  uint32 [chunks].
    """

    path: Path
    trees: range
    counts: NDArray[np.uint32]
    checks: NDArray[np.uint32]

    @contextmanager
    def reading(self) -> Iterator[BinaryIO]:
        """The file, open for `chunk`."""
        with local_path(_leaves(self.path)).open("rb") as file:
            yield file

    def chunk(self, file: BinaryIO, number: int) -> LeafChunk:
        """A chunk. Raises FormatError when it is damaged."""
        sizes = self.counts.sum(axis=1, dtype=np.int64)
        size = int(sizes[number])
        file.seek(40 + 6 * int(sizes[:number].sum()))
        content = file.read(6 * size)
        if len(content) != 6 * size or zlib.crc32(content) != self.checks[number]:
            raise FormatError(f"{_leaves(self.path)} is damaged; remove it and resume the run, which makes it again")
        leaves = np.frombuffer(content, "<u4", size, 2 * size)
        return LeafChunk(np.frombuffer(content, "<u2", size), leaves, self.counts[number])

    def ballots(self, spec: DataSpec) -> Ballots:
        """What the leaves cast. Raises FormatError when that is damaged."""
        path = _ballots(self.path)
        with local_path(path).open("rb") as file:
            content = file.read()
        body = memoryview(content)[:-4]
        trees, nodes, mixed = np.frombuffer(body[:24], "<i8").tolist() if len(body) >= 24 else (-1, 0, 0)
        whole = np.dtype("<u8" if spec.wide_weights else "<u4")
        kind = np.dtype("<f8") if spec.target.task == "regression" else whole
        width, leaves = max(1, len(spec.target.classes)), (nodes + trees) // 2
        ends = [*accumulate((24, 8 * (trees + 1), 4 * nodes, whole.itemsize * leaves, kind.itemsize * width * mixed))]
        if trees != len(self.trees) or min(nodes, mixed) < 0 or len(body) != ends[-1]:
            raise FormatError(f"{path} is damaged; remove it and resume the run, which makes it again")
        first = np.frombuffer(body, "<i8", trees + 1, 24)
        ballot = np.frombuffer(body, "<u4", nodes, ends[1])
        weight = np.frombuffer(body, whole, leaves, ends[2])
        values = np.frombuffer(body, kind, mixed * width, ends[3])
        sound = first[0] == 0 and first[-1] == nodes and (np.diff(first) > 0).all()
        if not sound or content[-4:] != np.array([zlib.crc32(body)], "<u4").tobytes():
            raise FormatError(f"{path} is damaged; remove it and resume the run, which makes it again")
        return Ballots(first, ballot, weight, values.reshape(mixed, width))

    @property
    def nodes(self) -> tuple[int, int]:
        """How many nodes its trees have, and how many of the numbers that go with them (Ballots.mixed)."""
        with local_path(_ballots(self.path)).open("rb") as file:
            head, size = file.read(24), file.seek(0, 2)
        _, nodes, mixed = np.frombuffer(head, "<i8").tolist() if len(head) == 24 else (0, 0, 0)
        sound = 0 <= nodes <= size and 0 <= mixed <= size  # else it is refused when it is read
        return (nodes, mixed) if sound else (0, 0)

    def move(self, directory: Path, *, ballots: bool = True) -> None:
        """Move the files, or the leaves without the ballots, to another directory of a forest."""
        place = leaves_path(directory, self.trees.start)
        place.parent.mkdir(parents=True, exist_ok=True)
        for named in (_ballots, _leaves) if ballots else (_leaves,):
            copy(named(self.path), named(place))
            named(self.path).unlink()

    def remove(self) -> None:
        """Remove both files."""
        _leaves(self.path).unlink(missing_ok=True)
        _ballots(self.path).unlink(missing_ok=True)


def step_rows(classes: int) -> int:
    """Rows of a row group of rows.parquet; a function of the task alone, so that the file does not depend on memory."""
    rows = _MOST_STEP
    while rows > 256 and 8 * rows * classes > _STEP_BYTES:
        rows //= 2
    return rows


def chunk_rows(classes: int) -> int:
    """Rows of a chunk."""
    return min(_MOST_CHUNK, step_rows(classes))


def leaves_path(directory: Path, first_tree: int) -> Path:
    """The files of a part, without their endings."""
    return directory / FOLDER / f"part-{first_tree:07d}"


def write_leaves(path: Path, trees: range, rows: int, classes: int, chunks: Iterable[LeafChunk]) -> None:
    """Write a file of leaves, a chunk at a time; classes: numbers in an answer."""
    head = np.array([_MARK, trees.start, len(trees), rows, chunk_rows(classes)], "<i8")
    counts, checks = [], []
    with write_atomically(_leaves(path)) as temporary, temporary.open("wb") as file:
        file.write(head.tobytes())
        for chunk in chunks:
            content = chunk.rows.astype("<u2", copy=False).tobytes() + chunk.leaves.astype("<u4", copy=False).tobytes()
            checks.append(zlib.crc32(content))
            counts.append(chunk.counts)
            file.write(content)
        tail = np.concatenate([*counts, np.array(checks, np.uint32)]).astype("<u4").tobytes()
        file.write(tail + np.array([zlib.crc32(head.tobytes() + tail)], "<u4").tobytes())


def write_ballots(path: Path, ballots: Ballots) -> None:
    """Write what the leaves of a part cast."""
    first, ballot, weight, mixed = ballots
    head = np.array([first.size - 1, ballot.size, len(mixed)], "<i8")
    little = (array.astype(array.dtype.newbyteorder("<"), copy=False) for array in (head, first, ballot, weight, mixed))
    check = 0
    with write_atomically(_ballots(path)) as temporary, temporary.open("wb") as file:
        for array in map(np.ascontiguousarray, little):
            check = zlib.crc32(array.data, check)
            file.write(array.data)
        file.write(np.array([check], "<u4").tobytes())


def found_leaves(directory: Path, rows: int, classes: int, trees: range | None = None) -> list[LeafFile]:
    """The files of leaves in a directory that are whole and have ballots, by their first trees; others do not count.

    trees  where the first tree is to be; None for anywhere.
    """
    names = (_NAME.fullmatch(path.name) for path in (directory / FOLDER).glob("part-*.leaves"))
    firsts = [int(name[1]) for name in names if name is not None and (trees is None or int(name[1]) in trees)]
    paths = [leaves_path(directory, first) for first in firsts]
    found = (_open(path, rows, classes) for path in paths if _ballots(path).exists())
    return sorted((file for file in found if file is not None), key=lambda file: file.trees.start)


def _open(path: Path, rows: int, classes: int) -> LeafFile | None:
    """The file, None where it is not whole or of another table."""
    with local_path(_leaves(path)).open("rb") as file:
        head = file.read(40)
        size = file.seek(0, 2)
        if len(head) != 40:
            return None
        mark, first, trees, of_table, of_chunk = np.frombuffer(head, "<i8").tolist()
        if (mark, of_table, of_chunk) != (_MARK, rows, chunk_rows(classes)) or trees < 1:
            return None
        if path.name != f"part-{first:07d}":
            return None
        chunks = -(-rows // of_chunk)
        tail = 4 * (chunks * (trees + 1) + 1)
        if size < 40 + tail:
            return None
        file.seek(size - tail)
        content = file.read(tail)
    check = np.array([zlib.crc32(head + content[:-4])], "<u4").tobytes()
    numbers = np.frombuffer(content[:-4], "<u4")
    counts = numbers[: chunks * trees].reshape(chunks, trees)
    if content[-4:] != check or 40 + tail + 6 * int(counts.sum(dtype=np.int64)) != size:
        return None
    return LeafFile(path, range(first, first + trees), counts, numbers[chunks * trees :])


def _leaves(path: Path) -> Path:
    return path.with_name(path.name + ".leaves")


def _ballots(path: Path) -> Path:
    return path.with_name(path.name + ".ballots")
