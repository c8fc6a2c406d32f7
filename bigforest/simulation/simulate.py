"""Draw a table in blocks of rows, as a frame or as a Parquet file of any size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from bigforest.errors import ConfigError, api
from bigforest.events import Listener, stage
from bigforest.forest.tables import write_table_file
from bigforest.options.values import check_flag, check_word, is_integer, plain
from bigforest.progress import watching
from bigforest.simulation.families import (
    DrawnRows,
    Multimodal,
    Orthant,
    Parity,
    Purpose,
    Shapes,
    SparseParity,
    Transform,
    Trunk,
    random_blocks,
)
from bigforest.source.source import scan_parquet
from bigforest.storage.paths import absolute_path

if TYPE_CHECKING:
    import pyarrow as pa

FILE_KIND = "simulation"
SHAPES_NOISE = 0.1

# Most columns, and most classes, which is the limit of targets.
MAX_DIMS = 1 << 16
MAX_CLASSES = 65_535

# Most dims of simulations that make matrices [dims, dims]: one of 134 MB for a rotation, eight of 8 MB for multimodal.
ROTATE_DIMS = 4096
MULTIMODAL_DIMS = 1024

# Default number of rows to sample for a Bayes error without a closed form, and most dims for which the default applies:
# the sample takes about a second.
BAYES_DRAWS = 100_000
CHEAP_DIMS = 64


Family = Trunk | Parity | Orthant | SparseParity | Shapes | Multimodal
_FAMILIES: dict[str, Callable[[SimulationConfig], Family]] = {
    "trunk": lambda config: Trunk(config.dims),
    "parity": lambda config: Parity(config.dims),
    "multimodal": lambda config: Multimodal(config.dims, config.seed),
    "modified-trunk": lambda config: Trunk(config.dims, modified=True),
    "orthant": lambda config: Orthant(config.dims),
    "sparse-parity": lambda config: SparseParity(config.dims),
    "shapes": lambda config: Shapes(config.dims, config.noise),
}
KINDS = tuple(_FAMILIES)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationConfig:
    """Checked arguments of `bigforest.simulate`; its `affine` has become rotate and scale. Raises ConfigError."""

    kind: str
    rows: int
    dims: int
    rotate: bool = False
    scale: bool = False
    outliers: int = 0
    noise: float = 0.0
    sample: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            object.__setattr__(self, field.name, plain(getattr(self, field.name)))
        check_word(self.kind, KINDS, "kind")
        check_flag(self.rotate, "rotate")
        check_flag(self.scale, "scale")
        least = 2 if self.kind == "shapes" else 1
        limits = {"rows": (1, 2**63), "dims": (least, MAX_DIMS), "outliers": (0, 2**63)}
        for name, (low, high) in {**limits, "sample": (0, 2**63 - 1), "seed": (0, 2**63 - 1)}.items():
            value = getattr(self, name)
            if not is_integer(value, low, high):
                raise ConfigError(f"{name} of {self.kind} must be a whole number from {low} to {high}, not {value!r}")
        if self.rotate and self.dims > ROTATE_DIMS:
            raise ConfigError(f"at most {ROTATE_DIMS} dims can be rotated, not {self.dims}; rotate fewer")
        if self.kind == "multimodal" and self.dims > MULTIMODAL_DIMS:
            raise ConfigError(f"multimodal has at most {MULTIMODAL_DIMS} dims, not {self.dims}")
        if self.kind == "orthant" and 2**self.dims > MAX_CLASSES:
            raise ConfigError(f"orthant has 2^dims classes, so at most 15 dims, not {self.dims}")
        if not isinstance(self.noise, int | float) or not 0 <= self.noise <= 0.5:
            raise ConfigError(f"{api('noise')} must be a share of the labels from 0 to 0.5, not {self.noise!r}")
        if self.kind != "shapes" and self.noise:
            raise ConfigError(f"{api('noise')} is for shapes, not for {self.kind}; drop it")
        if self.kind == "shapes" and self.outliers:
            raise ConfigError("shapes has no class means to draw outliers around; leave outliers out")

    def family(self) -> Family:
        return _FAMILIES[self.kind](self)


@dataclass(frozen=True, slots=True)
class BayesError:
    """The Bayes error: the lowest error of any classifier.

    error           probability of a wrong class for rows that are not outliers.
    standard_error  standard error of a Monte Carlo estimate; 0 in closed form.
    how             "closed form" or "Monte Carlo".

    Examples
    --------
    >>> import bigforest as bf
    >>> bayes = bf.bayes_error("trunk", dims=2)
    >>> round(bayes.error, 3), bayes.how
    (0.11, 'closed form')
    """

    error: float
    standard_error: float
    how: str


def _config_of(
    kind: str, rows: int, dims: int | None, affine: bool, noise: float | None, **others: Any
) -> SimulationConfig:
    """Return the configuration for arguments of `simulate`. Raises ConfigError."""
    check_word(kind, KINDS, "kind")
    check_flag(affine, "affine")
    if dims is None and kind != "shapes":
        raise ConfigError(f"simulating {kind} needs its number of columns; set {api('dims')}")
    dims = 2 if dims is None else dims
    if noise is None:
        noise = SHAPES_NOISE if kind == "shapes" else 0.0
    if affine:
        others.update(rotate=True, scale=True)
    return SimulationConfig(kind=kind, rows=rows, dims=dims, noise=noise, **others)


def simulate(
    kind: str,
    *,
    rows: int,
    dims: int | None = None,
    rotate: bool = False,
    scale: bool = False,
    affine: bool = False,
    outliers: int = 0,
    noise: float | None = None,
    truth: bool = False,
    sample: int = 0,
    seed: int = 0,
    out: str | Path | None = None,
    overwrite: bool = False,
    listener: Listener | None = None,
) -> pl.DataFrame | pl.LazyFrame:
    """Draw a table from a known distribution (see simulation/families.py).

    The same arguments return the same table. Its last bits may differ between versions of numpy and, if it is rotated
    or multimodal, between processors.

    Parameters
    ----------
    kind : str
        One of trunk, parity, multimodal, modified-trunk, orthant, sparse-parity or shapes.
    rows : int
        Rows to draw, without outliers. They are the first rows of a table with more rows and otherwise the same
        arguments.
    dims : int or None, default=None
        Number of columns. None for 2 columns of shapes; all other kinds need a number.
    rotate : bool, default=False
        Rotate all rows by one random rotation.
    scale : bool, default=False
        Multiply every column by a random factor from 0 to 10.
    affine : bool, default=False
        Rotate, then scale.
    outliers : int, default=0
        Number of rows appended at the end, around the same class means with four times the covariance. Not for shapes.
    noise : float or None, default=None
        Probability of a wrong label, from 0 to 0.5, for shapes only. None for 0.1.
    truth : bool, default=False
        Add a column `truth`, the label without noise. Do not train on it.
    sample : int, default=0
        Number of the sample. Another number draws other rows from the same distribution (same means, rotation and
        factors), such as a test set.
    seed : int, default=0
        Seed of all random numbers. The distribution depends on the seed alone, the rows also on `sample`.
    out : str, Path or None, default=None
        A Parquet file, written in bounded memory; None returns the table.
    overwrite, listener
        As for `train`.

    Returns
    -------
    DataFrame or LazyFrame
        The columns x0, x1, ... (float64), optionally truth, and target (uint8, or uint16 from 257 classes on): as a
        frame, or as a scan of `out`.

    Raises
    ------
    ConfigError, OutputExistsError

    Examples
    --------
    >>> import bigforest as bf
    >>> bf.simulate("trunk", rows=100, dims=3).columns
    ['x0', 'x1', 'x2', 'target']
    """
    config = _config_of(
        kind, rows, dims, affine, noise, rotate=rotate, scale=scale, outliers=outliers, sample=sample, seed=seed
    )
    check_flag(truth, "truth")
    with watching(listener) as listener:
        if out is None:
            import pyarrow as pa

            frame = pl.from_arrow(pa.concat_tables(_tables(config, truth, listener)), rechunk=True)
            assert isinstance(frame, pl.DataFrame)
            return frame
        write_table_file(
            out,
            _tables(config, truth, listener),
            kind=FILE_KIND,
            about={"config": asdict(config)},
            dictionary=["truth", "target"],
            overwrite=overwrite,
        )
    return scan_parquet([absolute_path(out)])


def bayes_error(
    kind: str,
    *,
    dims: int | None = None,
    noise: float | None = None,
    seed: int = 0,
    draws: int | None = None,
) -> BayesError | None:
    """Compute the Bayes error of a simulation. It depends neither on rotation and scales nor on outliers.

    Parameters
    ----------
    kind, dims, noise, seed
        As for `simulate`.
    draws : int or None, default=None
        Rows to sample for multimodal, which has no closed form; at least 2. None samples 100,000 rows for up to 64
        dims; with more dims the result is None.

    Returns
    -------
    BayesError or None

    Raises
    ------
    ConfigError

    Examples
    --------
    >>> import bigforest as bf
    >>> round(bf.bayes_error("trunk", dims=2).error, 3)
    0.11
    """
    config = _config_of(kind, 1, dims, False, noise, seed=seed)
    family = config.family()
    if not isinstance(family, Multimodal):
        return BayesError(family.bayes(), 0.0, "closed form")
    if draws is None:
        if config.dims > CHEAP_DIMS:
            return None
        draws = BAYES_DRAWS
    if not is_integer(draws, 2):
        raise ConfigError(f"{api('draws')} must be a whole number of at least 2, not {draws!r}")
    return BayesError(*family.sampled_bayes(draws), "Monte Carlo")


def _tables(config: SimulationConfig, truth: bool, listener: Listener) -> Iterator[pa.Table]:
    """Yield the rows block by block, outliers last."""
    family = config.family()
    transform = Transform(config.dims, config.seed, rotate=config.rotate, scale=config.scale)
    key = (config.dims, config.seed, config.sample)
    blocks = chain(
        random_blocks(config.rows, *key, Purpose.ROWS),
        random_blocks(config.outliers, *key, Purpose.OUTLIERS, spread=2.0),
    )
    with stage("simulate", config.rows + config.outliers, "rows", listener) as progress:
        for block in blocks:
            drawn = family.rows(block)
            yield _table(drawn._replace(values=transform.apply(drawn.values)), family.classes, truth)
            progress.advance(block.rows)


def _table(rows: DrawnRows, classes: int, truth: bool) -> pa.Table:
    import pyarrow as pa

    from bigforest.columns.arrow_arrays import arrow_array

    by_column = np.asfortranarray(rows.values)
    columns = {f"x{number}": arrow_array(by_column[:, number]) for number in range(by_column.shape[1])}
    label_type = np.uint8 if classes <= 256 else np.uint16
    if truth:
        columns["truth"] = arrow_array(rows.truth.astype(label_type))
    columns["target"] = arrow_array(rows.target.astype(label_type))
    return pa.table(columns)
