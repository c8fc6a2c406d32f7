"""An S3-compatible store on this machine, in a process of its own, for tests."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

BUCKET = "bigforest-tests"


@contextmanager
def running_store() -> Iterator[dict[str, str]]:
    """The environment of clients of a store with the empty bucket BUCKET, for as long as the block runs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait(port)
        environment = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        _make_bucket(environment)
        yield environment
    finally:
        server.kill()
        server.wait()


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


def _make_bucket(environment: dict[str, str]) -> None:
    """In a process of its own, since Arrow's client keeps its endpoint."""
    code = (
        "import os; from pyarrow.fs import S3FileSystem; "
        "S3FileSystem(endpoint_override=os.environ['AWS_ENDPOINT_URL'], allow_bucket_creation=True)"
        f".create_dir('{BUCKET}')"
    )
    subprocess.run([sys.executable, "-c", code], env=os.environ | environment, check=True, timeout=60)
