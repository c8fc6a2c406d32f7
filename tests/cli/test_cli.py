"""The contract of the command line, with the Python API behind it replaced: options, exit codes, what goes where."""

from __future__ import annotations

import ctypes
import inspect
import json
import re
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import typer

import bigforest
from bigforest.errors import Note, call
from bigforest.events import Notice
from bigforest.options.train_config import TrainConfig
from bigforest.options.train_options import OPTIONS
from cli import app as app_module
from cli.app import app
from cli.config import CONFIG
from cli.tables import IMAGES
from tests.commands import Run

# Where the command line and the function of the same name may differ: what only a terminal has.
# What a distributed.Client, which the keyword `scheduler` takes, knows already.
CONNECTION = {"scheduler_file", "tls_ca", "tls_cert", "tls_key"}
SCREEN_ONLY = {"json", "quiet", "context", "config_file", "separator"}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # typer sets its own
    monkeypatch.chdir(tmp_path)
    for table in ("x.parquet", "new.parquet"):  # the functions that would read them are often replaced
        Path(table).touch()
    return Run(capsys)


class Reached(Exception):
    """Raised by a replaced function, once it has noted how it was called."""


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[inspect.BoundArguments]:
    """Calls of train, encode_store and predict_file, which do nothing else."""
    seen: list[inspect.BoundArguments] = []
    for name in ("train", "encode_store", "predict_file"):
        signature = inspect.signature(getattr(bigforest, name))

        def note(*args: Any, signature: inspect.Signature = signature, **options: Any) -> None:
            seen.append(signature.bind(*args, **options))
            raise Reached("far enough")

        monkeypatch.setattr(bigforest, name, note)
    return seen


def options_of(call: inspect.BoundArguments) -> dict[str, Any]:
    """The options of training in a call."""
    return {name: value for name, value in call.arguments.items() if name in OPTIONS}


def option_names(command: str) -> set[str]:
    """Names of the parameters of a command, as it declares them."""
    return set(inspect.signature(typer.main.get_command(app).commands[command].callback).parameters)  # type: ignore[attr-defined]


def test_train__every_option_is_a_keyword_of_the_function() -> None:
    keywords = set(inspect.signature(bigforest.train).parameters) - {"listener"}
    assert option_names("train") - SCREEN_ONLY - CONNECTION == keywords


@pytest.mark.parametrize(
    ("command", "function"),
    [
        ("predict", "predict_file"),
        ("encode", "encode_store"),
        ("merge", "merge"),
        ("export", "export_forest"),
        ("images", "images_to_features"),
        ("simulate", "simulate"),
    ],
)
def test_command__every_option_is_a_keyword_of_the_function(command: str, function: str) -> None:
    keywords = set(inspect.signature(getattr(bigforest, function)).parameters) - {"listener"}
    assert option_names(command) - SCREEN_ONLY - CONNECTION == keywords


def test_plan__options_are_those_of_training() -> None:
    assert option_names("plan") - SCREEN_ONLY == set(inspect.signature(bigforest.plan_training).parameters)


def test_train__options_are_those_of_the_configuration() -> None:
    assert set(CONFIG) == set(asdict(TrainConfig()))


def test_images__defaults_are_those_of_the_function() -> None:
    parameters = inspect.signature(bigforest.images_to_features).parameters
    assert {name: choice.default for name, choice in IMAGES.items()} == {
        name: parameters[name].default for name in IMAGES
    }


def test_train__options_become_values(run: Run, calls: list[inspect.BoundArguments]) -> None:
    Path("flights.parquet").touch()
    run(
        *("train", "flights.parquet", "--target", "late", "--out", "f", "--trees", "7", "--seed", "9"),
        *("--mtry", "0.5", "--impurity", "entropy", "--max-depth", "3", "--min-split", "4", "--min-leaf", "2"),
        *("--no-replace", "--sample-fraction", "0.7", "--max-bins", "256", "--vote", "hard"),
        *("--constants", "count", "--exclude", "a", "--exclude", "b", "--threads", "2", "--scratch", "/tmp"),
        "--overwrite",
    )
    [call] = calls
    given = call.arguments
    assert (given["data"], given["target"], given["out"], given["exclude"]) == (
        "flights.parquet",
        "late",
        "f",
        ["a", "b"],
    )
    assert (given["threads"], given["scratch"], given["overwrite"]) == (2, "/tmp", True)
    assert TrainConfig(**options_of(call)) == TrainConfig(
        trees=7,
        seed=9,
        mtry=0.5,
        impurity="entropy",
        max_depth=3,
        min_split=4,
        min_leaf=2,
        replace=False,
        sample_fraction=0.7,
        max_bins=256,
        vote="hard",
        constants="count",
    )


@pytest.mark.parametrize(
    ("text", "value"), [("sqrt", "sqrt"), ("all", "all"), ("3", 3), ("0.25", 0.25), ("none", "none")]
)
def test_train__mtry_is_a_word_or_a_number(
    run: Run, calls: list[inspect.BoundArguments], text: str, value: object
) -> None:
    run("train", "x.parquet", "--out", "f", "--mtry", text)
    assert calls[0].arguments["mtry"] == value


def test_train__nothing_given_is_the_default_configuration(run: Run, calls: list[inspect.BoundArguments]) -> None:
    run("train", "x.parquet", "--out", "f")
    assert options_of(calls[0]) == {}
    assert "target" not in calls[0].arguments


def test_train__resumed_it_passes_on_what_is_given_only(run: Run, calls: list[inspect.BoundArguments]) -> None:
    run("train", "--resume", "f", "--trees", "100", "--no-bootstrap", "--memory", "2GB")
    given = calls[0].arguments
    assert (given["data"], given["resume"], given["memory"]) == (None, "f", "2GB")
    assert "out" not in given
    assert options_of(calls[0]) == {"trees": 100, "bootstrap": False}


@pytest.mark.parametrize(
    ("data", "stem"),
    [
        ("flights.parquet", "flights"),
        ("sub/flights.v2.csv", "flights.v2"),
        ("sub", "sub"),
        ("sub/*.csv", "sub"),
    ],
)
def test_default_output__is_the_stem_in_the_current_folder(
    run: Run, calls: list[inspect.BoundArguments], data: str, stem: str
) -> None:
    Path("sub").mkdir()
    for name in ("flights.parquet", "sub/flights.v2.csv"):
        Path(name).touch()
    run("train", data)
    run("predict", "f.forest", data)
    assert [str(call.arguments["out"]) for call in calls] == [f"{stem}.forest", f"{stem}.predictions.parquet"]


def test_predict__options_become_values(run: Run, calls: list[inspect.BoundArguments]) -> None:
    run(
        *("predict", "f.forest", "new.parquet", "--out", "p", "--proba", "--keep", "a", "--keep", "b"),
        *("--vote", "stochastic", "--ties", "random", "--threads", "3", "--overwrite", "--memory", "1GB"),
    )
    given = calls[0].arguments
    expected = {
        "forest": "f.forest",
        "data": "new.parquet",
        "out": "p",
        "proba": True,
        "keep": ["a", "b"],
        "vote": "stochastic",
        "ties": "random",
        "threads": 3,
        "memory": "1GB",
        "overwrite": True,
    }
    assert {name: given[name] for name in expected} == expected


def test_encode__options_become_values(run: Run, calls: list[inspect.BoundArguments]) -> None:
    run("encode", "x.parquet", "--out", "x.store", "--target", "t", "--max-bins", "16", "--exclude", "a")
    given = calls[0].arguments
    expected = {"data": "x.parquet", "out": "x.store", "target": "t", "max_bins": 16, "exclude": ["a"]}
    assert {name: given[name] for name in expected} == expected


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(*args: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(bigforest, "train", fail)


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (bigforest.DataError("the table is empty"), 2, "error: the table is empty\n"),
        (bigforest.ConfigError("two\nlines"), 2, "error: two lines\n"),
        (OSError(28, "No space left on device", "x.forest"), 2, "error: No space left on device: x.forest\n"),
        (PermissionError(13, "Permission denied"), 2, "error: Permission denied\n"),
        (MemoryError(), 2, "error: not enough memory; use fewer --threads or cap the codes with --max-bins 256\n"),
        (
            RuntimeError("can't start new thread"),
            2,
            "error: the system starts no more threads; use fewer --threads or raise its limit (ulimit -u)\n",
        ),
        (KeyboardInterrupt(), 130, "error: interrupted\n"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_error__is_one_line_and_an_exit_code(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, message: str
) -> None:
    failing(monkeypatch, error)
    for options in ([], ["--json"], ["--quiet"]):
        run("train", "x.parquet", "--out", "f", *options)
        assert (run.code, run.err) == (code, message)
        told = {"error": message[len("error: ") : -1], "kind": type(error).__name__}
        assert run.out == (json.dumps(told) + "\n" if options == ["--json"] else "")


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (SystemExit(143), 143, "stopped by a signal"),
        (OSError(5, "Input/output error", "f"), 2, "Input/output error: f"),
    ],
)
def test_error__says_how_to_go_on(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, message: str
) -> None:
    error.add_note(Note(f"go on with {call('train', 'resume', 'my f')}"))
    assert error.__notes__ == ["go on with train(resume='my f')"]
    failing(monkeypatch, error)
    run("train", "x.parquet", "--out", "f")
    advice = "go on with `bigforest train --resume 'my f'`"
    assert (run.code, run.out, run.err) == (code, "", f"error: {message}; {advice}\n")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (MemoryError(), "error: not enough memory\n"),
        (
            RuntimeError("can't start new thread"),
            "error: the system starts no more threads; raise its limit (ulimit -u)\n",
        ),
    ],
)
def test_error__names_only_options_of_the_command(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: BaseException, message: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(bigforest, "merge", fail)
    run("merge", "a", "b", "--out", "c")
    assert (run.code, run.err) == (2, message)


def test_error__unexpected_asks_for_debug(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, RuntimeError("boom\nand more"))
    run("train", "x.parquet", "--out", "f")
    assert run.code == 1
    assert run.err.startswith("error: unexpected RuntimeError: boom; run `bigforest --debug")
    assert run.err.count("\n") == 1


@pytest.mark.parametrize("error", [RuntimeError("boom"), bigforest.DataError("boom")])
def test_debug__shows_the_traceback(run: Run, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    failing(monkeypatch, error)
    run("--debug", "train", "x.parquet", "--out", "f")
    assert "Traceback" in run.err
    assert "in fail" in run.err
    assert run.out == ""


@pytest.mark.parametrize(
    "args",
    [
        ["train"],
        ["train", "x.parquet", "--tres", "3"],
        ["train", "x.parquet", "--trees", "many"],
        ["train", "x.parquet", "--sample-fraction", "half"],
        ["predict", "f.forest"],
        ["encode", "x.parquet"],
        ["grow"],
    ],
    ids=" ".join,
)
def test_usage__wrong_exits_with_two(run: Run, args: list[str]) -> None:
    run(*args)
    assert (run.code, run.out) == (2, "")
    assert "Traceback" not in run.err
    assert run.err.startswith("Usage: bigforest")


def test_version__is_printed(run: Run) -> None:
    run("--version")
    assert (run.code, run.out) == (0, f"bigforest {bigforest.__version__}\n")


def test_help__names_every_option(run: Run) -> None:
    run("train", "--help")
    for name in TrainConfig.__dataclass_fields__:
        assert re.search(rf"--{name.replace('_', '-')}\b", run.out), name


def test_notice__goes_to_stderr_unless_quiet(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def tell(*args: object, listener: Any, **options: object) -> None:
        listener(Notice("3 rows were left out"))
        raise Reached

    monkeypatch.setattr(bigforest, "train", tell)
    run("train", "x.parquet", "--out", "f", "--json")
    assert run.err.startswith("note: 3 rows were left out\n")
    assert json.loads(run.out)["kind"] == "Reached"
    run("train", "x.parquet", "--out", "f", "--quiet")
    assert "note" not in run.err


def test_json__has_no_infinities_and_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    from cli.show import show

    show({"a": float("nan"), "b": [float("-inf"), 1.5], "c": {1: "é"}}, lambda *_: None, json=True)
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    assert json.loads(printed) == {"a": None, "b": ["-inf", 1.5], "c": {"1": "é"}}


def test_plain__keeps_letters_of_all_scripts_and_escapes_the_rest() -> None:
    from cli.show import plain

    assert plain("日本 é 'x'") == "日本 é 'x'"
    assert plain("a\tb\n\x1b[31mc\x85") == r"a\tb\n\x1b[31mc\x85"


def test_lines_and_table__show_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    from cli.show import lines, print_table

    lines(("target", "a\x1b[31m"), ("merged from", "one\ntwo"))
    print_table(["class\n"], [["b\x07"]])
    out = capsys.readouterr().out
    assert "\x07" not in out
    assert [line.split() for line in out.splitlines()] == [
        ["target", r"a\x1b[31m"],
        ["merged", "from", "one"],
        ["two"],
        [r"class\n"],
        [r"b\x07"],
    ]


@pytest.mark.parametrize(("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_signal__that_comes_in_a_callback_of_compiled_code(
    number: int, raised: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "unraisablehook", app_module._signal_again)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGTERM, app_module._stop)
    try:
        with pytest.raises(raised):
            ctypes.CFUNCTYPE(None)(lambda: signal.raise_signal(number))()  # raises nothing here
            for _ in range(1000):  # it is heard between two sleeps, not in one
                time.sleep(0.01)
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
