"""API messages on the command line: names of arguments become options, functions become commands."""

from __future__ import annotations

import re
from typing import Any

# What messages tell the user to call.
_COMMANDS = {"validate_forest": "`bigforest validate`", "predict_file": "`bigforest predict`"}
# Arguments whose names are no words, so that they mean nothing else.
_NO_WORDS = ("mtry", "overwrite")
# What stands before the name of an argument. Many names are words, too: "the target has nulls", "too little memory".
_BEFORE = "with|drop|lower|raise|set|leave|as"
# And what behind one that begins a message.
_BEHIND = "must be|must list|is an option|is not set|is of|looks at|applies to|does not apply to|replaces|describe|and"


def in_flags(message: str, command: Any) -> str:
    """The message with --flags in the place of the names of arguments; `command` is that of click which was called."""
    from .config import CONFIG

    flags = {name: f"--{name.replace('_', '-')}" for name in CONFIG}
    for parameter in command.params:
        longest = max(parameter.opts, key=len, default="")
        if longest.startswith("--"):
            flags[parameter.name] = longest
        elif parameter.name == "data":
            flags[parameter.name] = "DATA"
    any_name = "|".join(sorted(flags, key=len, reverse=True))

    def flag(found: re.Match[str]) -> str:
        return re.sub(rf"(?<![\w-])({any_name})(?![\w-])", lambda name: flags[name[1]], found[0])

    own = [name for name in flags if "_" in name or name in _NO_WORDS]
    listed = rf"(?:{any_name})(?:(?:, | and | or )(?:{any_name}))*(?![\w-])"
    for pattern in (
        rf"^{listed} (?:{_BEHIND})\b",
        rf"(?<=' )for {listed}(?=;)",  # there is no column 'x' for ...
        rf"(?<![\w-])(?:{_BEFORE}) {listed}",
        rf"(?<![\w-])(?:{'|'.join(own)})(?![\w-])",
    ):
        message = re.sub(pattern, flag, message)
    return re.sub("|".join(_COMMANDS), lambda name: _COMMANDS[name[0]], message)
