"""A forked process refuses what would wait for threads of Polars that it lacks, and predicts arrays."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")

_SCRIPT = """
import os, signal
import numpy as np
import bigforest as bf

X = np.random.default_rng(0).normal(size=(50, 2))
y = X[:, 0] > 0

def fork(run):
    child = os.fork()
    if child:
        if code := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
            raise SystemExit(code)
        return
    signal.alarm(100)
    run()
    os._exit(0)

def refuse():
    assert forest.predict(X).shape == (50,)
    assert "2 trees" in repr(forest) and forest[0].predict(X).shape == (50,)
    assert "CASE" in forest.to_sql()
    for call in (
        lambda: bf.train(X, y, trees=2),
        lambda: forest.predict(table),
        lambda: forest.score(X, y),
        lambda: forest.nodes,
        lambda: forest.features,
        lambda: forest.run,
        lambda: forest.oob,
        lambda: forest[0].depth,
        lambda: forest.expr(),
        lambda: forest.explain(),
        lambda: explanation["importance"],
        lambda: comparison._repr_html_(),
    ):
        try:
            call()
        except bf.ConfigError as error:
            assert "was forked" in str(error)
        else:
            raise SystemExit("not refused")

fork(lambda: bf.train(X, y, trees=2))  # Polars has not been used
forest = bf.train(X, y, trees=2)
forest.predict(table := dict(x0=X[:, 0], x1=X[:, 1]))
explanation = forest.explain(parts="importance")
comparison = bf.compare(X, y, candidates=dict(a={}, b=dict(mtry=1)), options=dict(trees=2))
fork(refuse)
"""


def test_fork__before_and_after_polars_was_used() -> None:
    done = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


_FOREIGN = """
import os, signal
import polars as pl
import bigforest as bf

table = pl.DataFrame(dict(x=range(50), y=[0, 1] * 25)).filter(pl.col("x") < 40)
child = os.fork()
if child:
    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
signal.alarm(100)
try:
    bf.train(table, "y", trees=2)
except bf.ConfigError as error:
    os._exit("was forked" not in str(error))
os._exit(2)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the threads of a process are known on Linux")
def test_fork__after_others_used_polars() -> None:
    done = subprocess.run([sys.executable, "-c", _FOREIGN], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
