"""The state of unfinished work, in a file of JSON that is replaced as a whole and read only if it is complete."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from bigforest.errors import BigForestError, FormatError, StorageError
from bigforest.storage.atomic import write_durably
from bigforest.storage.regular_files import read_json_text

State = TypeVar("State")
# Errors that damaged entries may raise.
_FAULTS = (OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError, BigForestError)


@dataclass(frozen=True, slots=True)
class StateFormat:
    """A kind of state file.

    name     name of the format, in the file.
    version  version of the format, in the file.
    remedy   advice for a file that cannot be read.
    """

    name: str
    version: int
    remedy: str

    def mark(self) -> dict[str, Any]:
        """Return the first entries of each file."""
        return {"format": self.name, "version": self.version}

    def write(self, path: Path, state: Mapping[str, Any]) -> None:
        """Replace the file: write the entries of a state with a checksum, as `write_durably` does."""
        entries = {**self.mark(), **state}
        with write_durably(path) as temporary:
            text = json.dumps({**entries, "crc32": entries_checksum(entries)}, indent=1)
            temporary.write_text(text + "\n", encoding="utf-8")

    def read(self, path: Path, state_of: Callable[[dict[str, Any]], State]) -> State:
        """Read the entries, and return `state_of(entries)`.

        state_of  may raise any error of _FAULTS for entries that it cannot use.

        Raises FormatError if the file is missing, damaged or of another version.
        """
        text = self._text(path)
        try:
            raw: dict[str, Any] = json.loads(text)
            if raw["format"] != self.name:
                raise ValueError("another format")
            if raw["version"] != self.version:
                writer = "a newer bigforest; upgrade, or" if raw["version"] > self.version else "an older bigforest;"
                raise FormatError(f"{path} is of {writer} {self.remedy}")
            if raw.pop("crc32") != entries_checksum(raw):
                raise ValueError("the checksum differs")
            del raw["format"], raw["version"]
            return state_of(raw)
        except (FormatError, StorageError):
            raise
        except _FAULTS as error:
            raise FormatError(f"{path} is damaged ({error}); {self.remedy}") from error

    def _text(self, path: Path) -> str:
        try:
            return read_json_text(path)
        except FormatError as error:
            raise FormatError(f"{error.text}, or {self.remedy}") from error
        except (ValueError, FileNotFoundError) as error:  # no text, or no such object
            raise FormatError(f"{path} is damaged ({error}); {self.remedy}") from error


def entries_checksum(entries: Mapping[str, Any]) -> int:
    """Return the checksum of entries, which does not depend on their order."""
    return zlib.crc32(json.dumps(entries, sort_keys=True).encode())
