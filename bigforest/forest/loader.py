"""The trees of a forest in memory: all of them, kept from one call to the next, or a group at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigforest.errors import ConfigError
from bigforest.forest.files import Header
from bigforest.forest.groups import Trees, survey
from bigforest.forest.pack import load
from bigforest.forest.packed import Packed
from bigforest.forest.parts import check_count, check_parts, whole_parts
from bigforest.forest.passes import ALL_ROWS, Passes, choose_passes, default_batch, whole_need
from bigforest.forest.ranks import Ranks
from bigforest.forest.targets import Targets, read_targets
from bigforest.forest.votes import Rule
from bigforest.forest.voting import Residents, Voting
from bigforest.forest.ways import check_budget
from bigforest.memory import Shape
from bigforest.resources import Resources, available_threads
from bigforest.sizes import parse_bytes


class Loader:
    """Reads, checks and packs the trees in the parts of a forest. May be used from several threads."""

    def __init__(self, directory: Path, parts: Sequence[Path], header: Header) -> None:
        self._directory = directory
        self._parts = list(parts)
        self._header = header
        self._spec = header.spec
        self._lock = threading.Lock()
        self._packed: Packed | None = None
        self._trees: Trees | None = None
        self._targets: Targets | None = None

    def whole(self) -> Packed:
        """All trees, read once by whichever thread comes first. Raises FormatError."""
        with self._lock:
            if self._packed is None:
                header = check_parts(self._parts)
                packed = load(whole_parts(self._parts), header, 0, available_threads())
                check_count(self._directory, packed.roots.size, header)
                self._packed = packed.with_narrow()
            return self._packed

    def targets(self, rule: Rule, resources: Resources) -> Targets | None:
        """The targets in the leaves, where a rule asks for quantiles; kept where memory is not limited.

        Raises FormatError.
        """
        if not rule.quantiles:
            return None
        if resources.memory is not None:
            return read_targets(self._directory, self._header, resources.scratch, mapped=True)
        with self._lock:
            if self._targets is None:
                self._targets = read_targets(self._directory, self._header, None, mapped=False)
            return self._targets

    def voting(self, rule: Rule, ranks: Ranks | None, memory: int | str | None, threads: int | None) -> Voting:
        """All trees, ready to answer rows; see `Forest.voting`."""
        targets = self.targets(rule, Resources(memory=None if memory is None else parse_bytes(memory)))
        if memory is not None:
            workers = Resources(threads=threads).workers
            need = whole_need(self._survey(workers), workers, 0 if targets is None else targets.nbytes)
            check_budget("a lazy query with the whole forest", need, memory)
        packed = self.whole()
        residents = None if targets is None else Residents.of(targets, range(packed.roots.size), packed)
        if rule.trees:
            packed = packed._replace(roots=packed.roots[list(rule.trees)])
        return Voting(packed, packed.ballots(rule.ballots), rule, self._spec, ranks=ranks, residents=residents)

    def passes(
        self,
        rule: Rule,
        ranks: Ranks | None,
        shape: Callable[[NDArray[np.int64]], Shape],
        resources: Resources,
        held: int,
        narrow: Callable[[], bool],
    ) -> Passes:
        """How to answer a table; see `Forest.passes`."""
        if resources.memory is None:
            voting = self.voting(rule, ranks, None, None)
            used = voting.packed.used
            return Passes(used, [range(1)], ALL_ROWS, default_batch(used.size), lambda _: voting)
        if rule.trees:
            raise ConfigError("some trees of a forest answer with all of it in memory; drop memory or trees")
        with self._lock:
            self._packed = None  # other calls may still use it, but it does not stay
        trees = self._survey(resources.workers)
        held += 0 if ranks is None else ranks.nbytes
        targets = self.targets(rule, resources)
        held += 0 if targets is None else targets.held
        all_narrow = narrow()
        kept: dict[range, Voting] = {}

        def load_group(entries: range) -> Voting:
            if entries not in kept:
                kept.clear()
                packed = trees.load(entries, resources.workers)
                pa.default_memory_pool().release_unused()  # Arrow keeps what it read the parts into
                packed = packed.narrowed() if all_narrow else packed
                mixed = packed.ballots(rule.ballots)
                packed = packed._replace(counts=packed.counts[:0].copy())
                own = None if targets is None else Residents.of(targets, trees.numbers(entries), packed)
                kept[entries] = Voting(packed, mixed, rule, self._spec, trees.header.config.trees, ranks, own)
            return kept[entries]

        assert trees.used is not None
        return choose_passes(shape(trees.used), resources, trees, held, load_group, len(rule.quantiles))

    def _survey(self, workers: int) -> Trees:
        """Where the trees are and what they take, found once."""
        with self._lock:
            if self._trees is None:
                self._trees = survey(self._directory, workers)
            return self._trees
