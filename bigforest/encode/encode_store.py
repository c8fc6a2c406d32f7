"""`bigforest.encode_store`: presort a table into a store that many forests are trained on."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from numpy.typing import ArrayLike

from bigforest.encode.encode import encode
from bigforest.encode.roles import USUAL_NAMES, column_roles
from bigforest.events import Listener
from bigforest.execution.connect import open_resources
from bigforest.execution.resources import column_names, options_of, resources_of, target_of
from bigforest.options.signatures import explicit_options, given, with_entries
from bigforest.options.train_config import TrainConfig
from bigforest.progress import watching
from bigforest.source import Reading, check_csv, open_source, opens_quickly
from bigforest.source.in_memory import numeric_categories, with_columns_beside
from bigforest.storage.atomic import TemporaryFolder, check_output, staged
from bigforest.storage.paths import as_path
from bigforest.store.format import is_store
from bigforest.store.store import Store


@with_entries
@explicit_options
def encode_store(
    data: Any,
    out: str | Path,
    *,
    target: str | ArrayLike | None = None,
    # Options, written by docs/options.py.
    max_bins: Literal["exact"] | int = "exact",
    group: str | ArrayLike | None = None,
    weight: str | ArrayLike | None = None,
    class_weight: Mapping[Any, float] | str | Path | None = None,
    task: Literal["classification", "regression"] | None = None,
    categories: str | Sequence[str] = (),
    missing: str | Sequence[str] = (),
    # End of the options.
    exclude: Sequence[str] = (),
    overwrite: bool = False,
    threads: int | None = None,
    scratch: str | Path | None = None,
    memory: str | int | None = None,
    listener: Listener | None = None,
    scheduler: Any = None,
) -> Store:
    """Presort a table into the store `out`, to train on it many times.

    Arguments that are not described here, and the errors, are the same as for `train`.

    Parameters
    ----------
    data : path or table
        The table, as for `train`.
    out : path
        Folder of the store.
    target : str or ArrayLike
        The target column, or one value per row.
    overwrite : bool, default=False
        Replace an existing store at `out`.

    Returns
    -------
    Store

    Examples
    --------
    >>> import bigforest as bf
    >>> rows = {"size": [1.0, 2.0, 2.0, 4.0], "kind": ["a", "a", "b", "b"]}
    >>> store = bf.encode_store(rows, "kind.store", target="kind")
    >>> bf.train(store, trees=5).trees
    5
    """
    resources = resources_of(threads, scratch, memory)
    data, target, left_out, options = column_arguments(data, target, exclude, given(locals()))
    config = TrainConfig(**options)
    check_csv(data, config.missing)
    if not opens_quickly(data):
        check_output(out, overwrite=overwrite, kind="store", is_ours=is_store)
    with (
        watching(listener) as listener,
        open_resources(scheduler, resources, as_path(out), listener, beside=True) as resources,
        TemporaryFolder(resources.scratch) as work,
    ):
        reading = Reading(missing=config.missing, excluded=frozenset(left_out))
        source = open_source(data, scratch=work, memory=resources.memory, reading=reading)
        roles = column_roles(source, target, left_out, config)
        with staged(out, overwrite=overwrite, kind="store", is_ours=is_store) as folder:
            encode(
                source,
                target,
                folder,
                config=config,
                exclude=left_out,
                resources=resources,
                listener=listener,
                roles=roles,
            )
    return Store.open(out)


class ColumnArguments(NamedTuple):
    """Arguments of `train` and `encode_store` about the table, with every column named.

    data     the table; arrays given as `target`, `weight` or `group` are columns of it.
    target   name of the target column; None for the first of the usual names.
    exclude  names of columns to ignore.
    options  explicit options of TrainConfig.
    """

    data: Any
    target: str | None
    exclude: tuple[str, ...]
    options: dict[str, Any]


def column_arguments(
    data: Any, target: Any, exclude: Any, options: dict[str, Any], *, resumes: bool = False
) -> ColumnArguments:
    """Name the columns that the arguments refer to.

    Categorical columns of numbers of a pandas frame are added to the option `categories`, unless a forest is resumed,
    which records its categories. Raises ConfigError and DataError.
    """
    beside = {"target": target, "weight": options.get("weight"), "group": options.get("group")}
    coded = [] if resumes else numeric_categories(data[0] if isinstance(data, tuple) and data else data)
    left_out = tuple(column_names(exclude, "exclude"))
    data = as_path(data) if isinstance(data, os.PathLike) else data
    data, names = with_columns_beside(data, beside, Reading(excluded=frozenset(left_out)))
    options = options_of(options | {name: names[name] for name in ("weight", "group") if name in options})
    target = target_of(names["target"])
    if coded:
        usual = next((name for name in USUAL_NAMES if name in data.columns), None)
        no_features = {target or usual, *names.values(), *left_out}
        categories = column_names(options.get("categories", ()), "categories")
        options["categories"] = tuple(
            dict.fromkeys([*categories, *(name for name in coded if name not in no_features)])
        )
    return ColumnArguments(data, target, left_out, options)
