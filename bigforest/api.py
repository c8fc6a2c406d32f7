"""The functions behind the commands: from a table to a forest, a store or predictions, whole or not at all.

The module is not called train.py: importing a module of that name would hide the function `bigforest.train`.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from bigforest.config import TrainConfig
from bigforest.encode.pipeline import encode
from bigforest.errors import ConfigError
from bigforest.events import Event, Listener, StageFinished, silent
from bigforest.forest.forest import Forest, is_forest, read_forest
from bigforest.forest.ranks import average_ranks, write_ranks
from bigforest.forest.summary import write_features, write_run
from bigforest.grow.forest import grow_forest
from bigforest.oob import write_oob
from bigforest.output import TemporaryFolder, check_output, staged
from bigforest.predict import FilePrediction, is_prediction
from bigforest.predict import predict_file as predict_source
from bigforest.resources import Resources
from bigforest.source import open_source
from bigforest.source.files import find_files
from bigforest.store.format import is_store
from bigforest.store.store import Store

# Keywords of `train` that are not part of the configuration; a misspelt one arrives among its options.
_OTHER_KEYWORDS = ("data", "target", "out", "listener", "overwrite", "threads", "scratch", "exclude")


def train(
    data: Any,
    target: str | None = None,
    *,
    out: str | Path | None = None,
    listener: Listener = silent,
    overwrite: bool = False,
    threads: int | None = None,
    scratch: str | Path | None = None,
    exclude: Sequence[str] = (),
    **config: Any,
) -> Forest:
    """Grow a forest on a table.

    data       a path, glob or folder (Parquet, Arrow, CSV, NDJSON), a Polars, pandas or pyarrow table, a pair
               (X, y) of numpy arrays, or a store made by `encode_store`.
    target     the column to learn; None for the one column named target, label, class or y.
    out        folder the forest is written to; None keeps it in a temporary folder for as long as the Forest
               object lives (`Forest.write` keeps it for good).
    listener   is told of every event of the run (events.py).
    overwrite  replace a forest that is already at `out`.
    threads    worker threads; None for all processors. The forest does not depend on it.
    scratch    folder for temporary files; None for the system's.
    exclude    columns to leave out.
    config     the fields of TrainConfig: trees, seed, mtry, impurity, family and so on.

    Raises ConfigError for an unusable option, DataError for an unusable table, FormatError for a damaged
    store and OutputExistsError when `out` is taken.
    """
    settings = _settings(config)
    resources = _resources(threads, scratch)
    columns = _names(exclude)

    def grow_into(directory: Path) -> None:
        clock = _Clock(listener)
        with TemporaryFolder(resources.scratch) as work:
            store, final = _store(data, target, columns, settings, resources, clock, work)
            _grow(store, final, directory, resources, clock)

    if out is not None:
        with staged(out, overwrite=overwrite, kind="forest", is_ours=is_forest) as directory:
            grow_into(directory)
        return read_forest(out)
    home = TemporaryFolder(resources.scratch)
    try:
        grow_into(home.path / "forest")
        return read_forest(home.path / "forest", holding=home)
    except BaseException:
        home.remove()
        raise


def encode_store(
    data: Any,
    out: str | Path,
    *,
    target: str | None = None,
    max_bins: str | int = "exact",
    exclude: Sequence[str] = (),
    overwrite: bool = False,
    threads: int | None = None,
    scratch: str | Path | None = None,
    listener: Listener = silent,
) -> Store:
    """Presort a table into the store `out`, to train on it many times.

    Arguments and errors are those of `train`.
    """
    resources = _resources(threads, scratch)
    bins = _settings({"max_bins": max_bins}).max_bins
    with (
        staged(out, overwrite=overwrite, kind="store", is_ours=is_store) as place,
        TemporaryFolder(resources.scratch) as work,
    ):
        encode(
            open_source(data, scratch=work),
            target,
            place,
            max_bins=bins,
            exclude=_names(exclude),
            resources=resources,
            listener=listener,
        )
    return Store.open(Path(out))


def predict_file(
    forest: Forest | str | Path,
    data: Any,
    out: str | Path,
    *,
    proba: bool = False,
    keep: Sequence[str] = (),
    vote: str | None = None,
    ties: str = "lowest",
    threads: int | None = None,
    scratch: str | Path | None = None,
    overwrite: bool = False,
    listener: Listener = silent,
) -> FilePrediction:
    """Predict every row of a table of any size into the Parquet file `out`, in order and in bounded memory.

    forest     a Forest or the path of one.
    data       a table as for `train`.
    proba      also write one column p_<class> per class.
    keep       columns of the table to copy to the file.
    vote       "soft", "hard" or "stochastic"; None as in training.
    ties       among equal classes "lowest", "reject" (null) or "random".
    overwrite  replace a file of predictions that is already at `out`.

    The other arguments are those of `train`. The result says how well the table's own labels were met, if it
    has any. Raises ConfigError, DataError, FormatError and OutputExistsError.
    """
    resources = _resources(threads, scratch)
    check_output(out, overwrite=overwrite, kind="prediction", is_ours=is_prediction)
    if not isinstance(forest, Forest):
        forest = read_forest(forest)
    with TemporaryFolder(resources.scratch) as work:
        return predict_source(
            forest,
            open_source(data, scratch=work),
            out,
            proba=proba,
            keep=_names(keep),
            vote=vote,
            ties=ties,
            resources=resources,
            listener=listener,
            overwrite=overwrite,
        )


def default_output(data: str | Path, suffix: str) -> Path:
    """Name of the output, in the current folder, for a table or store: flights.csv gives flights<suffix>.

    Raises DataError when there is nothing at `data`.
    """
    place = Path(data)
    name = place.resolve().name.removesuffix(".store") if is_store(place) else find_files(data)[0]
    return Path(name + suffix)


def _store(
    data: Any,
    target: str | None,
    exclude: list[str],
    config: TrainConfig,
    resources: Resources,
    listener: Listener,
    work: Path,
) -> tuple[Store, TrainConfig]:
    """The store to train on, and the configuration of the forest, some of which a kept store has decided."""
    if isinstance(data, str | Path) and is_store(Path(data)):
        data = Store.open(Path(data))
    if isinstance(data, Store):
        return data, _agree(data, target, exclude, config)
    source = open_source(data, scratch=work)
    store = encode(
        source,
        target,
        work / "table.store",
        max_bins=config.max_bins,
        exclude=exclude,
        resources=resources,
        listener=listener,
    )
    return store, config


def _agree(store: Store, target: str | None, exclude: list[str], config: TrainConfig) -> TrainConfig:
    """The configuration with the store's max_bins. Raises ConfigError where the options contradict it."""
    if target not in (None, store.spec.target.name):
        raise ConfigError(
            f"the store {store.path} was made for target {store.spec.target.name!r}, not {target!r}; "
            "encode the table again"
        )
    if exclude:
        raise ConfigError(f"columns are excluded when a table is encoded, and {store.path} is a store; encode it again")
    if config.max_bins not in ("exact", store.max_bins):
        raise ConfigError(
            f"the store {store.path} was made with max_bins {store.max_bins}, not {config.max_bins}; "
            "encode the table again"
        )
    return replace(config, max_bins=store.max_bins)


def _grow(store: Store, config: TrainConfig, directory: Path, resources: Resources, clock: _Clock) -> None:
    """Write the forest directory of a store."""
    directory.mkdir()
    if config.ranks:
        store = _ranked(store, config, directory)
    grow_forest(store, config, directory, resources=resources, listener=clock)
    if config.bootstrap:
        write_oob(store, config, directory, resources=resources, listener=clock)
    write_features(directory, store.spec, config)
    write_run(directory, clock.seconds, resources.workers, store.spec, config)


def _ranked(store: Store, config: TrainConfig, directory: Path) -> Store:
    """The store with ranks for values; what values have which goes to the forest in `directory`."""
    knots = []
    ranks = []
    for feature in range(len(store.spec.features)):
        rank = average_ranks(store.counts(feature))
        ranks.append(rank)
        ends = np.stack([store.low(feature), store.high(feature)], axis=1).ravel()
        distinct = np.append(True, ends[1:] != ends[:-1])
        knots.append((ends[distinct], np.repeat(rank, 2)[distinct]))
    write_ranks(directory, knots, store.spec, config)
    return store.with_values(np.concatenate(ranks))


class _Clock:
    """Passes events on and remembers how long each stage took."""

    def __init__(self, listener: Listener) -> None:
        self.seconds: dict[str, float] = {}
        self._listener = listener

    def __call__(self, event: Event) -> None:
        if isinstance(event, StageFinished):
            self.seconds[event.stage] = event.seconds
        self._listener(event)


def _settings(options: dict[str, Any]) -> TrainConfig:
    """The configuration of `options`, which may hold numpy scalars. Raises ConfigError."""
    known = [field.name for field in fields(TrainConfig)]
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, [*known, *_OTHER_KEYWORDS], n=2)
            hint = f"did you mean {' or '.join(near)}?" if near else f"the options are {', '.join(known)}"
            raise ConfigError(f"there is no option {name!r}; {hint}")
    return TrainConfig.of(**{k: v.item() if isinstance(v, np.generic) else v for k, v in options.items()})


def _resources(threads: int | None, scratch: str | Path | None) -> Resources:
    return Resources(threads=threads, scratch=None if scratch is None else Path(scratch))


def _names(columns: Sequence[str] | str) -> list[str]:
    """Names of columns; a single name is meant as one column, not as its letters."""
    return [columns] if isinstance(columns, str) else list(columns)
