"""Connecting to the cluster of a run, if any."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigforest.errors import ClusterError, ConfigError, api, reason
from bigforest.events import Listener, Notice, WorkersUsed, WorkerUse, silent
from bigforest.execution.resources import Resources
from bigforest.storage.paths import is_folder

if TYPE_CHECKING:
    from bigforest.execution.dask_cluster import Cluster

LOCAL = "threads"

# Share of Dask's time limit for connecting after which a notice says that the scheduler does not answer yet.
_SOON = 0.1


@contextmanager
def cluster_of(scheduler: Any, listener: Listener) -> Iterator[Cluster | None]:
    """Yield the cluster that the keyword `scheduler` names; None for the threads of this process.

    scheduler  None for the active `distributed.Client`, if there is one; a Client; an address (tcp:// or tls://) to
               connect to while the block runs; or "threads".
    listener   gets a notice if the scheduler does not answer soon.

    Raises ConfigError for other values and asynchronous clients, and ClusterError when nothing answers at the address.
    """
    if scheduler is None:
        client = _active_client()
        yield None if client is None else _cluster(client)
    elif isinstance(scheduler, str):
        if scheduler == LOCAL:
            yield None
            return
        with connected(scheduler, listener=listener) as client:
            yield _cluster(client)
    else:
        yield _cluster(_checked(scheduler))


def _cluster(client: Any) -> Cluster:
    from bigforest.execution.dask_cluster import Cluster  # imports modules that only clusters need

    return Cluster(client)


@contextmanager
def connected(
    address: str | None = None,
    *,
    file: str | Path | None = None,
    ca: str | None = None,
    cert: str | None = None,
    key: str | None = None,
    listener: Listener = silent,
) -> Iterator[Any]:
    """Yield a client of the scheduler at the address, or at the address in the scheduler file.

    ca, cert, key  PEM files for tls://; by default from Dask's own configuration.
    listener       gets a notice if the scheduler does not answer soon.

    Raises ConfigError for missing or invalid files, ClusterError when nothing answers.
    """
    from distributed.security import Security

    address = address if file is None else _address_in(Path(file))
    files = {"tls_ca_file": ca, "tls_client_cert": cert, "tls_client_key": key}
    tls_files = {name: path for name, path in files.items() if path is not None}
    for path in tls_files.values():
        if not Path(path).is_file():
            raise ConfigError(f"there is no file {path} of TLS; check the path")
    try:
        security = Security(require_encryption=True, **tls_files) if tls_files else None
        _check_address(address, security)
        client = _client(address, security, listener)
    except (OSError, ValueError, TypeError, ImportError) as error:
        raise ClusterError(
            f"no scheduler answers at {address} ({reason(error)}); check the address, and the TLS files of a tls:// one"
        ) from error
    with client:
        yield client


def _client(address: str | None, security: Any, listener: Listener) -> Any:
    """Return a client whose scheduler has answered. Raises OSError after the time that Dask is set to wait."""
    import dask
    from distributed import Client

    patience = dask.utils.parse_timedelta(dask.config.get("distributed.comm.timeouts.connect"))
    make = partial(Client, address, security=security, set_as_default=False)
    soon = patience * _SOON
    begin = time.monotonic()
    try:
        return make(timeout=soon)
    except OSError:
        spent = time.monotonic() - begin
        if not soon <= spent < patience:  # the connection was refused, or all the time has passed
            raise
    listener(Notice(f"no scheduler answers at {address} yet; waiting at most {patience - spent:.0f} s more"))
    return make(timeout=patience - spent)


def _address_in(file: Path) -> str:
    """Return the address in a scheduler file. Raises ConfigError."""
    if not file.is_file():
        raise ConfigError(
            f"there is no scheduler file {file}; start a scheduler with --scheduler-file, or check the path"
        )
    try:
        return str(json.loads(file.read_text(encoding="utf-8"))["address"])
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"{file} is not a scheduler file: it names no address; check the path") from error


def _check_address(address: str | None, security: Any) -> None:
    """Raise ValueError or OSError for an address or TLS files with which Dask's client would fail before it connects.

    A client that fails there is left incomplete, and delays the end of the process by a minute.
    """
    import dask
    from distributed.comm.addressing import get_address_host, parse_address
    from distributed.security import Security

    get_address_host(address)  # fails for an unknown scheme or a malformed address
    if security is None and dask.config.get("distributed.client.security-loader", None):
        return
    encrypted = parse_address(address)[0] in ("tls", "wss")
    asked = (security or Security()).get_connection_args("client")
    if encrypted and asked["ssl_context"] is None:
        raise ValueError("it needs a certificate and the certificate authority of its peers")
    if asked["require_encryption"] and not encrypted:
        raise ValueError("TLS is asked for, and this is not tls://")


@contextmanager
def open_resources(
    scheduler: Any, resources: Resources, out: Path | None, listener: Listener, *, beside: bool = False
) -> Iterator[Resources]:
    """Yield the resources of a run. If `scheduler` names a cluster (see `cluster_of`), check the cluster and add it.

    out     path of the output; None for a path in the temporary folder.
    beside  True to put temporary files of a run on a cluster next to the output if no scratch folder is given.

    On a cluster, the number of threads is limited to that of the worker with the most threads. The listener gets
    notices about the workers, and their statistics at the end. Raises ClusterError and ConfigError.
    """
    with cluster_of(scheduler, listener) as cluster:
        if cluster is None:
            yield resources
            return
        for notice in cluster.check():
            listener(Notice(notice))
        max_threads = max(cluster.threads().values())
        threads = max_threads if resources.threads is None else min(resources.threads, max_threads)
        home = None if out is None else out.resolve().parent
        scratch = None if resources.scratch is None else resources.scratch.resolve()
        if beside and scratch is None and home is not None and is_folder(home):
            scratch = home
        if home is not None and is_folder(home):
            cluster.check_folder(home, "out")
        if scratch is not None or home is None:
            cluster.check_folder(scratch or Path(tempfile.gettempdir()), "scratch")
        try:
            yield replace(resources, threads=threads, scratch=scratch, cluster=cluster)
        finally:
            listener(WorkersUsed(tuple(WorkerUse(address, *each) for address, each in sorted(cluster.stats().items()))))


def _active_client() -> Any:
    """Return the client that Dask would use, or None. None within a task, which must not wait for other tasks."""
    if "distributed" not in sys.modules:
        return None
    from distributed import default_client
    from distributed.worker import thread_state

    if getattr(thread_state, "execution_state", None) is not None:
        return None
    try:
        client = default_client()
    except ValueError:
        return None
    return _checked(client) if client.status in ("running", "connecting") else None


def _checked(client: Any) -> Any:
    from distributed import Client

    if not isinstance(client, Client):
        raise ConfigError(
            f'{api("scheduler")} must be an address, a distributed.Client or "threads", not {type(client).__name__}'
        )
    if client.asynchronous:
        raise ConfigError('the client is asynchronous; use a synchronous one, or scheduler="threads"')
    return client
