"""bigforest encode"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from . import options

if TYPE_CHECKING:
    from rich.console import Console

    from .show import Facts


def encode(
    data: options.Data,
    out: Annotated[str, typer.Option(metavar="STORE", show_default=False, help="The store, a folder.")],
    target: options.Target = None,
    exclude: options.Exclude = None,
    max_bins: options.MaxBins = "exact",
    group: options.Group = None,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    threads: options.Threads = None,
    scratch: options.Scratch = None,
    memory: options.Memory = None,
    scheduler: options.Scheduler = None,
    scheduler_file: options.SchedulerFile = None,
    tls_ca: options.TlsCa = None,
    tls_cert: options.TlsCert = None,
    tls_key: options.TlsKey = None,
) -> None:
    """Presort a table into a store, to train on it many times.

    Example: bigforest encode flights.parquet --out flights.store, then bigforest train flights.store
    """
    import bigforest

    from .cluster import Ledger, scheduler_of
    from .progress import watching
    from .show import show

    with (
        scheduler_of(scheduler, scheduler_file, tls_ca, tls_cert, tls_key) as client,
        watching(quiet=quiet) as listener,
    ):
        ledger = Ledger(listener)
        store = bigforest.encode_store(
            data,
            out,
            target=target,
            max_bins=options.count_or_word(max_bins),
            exclude=exclude or (),
            group=group,
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
        "classes": len(store.spec.target.classes),
        "bytes": sum(file.stat().st_size for file in store.path.iterdir()),
        **ledger.facts,
    }
    show(facts, _draw, json=json, quiet=quiet)


def _draw(console: Console, facts: Facts) -> None:
    from .show import lines, size, table_size

    lines(console, [*table_size(facts), ("size", size(facts["bytes"])), ("store", facts["store"])])
