"""A scheduler behind TLS: files of keys on the command line, and who is refused."""

from __future__ import annotations

import datetime
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import dask
import numba
import polars as pl
import pytest
from distributed import LocalCluster, Security

import bigforest
from bigforest.errors import ClusterError, ConfigError
from bigforest.events import Event, Notice
from bigforest.execution.connect import connected
from tests.commands import Run, folder, frame, run

__all__ = ["folder", "run"]  # fixtures

pytestmark = [
    pytest.mark.skipif(numba.config.DISABLE_JIT, reason="workers would take minutes"),
    pytest.mark.skipif(
        importlib.util.find_spec("cryptography") is None, reason="cryptography is not installed; install the extra test"
    ),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


class Keys(NamedTuple):
    """PEM files: an authority, a certificate that it has signed, and the key of that."""

    ca: Path
    cert: Path
    key: Path

    @property
    def options(self) -> list[str | Path]:
        return ["--tls-ca", self.ca, "--tls-cert", self.cert, "--tls-key", self.key]


def make_keys(folder: Path) -> Keys:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    now = datetime.datetime.now(datetime.UTC)

    def name(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    def certificate(subject: str, public: ec.EllipticCurvePublicKey, authority: bool) -> bytes:
        made = (
            x509.CertificateBuilder()
            .subject_name(name(subject))
            .issuer_name(name("authority"))
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        )
        return made.sign(root, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    root, own = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    keys = Keys(*(folder / name for name in ("ca.pem", "cert.pem", "key.pem")))
    folder.mkdir(exist_ok=True)
    keys.ca.write_bytes(certificate("authority", root.public_key(), True))
    keys.cert.write_bytes(certificate("member", own.public_key(), False))
    key = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    keys.key.write_bytes(own.private_bytes(*key))
    return keys


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return make_keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def address(keys: Keys) -> Iterator[str]:
    """A scheduler and a worker, in this process, that talk to nobody without a certificate."""
    files = {"tls_ca_file": str(keys.ca)}
    for role in ("scheduler", "worker", "client"):
        files |= {f"tls_{role}_cert": str(keys.cert), f"tls_{role}_key": str(keys.key)}
    with LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        memory_limit=0,
        dashboard_address=None,
        silence_logs=50,
        protocol="tls://",
        security=Security(require_encryption=True, **files),
    ) as cluster:
        yield cluster.scheduler_address


def test_commands__run_with_the_files(address: str, keys: Keys, folder: Path, run: Run) -> None:
    assert address.startswith("tls://")
    cluster = ["--scheduler", address, *keys.options]
    facts = run.json("train", "things.parquet", "--trees", "3", "--out", "a.forest", *cluster)
    assert facts["workers"][0]["worker"].startswith("tls://")
    run.json("train", "things.parquet", "--trees", "3", "--out", "b.forest")
    assert (folder / "a.forest/trees/part-0000000.parquet").read_bytes() == (
        folder / "b.forest/trees/part-0000000.parquet"
    ).read_bytes()
    frame().write_parquet("again.parquet")  # rows of training would be told of
    facts = run.json("predict", "a.forest", "again.parquet", "--out", "a.parquet", *cluster)
    assert facts["workers"][0]["tasks"] == 1
    assert pl.read_parquet("a.parquet").height == frame().height


def test_commands__without_them_or_with_others_are_refused(address: str, keys: Keys, folder: Path, run: Run) -> None:
    def refused(*options: str | Path) -> str:
        run("train", "things.parquet", "--out", "x.forest", "--scheduler", address, *options)
        assert (run.code, run.out, run.err.count("\n")) == (2, "", 1), run.err
        return run.err

    assert "needs a certificate and the certificate authority" in refused()
    assert "check the address, and the TLS files" in refused("--tls-ca", keys.ca, "--tls-cert", keys.ca)
    assert "check the address, and the TLS files" in refused(*make_keys(folder / "others").options)
    assert "there is no file nowhere.pem of TLS" in refused("--tls-ca", "nowhere.pem")
    assert not list(folder.glob("x*"))


def test_train__takes_a_client(address: str, keys: Keys, folder: Path) -> None:
    with connected(address, ca=str(keys.ca), cert=str(keys.cert), key=str(keys.key)) as client:
        forest = bigforest.train("things.parquet", trees=2, out="c.forest", scheduler=client)
    assert forest.trees == 2
    with pytest.raises(ConfigError, match="there is no file"), connected(address, ca="nowhere.pem"):
        pass
    soon = dask.config.set({"distributed.comm.timeouts.connect": "2s"})
    heard: list[Event] = []
    with soon, pytest.raises(ClusterError, match="no scheduler answers"):
        bigforest.train("things.parquet", trees=2, scheduler="tcp://127.0.0.1:1", listener=heard.append)
    assert len(heard) == 1
    assert isinstance(heard[0], Notice)
    assert re.match(r"no scheduler answers at tcp://127.0.0.1:1 yet; .* at most [12] s more", heard[0].message)
    with pytest.raises(ClusterError, match="TLS is asked for"), connected("tcp://127.0.0.1:1", ca=str(keys.ca)):
        pass
