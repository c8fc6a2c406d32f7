"""Garbage collection is off while public names are imported, and on where nobody would turn it on again."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading

import pytest

from bigforest.kernels.compiler.gc_pause import gc_paused

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")

# Forks while the module behind a public name is imported.
_IMPORT = """
import gc, os, sys, bigforest

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "bigforest.revise.revision":
            seen.append(gc.isenabled())
            child = os.fork()
            if not child:
                os._exit(not gc.isenabled())
            seen.append(os.waitpid(child, 0)[1] == 0)

seen = []
sys.meta_path.insert(0, Finder())
bigforest.merge
print(*seen, gc.isenabled())
"""


def test_import__is_not_collected_and_a_forked_process_is() -> None:
    found = subprocess.run([sys.executable, "-c", _IMPORT], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False", "True", "True"]


def test_block__in_another_thread_does_not_outlive_a_fork() -> None:
    began, forked = threading.Event(), threading.Event()

    def work() -> None:
        with gc_paused():
            began.set()
            forked.wait(60)

    thread = threading.Thread(target=work)
    thread.start()
    began.wait(60)
    child = os.fork()
    if not child:
        os._exit(not gc.isenabled())
    forked.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0 and gc.isenabled()


def test_block__leaves_what_a_user_has_turned_off() -> None:
    gc.disable()
    try:
        with gc_paused():
            pass
        child = os.fork()
        if not child:
            os._exit(gc.isenabled())
        assert os.waitpid(child, 0)[1] == 0 and not gc.isenabled()
    finally:
        gc.enable()
