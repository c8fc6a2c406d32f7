"""bigforest encode"""

from __future__ import annotations

from typing import Annotated

import typer

from . import options
from .command import command
from .config import CONFIG, STORE
from .options import CONFIG_FILE, Given, chosen
from .show import Facts, lines, size, table_size


def _draw(facts: Facts) -> None:
    lines(*table_size(facts), ("size", size(facts["bytes"])), ("store", facts["store"]))


@command(
    _draw,
    table=options.TABLE,
    config=chosen(CONFIG, STORE) | CONFIG_FILE,
    run=options.run_options("overwrite", "threads", "scratch", "memory", "scheduler"),
)
def encode(
    data: options.Data,
    out: Annotated[str, typer.Option(metavar="STORE", show_default=False, help="The store, a folder.")],
    *,
    table: Given,
    config: Given,
    run: Given,
) -> Facts:
    """Presort a table into a store, to train on it many times.

    Example: bigforest encode flights.parquet --out flights.store
    """
    import bigforest

    store = bigforest.encode_store(data, out, **table, **config, **run)
    return {
        "store": str(store.path),
        "target": store.spec.target.name,
        "rows": store.rows,
        "dropped": store.spec.dropped,
        "features": len(store.spec.features),
        "task": store.spec.target.task,
        "classes": len(store.spec.target.classes),
        "bytes": sum(file.stat().st_size for file in store.path.iterdir()),
    }
