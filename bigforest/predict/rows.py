"""Rows of tables and arrays in the form that trees read: numbers, and codes of levels, in tiles. NaN is missing.

`check_schema` finds the features of a forest in a table. `Reader` converts a table or array to a `RowBatch`, which
fills tiles: arrays of some rows, feature by feature, which the kernels read. `UnseenLevels` has the treatment of levels
that did not occur in training, and counts them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache, cached_property
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.columns.dataspec import DataSpec
from bigforest.columns.types import (
    FlatColumn,
    cells,
    codes_by_column,
    is_feature_type,
    is_nested,
    is_plain,
    kind_of,
    locate_columns,
    numbers,
    without_words,
)
from bigforest.errors import DataError, api, counted, listed, shown, similar_names
from bigforest.events import Listener, Notice
from bigforest.kernels.predict.flat_tree import TILE
from bigforest.planning.sizes import USUAL
from bigforest.progress import watching
from bigforest.source.in_memory import (
    SparseRows,
    SparseTable,
    has_named_columns,
    is_matrix,
    is_sparse,
    series_of,
    table_of_list,
)
from bigforest.source.objects import is_missing
from bigforest.source.open import open_source
from bigforest.source.source import Reading, Source, source_of
from bigforest.source.spool import repacked

if TYPE_CHECKING:
    from bigforest.forest.forest_files import ForestFiles


# Unseen levels are not counted in tables of fewer rows: a single row stays fast, and shares of a few rows say little.
FEWEST_ROWS = 10
# A column is named in a notice if more than this share of its rows has an unseen level.
_SHARE = 0.1
# Most columns, and most levels of a column, that a message names.
_COLUMNS = 5
LEVELS = 5


def named_levels(series: pl.Series, unseen: NDArray[np.bool_]) -> list[str]:
    """Return the first unseen levels of a column for a message. unseen: bool [rows]."""
    return [shown(level) for level in series.filter(pl.Series(unseen)).unique(maintain_order=True).head(LEVELS)]


class UnseenLevels:
    """Treatment of unseen levels, and the number of rows with one, by column, with some of the levels.

    treatment  see vote_rule.py VoteRule.unseen
    counted    False to count nothing

    A row that is read once for each group of trees counts each time, which does not change the shares.
    """

    def __init__(self, treatment: str = "larger", *, counted: bool = True) -> None:
        self.treatment = treatment
        self._counted = counted
        self._rows: dict[str, int] = {}
        self._unseen: dict[str, int] = {}
        self._levels: dict[str, list[str]] = {}

    def add(self, name: str, series: pl.Series, unseen: NDArray[np.bool_]) -> None:
        """Count the cells of a batch of a column. unseen: bool [rows]."""
        if not self._counted:
            return
        count = int(np.count_nonzero(unseen))
        named = count and len(self._levels.get(name, ())) < LEVELS
        self._add(name, unseen.size, count, named_levels(series, unseen) if named else [])

    def join(self, other: UnseenLevels) -> None:
        """Add the counts of other rows."""
        for name, rows in other._rows.items():
            self._add(name, rows, other._unseen[name], other._levels[name])

    def _add(self, name: str, rows: int, unseen: int, levels: list[str]) -> None:
        self._rows[name] = self._rows.get(name, 0) + rows
        self._unseen[name] = self._unseen.get(name, 0) + unseen
        self._levels[name] = list(dict.fromkeys([*self._levels.get(name, []), *levels]))[:LEVELS]

    def tell(self, listener: Listener | None = None, among: str = "the rows") -> bool:
        """Send or log a notice if more than a tenth of the rows of a column have unseen levels. Return True if so.

        Columns of fewer than FEWEST_ROWS rows are ignored.

        among  name of the rows in the notice.
        """
        shares = {name: self._unseen[name] / rows for name, rows in self._rows.items() if rows >= FEWEST_ROWS}
        many = [
            f"{name!r} in {share:.0%} of {among} ({', '.join(self._levels[name])})"
            for name, share in shares.items()
            if share > _SHARE
        ]
        if many:
            with watching(listener) as listener:
                listener(
                    Notice(
                        f"levels that did not occur in training: {listed(many, _COLUMNS)}; the forest cannot tell "
                        "them apart, so check that these columns are written as in training"
                    )
                )
        return bool(many)


_UNCOUNTED = UnseenLevels(counted=False)

# float32 holds every integer up to here.
MAX_NARROW_INTEGER = 2**24

_FLOAT64 = np.dtype(np.float64)
# If all features have these types, a value takes one byte in a tile.
_SMALL = {np.dtype(np.uint8), np.dtype(np.bool_)}


def tile_bytes(features: int) -> int:
    """Return the bytes of a tile of this many features, of the widest type."""
    return 8 * TILE * features


class FeatureBlock(NamedTuple):
    """Features of one type, side by side: filling tiles block by block is faster than feature by feature.

    values  [rows, features], an array, or a Polars table that becomes an array without a change of types
    dtype   type of the values
    places  positions of the features in a tile
    """

    values: NDArray[Any] | pl.DataFrame
    dtype: np.dtype[Any]
    places: slice | NDArray[np.int64]

    @classmethod
    def of_column(cls, column: NDArray[Any], place: int) -> FeatureBlock:
        """Return a block of one feature."""
        return cls(column[:, None], column.dtype, slice(place, place + 1))

    @classmethod
    def of_table(cls, table: pl.DataFrame, places: Sequence[int]) -> FeatureBlock:
        """Return the block of all columns of a table, which have one numpy type and no nulls.

        places  positions of the columns in a tile, ascending
        """
        among = slice(places[0], places[-1] + 1)
        adjacent = among.stop - among.start == len(places)
        return cls(table, _array_type(table.dtypes[0]), among if adjacent else np.array(places))

    def array(self) -> NDArray[Any]:
        if not isinstance(self.values, pl.DataFrame):
            return self.values
        return self.values.to_numpy(order="c" if len(self.values) == 1 else "fortran")  # "c" starts no threads

    def put(self, tiles: NDArray[Any], whole: int, last: int) -> None:
        """Fill the first `whole` tiles, [tiles, features, rows of a tile]. Put the last `last` rows into the next."""
        values = self.array().T
        if whole:
            full = values[:, : values.shape[1] - last].reshape(len(values), whole, tiles.shape[2])
            tiles[:whole, self.places] = full.swapaxes(0, 1)
        tiles[whole, self.places, :last] = values[:, values.shape[1] - last :]

    def cut(self, start: int, stop: int) -> FeatureBlock:
        """Return the rows from `start` to before `stop`, as an array."""
        values = self.values
        cut = values.slice(start, stop - start) if isinstance(values, pl.DataFrame) else values[start:stop]
        return self._replace(values=self._replace(values=cut).array())


class RowBatch:
    """Rows of some features, of any numeric types, ready to be put into tiles. NaN is missing."""

    def __init__(self, blocks: Sequence[FeatureBlock]) -> None:
        self._blocks = blocks
        self.rows = len(blocks[0].values)
        self.features = 0
        self._types: set[np.dtype[Any]] = set()
        self._in_arrays, self._has_floats = True, False
        for block in blocks:  # a single loop: predicting one row takes the time of about ten
            self.features += block.values.shape[1]
            self._types.add(block.dtype)
            self._in_arrays &= not isinstance(block.values, pl.DataFrame)
            self._has_floats |= block.dtype.kind == "f"

    @classmethod
    def of(cls, columns: Sequence[NDArray[Any]]) -> RowBatch:
        """Return a batch of one array per feature."""
        return cls([FeatureBlock.of_column(column, place) for place, column in enumerate(columns)])

    def cut(self, start: int, stop: int) -> RowBatch:
        """Return the rows from `start` to before `stop`, as arrays."""
        if start == 0 and stop >= self.rows and self._in_arrays:
            return self
        return RowBatch([block.cut(start, stop) for block in self._blocks])

    @property
    def narrow(self) -> bool:
        """True if every value other than NaN is known to be exact in float32. Values of float64 are not examined."""
        if _FLOAT64 in self._types:
            return False
        return all(_is_narrow_type(block.dtype) or _is_narrow(block.array()) for block in self._blocks)

    @property
    def width(self) -> int:
        """Bytes of a value in the batch or in a tile, whichever is larger. Long integers count as float32 in a tile; if
        one of them is not exact in float32, tiles take twice as many bytes."""
        tile = self.tile_type(_FLOAT64 not in self._types)
        return max(dtype.itemsize for dtype in (tile, *self._types))

    def tile_type(self, narrow: bool) -> np.dtype[Any]:
        """Return the type of tiles; narrow: True if all values are exact in float32.

        If all features have types of _SMALL, a value takes one byte: such small tiles stay in the core's cache.
        """
        if narrow:
            return np.dtype(np.uint8 if self._types <= _SMALL else np.float32)
        return _FLOAT64

    def fill(self, tiles: NDArray[Any], *, by_rows: bool) -> bool:
        """Put the rows into the first tiles. Return True if no value is missing (NaN).

        With t rows in a tile, row r is put into tile r // t. In tiles [tiles, features, t] it becomes column r % t. If
        by_rows, it becomes row r % t of tiles [tiles, t, features or more]. Other cells keep their values.
        """
        columns = tiles[:, :, : self.features].swapaxes(1, 2) if by_rows else tiles
        # Full tiles before the last tile, and rows of the last tile, which may be full, too.
        whole = max(0, self.rows - 1) // columns.shape[2]
        last = self.rows - whole * columns.shape[2]
        for block in self._blocks:
            block.put(columns, whole, last)
        if not self._has_floats:
            return True
        # The minimum is NaN if a value is NaN. This is quicker than testing each value.
        least = np.minimum.reduce(columns[whole, :, :last], axis=None, initial=np.inf)
        if whole:
            least = np.minimum(least, np.minimum.reduce(columns[:whole], axis=None))
        return bool(least == least)

    def fill_missing(self, tiles: NDArray[Any], fills: NDArray[np.float64], *, by_rows: bool) -> None:
        """Replace NaN in tiles, laid out as in `fill`, by the value of the feature in `fills`, float64 [features]."""
        cells = tiles[:, :, : self.features] if by_rows else tiles.swapaxes(1, 2)
        np.copyto(cells, fills.astype(tiles.dtype), where=np.isnan(cells))

    def columns(self) -> list[NDArray[Any]]:
        places = np.arange(self.features)
        column_of: dict[int, NDArray[Any]] = {}
        for block in self._blocks:
            column_of |= zip(places[block.places].tolist(), block.array().T, strict=True)
        return [column_of[place] for place in range(self.features)]


def missing_error(rows: RowBatch, names: Sequence[str]) -> DataError:
    """Return the error for rows with missing values, if the trees need every value. names: names of the columns."""
    columns = zip(names, rows.columns(), strict=True)
    counts = [(name, int(np.isnan(column).sum())) for name, column in columns if column.dtype.kind == "f"]
    counts = [(name, count) for name, count in counts if count]
    named = ", ".join(f"{name!r} ({count} of {counted(rows.rows, 'row')})" for name, count in counts[:5])
    return DataError(
        f"missing values in the features {named}: this forest splits on projections, which need every value; "
        "fill or drop these rows"
    )


@cache
def _array_type(dtype: pl.DataType) -> np.dtype[Any]:
    return pl.Series(dtype=dtype).to_numpy().dtype


def _is_narrow_type(dtype: np.dtype[Any]) -> bool:
    """Return True if every value of a type is exact in float32."""
    return dtype.itemsize <= (4 if dtype.kind == "f" else 2)


def _is_narrow(values: NDArray[Any]) -> bool:
    """Return True if these values are integers in the range that float32 holds exactly."""
    if values.size == 0:
        return True
    whole = values.dtype.kind != "f"
    return whole and bool(values.min() >= -MAX_NARROW_INTEGER and values.max() <= MAX_NARROW_INTEGER)


# Types whose values are all exact in float32.
NARROW = frozenset({pl.Boolean, pl.Int8, pl.UInt8, pl.Int16, pl.UInt16, pl.Float16, pl.Float32, pl.Null})


class FeatureMap(NamedTuple):
    """Places of the features of a forest in tables of one schema, found once.

    located  columns of the requested features, by position in the dataspec.
    """

    spec: DataSpec
    located: dict[int, FlatColumn]

    def columns(self, used: Iterable[int]) -> list[str]:
        """Return the columns of the table that have these features, each once."""
        return list(dict.fromkeys(self.located[int(position)].column for position in used))

    def narrow(self) -> bool:
        """Return True if the types of the columns show that all values, and the fill values, are exact in float32."""
        features = self.spec.features
        return self.spec.has_narrow_fills and all(
            features[position].has_level_values or features[position].codes <= MAX_NARROW_INTEGER
            if features[position].kind == "category"
            else type(column.dtype) in NARROW
            for position, column in self.located.items()
        )


def reading_of(spec: DataSpec, also: Iterable[str] = (), *, labelled: bool = True) -> Reading:
    """Return how to read a table to predict: which columns are numbers or text, and which texts are missing values.

    also      columns that are read in addition to the features.
    labelled  True if target, weights and groups are read, too.
    """
    numbers = {feature.table_column for feature in spec.features if feature.kind == "numeric"}
    numbers |= {spec.target.name} if spec.target.is_regression else set()
    types = {feature.name: feature.dtype for feature in spec.features} | {spec.target.name: spec.target.dtype}
    texts = {name for name, dtype in types.items() if kind_of(dtype).family == "text"}
    numbers |= {name for name, dtype in types.items() if kind_of(dtype).family == "number"}
    features = [*spec.feature_names, *(feature.table_column for feature in spec.features)]
    needed = frozenset([*features, *(_roles(spec) if labelled else ()), *also])
    return Reading(
        None,
        frozenset(numbers),
        spec.missing_words,
        frozenset(texts),
        needed,
        target=spec.target.name,
        usual=spec.separator,
        gaps=tuple((feature.name, feature.table_column) for feature in spec.features if feature.missing),
    )


def _roles(spec: DataSpec) -> list[str]:
    """Return the names of the target and of the columns of weights and groups."""
    others = (role.name for role in (spec.weight, spec.group) if role is not None)
    return [spec.target.name, *(name for name in others if name is not None)]


def nested_roles(schema: Mapping[str, pl.DataType], spec: DataSpec) -> dict[str, FlatColumn]:
    """Return the target, weights and groups that a table has within nested columns, by name, as in training."""
    nested = [column for column, dtype in schema.items() if is_nested(dtype)]
    pairs = [(name, column) for name in _roles(spec) if name not in schema for column in nested if column in name]
    located = zip(pairs, locate_columns(schema, pairs), strict=True)
    return {name: found for (name, _), found in located if found is not None}


def open_rows(
    data: Any,
    spec: DataSpec,
    *,
    scratch: Path,
    memory: int | None = None,
    also: Iterable[str] = (),
    texts: Iterable[str] = (),
    kept: Iterable[str] = (),
    excluded: Collection[str] = (),
    empty: bool = False,
) -> Source:
    """Open a table to predict; see `reading_of`. A Source that was opened for the same forest is returned as it is.

    An array with a column for each feature has them in the order of training. Other arrays have the columns x0, x1, ...

    texts, kept  further columns of text, and columns whose text is needed, see Reading.
    excluded     columns that were excluded in training.
    empty        True if the table may have no rows.

    Raises DataError as `open_source`, and for an array with further columns: its names are only their numbers.
    """
    if isinstance(data, Source):
        return data
    reading = reading_of(spec, [*also, *texts, *kept])
    reading = reading._replace(texts=reading.texts.union(texts), kept=frozenset(kept), empty=empty)
    source = open_source(_as_features(data, spec), scratch=scratch, memory=memory, reading=reading)
    further = [name for name in source.schema if not reading.needs(name) and name not in excluded]
    if further and not _has_names(data) and source.schema.keys() >= set(spec.feature_names):
        raise DataError(
            f"the array has {counted(len(further), 'column')} that the forest was not trained on, by number "
            f"{listed(further, _COLUMNS)}; give the columns of training, or a table whose columns have names"
        )
    if nested := nested_roles(source.schema, spec):
        whole = {name: FlatColumn(name, dtype) for name, dtype in source.schema.items()}
        with source.unchanged():
            source = repacked(source, whole | nested, scratch, USUAL.copy_cells)
    return source.retyped(
        {name: pl.Null() for name in _incomparable_features(source.schema, spec) if not source.has_values(name)}
    )


def _as_features(data: Any, spec: DataSpec) -> Any:
    """Return an array or sparse matrix with a column for each feature, alone or in a pair (X, y), with their names.

    Other tables are returned as they are.
    """
    table, *labels = data if isinstance(data, tuple) else (data,)
    matrix = table if _has_names(table) else table_of_list(table)
    if not (is_matrix(matrix) or is_sparse(matrix)) or matrix.shape[1:] != (len(spec.features),):
        return data
    names = spec.feature_names
    columns = SparseTable(matrix, names) if is_sparse(matrix) else dict(zip(names, matrix.T, strict=True))
    return (columns, *labels) if labels else columns


def _has_names(data: Any) -> bool:
    """Return True unless a table, or the first of a pair (X, y), is an array, a list of rows or a sparse matrix."""
    table = data[0] if isinstance(data, tuple) else data
    rows = isinstance(table, list) and not has_named_columns(table)
    return not (rows or is_matrix(table) or is_sparse(table))


def _incomparable_features(schema: Mapping[str, pl.DataType], spec: DataSpec) -> list[str]:
    """Return the names of features whose column has a type that cannot be compared with the type in training."""
    return [
        feature.name
        for feature in spec.features
        if (dtype := schema.get(feature.name)) is not None
        and not is_nested(dtype)
        and not _is_comparable(dtype, feature.dtype)
    ]


def check_schema(schema: Mapping[str, pl.DataType], spec: DataSpec, used: Iterable[int] | None = None) -> FeatureMap:
    """Return the places of the features, in columns or nested columns. Raises DataError unless all can be compared.

    used  positions in the dataspec of the features that are needed; None for all.
    """
    places = range(len(spec.features)) if used is None else [int(place) for place in used]
    features = [spec.features[place] for place in places]
    found = locate_columns(schema, [(feature.name, feature.table_column) for feature in features])
    missing = [feature.name for feature, column in zip(features, found, strict=True) if column is None]
    if missing:
        near = similar_names(missing[0], set(schema) - {*spec.feature_names, spec.target.name})
        they = "it" if len(missing) == 1 else "them"
        hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else f"; give a table that has {they}"
        if missing[0] in schema:  # the column is nested now, but was not nested in training
            hint = f"; its {missing[0]!r} is {schema[missing[0]]}"
        noun = "feature" if len(missing) == 1 else "features"
        names = listed(list(map(repr, missing)), 5)
        raise DataError(f"the data lacks {noun} {names}, which the forest was trained on{hint}")
    located = {place: column for place, column in zip(places, found, strict=True) if column is not None}
    # A wide table has few different pairs of types. Each pair is tested once.
    pairs = {(column.dtype, spec.features[place].dtype) for place, column in located.items()}
    incomparable = {pair for pair in pairs if not _is_comparable(*pair)}
    if incomparable:
        wrong = [
            f"{feature.name!r} {_other_kind(column.dtype, feature.dtype)}"
            for feature, column in zip(features, located.values(), strict=True)
            if (column.dtype, feature.dtype) in incomparable
        ]
        raise DataError(f"feature {'; '.join(wrong[:5])}: convert to what it was in training")
    return FeatureMap(spec, located)


def _is_comparable(dtype: pl.DataType, trained: str) -> bool:
    """Return True if values of this type can be compared with the values in training.

    A column without values can always be compared. If the feature had no values in training, any column can, because no
    node splits on the feature.
    """
    if dtype == pl.Null or trained == "Null":
        return True
    return is_feature_type(dtype) and kind_of(dtype).family == kind_of(trained).family


def _other_kind(dtype: pl.DataType, trained: str) -> str:
    """Return the part of an error that says the type of a feature, and its type in training."""
    return f"is {dtype}, in training it was {trained}"


# Most categories that an error names.
_NAMED = 5


class _Use(NamedTuple):
    """Position of a feature among the used features, `at`, and in the dataspec, `place`."""

    at: int
    place: int


class Reader:
    """Conversion of tables and arrays to rows for the trees of a forest.

    ranked  False to leave values as they are, even if trees split on ranks.

    An unseen level has the code after the last level, which no node lists. A missing value of a category that was never
    missing in training has the same code. If trees split on the values of levels, values replace the codes. If trees
    split on ranks, ranks in the training table replace the values.
    """

    def __init__(self, files: ForestFiles, *, ranked: bool = True) -> None:
        self.spec, self._files, self._ranked = files.spec, files, ranked
        self._last: tuple[Any, FeatureMap] | None = None  # schema and features of the last table

    @cached_property
    def reading(self) -> Reading:
        """How to read a table without further columns: see `reading_of`."""
        return reading_of(self.spec, labelled=False)

    def located(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, FeatureMap]:
        """Return a table in memory and its features. Raises DataError as `check_schema` does.

        A column without values may have any type: pandas fills it with NaN, whatever its type was. The features are
        looked up again only when the schema changes.
        """
        schema, last = (frame.columns, frame.dtypes), self._last  # read once: another thread may replace it
        if last is not None and last[0] == schema:
            return frame, last[1]
        try:
            features = check_schema(frame.schema, self.spec)
        except DataError:
            source = source_of(frame.lazy(), "")
            empty = [name for name in _incomparable_features(frame.schema, self.spec) if not source.has_values(name)]
            if not empty:
                raise
            frame = frame.with_columns(pl.lit(None, pl.Null).alias(name) for name in empty)
            schema, features = (frame.columns, frame.dtypes), check_schema(frame.schema, self.spec)
        self._last = schema, features
        return frame, features

    @cached_property
    def _has_categories(self) -> bool:
        return any(feature.kind == "category" for feature in self.spec.features)

    @cached_property
    def _text_categories(self) -> list[str]:
        """Names of the first categories of text, for an error."""
        categories = (feature for feature in self.spec.features if feature.kind == "category")
        names = (feature.name for feature in categories if kind_of(feature.dtype).family == "text")
        return list(islice(names, _NAMED))

    @cached_property
    def _values(self) -> dict[int, NDArray[np.float32]]:
        """Values of the levels, by position of the feature, if its levels have values; see Levels.code_values."""
        features = enumerate(self.spec.features)
        return {place: self._files.levels.code_values(place, spec) for place, spec in features if spec.has_level_values}

    def frame(
        self, frame: pl.DataFrame, features: FeatureMap, used: NDArray[np.int64], unseen: UnseenLevels = _UNCOUNTED
    ) -> RowBatch:
        """Read the features `used` (positions in the dataspec) of a frame, as `features` locates them.

        Raises DataError for unseen levels if their treatment is "error".
        """
        columns: dict[str, _Use] = {}
        nested: dict[str, _Use] = {}
        for at, place in enumerate(used):
            found = features.located[int(place)]
            if found.path or found.column in columns:  # all features of a struct without values are one column
                nested[f"{at}"] = _Use(at, int(place))
            else:
                columns[found.column] = _Use(at, int(place))
        blocks = self._blocks(frame, columns, unseen) if columns else []
        if nested:
            inner = frame.select(features.located[use.place].expr.alias(name) for name, use in nested.items())
            blocks += self._blocks(inner, nested, unseen)
        return self._as_split(RowBatch(blocks), used)

    def _as_split(self, rows: RowBatch, used: NDArray[np.int64]) -> RowBatch:
        """Return the rows as the trees read them: ranks replace values if the trees split on ranks."""
        ranks = self._files.ranks if self._ranked else None
        if ranks is None:
            return rows
        columns = zip(used.tolist(), rows.columns(), strict=True)
        return RowBatch.of([ranks.of(feature, column.astype(np.float64)) for feature, column in columns])

    def check_matrix(self, matrix: NDArray[Any] | SparseRows) -> None:
        """Raise DataError unless an array has two dimensions, a column for each feature, and a type for `matrix`."""
        features, shape = len(self.spec.features), matrix.shape
        if len(shape) != 2 or shape[1] != features:
            raise DataError(
                f"the array has shape {shape}; the forest was trained on {counted(features, 'feature')}, so it needs "
                "two dimensions and that many columns"
            )
        dtype = matrix[:0].dtype
        if dtype.kind == "O" or (dtype.kind in "UT" and self._has_categories):
            return
        if self._text_categories:
            raise DataError(
                f"the features {', '.join(map(repr, self._text_categories))} are categories of text, and the array "
                f"holds {dtype}: give a table, or an array of objects"
            )
        if dtype.kind not in "biuf" or dtype.itemsize > 8:
            raise DataError(f"the array has type {dtype}; convert it to numbers of at most 64 bits")

    def matrix(self, matrix: NDArray[Any], used: NDArray[np.int64], unseen: UnseenLevels = _UNCOUNTED) -> RowBatch:
        """Read the features `used` of an array [rows, features], as `frame` does, in the order of training.

        matrix  an array that `check_matrix` accepts. Dates and times are the integers that represent them
                (columns/types.py). A level of a category is a text, a boolean or a whole number. None and NaN are
                missing.

        Raises DataError as `frame` does.
        """
        dtype = matrix.dtype
        if dtype.kind in "OUT":
            rows = RowBatch.of([self._objects(matrix[:, place], int(place), unseen) for place in used])
            return self._as_split(rows, used)
        if self.spec.missing_words:
            single = dtype == np.float32
            found = np.isin(matrix, self._missing_numbers.to_numpy().astype(np.float32 if single else np.float64))
            matrix = np.where(found, np.nan, matrix) if found.any() else matrix
        if self._has_categories:
            columns = [self._column(matrix[:, place], int(place), unseen) for place in used]
            return self._as_split(RowBatch.of(columns), used)
        if used.size == len(self.spec.features):
            return self._as_split(RowBatch([FeatureBlock(matrix, matrix.dtype, slice(0, used.size))]), used)
        gaps = np.flatnonzero(np.diff(used) != 1) + 1
        ends = [0, *gaps.tolist(), used.size]
        # A block for each run of adjacent features is a view of the array, not a copy.
        blocks = [
            FeatureBlock(matrix[:, used[begin] : used[end - 1] + 1], matrix.dtype, slice(begin, end))
            for begin, end in pairwise(ends)
        ]
        return self._as_split(RowBatch(blocks), used)

    def _blocks(self, frame: pl.DataFrame, columns: Mapping[str, _Use], unseen: UnseenLevels) -> list[FeatureBlock]:
        """Group columns of a frame: columns of one type that numpy can read without conversion form one block."""
        selected = frame[list(columns)]
        if self.spec.missing_words:
            selected = pl.DataFrame([without_words(series, self.spec.missing_words) for series in selected])
        blocks: list[FeatureBlock] = []
        alike: dict[Any, list[str]] = {}
        categories: list[_Use] = []
        series: list[pl.Series] = []
        nulls = selected.null_count().row(0)
        for (name, use), dtype, missing in zip(columns.items(), selected.dtypes, nulls, strict=True):
            if self.spec.features[use.place].kind == "category":
                categories.append(use)
                series.append(cells(selected, name))
            elif is_plain(dtype) and not missing:
                alike.setdefault(dtype, []).append(name)
            else:
                blocks.append(FeatureBlock.of_column(self._numbers(cells(selected, name), use.place), use.at))
        codes = self._codes(series, [use.place for use in categories], unseen) if series else []
        blocks += [FeatureBlock.of_column(column, use.at) for column, use in zip(codes, categories, strict=True)]
        return blocks + [
            FeatureBlock.of_table(selected[names], [columns[name].at for name in names]) for names in alike.values()
        ]

    @cached_property
    def _missing_numbers(self) -> pl.Series:
        """The numbers among the words that mean a missing value, float64."""
        return pl.Series(self.spec.missing_words, dtype=pl.String).cast(pl.Float64, strict=False).drop_nulls()

    def _numbers(self, series: pl.Series, place: int) -> NDArray[Any]:
        """Return the values of a numeric feature, with NaN for missing values."""
        feature = self.spec.features[place]
        if series.dtype == pl.Null or feature.dtype == "Null":
            return np.full(len(series), np.nan, np.float32)
        values = numbers(series, feature.dtype)
        # Polars converts a column with missing values to float64; as float32 it keeps tiles narrow.
        return (
            values.astype(np.float32) if values.dtype == np.float64 and series.dtype.base_type() in NARROW else values
        )

    def _codes(self, columns: Sequence[pl.Series], places: Sequence[int], unseen: UnseenLevels) -> list[NDArray[Any]]:
        """Return the cells of the categories at `places` of the dataspec, see `_as_compared`."""
        levels = [self._files.levels.of(place) for place in places]
        firsts = [int(self.spec.features[place].missing) for place in places]
        codes = codes_by_column(columns, levels, firsts, [self.spec.features[place].dtype for place in places])
        return [self._as_compared(*column, unseen) for column in zip(columns, places, codes, strict=True)]

    def _as_compared(
        self, series: pl.Series, place: int, codes: NDArray[np.float64], unseen: UnseenLevels
    ) -> NDArray[Any]:
        """Return the codes or values that trees compare for the levels of a category. Count the unseen levels.

        codes  float64 [rows], codes; NaN for missing values, and the number of codes for unseen levels.

        Raises DataError for unseen levels if their treatment is "error".
        """
        feature = self.spec.features[place]
        unknown = codes == feature.codes
        if unseen.treatment == "error" and unknown.any():
            names = ", ".join(named_levels(series, unknown))
            raise DataError(
                f"{feature.name!r} has levels that did not occur in training, among them {names}; "
                f"set {api('unseen')} to larger or missing to predict these rows"
            )
        unseen.add(feature.name, series, unknown)
        missing = np.isnan(codes) | unknown if unseen.treatment == "missing" else np.isnan(codes)
        compared = np.where(missing, 0 if feature.missing else feature.codes, codes)
        if feature.has_level_values:
            return self._values[place][compared.astype(np.int64)]
        return compared.astype(np.min_scalar_type(feature.codes))

    def _times(self, series: pl.Series, place: int) -> NDArray[Any]:
        """Convert the cells of a feature of dates or times to numbers. Raises DataError for cells of another kind."""
        feature = self.spec.features[place]
        if not _is_comparable(series.dtype, feature.dtype):
            raise DataError(f"the feature {feature.name!r} of the array {_other_kind(series.dtype, feature.dtype)}")
        return numbers(series, feature.dtype)

    def _column(self, column: NDArray[Any], place: int, unseen: UnseenLevels) -> NDArray[Any]:
        """Return a feature that is a column of an array of numbers."""
        if self.spec.features[place].kind == "numeric":
            return column
        return self._codes([pl.Series(column, nan_to_null=True)], [place], unseen)[0]

    def _objects(self, column: NDArray[Any], place: int, unseen: UnseenLevels) -> NDArray[Any]:
        """Return a feature that is a column of an array of objects or text. Raises DataError."""
        feature = self.spec.features[place]
        try:
            values = [None if is_missing(cell) else cell for cell in column.tolist()]
            if feature.kind == "numeric":
                if kind_of(feature.dtype).family != "number":
                    series = series_of(values, None, f"the feature {feature.name!r} of the array")
                    if series.dtype.is_temporal():
                        return self._times(without_words(series, self.spec.missing_words), place)
                floats = np.array([np.nan if cell is None else cell for cell in values], np.float64)
                return np.where(np.isin(floats, self._missing_numbers.to_numpy()), np.nan, floats)
            series = without_words(pl.Series(feature.name, values, strict=True), self.spec.missing_words)
            return self._codes([series], [place], unseen)[0]
        except DataError:
            raise
        except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
            raise DataError(f"the feature {feature.name!r} of the array cannot be read: {error}") from error
