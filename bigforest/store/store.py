"""Reading a store (format.py): mapped arrays, checked before anything runs on them."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import read_only
from bigforest.columns.dataspec import DataSpec
from bigforest.errors import BigForestError, ConfigError, FormatError, damaged_store
from bigforest.execution.process_cache import ProcessCache
from bigforest.kernels.common.layout import Codes
from bigforest.options.values import Exact, check_flag
from bigforest.planning.memory import Shape, TableTraits
from bigforest.storage.paths import as_path
from bigforest.store.files import (
    StoreFiles,
    check_cells,
    check_dictionary,
    check_groups,
    check_numbers,
    check_row_numbers,
    check_weights,
)
from bigforest.store.format import (
    BLOCK_ROWS,
    CHECKSUM_TYPE,
    CHECKSUMS,
    CODE_TYPES,
    CODES,
    GROUP_TYPE,
    GROUPS,
    HIGH,
    LEVELS,
    LOW,
    NUMBERS,
    ROW_NUMBER_TYPE,
    ROW_NUMBERS,
    TARGET,
    TARGET_TYPES,
    VALUE_TYPE,
    WEIGHT,
    WEIGHT_TYPES,
    Manifest,
    block_count,
    target_span,
)
from bigforest.store.levels import Levels, read_levels

# If a store has more levels than this, each call of `levels` reads them again.
_KEPT_LEVELS = 1 << 16


class Dictionaries(NamedTuple):
    """The values of all codes. Feature f has low[offsets[f]:offsets[f + 1]], and high likewise.

    offsets    [features + 1] int64
    low, high  float64, smallest and largest value of each code; the same array without max_bins
    """

    offsets: NDArray[np.int64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


@dataclass(frozen=True, eq=False)  # without slots, for cached properties
class Store:
    """A presorted table, opened by `Store.open`. Its arrays are read-only views of mapped files and cost no anonymous
    memory, except where a method such as `of_rows` returns a store with other arrays.

    A store in an object store has a local copy, which is filled on demand (files.py).

    path         the directory.
    spec         the dataspec.
    max_bins     the option that the table was encoded with: "exact" or a number.
    checksums    [features + 1, blocks] uint32, CRC-32 of each block of the codes of every feature, and of the target.
    crc          CRC-32 of every other file, by name.
    codes        codes of all features, see kernels/common/layout.py.
    target       [rows] uint16, class codes; for regression int64, whole numbers of steps (TargetSpec).
    row_numbers  [rows] uint64, number of each row in the source, ascending; None if no row was dropped.
    groups       [rows] uint32, code of each row's group; None without a column of groups.
    weight       [rows] uint16 or uint64, weight of each row in steps (WeightSpec); None if all rows weigh 1.

    Examples
    --------
    >>> import bigforest as bf
    >>> rows = {"size": [1.0, 2.0, 2.0, 4.0], "kind": ["a", "a", "b", "b"]}
    >>> store = bf.encode_store(rows, "kind.store", target="kind")
    >>> store.rows, [feature.name for feature in store.spec.features]
    (4, ['size'])
    >>> bf.train(store, trees=5).trees
    5
    """

    path: Path
    spec: DataSpec
    max_bins: Exact | int
    checksums: NDArray[np.uint32]
    crc: dict[str, int]
    _codes: Codes
    _target: NDArray[Any]
    _numbers: NDArray[np.float64] | None
    _row_numbers: NDArray[np.uint64] | None
    _groups: NDArray[np.uint32] | None
    _weight: NDArray[Any] | None
    _low: NDArray[np.float64]
    _high: NDArray[np.float64]
    _offsets: NDArray[np.int64]
    _files: StoreFiles | None
    _opened: str
    _made_by: Callable[[Store], Store] | None = None

    def __new__(cls, *arguments: Any, **fields: Any) -> Store:
        if arguments or not fields:
            raise ConfigError("a store is opened by bigforest.Store.open(path), and made by bigforest.encode_store")
        return object.__new__(cls)

    @classmethod
    def open(cls, path: Path | str, *, verify: bool = True) -> Store:
        """Map the store at `path`.

        Parameters
        ----------
        path : str or Path
            Folder of the store, local or s3://.
        verify : bool, default=True
            Read everything once, at about a third of a nanosecond per byte, and check it. A store from elsewhere needs
            this check: kernels index by codes and do not check bounds. Codes and targets on s3:// are checked when
            they are fetched instead, whatever this option is.

        Returns
        -------
        Store

        Raises
        ------
        FormatError
            If `path` is not a store, or the store is damaged or of another version. The message names the file.

        Examples
        --------
        >>> bf.Store.open("kind.store").rows
        4
        """
        path = as_path(path)
        check_flag(verify, "verify")
        manifest = Manifest.read(path)
        files = StoreFiles(path, manifest)
        mapped, spec = files.map, manifest.spec
        rows, features = spec.rows, len(spec.features)
        u8, u16, u32 = (
            mapped(name, CODE_TYPES[width], sum(f.width == width for f in spec.features), rows)
            for width, name in CODES.items()
        )
        place = read_only(np.array([(feature.width, feature.slot) for feature in spec.features], np.uint32))
        offsets = np.cumsum([0, *(feature.codes for feature in spec.features)])
        low = mapped(LOW, VALUE_TYPE, int(offsets[-1]))
        store = cls(
            path=path,
            spec=spec,
            max_bins=manifest.max_bins,
            _codes=Codes(u8, u16, u32, place),
            _target=mapped(TARGET, TARGET_TYPES[spec.target.task], rows),
            _numbers=None if spec.target.exact else mapped(NUMBERS, VALUE_TYPE, rows),
            _row_numbers=mapped(ROW_NUMBERS, ROW_NUMBER_TYPE, rows) if spec.dropped else None,
            _groups=mapped(GROUPS, GROUP_TYPE, rows) if spec.group is not None else None,
            _weight=mapped(WEIGHT, WEIGHT_TYPES[spec.wide_weights], rows) if spec.weight is not None else None,
            _low=low,
            _high=mapped(HIGH, VALUE_TYPE, len(low)) if manifest.binned else low,
            _offsets=offsets,
            checksums=mapped(CHECKSUMS, CHECKSUM_TYPE, features + 1, block_count(rows)),
            crc=dict(manifest.crc),
            _files=files,
            _opened=secrets.token_hex(16),
        )
        if verify:
            store._verify_whole_files() if files.copy is not None else store.verify()
        return store

    def __reduce__(self) -> tuple[Callable[..., Store], tuple[Any, ...]]:
        """Pickle the store as its path and fingerprint. Each other process maps it once, and does not verify it.

        A store that was opened anew is mapped again, even if path and content are the same: the files that were mapped
        before may have been deleted.
        """
        return _open_again, (str(self.path.resolve()), self.fingerprint, self._opened, self._made_by)

    @property
    def folder(self) -> Path:
        """Local folder of the files, as far as they have been fetched."""
        return self.path if self._files is None else self._files.folder

    @property
    def place(self) -> NDArray[np.uint32]:
        """Width and slot of each feature, see kernels/common/layout.py Codes."""
        return self._codes.place

    @property
    def codes(self) -> Codes:
        """Codes of all features, see kernels/common/layout.py."""
        self.fetch()
        return self._codes

    @property
    def target(self) -> NDArray[Any]:
        """Class codes, uint16 [rows]; for regression whole numbers of steps, int64 (TargetSpec)."""
        self.fetch([])
        return self._target

    def labels(self, start: int, stop: int) -> NDArray[Any]:
        """Return a read-only copy of `target` for the rows from `start` to before `stop`.

        Kernels index by class, and no other process can change a checked copy. Raises FormatError for numbers that are
        not classes.
        """
        self.fetch([], range(start // BLOCK_ROWS, -(-stop // BLOCK_ROWS)))
        target = read_only(self._target[start:stop].copy())
        classes = len(self.spec.target.classes)
        if classes and target.size and target.max() >= classes:
            raise damaged_store(f"{self.path / TARGET}: a class is out of range")
        return target

    def groups_of(self, start: int, stop: int) -> NDArray[np.uint32]:
        """Return a copy of `groups`, which is not None, for the rows from `start` to before `stop`.

        Raises FormatError for numbers that are not groups.
        """
        self.fetch_whole(GROUPS)
        assert self._groups is not None
        assert self.spec.group is not None
        groups = self._groups[start:stop].copy()
        if groups.size and groups.max() >= self.spec.group.groups:
            raise damaged_store(f"{self.path / GROUPS}: a group is out of range")
        return groups

    def numbers(self, start: int, stop: int) -> NDArray[np.float64]:
        """Return the regression targets of some rows, as they were given, read-only.

        Parameters
        ----------
        start, stop : int
            The first row, and the row after the last.

        Returns
        -------
        float64 [stop - start]

        Examples
        --------
        >>> numbers = bf.encode_store({"x": [1, 2, 3], "y": [0.5, 1.5, 2.5]}, "numbers.store", target="y")
        >>> numbers.numbers(1, 3).tolist()
        [1.5, 2.5]
        """
        if self._numbers is None:
            return read_only(np.asarray(self.spec.target.values(self.labels(start, stop)), np.float64))
        self.fetch_whole(NUMBERS)
        return self._numbers[start:stop]

    @property
    def row_numbers(self) -> NDArray[np.uint64] | None:
        """Number of each row in the source, [rows], ascending; None if no row was dropped."""
        self.fetch_whole(ROW_NUMBERS)
        return self._row_numbers

    @property
    def groups(self) -> NDArray[np.uint32] | None:
        """Code of each row's group, [rows]; None without a column of groups."""
        self.fetch_whole(GROUPS)
        return self._groups

    @property
    def weight(self) -> NDArray[Any] | None:
        """Weight of each row in steps, [rows], see WeightSpec; None if all rows weigh 1."""
        self.fetch_whole(WEIGHT)
        return self._weight

    def weights_of(self, start: int, stop: int) -> NDArray[Any]:
        """Return a copy of `weight`, which is not None, for the rows from `start` to before `stop`.

        Raises FormatError for a weight of 0, which would mean that a row is in no bag.
        """
        self.fetch_whole(WEIGHT)
        assert self._weight is not None
        weight = self._weight[start:stop].copy()
        if not weight.all():
            raise damaged_store(f"{self.path / WEIGHT}: a weight is 0")
        return weight

    def fetch(self, features: Iterable[int] | None = None, blocks: range | None = None) -> None:
        """Fetch the codes of `features` (default all) and the targets, in `blocks` (default all).

        All methods fetch the data that they return. For data that will be used block by block, one call for all blocks
        makes fewer requests. Raises FormatError if a checksum differs.
        """
        if self._files is not None and self._files.copy is not None:
            self._files.copy.fetch(features, blocks)

    def fetch_whole(self, name: str) -> None:
        """Fetch a file that has no blocks."""
        if self._files is not None and self._files.copy is not None:
            self._files.copy.fetch_whole(name)

    @property
    def rows(self) -> int:
        """Number of rows to train on."""
        return self.spec.rows

    @cached_property
    def shape(self) -> Shape:
        """Shape of the store, which determines the memory of training."""
        features = self.spec.features
        non_plain = tuple(feature.name for feature in features if feature.splits_on_levels or feature.has_gaps)
        return Shape(
            rows=self.rows,
            widths=tuple(feature.width for feature in features),
            codes=int(self._offsets[-1]),
            classes=self.spec.target.answer_width,
            bits=not non_plain and self._holds_bits(),
            extras=TableTraits(
                non_plain_features=non_plain,
                category=max((feature.codes for feature in features if feature.splits_on_levels), default=0),
                regression=self.spec.target.is_regression,
                many=len(self.spec.target.classes) > 2,
                weighted=self.spec.weight is not None,
                filled=any(feature.is_filled or feature.has_level_values for feature in features),
                levels=max((feature.codes for feature in features if feature.has_level_values), default=0),
            ),
        )

    def _holds_bits(self) -> bool:
        """Return True if each feature has only the values 0 and 1, or a single whole number below 256."""
        codes = np.diff(self._offsets)
        if codes.max(initial=0) > 2:
            return False
        first, low = self._offsets[:-1][codes > 1], self.dictionaries.low
        single = low[self._offsets[:-1][codes == 1]]
        in_a_byte = (single >= 0.0) & (single < 256.0) & (np.floor(single) == single)
        return bool((low[first] == 0.0).all() and (low[first + 1] == 1.0).all() and in_a_byte.all())

    @cached_property
    def fingerprint(self) -> str:
        """32 hexadecimal digits, equal for two stores on disk if and only if they have the same content."""
        spec = self.spec
        if any(feature.fill is not None or feature.other is not None for feature in spec.features):  # of `with_fills`
            spec = replace(spec, features=tuple(replace(each, fill=None, other=None) for each in spec.features))
        content = f"[{spec.to_json()}, {json.dumps(self.max_bins)}, {json.dumps(self.crc, sort_keys=True)}]"
        return hashlib.sha256(content.encode()).hexdigest()[:32]

    @property
    def dictionaries(self) -> Dictionaries:
        """The values of the codes of all features together."""
        self.fetch_whole(LOW)
        self.fetch_whole(HIGH)
        return Dictionaries(self._offsets, self._low, self._high)

    def feature_codes(self, feature: int, blocks: range | None = None) -> NDArray[Any]:
        """Return the codes of one feature: ranks of its values, bins or levels.

        If values are missing, their code is 0, and the ranks begin with 1.

        Parameters
        ----------
        feature : int
            Position among `spec.features`.
        blocks : range or None, default=None
            Blocks of 65,536 rows whose codes are needed; None for all. Codes of other blocks may be 0 if the store is
            remote.

        Returns
        -------
        uint8, uint16 or uint32 [rows]

        Examples
        --------
        >>> store.feature_codes(0).tolist()
        [0, 1, 1, 2]
        """
        self.fetch([feature], blocks)
        spec = self.spec.features[feature]
        matrices: dict[int, NDArray[Any]] = {1: self._codes.u8, 2: self._codes.u16, 4: self._codes.u32}
        return matrices[spec.width][spec.slot]

    def low(self, feature: int) -> NDArray[np.float64]:
        """Return the smallest value of each code of a feature.

        Parameters
        ----------
        feature : int
            Position among `spec.features`.

        Returns
        -------
        float64 [codes], ascending; the first is NaN if values are missing

        Examples
        --------
        >>> store.low(0).tolist()  # smallest value of each code
        [1.0, 2.0, 4.0]
        """
        self.fetch_whole(LOW)
        return self._low[self._offsets[feature] : self._offsets[feature + 1]]

    def high(self, feature: int) -> NDArray[np.float64]:
        """Return the largest value of each code of a feature; the same as `low` without max_bins.

        Parameters
        ----------
        feature : int
            Position among `spec.features`.

        Returns
        -------
        float64 [codes], ascending; the first is NaN if values are missing

        Examples
        --------
        >>> store.high(0).tolist()  # largest value of each code
        [1.0, 2.0, 4.0]
        """
        self.fetch_whole(HIGH)
        return self._high[self._offsets[feature] : self._offsets[feature + 1]]

    def ends(self, feature: int) -> tuple[float, float]:
        """Return the smallest and the largest number in `low` of a feature that has a value in some row."""
        low, feature_spec = self.low(feature), self.spec.features[feature]
        if feature_spec.has_level_values:
            return float(low.min()), float(low.max())
        ends = low[[0, -1]] if low.size == 1 or not feature_spec.missing else low[[0, 1, -1]]
        return float(np.nanmin(ends)), float(np.nanmax(ends))

    def values(self, start: int, stop: int) -> NDArray[np.float64]:
        """Return the values of some rows, NaN where missing; with max_bins, the smallest value of the code.

        The value of a category is its code.

        Parameters
        ----------
        start, stop : int
            The first row, and the row after the last.

        Returns
        -------
        float64 [stop - start, features], a new array

        Examples
        --------
        >>> store.values(1, 3).tolist()
        [[2.0], [2.0]]
        """
        start, stop, _ = slice(start, stop).indices(self.rows)
        values = np.empty((max(stop - start, 0), len(self.spec.features)))
        for feature in range(values.shape[1]):
            values[:, feature] = self.low(feature)[self.feature_codes(feature)[start:stop]]
        return values

    def counts(self, feature: int) -> NDArray[np.int64]:
        """Count the rows of each code of a feature.

        Parameters
        ----------
        feature : int
            Position among `spec.features`.

        Returns
        -------
        int64 [codes]

        Examples
        --------
        >>> store.counts(0).tolist()  # rows of each code
        [1, 2, 1]
        """
        return np.bincount(self.feature_codes(feature), minlength=self.low(feature).size)

    def levels(self) -> Levels:
        """Return the levels of all categories. Raises FormatError if their file is damaged.

        Examples
        --------
        >>> store.levels().level.to_list()  # this table has no categories
        []
        """
        few = sum(feature.levels for feature in self.spec.features) <= _KEPT_LEVELS
        return self._few_levels if few else self._read_levels()

    @cached_property
    def _few_levels(self) -> Levels:
        return self._read_levels()

    def _read_levels(self) -> Levels:
        if not any(feature.levels for feature in self.spec.features):
            return Levels.none(self.spec)
        self.fetch_whole(LEVELS)
        levels = read_levels(self.folder / LEVELS, self.spec)
        features = self.spec.features
        if not any(feature.has_level_values for feature in features):
            return levels
        values = [self.low(place)[int(feature.missing) :] for place, feature in enumerate(features) if feature.levels]
        return replace(levels, value=np.concatenate(values).astype(np.float32))

    def with_values(self, values: NDArray[np.float64], made_by: Callable[[Store], Store]) -> Store:
        """Return the same table with other values of all codes, [all codes], ascending within each feature.

        made_by  module-level function with which other processes make this store from the store on disk.
        """
        values = read_only(values)
        return replace(self, _low=values, _high=values, _made_by=made_by)

    def with_fills(
        self,
        fills: Sequence[float],
        levels: Mapping[int, tuple[NDArray[np.float32], float]],
        made_by: Callable[[Store], Store],
    ) -> Store:
        """Return the same table with numbers for missing cells and for levels.

        fills    number for the missing cells of each feature. If cells are missing, it becomes the value of code 0, and
                 need not be the lowest.
        levels   by the place of each category: the values of its codes, which may be in any order and repeat, and the
                 value of unknown levels.
        made_by  see `with_values`.
        """
        features = [replace(feature, fill=fill) for feature, fill in zip(self.spec.features, fills, strict=True)]
        for place, (_, unknown) in levels.items():
            features[place] = replace(features[place], other=unknown)
        spec = replace(self.spec, features=tuple(features))
        places = [place for place, feature in enumerate(features) if feature.is_filled]
        changed = bool(places or levels)
        ends = {LOW: self._low, HIGH: self._high}
        names = [LOW] if self._high is self._low else [LOW, HIGH]
        for name in names if changed else []:
            assert self._files is not None
            self.fetch_whole(name)
            mapped = self._files.map(name, VALUE_TYPE, self._low.size, private=True)
            mapped[self._offsets[places]] = np.array(fills)[places]
            for place, (values, _) in levels.items():
                mapped[self._offsets[place] : self._offsets[place + 1]] = values
            ends[name] = read_only(mapped)
        high = ends[LOW] if self._high is self._low else ends[HIGH]
        return replace(self, spec=spec, _low=ends[LOW], _high=high, _made_by=made_by)

    def with_codes(self, codes: Codes, low: NDArray[np.float64], high: NDArray[np.float64]) -> Store:
        """Return the same table with other codes and values, as many as before.

        Do not pickle it: another process would open the store on disk, with the codes and values there.
        """
        return replace(self, _codes=codes, _low=low, _high=high)

    def as_encoded(self) -> Store:
        """Return the store with the values on disk."""
        return self if self._made_by is None else Store.open(self.path, verify=False)

    def of_rows(self, rows: NDArray[np.int64]) -> Store:
        """Return a table in memory of some rows; the store itself if they are all rows.

        rows  row numbers, ascending.

        The table is for growing trees in this process: it has weights but no row numbers, and regression targets in
        steps only. A numeric feature with more codes than rows keeps only the values of these rows and its smallest and
        largest value, ranked anew, so that no memory grows with the store. Groups without rows are left out, because a
        bag of these alone would be empty.
        """
        for block in np.unique(rows // BLOCK_ROWS).tolist():
            self.fetch(None, range(block, block + 1))
        if rows.size == self.rows:
            return self
        weight = self.spec.weight
        if weight is not None:  # as if these rows had the mean weight of the table
            weight = replace(weight, searched=round(weight.searched * rows.size / self.rows))
        group, groups = self.spec.group, self.groups
        if group is not None and groups is not None:
            present, codes_of_rows = np.unique(_take_rows(groups, rows), return_inverse=True)
            group, groups = replace(group, groups=present.size), codes_of_rows.astype(groups.dtype)
        codes, features = {matrix.itemsize: np.take(matrix, rows, axis=-1) for matrix in self._codes[:3]}, []
        low: list[NDArray[np.float64]] = []
        high: list[NDArray[np.float64]] = []
        for place, feature in enumerate(self.spec.features):
            bottom, top = self.low(place), self.high(place)
            if feature.kind == "numeric" and feature.codes > rows.size:
                column = codes[feature.width][feature.slot]
                ends = [0, 1, feature.codes - 1] if feature.missing else [0, feature.codes - 1]
                present = np.union1d(column, ends)
                column[:] = np.searchsorted(present, column)
                bottom, top, feature = bottom[present], top[present], replace(feature, codes=present.size)
            features.append(feature)
            low.append(bottom)
            high.append(top)
        values = read_only(np.concatenate(low))
        return replace(
            self,
            spec=replace(self.spec, rows=rows.size, features=tuple(features), weight=weight, group=group),
            _codes=Codes(read_only(codes[1]), read_only(codes[2]), read_only(codes[4]), self._codes.place),
            _low=values,
            _high=values if self._high is self._low else read_only(np.concatenate(high)),
            _offsets=np.cumsum([0, *(feature.codes for feature in features)]),
            _target=_take_rows(self._target, rows),
            _numbers=None,
            _row_numbers=None,
            _groups=groups,
            _weight=None if self.weight is None else _take_rows(self.weight, rows),
            _files=None,
        )

    def check_unchanged(self) -> None:
        """Check, by sizes and times, that nobody has written to the files since they were opened.

        This takes some microseconds. To be called during work, and before results are kept. Raises FormatError.
        """
        if self._files is not None:
            self._files.check_unchanged()

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Call `check_unchanged` at the end of the block, and after an error that changed files may have caused."""
        try:
            yield
        except Exception as error:
            if isinstance(error, FormatError) or not isinstance(error, BigForestError):
                self.check_unchanged()
            raise
        self.check_unchanged()

    def verify(self) -> None:
        """Read the whole store and check that it is unchanged and valid for kernels.

        Raises FormatError naming the file of the first fault, and for codes and targets the block of 65,536 rows. A
        fault is a checksum that differs, a code, class or group out of range, dictionaries or row numbers out of order,
        or content that contradicts the dataspec.

        Examples
        --------
        >>> store.verify()  # raises FormatError for damaged files
        """
        self._verify_whole_files()
        for index, feature in enumerate(self.spec.features):
            where = f"{self.path / CODES[feature.width]}, feature {feature.name!r}"
            codes = self.feature_codes(index)
            check_cells(codes, self.checksums[index], (0, feature.codes - 1), where)
        where = str(self.path / TARGET)
        check_cells(self.target, self.checksums[-1], target_span(self.spec), where)

    def _verify_whole_files(self) -> None:
        """Check all files but codes and targets, which a local copy checks as it fetches them."""
        assert self._files is not None
        for name, crc in self.crc.items():
            if self._files.crc(name) != crc:
                raise damaged_store(f"{self.path / name}: the checksum differs")
        for number, feature in enumerate(self.spec.features):
            check_dictionary(feature, self.low(number), self.high(number), self.path / LOW)
        self._read_levels()  # raises FormatError
        spec, numbers, groups, weight = self.spec, self.row_numbers, self.groups, self.weight
        if numbers is not None:
            check_row_numbers(numbers, self.rows + spec.dropped, self.path / ROW_NUMBERS)
        if not spec.target.exact:
            check_numbers(self.numbers(0, self.rows), self.target, spec.target, self.path / NUMBERS)
        if groups is not None and spec.group is not None:
            check_groups(groups, spec.group, self.path / GROUPS)
        if weight is not None and spec.weight is not None:
            check_weights(weight, spec.weight, self.path / WEIGHT)


_stores: ProcessCache[Store] = ProcessCache(4)


def _open_again(path: str, fingerprint: str, opened: str, made_by: Callable[[Store], Store] | None = None) -> Store:
    """Open the store at `path` without verifying it, which is left to the process that sent it. Called by pickle.

    fingerprint  fingerprint of the store that was sent.
    opened       random digits that were drawn when the sent store was opened.
    made_by      see `Store.with_values`; None for the values on disk.

    Raises FormatError if there is another store or none, for instance because the disk is not shared.
    """

    def made() -> Store:
        store = Store.open(path, verify=False)
        if store.fingerprint != fingerprint:
            raise FormatError(f"{path} is not the store that was sent: it has changed, or this is another disk")
        store = replace(store, _opened=opened)
        return store if made_by is None else made_by(store)

    return _stores.get((path, fingerprint, opened, made_by), made)


def _take_rows(array: NDArray[Any], rows: NDArray[np.int64]) -> NDArray[Any]:
    """Return rows of an array, along the last axis, read-only like an array of a file, as kernels expect."""
    return read_only(np.take(array, rows, axis=-1))
