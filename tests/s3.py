"""An S3-compatible store on this machine, in a process of its own, for tests."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyarrow.fs import S3FileSystem

from bigforest.storage import object_store, paths

BUCKET = "bigforest-tests"
# Moto's own server looks through the folders of all services at each request, half of its time.
_SERVER = """
import sys
from moto.moto_server.werkzeug_app import create_backend_app
from werkzeug.serving import run_simple
run_simple("127.0.0.1", int(sys.argv[1]), create_backend_app("s3"), threaded=True)
"""


@contextmanager
def using_store(cache: Path) -> Iterator[None]:
    """Let this process, and those it starts, use a store with the empty bucket BUCKET while the block runs.

    cache  folder for local copies.
    """
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-c", _SERVER, str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {**credentials(address), "BIGFOREST_CACHE": str(cache)}.items():
                patch.setenv(name, value)
            _forget()
            _wait(port)
            S3FileSystem(endpoint_override=address, allow_bucket_creation=True).create_dir(BUCKET)
            yield
        _forget()
    finally:
        server.kill()
        server.wait()


def credentials(address: str) -> dict[str, str]:
    """The environment of clients of a store."""
    return {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def free_port() -> int:
    """A port that nobody listens to."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def forget_store() -> None:
    """Let the environment be taken anew when a store is asked for next."""
    object_store._store.cache_clear()
    object_store._check_bucket.cache_clear()


def _forget() -> None:
    forget_store()
    paths.local_copies.cache_clear()


def _wait(port: int) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return
