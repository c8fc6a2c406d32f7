"""bigforest encode"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options
from .cluster import SCHEDULER, running
from .command import grouped
from .config import CONFIG
from .config_file import ConfigFile
from .groups import chosen

if TYPE_CHECKING:
    from rich.console import Console

    from .show import Facts


@grouped(
    config=chosen(CONFIG, ["max_bins", "group", "task", "categories", "weight", "class_weight"]), scheduler=SCHEDULER
)
def encode(
    data: options.Data,
    out: Annotated[str, typer.Option(metavar="STORE", show_default=False, help="The store, a folder.")],
    target: options.Target = None,
    exclude: options.Exclude = None,
    *,
    config: dict[str, Any],
    overwrite: options.Overwrite = False,
    config_file: ConfigFile = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    threads: options.Threads = None,
    scratch: options.Scratch = None,
    memory: options.Memory = None,
    scheduler: dict[str, Any],
) -> None:
    """Presort a table into a store, to train on it many times.

    Example: bigforest encode flights.parquet --out flights.store
    """
    del config_file  # its options have become those of the command
    import bigforest

    from .show import show

    with running(scheduler, quiet=quiet) as (client, ledger):
        store = bigforest.encode_store(
            data,
            out,
            target=target,
            **config,
            exclude=exclude or (),
            overwrite=overwrite,
            threads=threads,
            scratch=scratch,
            memory=memory,
            listener=ledger,
            scheduler=client,
        )
    facts = {
        "store": str(store.path),
        "target": store.spec.target.name,
        "rows": store.rows,
        "dropped": store.spec.dropped,
        "features": len(store.spec.features),
        "task": store.spec.target.task,
        "classes": len(store.spec.target.classes),
        "bytes": sum(file.stat().st_size for file in store.path.iterdir()),
        **ledger.facts,
    }
    show(facts, _draw, json=json, quiet=quiet)


def _draw(console: Console, facts: Facts) -> None:
    from .show import lines, size, table_size

    lines(console, [*table_size(facts), ("size", size(facts["bytes"])), ("store", facts["store"])])
