"""The command `bigforest` with its subcommands, and the end of the program: signals, closed pipes, exit codes.

Nothing of bigforest is imported here or at the top of a command's module, so that --help stays quick.
"""

from __future__ import annotations

import _thread
import gc
import os
import signal
import sys
import threading
from contextlib import suppress
from typing import Annotated, Any, TextIO

import typer

from .command import EXIT_BAD_INPUT, GuardedCommand
from .explain import explain, plot, report
from .inspect import inspect
from .predict import oob, predict, validate
from .revise import calibrate, export, merge, prune, shrink
from .tables import images, simulate
from .train import compare, encode, plan, train, warm_up

# Seconds after which an ignored signal is repeated.
_MOMENT = 0.1
_EXIT_CLOSED_PIPE = 141

app = typer.Typer(
    name="bigforest",
    help="Exact decision forests for tables: Parquet in, Parquet out.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
for command in (
    train,
    compare,
    predict,
    oob,
    explain,
    plot,
    report,
    inspect,
    encode,
    plan,
    merge,
    prune,
    calibrate,
    shrink,
    validate,
    export,
    images,
    simulate,
):
    app.command(cls=GuardedCommand)(command)
app.command("warm-up", cls=GuardedCommand)(warm_up)


def _show_version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version

        typer.echo(f"bigforest {version('bigforest')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", "-V", help="Show the version and exit.", callback=_show_version, is_eager=True),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    # The callback of --version prints it, and GuardedCommand reads --debug.
    pass


def _stop(number: int, frame: Any) -> None:
    """Handle a signal: raise SystemExit with the exit code of a shell."""
    sys.exit(128 + number)


def _signal_again(ignored: sys.UnraisableHookArgs) -> None:
    """Repeat a signal that Python ignored because it arrived in a callback of compiled code.

    Otherwise most signals that arrive while kernels compile would be lost: LLVM works for seconds, then calls back.
    """
    number: int | None = None
    if isinstance(ignored.exc_value, KeyboardInterrupt):
        number = signal.SIGINT
    elif isinstance(ignored.exc_value, SystemExit) and isinstance(ignored.exc_value.code, int):
        number = ignored.exc_value.code - 128  # set by `_stop`
    if number is None:
        sys.__unraisablehook__(ignored)
        return
    threading.Timer(_MOMENT, _thread.interrupt_main, [number]).start()


def main() -> None:
    """Run the command line. SIGTERM, SIGHUP and Ctrl-C end it as an error does, so temporary files are removed."""
    sys.unraisablehook = _signal_again
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP; nohup ignores SIGHUP, which must stay ignored
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _stop)
    try:
        app(prog_name="bigforest")
    except SystemExit as end:
        gc.freeze()  # otherwise the interpreter searches all imported objects at its end, for a tenth of a second
        if not isinstance(end.__context__, BrokenPipeError) and _flush():
            raise
    except OSError as error:  # the help, the version or the usage could not be printed
        _drop_output(sys.stdout)
        with suppress(OSError):
            print(f"error: {error.strerror}: standard output", file=sys.stderr)
        sys.exit(EXIT_BAD_INPUT)
    finally:
        try:
            if sys.stderr is not None:
                sys.stderr.flush()
        except OSError:  # a full disk: the exit code still tells of the error
            _drop_output(sys.stderr)
    # The reader closed the pipe. Exit quietly with the shell's code for SIGPIPE.
    _drop_output(sys.stdout)
    sys.exit(_EXIT_CLOSED_PIPE)


def _drop_output(stream: TextIO | None) -> None:
    """Discard unprinted output. Otherwise Python would report errors about it at exit, or change the exit code."""
    assert stream is not None
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _flush() -> bool:
    """Print buffered output. Return False if the reader has closed the pipe."""
    if sys.stdout is None:  # standard output was closed when the program began
        return True
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return False
    except OSError:  # text that could not be printed before: its error was displayed
        _drop_output(sys.stdout)
    return True
