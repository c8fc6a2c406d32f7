"""run.parquet: stages of training and, in its metadata, the origin of a forest and its lambda, power and rounds.

All files of a forest carry its dataspec and configuration, which forests of other runs may share. run.parquet also has
the seconds of each stage, so its content identifies the run. A `RunStamp` remembers a digest of this content, and the
device, inode, size and time of the file. `check` finds out whether the folder of a forest was replaced after it was
opened: it compares device, inode, size and time, and reads the file only if one of them has changed. run.parquet is
written last, and lists the checksums of the other files. `check` compares them in the same way, so a folder that was
overwritten in part is recognised.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import polars as pl

from bigforest.errors import FormatError, damaged_forest, naming_file
from bigforest.forest.files import METADATA_KEY, Header, file_mark, read_header, stored_checksum, write_tables
from bigforest.forest.format import RUN
from bigforest.options.values import is_lambda, is_power, is_rounds
from bigforest.storage.arrow import FAULTS
from bigforest.storage.paths import files_in, is_remote
from bigforest.version import __version__

# Bytes at the beginning and at the end of a file that are hashed.
_READ_BYTES = 1 << 20


class RunStamp:
    """The run that a folder contained when the forest was opened. Can be sent to other processes.

    directory  directory of the forest.
    digest     digest of the content of its run.parquet.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._status = _status(RUN.at(directory))
        self.digest = _digest(RUN.at(directory))
        self._checksums = _listed_checksums(directory)
        self._compared: dict[str, tuple[int, int, int, int]] = {}  # status of each listed file that was compared

    @classmethod
    def of(cls, directory: Path) -> RunStamp | None:
        """Return the stamp of a folder; None while it has no run.parquet. Raises OSError."""
        return cls(directory) if RUN.at(directory).is_file() else None

    def check(self) -> None:
        """Raise FormatError if the folder contains another run or none, or a file of another run.

        A copy of the same run passes. Missing files are left to their readers.
        """
        self._check_run()
        for name, checksum in self._checksums.items():
            path = self.directory / name
            try:
                if not path.is_file() or self._compared.get(name) == (status := _status(path)):
                    continue
                stored = stored_checksum(path)
            except FileNotFoundError:
                continue
            if stored not in (checksum, None):
                self._check_run()  # the whole folder may have been replaced meanwhile
                raise damaged_forest(f"{path} belongs to another forest, as {RUN.name} lists another checksum")
            self._compared[name] = status

    def _check_run(self) -> None:
        path = RUN.at(self.directory)
        try:
            status = _status(path)
            same = status == self._status or _digest(path) == self.digest
        except (FileNotFoundError, NotADirectoryError) as error:
            raise FormatError(
                f"the forest in {self.directory} was removed or replaced after it was opened ({error}); restore its "
                "folder, or open another forest"
            ) from error
        if not same:
            raise replaced_forest(self.directory)
        self._status = status


def _listed_checksums(directory: Path) -> dict[str, str]:
    """Return the checksums of the other files of a forest, by relative path, from its run.parquet.

    Older versions list none. In an object store none are compared, as it has no folders that are written in part.
    """
    mark = None if is_remote(directory) else file_mark(RUN.at(directory))
    listed = mark.get("files") if isinstance(mark, dict) else None
    if not isinstance(listed, dict):
        return {}
    for name in listed:
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise damaged_forest(f"{RUN.at(directory)} lists {name!r}, which is not in its folder")
    return {name: str(checksum) for name, checksum in listed.items()}


def _checksums(directory: Path) -> dict[str, str]:
    """Return the checksums of the Parquet files in a local directory, by relative path, without run.parquet."""
    paths = [] if is_remote(directory) else sorted(files_in(directory, "**/*.parquet"))
    stored = {path.relative_to(directory).as_posix(): stored_checksum(path) for path in paths}
    return {name: checksum for name, checksum in stored.items() if checksum is not None and name != RUN.name}


def replaced_forest(directory: Path) -> FormatError:
    """Return the error of a folder that contains another forest than the one that was opened."""
    return FormatError(
        f"the forest in {directory} was replaced by another one after it was opened, as its {RUN.name} differs; open "
        "it again"
    )


@contextmanager
def same_run(stamp: RunStamp | None) -> Iterator[None]:
    """Raise FormatError if the folder does not contain the run of this stamp before or after the block.

    If the block raises an error, the folder is checked, too: its replacement may be the cause. None for no check.
    """
    if stamp is None:
        yield
        return
    stamp.check()
    try:
        yield
    except Exception:
        stamp.check()
        raise
    stamp.check()


def _status(path: Path) -> tuple[int, int, int, int]:
    """Return device, inode, size and time of a file; an object in a store has neither device nor inode."""
    with naming_file(path):
        status = path.stat()
    return getattr(status, "st_dev", 0), getattr(status, "st_ino", 0), status.st_size, status.st_mtime_ns


def _digest(path: Path) -> str:
    """Return a digest of the size, the beginning and the end of a file; of all bytes of a usual run.parquet."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is no file")  # opening a pipe would wait for its writer
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with naming_file(path), path.open("rb") as file:
        digest.update(file.read(_READ_BYTES))
        file.seek(max(0, size - _READ_BYTES))
        digest.update(file.read(_READ_BYTES))
    return digest.hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class MergedForest:
    """A forest that was merged: its trees 0, 1, ... are the trees first_tree, first_tree + 1, ... of the merged forest.

    forest       path from which it was read.
    seed         seed with which it was grown.
    first_tree   number of its first tree in the merged forest.
    trees        number of its trees.
    fingerprint  fingerprint of its training table, see Origin.
    """

    forest: str
    seed: int
    first_tree: int
    trees: int
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Rule that set the number of trees, see TrainConfig.stop_oob.

    tolerance  tolerance of the out-of-bag error.
    most       number of trees requested. The forest has fewer if the error converged before.
    """

    tolerance: float
    most: int


@dataclass(frozen=True, slots=True)
class Origin:
    """Training table of a forest, or the forests it was merged from.

    data         absolute path (file, folder, glob or store); None for a table in memory or on standard input,
                 or when merged.
    exclude      columns left out.
    fingerprint  `Store.fingerprint` of the presorted table; empty when forests of different tables were merged.
    merged       the forests it was merged from, in the order of the trees; empty if it was grown.
    stop         rule that set the number of trees; None if the number was given.
    """

    data: str | None
    exclude: tuple[str, ...]
    fingerprint: str
    merged: tuple[MergedForest, ...] = ()
    stop: Stop | None = None

    def entries(self) -> dict[str, Any]:
        return {"origin": asdict(self)}

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Origin:
        """Parse `entries`, which may be damaged. Raises ValueError, TypeError, LookupError or AttributeError."""
        pieces = tuple(MergedForest(**piece) for piece in raw["merged"])
        stop = None if raw.get("stop") is None else Stop(**raw["stop"])
        origin = cls(**{**raw, "exclude": tuple(raw["exclude"]), "merged": pieces, "stop": stop})
        texts = [origin.fingerprint, *origin.exclude, *(text for p in pieces for text in (p.forest, p.fingerprint))]
        numbers = [number for p in pieces for number in (p.seed, p.first_tree, p.trees)]
        if not all(isinstance(text, str) for text in [*texts, origin.data or ""]):
            raise ValueError("a text is missing")
        if not all(type(number) is int and number >= 0 for number in numbers):
            raise ValueError("a number is missing")
        if stop and not (isinstance(stop.tolerance, float) and type(stop.most) is int):
            raise ValueError("the rule for the number of trees is damaged")
        return origin


@dataclass(frozen=True, slots=True)
class Choice:
    """A number that was given, or selected by out-of-bag loss.

    amount        the number.
    tried         the numbers it was selected from, ascending; none if it was given.
    losses        weighted out-of-bag loss with each number in `tried`; none if no row is out of bag.
    cross_fitted  loss if each half of the rows has the number that is best for the other half; None without `losses`.
                  The loss with `amount` is a little too low, because the same rows have selected it.

    NAME: name of the amount in run.parquet. USUAL: the amount that changes nothing.
    """

    amount: float
    tried: tuple[float, ...] = ()
    losses: tuple[float, ...] = ()
    cross_fitted: float | None = None

    NAME: ClassVar[str]
    USUAL: ClassVar[float]

    @staticmethod
    def may_be(value: object) -> bool:
        raise NotImplementedError

    def entry(self) -> dict[str, Any] | None:
        """Return the entry of run.parquet's metadata; None if the amount changes nothing and none was tried."""
        if self.amount == self.USUAL and not self.tried:
            return None
        fields = asdict(self)
        return {self.NAME: fields.pop("amount"), **fields}

    @classmethod
    def parse(cls, raw: Any) -> Self:
        """Parse an `entry`, which may be damaged. Raises ValueError or TypeError."""
        names = (cls.NAME, "tried", "losses", "cross_fitted")
        if not isinstance(raw, dict) or set(raw) != set(names):
            raise ValueError("it has missing or unknown entries")
        amount, tried, losses, crossed = (raw[name] for name in names)
        if not isinstance(tried, list) or not isinstance(losses, list) or len(losses) not in (0, len(tried)):
            raise ValueError(f"there is not one loss for each {cls.NAME} that was tried")
        if not all(map(cls.may_be, [amount, *tried])):
            raise ValueError(f"a {cls.NAME} is out of range")
        if not all(map(is_lambda, [*losses, *([] if crossed is None else [crossed])])):
            raise ValueError("a loss is not a finite number, 0 or more")
        if sorted(set(tried)) != tried or (tried and amount not in tried):
            raise ValueError(f"the {cls.NAME} is none of the numbers that were tried, or these are not ascending")
        if (crossed is None) == bool(losses):
            raise ValueError("only one of losses and cross-fitted loss is present")
        return cls(float(amount), tuple(map(float, tried)), tuple(map(float, losses)), crossed)


@dataclass(frozen=True, slots=True)
class Shrinkage(Choice):
    """Lambda of the hierarchical shrinkage of the values of leaves (Agarwal et al. 2022), in rows: see
    kernels/predict/leaf_values.py. Its loss is the log loss, or for regression the mean loss (oob/accumulator.py)."""

    amount: float = 0.0

    NAME = "lambda"
    USUAL = 0.0
    may_be = staticmethod(is_lambda)


@dataclass(frozen=True, slots=True)
class Power(Choice):
    """The power to which shares of classes are raised, see kernels/predict/powers.py. Its loss is the log loss."""

    amount: float = 1.0

    NAME = "power"
    USUAL = 1.0
    may_be = staticmethod(is_power)


@dataclass(frozen=True, slots=True)
class Rounds(Choice):
    """The number of trees of each sequence of the boosted stage, see forest/refinement.py; 0 for none. Its loss is the
    log loss, or for regression the mean loss (oob/accumulator.py)."""

    amount: float = 0.0

    NAME = "rounds"
    USUAL = 0.0
    may_be = staticmethod(is_rounds)


@dataclass(frozen=True, slots=True)
class Choices:
    """Everything that is selected once the trees are grown."""

    shrinkage: Shrinkage = field(default_factory=Shrinkage)
    power: Power = field(default_factory=Power)
    rounds: Rounds = field(default_factory=Rounds)

    def entries(self) -> dict[str, Any]:
        made = {"shrinkage": self.shrinkage.entry(), "power": self.power.entry(), "refine": self.rounds.entry()}
        return {name: entry for name, entry in made.items() if entry is not None}

    def for_other_shares(self, shrinkage: Shrinkage | None = None) -> Choices:
        """Return the choices for a forest with other leaf values, which make earlier out-of-bag losses invalid.

        Lambda, or `shrinkage` in its place, is kept without the losses; the power only if it was given: by the option,
        `Forest.sharpen` or a merge. The boosted stage is dropped.
        """
        kept = Shrinkage(self.shrinkage.amount) if shrinkage is None else shrinkage
        return Choices(kept, Power() if self.power.tried else self.power)


def write_run(
    directory: Path,
    seconds: Mapping[str, float],
    threads: int,
    header: Header,
    origin: Origin | None,
    choices: Choices,
) -> None:
    """Write run.parquet of the forest `directory`: `seconds` of wall time by stage, in order, origin and choices.

    Write it last: it lists the other files.
    """
    import numba

    same = {
        "threads": threads,
        "bigforest": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
        "polars": pl.__version__,
        "config": header.config.to_json(),
    }
    columns = {"stage": list(seconds), "seconds": list(seconds.values())}
    columns |= {name: [value] * len(seconds) for name, value in same.items()}
    more = choices.entries() | ({} if origin is None else origin.entries()) | {"files": _checksums(directory)}
    write_tables([RUN.table(columns)], RUN.at(directory), RUN, header, more)


def read_origin(directory: Path) -> Origin | None:
    origin: Origin | None
    [origin] = _read_entries(directory, {"origin": Origin.parse})
    return origin


def read_choices(directory: Path) -> Choices:
    shrinkage, power, rounds = _read_entries(
        directory, {"shrinkage": Shrinkage.parse, "power": Power.parse, "refine": Rounds.parse}
    )
    return Choices(shrinkage or Shrinkage(), power or Power(), rounds or Rounds())


def _read_entries(directory: Path, parsers: Mapping[str, Callable[[Any], Any]]) -> list[Any]:
    """Return entries of the metadata of run.parquet, parsed; None for each that is missing. Raises FormatError."""
    path, reading, entries = RUN.at(directory), "its metadata", []
    file = read_header(path, RUN.kind)[1]
    try:
        raw = json.loads(file.schema_arrow.metadata[METADATA_KEY])
        for name, parse in parsers.items():
            reading = f"the entry {name!r} of its metadata"
            entries.append(None if raw.get(name) is None else parse(raw[name]))
    except (*FAULTS, AttributeError) as error:
        raise damaged_forest(f"{path}: {reading} cannot be read ({error})") from error
    return entries
