"""A folder that cannot be listed, also for a superuser."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def refuse_listing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the system refuse to list a folder."""

    def refusing(listing: Callable[..., Any]) -> Callable[..., Any]:
        def listed(path: Any = ".") -> Any:
            if not isinstance(path, int) and Path(path) == folder:
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return listing(path)

        return listed

    monkeypatch.setattr(os, "listdir", refusing(os.listdir))
    monkeypatch.setattr(os, "scandir", refusing(os.scandir))
