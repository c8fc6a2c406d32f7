"""Add compiled kernels to a wheel, so that an installation from it does not compile.

    pip wheel --no-deps --wheel-dir dist .
    python -m bigforest.compiling.ship dist/bigforest-0.1.0-py3-none-any.whl

Kernels of every kind of forest, and of all that is done with forests, are compiled for each level of x86-64 that this
processor has (x86-64-v3 and -v4), by as many processes as there are processors. The new wheel stands beside the given
one and is for this Python and this platform. It also works with other versions of Numba, NumPy or Python and on other
processors: kernels that do not fit are not read, and are compiled.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from sysconfig import get_platform

from bigforest.compiling.warm_up import ALL, KINDS, search_path
from bigforest.errors import BigForestError, ConfigError
from bigforest.execution.resources import Resources
from bigforest.kernels.compiler.cache import SHIPPED, SOURCES, digest_of
from bigforest.kernels.compiler.levels import levels_of_host

_INSIDE = Path(*SHIPPED.parts[-3:])
_IN_A_PROCESS = """
import sys
from pathlib import Path
from bigforest.compiling.calls import warm_rest
from bigforest.compiling.warm_up import warm_here
from bigforest.kernels.compiler.cache import used

listed, *kinds = sys.argv[1:]
for kind in kinds:
    warm_here(kind, passes=True)
    warm_rest(kind)
Path(listed).write_text("".join(f"{file}\\n" for file in used))
"""


def ship(wheel: Path, levels: Sequence[str], kinds: Sequence[str], cache: Path | None = None) -> Path:
    """Write a copy of `wheel` with the kernels of these kinds for these levels, beside it; returns its path.

    cache  a folder that keeps kernels between builds; None for none. What others have compiled there for a level, with
           NUMBA_CPU_NAME and the like, is not compiled again.

    Raises ConfigError for a wheel of other kernels than those that run here, and for levels that this processor does
    not have.
    """
    if missing := [level for level in levels if level not in levels_of_host()]:
        raise ConfigError(f"this processor cannot compile for {', '.join(missing)}; build on one that has the level")
    with tempfile.TemporaryDirectory(prefix="bigforest-") as name:
        folder = Path(name)
        if not wheel.is_file() or wheel.suffix != ".whl":
            raise ConfigError(f"{wheel} is not a wheel; make one with: pip wheel --no-deps --wheel-dir dist .")
        _wheel("unpack", "--dest", folder / "wheel", wheel)
        [unpacked] = (folder / "wheel").iterdir()
        if digest_of((unpacked / _INSIDE.parent).rglob("*.py")) != digest_of(SOURCES.rglob("*.py")):
            raise ConfigError(
                f"{wheel} has kernels of another bigforest than this one; install the version it was built from"
            )
        at_once = Resources().workers
        # A process compiles several kinds: what parts of kernels they have in common is compiled once in it.
        jobs = [(level, kinds[place::at_once]) for level in levels for place in range(min(at_once, len(kinds)))]
        with ThreadPoolExecutor(at_once) as pool:
            found = list(pool.map(lambda job: _compile(job[0], job[1], cache or folder / "cache", folder), jobs))
        shipped = unpacked / _INSIDE
        shutil.rmtree(shipped, ignore_errors=True)
        shipped.mkdir()
        for file in sorted(set().union(*found)):
            shutil.copyfile(file, shipped / file.name)
        return _pack(unpacked, wheel.parent)


def _compile(level: str, kinds: Sequence[str], cache: Path, folder: Path) -> set[Path]:
    """Compile for a level, in a process that takes the processor for one of that level; returns the files."""
    settings = {"NUMBA_CPU_NAME": level, "NUMBA_CPU_FEATURES": "", "NUMBA_DISABLE_INTEL_SVML": "1"}
    listed = folder / f"{level}-{kinds[0]}.files"
    done = subprocess.run(
        [sys.executable, "-c", _IN_A_PROCESS, listed, *kinds],
        env={**os.environ, **settings, "NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": search_path()},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise ConfigError(f"compiling {', '.join(kinds)} for {level} failed: {done.stderr.strip().splitlines()[-1:]}")
    return set(map(Path, listed.read_text().splitlines()))


def _pack(unpacked: Path, folder: Path) -> Path:
    """Write the wheel for this Python and this platform."""
    [about] = unpacked.glob("*.dist-info/WHEEL")
    tag = (
        f"cp{sys.version_info.major}{sys.version_info.minor}-none-{get_platform().replace('-', '_').replace('.', '_')}"
    )
    lines = [line for line in about.read_text().splitlines() if not line.startswith(("Tag:", "Root-Is-Purelib:"))]
    about.write_text("\n".join([*(line for line in lines if line), "Root-Is-Purelib: false", f"Tag: {tag}", ""]))
    name = "-".join(unpacked.name.split("-")[:2])
    _wheel("pack", "--dest-dir", folder, unpacked)
    return folder / f"{name}-{tag}.whl"


def _wheel(*arguments: str | Path) -> None:
    done = subprocess.run([sys.executable, "-m", "wheel", *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise ConfigError(f"wheel {arguments[0]} failed: {said[-1] if said else done.returncode} (pip install wheel)")


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m bigforest.compiling.ship", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--levels", default=",".join(levels_of_host()), help="default: %(default)s")
    parser.add_argument("--kinds", default=ALL, help=f"of {', '.join(KINDS)}; default: all")
    parser.add_argument("--cache", type=Path, help="folder that keeps kernels between builds")
    given = parser.parse_args()
    try:
        kinds = list(KINDS) if given.kinds == ALL else given.kinds.split(",")
        if unknown := [kind for kind in kinds if kind not in KINDS]:
            raise ConfigError(f"there is no kind {unknown[0]!r}; kinds are {', '.join(KINDS)}")
        if not given.levels:
            raise ConfigError("this processor has no level that kernels are shipped for")
        print(ship(given.wheel, given.levels.split(","), kinds, given.cache))
    except BigForestError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
