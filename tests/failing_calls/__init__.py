"""Commands of which one call of the system fails, or which are killed there, at every call in turn.

A write, a flush, a truncation, a mapping, an opening, a renaming or a new folder fails with ENOSPC, EIO or EFBIG, or
the process ends there: the first, then the second, and so on, to the last. Afterwards

- a failure is one line and exit code 2, and nothing incomplete has the name of the output;
- the same command again (for a training `--resume`) makes what an undisturbed run makes, byte for byte but for
  timings, and leaves nothing else.

`python -m tests.failing_calls` tries all calls, the tests nine of each command. Needs Linux and a C compiler.
"""
