"""The compile cache helps where it can and never stands in the way, and is never wrong."""

from __future__ import annotations

import ast
import ctypes
import fcntl
import importlib
import os
import pkgutil
import platform
import re
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections import namedtuple
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numba
import pytest

import bigforest.kernels
from bigforest.kernels.compiler import cache, jit
from bigforest.kernels.compiler.parts import PartDispatcher
from tests.kernels.forks import run_forked

# Two kernels, which are compiled in a moment; what they give, and how often the cache served each. What a test does
# before or between is not part of the source, as that is part of the key.
OWN = """
import os
exec(os.environ.get("BEFORE", ""))
from bigforest.kernels.compiler.jit import kernel


@kernel
def twice(number):
    return number * 2


@kernel
def thrice(number):
    return number * 3


exec(os.environ.get("BETWEEN", ""))
print("begun", flush=True)
print(twice(7), thrice(7), *(sum(one.stats.cache_hits.values()) for one in (twice, thrice)))
"""
ANSWER = (14, 21)

needs_compiler = pytest.mark.skipif(bool(os.environ.get("NUMBA_DISABLE_JIT")), reason="nothing is compiled")


# The same with kernels that an installation brought along, for a processor of these levels.
SHIPPED = (
    """
import os, pathlib
from bigforest.kernels.compiler import cache
cache.SHIPPED = pathlib.Path(os.environ["SHIPPED"])
cache.levels_of_host = lambda: tuple(os.environ["LEVELS"].split())
"""
    + OWN
)


def script_beside(folder: Path, source: str) -> Path:
    """The script with the kernels, next to the cache."""
    script = folder.with_name("own.py")
    if not script.exists() or script.read_text() != source:
        script.write_text(source)
    return script


def found_in(printed: str) -> tuple[int, ...]:
    """What the kernels gave, and how often the cache served each."""
    return tuple(map(int, printed.removeprefix("begun").split()))


def call(folder: Path, source: str = OWN, **settings: str) -> tuple[int, ...]:
    """What the kernels give in a process with its cache in `folder`, and how often the cache served each."""
    return found_in(run_forked(script_beside(folder, source), {"NUMBA_CACHE_DIR": str(folder), **settings}))


def begin(
    folder: Path, source: str = OWN, first: Callable[[], object] | None = None, **settings: str
) -> subprocess.Popen[str]:
    """A fresh process that does the same, after it has done `first`. Only such a one has another processor or lacks
    rights, and can be waited for."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder), "PYTHONWARNINGS": "ignore", **settings}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    command = [sys.executable, str(script_beside(folder, source))]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, preexec_fn=first)


def end(process: subprocess.Popen[str]) -> tuple[int, ...]:
    """What it found."""
    out, _ = process.communicate()
    assert process.returncode == 0
    return found_in(out)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that has both kernels. A kernel's key has the name of its folder, which copies must keep."""
    folder = tmp_path_factory.mktemp("filled") / "kernels"
    folder.mkdir()
    assert call(folder / "cache") == (*ANSWER, 0, 0)
    return folder


@pytest.fixture
def kept(filled: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return shutil.copytree(filled, tmp_path / filled.name) / "cache"


def file_of(folder: Path, name: str) -> Path:
    [path] = folder.rglob(f"*{name}*.nbc")
    return path


def flipped(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "pickle": lambda content: b"\x80\x04cnowhere\nNothing\n.",
    "half": lambda content: content[: len(content) // 2],
    "checksum": lambda content: flipped(content, 5),
    "middle": lambda content: flipped(content, len(content) // 2),
    "empty": lambda content: b"",
    "longer": lambda content: content + b"\0",
    "first": lambda content: flipped(content, 40),
    "last": lambda content: flipped(content, len(content) - 1),
}


# A kernel for each damage; which of them the cache served.
DAMAGED = f"""
from bigforest.kernels.compiler.jit import kernel


def made(factor):
    return kernel(lambda number: number * factor)


times = [made(factor) for factor in range({len(DAMAGES)} + 1)]
assert [one(7) for one in times] == [7 * factor for factor in range(len(times))]
print(*(sum(one.stats.cache_hits.values()) for one in times))
"""


@needs_compiler
def test_cache__damaged_files_cost_a_compilation(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    all_of_them = len(DAMAGES) + 1
    assert call(folder, DAMAGED) == (0,) * all_of_them
    paths = sorted(folder.rglob("*.nbc"))
    assert len(paths) == all_of_them
    for path, damage in zip(paths, DAMAGES.values(), strict=False):
        path.write_bytes(damage(path.read_bytes()))
    assert sum(call(folder, DAMAGED)) == 1
    assert call(folder, DAMAGED) == (1,) * all_of_them  # they are mended by that


@needs_compiler
def test_cache__files_of_other_kernels_and_machines_are_not_loaded(kept: Path) -> None:
    one, other = file_of(kept, "twice"), file_of(kept, "thrice")
    contents = one.read_bytes(), other.read_bytes()
    one.write_bytes(contents[1])
    other.write_bytes(contents[0])
    assert call(kept) == (*ANSWER, 0, 0)
    # A cache of another processor, copied over this one name by name.
    elsewhere = kept.with_name("elsewhere")
    assert end(begin(elsewhere, NUMBA_CPU_NAME="x86-64", NUMBA_CPU_FEATURES="")) == (*ANSWER, 0, 0)
    shutil.copyfile(file_of(elsewhere, "twice"), one)
    assert call(kept) == (*ANSWER, 0, 1)


@needs_compiler
def test_cache__kernels_of_other_versions_are_not_loaded(kept: Path) -> None:
    before = "import numba; numba.__version__ = '9.9.9'"
    [ours] = [path for path in kept.iterdir() if path.is_dir()]
    assert call(kept, BEFORE=before) == (*ANSWER, 0, 0)
    [theirs] = [path for path in kept.iterdir() if path.is_dir() and path != ours]
    for name in ("twice", "thrice"):  # an update leaves files where those of the new version are looked for
        shutil.copyfile(file_of(ours, name), file_of(theirs, name))
    assert call(kept, BEFORE=before) == (*ANSWER, 0, 0)
    assert call(kept, BEFORE=before) == (*ANSWER, 1, 1)


@pytest.mark.parametrize("other", ["numba.__version__", "llvmlite.__version__", "numpy.__version__", "sys.version"])
def test_stamp__is_of_every_version(other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = cache.digest_of([])
    monkeypatch.setattr(other, "9.9.9")
    assert cache.digest_of([]) != known


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both kernels, compiled for levels of processors that every x86-64 runs."""
    folder = tmp_path_factory.mktemp("built") / "kernels"
    (folder / "shipped").mkdir(parents=True)
    for level in LEVELS:
        settings = {"NUMBA_CPU_NAME": level, "NUMBA_CPU_FEATURES": "", "SHIPPED": "", "LEVELS": ""}
        assert end(begin(folder / level, SHIPPED, **settings)) == (*ANSWER, 0, 0)
        for path in (folder / level).rglob("*.nbc"):
            shutil.copyfile(path, folder / "shipped" / path.name)
    return folder


@pytest.fixture
def shipped(built: Path, tmp_path: Path) -> Path:
    """A copy of it, in a folder of the same name."""
    return shutil.copytree(built, tmp_path / built.name) / "shipped"


LEVELS = ("x86-64-v2", "x86-64")
needs_x86 = pytest.mark.skipif(platform.machine() not in {"x86_64", "AMD64"}, reason="levels of x86-64")


@needs_compiler
@needs_x86
def test_shipped__kernels_are_read_by_the_best_level_and_nothing_is_written(shipped: Path) -> None:
    home = shipped.parent

    def ask(levels: str, cache: str) -> tuple[int, ...]:
        return call(home / cache, SHIPPED, SHIPPED=str(shipped), LEVELS=levels)

    assert len(list(shipped.iterdir())) == 2 * len(LEVELS)
    before = {path: path.read_bytes() for path in shipped.iterdir()}
    for path in before:
        path.chmod(0o444)
    assert ask(" ".join(LEVELS), "a") == (*ANSWER, 1, 1)
    assert not list((home / "a").rglob("*.nbc"))
    assert ask("", "a") == (*ANSWER, 0, 0)  # a processor without these levels compiles, and keeps that
    assert len(list((home / "a").rglob("*.nbc"))) == 2
    # Damaged files: the other level has the kernel; or it is compiled. Nothing is mended in the installation.
    best = {shipped / path.name for path in (home / LEVELS[0]).rglob("*.nbc")}
    for damaged, served in ((before.keys() - best, 1), (best, 1), (before.keys(), 0)):
        for path, content in before.items():
            path.chmod(0o644)
            path.write_bytes(content[: len(content) // 2] if path in damaged else content)
        assert ask(" ".join(LEVELS), "b") == (*ANSWER, served, served)
    assert all(len(path.read_bytes()) == len(content) // 2 for path, content in before.items())


@needs_compiler
@needs_x86
@pytest.mark.slow
def test_shipped__kernels_of_other_sources_or_settings_are_not_read(shipped: Path) -> None:
    settings = {"SHIPPED": str(shipped), "LEVELS": " ".join(LEVELS)}
    edited = SHIPPED.replace("number * 2", "number * 5")
    assert call(shipped.with_name("a"), edited, **settings) == (35, 21, 0, 0)
    assert call(shipped.with_name("b"), SHIPPED, NUMBA_OPT="1", **settings) == (*ANSWER, 0, 0)
    before = "import numba; numba.__version__ = '9.9.9'"
    assert call(shipped.with_name("c"), SHIPPED, BEFORE=before, **settings) == (*ANSWER, 0, 0)


@needs_compiler
def test_noted__kernels_of_an_earlier_build_are_shipped_with_their_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(cache, "used", set())
    cache.folders.cache_clear()
    try:
        assert not cache.is_noted("kind")
        assert not cache.used
        cache.note("kind")
        noted = set(tmp_path.rglob("kind-*.done"))
        assert len(noted) == 1 and cache.used == noted
        cache.used.clear()
        assert cache.is_noted("kind")
        assert cache.used == noted
    finally:
        cache.folders.cache_clear()


@needs_compiler
def test_shipped__files_name_no_place_of_the_machine_that_compiled(kept: Path) -> None:
    for path in kept.rglob("*.nbc"):
        assert str(kept.parent).encode() not in path.read_bytes()


@needs_compiler
def test_cache__notices_an_edit_outside_of_the_package_and_settings(kept: Path) -> None:
    assert call(kept, OWN.replace("number * 2", "number * 5")) == (35, 21, 0, 0)
    assert call(kept) == (*ANSWER, 1, 1)
    assert call(kept, NUMBA_OPT="1") == (*ANSWER, 0, 0)


@needs_compiler
def test_cache__a_folder_that_is_a_file_is_passed_over(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert call(blocked)[:2] == ANSWER


def obey_permissions() -> None:
    """Take from the superuser the right to write what is read-only (PR_CAPBSET_DROP of CAP_DAC_OVERRIDE)."""
    if os.getuid() == 0:
        ctypes.CDLL(None).prctl(24, 1, 0, 0, 0)


def fill_disk() -> None:
    """Files may be made, but nothing can be written to them."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))


@needs_compiler
def test_cache__a_folder_that_cannot_be_written_is_passed_over(kept: Path) -> None:
    own, home = kept.with_name("own"), kept.with_name("home")
    own.mkdir(mode=0o555)
    home.mkdir(mode=0o555)
    settings = {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")}
    assert end(begin(own, first=obey_permissions, **settings))[:2] == ANSWER
    assert not list(own.iterdir())
    assert not list(home.iterdir())


@needs_compiler
def test_cache__a_folder_that_becomes_read_only_is_read_and_costs_a_compilation(kept: Path) -> None:
    [folder] = [path for path in kept.iterdir() if path.is_dir()]
    file_of(folder, "twice").unlink()
    before = sorted(folder.iterdir())
    between = f"from bigforest.kernels.compiler import cache; cache.folders(); os.chmod({str(folder)!r}, 0o555)"
    try:
        assert end(begin(kept, first=obey_permissions, BETWEEN=between)) == (*ANSWER, 0, 1)
    finally:
        folder.chmod(0o755)
    assert sorted(folder.iterdir()) == before


@needs_compiler
def test_cache__a_folder_that_is_full_or_vanishes_costs_a_compilation(kept: Path) -> None:
    file_of(kept, "twice").unlink()
    assert end(begin(kept, first=fill_disk)) == (*ANSWER, 0, 1)
    assert not list(kept.rglob("*twice*"))
    between = "from bigforest.kernels.compiler import cache; import shutil; cache.folders(); "
    assert call(kept, BETWEEN=f"{between}shutil.rmtree({str(kept)!r})") == (*ANSWER, 0, 0)
    assert not kept.exists()
    assert call(kept) == (*ANSWER, 0, 0)  # it is made again


@needs_compiler
def test_cache__what_is_no_file_costs_a_compilation(kept: Path) -> None:
    twice, thrice = file_of(kept, "twice"), file_of(kept, "thrice")
    for path in (twice, thrice):
        path.unlink()
    twice.mkdir()
    thrice.symlink_to(kept / "nowhere")
    assert call(kept) == (*ANSWER, 0, 0)
    assert call(kept) == (*ANSWER, 0, 1)  # a link is replaced


@needs_compiler
def test_cache__waits_for_a_process_that_compiles_the_same_kernel(kept: Path) -> None:
    path = file_of(kept, "twice")
    content = path.read_bytes()
    path.unlink()
    with path.with_suffix(".lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting = begin(kept)
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == "begun\n"
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(2)
        path.write_bytes(content)  # as the other does when it has compiled
        assert end(waiting) == (*ANSWER, 1, 1)


@needs_compiler
def test_cache__goes_on_when_the_other_has_died_or_takes_too_long(kept: Path) -> None:
    path = file_of(kept, "twice")
    path.unlink()
    path.with_suffix(".lock").touch()  # left behind, and locked by nobody
    assert call(kept) == (*ANSWER, 0, 1)
    assert list(kept.rglob("*.lock")) == []
    place = kept / "one.lock"
    with place.open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        begun = time.monotonic()
        assert cache.wait_for_lock(place, lambda: False, patience=0.1) is None
        assert cache.wait_for_lock(place, lambda: True, patience=600.0) is None  # it is there
        assert time.monotonic() - begun < 60
    assert cache.wait_for_lock(kept / "nowhere" / "one.lock", lambda: False, patience=600.0) is None


SOURCES = Path(jit.__file__).parents[1]


def importers(module: Path, sources: Path) -> set[Path]:
    """Modules that import `module`, directly or not, and itself: by Python's own parser."""

    def name(path: Path) -> str:
        return ".".join(("bigforest.kernels", *path.relative_to(sources).with_suffix("").parts))

    imported = {
        path: {node.module for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.ImportFrom)}
        for path in sources.rglob("*.py")
    }
    found = {module}
    while more := {path for path in imported if imported[path] & set(map(name, found))} - found:
        found |= more
    return found


def test_folders__are_outside_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    # Where pip leaves a folder of the package behind, it hides an editable installation made after it.
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    found = cache.folders.__wrapped__()
    assert found
    assert not any(folder.is_relative_to(SOURCES.parent) for folder in found)


def test_stamp__is_of_every_source_that_a_kernel_imports(tmp_path: Path) -> None:
    copy = tmp_path / "kernels"
    shutil.copytree(SOURCES, copy, ignore=shutil.ignore_patterns("__pycache__"))
    grow, sort, grown = copy / "tree" / "grow.py", copy / "common" / "sort.py", copy / "deep" / "er" / "own.py"
    grown.parent.mkdir(parents=True)
    grown.write_text("from bigforest.kernels.tree.grow import grow")

    def stamps(another_process: bool = True) -> dict[Path, str]:
        for known in (cache._imports, cache.stamp_of, *([cache._content] if another_process else [])):
            known.cache_clear()
        return {path: cache.stamp_of(path, copy) for path in copy.rglob("*.py")}

    assert stamps()[grow] == cache.stamp_of(SOURCES / "tree" / "grow.py", SOURCES)
    for path in (grow, sort, grown):
        before = stamps()
        with path.open("a") as file:
            file.write("#")
        assert stamps(another_process=False) == before  # it may have imported what was there
        after = stamps()
        assert {one for one in before if before[one] != after[one]} == importers(path, copy), path
    assert grown in importers(sort, copy)


def test_key__knows_the_fields_of_a_named_tuple() -> None:
    def key(*names: str) -> Any:
        pair = namedtuple("pair", names)
        return cache._fields(numba.typeof((1, pair(0, 0.5)))), cache._fields(numba.typeof((1, pair(0, 0))))

    assert key("left", "right") == key("left", "right")
    for one, other in zip(key("left", "right"), key("right", "left"), strict=True):
        assert one != other


def test_stamp__no_import_is_relative_or_of_a_name() -> None:
    for path in SOURCES.rglob("*.py"):
        assert not re.search(r"^\s*from \.|importlib|__import__", path.read_text(), re.MULTILINE), path


@needs_compiler
def test_parts__are_called_by_kernels_only() -> None:
    @jit.helper
    def half(number: int) -> int:
        return number // 2

    @jit.inlined
    def quarter(number: int) -> int:
        return half(half(number))

    @jit.kernel
    def asked(number: int) -> int:
        return quarter(number) + half(number)

    assert asked(8) == 6
    for part in (half, quarter):
        assert isinstance(part, PartDispatcher)
        with pytest.raises(TypeError, match=rf"{part.py_func.__name__} is compiled into kernels only"):
            part(8)
    plain: Any = jit.part(half.py_func, {"nopython": True}, lean=False)  # as with other versions of Numba
    assert plain(8) == 4


@needs_compiler
def test_parts__are_linked_where_only_parts_call_them() -> None:
    @jit.helper
    def third(number: int) -> int:
        return number // 3

    @jit.helper
    def sixth(number: int) -> int:
        return third(number) // 2

    @jit.kernel
    def asked(number: int) -> int:
        if number * 0 > 1:  # which LLVM finds out before the parts are linked
            return third(number)
        return sixth(number)

    assert asked(13) == 2


@needs_compiler
def test_cache__tells_closures_apart() -> None:
    def made(factor: int) -> Any:
        @jit.kernel
        def times(number: int) -> int:
            return number * factor

        return times

    assert [made(factor)(7) for factor in (2, 3)] == [14, 21]


COMPILED = """
import sys
from pathlib import Path
import polars as pl
import bigforest
from bigforest.options.train_config import TrainConfig
from bigforest.grow.forest import compile_for, grow_tree
from bigforest.kernels.tree.cut import cut_trees
from bigforest.kernels.tree.grow import grow_while_room
from bigforest.kernels.tree.finalize import finalize_nodes

kernels = grow_while_room, finalize_nodes, cut_trees
plain = pl.DataFrame({"a": [1.0, 2.0, 3.0, 4.0], "b": [4.0, 1.0, 2.0, 2.5]})
mixed = plain.with_columns(c=pl.Series(list("abab")))
classes, numbers = pl.Series("y", [0, 1, 0, 1]), pl.Series("y", [0.5, 1.0, 0.25, 1.5])
for place, (table, target, options) in enumerate([
    (plain, classes, {"max_leaf_nodes": 3}),
    (mixed, classes, {}),
    (plain, numbers, {}),
    (mixed, numbers, {"min_leaf": 1}),
    (plain, classes, {"splitter": "random"}),
    (mixed, numbers, {"splitter": "random"}),
    (plain, classes, {"family": "sparse-oblique"}),
    (plain, classes, {"family": "rotation"}),
    (plain, classes, {"family": "subspace-cap"}),
    (plain, classes, {"family": "subspace-perceptron"}),
]):
    store = bigforest.encode_store(table.with_columns(target), Path(sys.argv[1]) / str(place), target="y")
    config = TrainConfig.of(trees=1, **options).for_task(store.spec.target.task)
    compile_for(store.shape.extras, config, False, None)
    before = [len(kernel.signatures) for kernel in kernels]
    grow_tree(store, config, 0)
    after = [len(kernel.signatures) for kernel in kernels]
    assert before == after, (options, before, after)
"""


@needs_compiler
def test_compile_for__leaves_nothing_to_compile(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", COMPILED, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_kernels__call_parts_and_no_kernels() -> None:
    """A kernel that was read from a file cannot be linked."""
    compiled = {
        value
        for module in pkgutil.walk_packages(bigforest.kernels.__path__, "bigforest.kernels.")
        for value in vars(importlib.import_module(module.name)).values()
        if isinstance(value, jit._Kernel | PartDispatcher)
    }
    assert compiled or numba.config.DISABLE_JIT
    for one in compiled:
        named = [one.py_func.__globals__.get(name) for name in one.py_func.__code__.co_names]
        assert not [other for other in named if isinstance(other, jit._Kernel)]


def test_part__is_made_by_whichever_thread_is_first() -> None:
    def look(part: PartDispatcher, ready: threading.Barrier) -> bool:
        ready.wait()
        return bool(part.targetoptions)

    with ThreadPoolExecutor(4) as pool:
        for _ in range(50):
            part, ready = PartDispatcher(abs_of, {"nopython": True}), threading.Barrier(4)
            assert all(pool.map(look, [part] * 4, [ready] * 4))


def abs_of(number: float) -> float:
    return -number if number < 0 else number
