"""Writes what follows from the options of training as they are declared in bigforest/schema/train_options.py.

    python docs/options.py            # write signatures, docstrings, cli/config.py and docs/reference/options.md
    python docs/options.py --check    # exit with 1 where a file differs

In a signature the options stand between the comments BEGIN and END; in the section Parameters of a docstring the
entries that have the names of options are replaced, at the place of the first. What is written is committed.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from bigforest.api.given import SKLEARN_NAMES  # noqa: E402
from bigforest.schema.declaration import FAMILY, PANELS, Declared  # noqa: E402
from bigforest.schema.train_options import OPTIONS  # noqa: E402

PAGE = "docs/reference/options.md"
COMMAND_LINE = "cli/config.py"
BEGIN = "# Options, written by docs/options.py."
END = "# End of the options."
_WIDTH = 120
# Of the store; and of the estimators, which have the others by scikit-learn's names or as arguments of fit.
_STORE = tuple(name for name, one in OPTIONS.items() if one.option.encodes)
_OTHERWISE = {*SKLEARN_NAMES.values(), *("bootstrap", "group", "weight", "class_weight", "task", "categories", "ties")}
_ESTIMATOR = tuple(name for name in OPTIONS if name not in _OTHERWISE)
_CLASSES_ALONE = ("family", "sampling", "vote")
# What the estimators of scikit-learn call options that texts name.
_IN_SKLEARN = {
    "`mtry`": "`max_features`",
    "`sample_fraction`": "`max_samples`",
    "In Python also a mapping of classes to weights.": "",
}


@dataclass(frozen=True)
class Target:
    """A function, or a class with its __init__, that has options in its signature and docstring.

    names   the options it has.
    words   names in texts, and what they are called here.
    copies  the function whose other keywords it has, too, with their entries.
    documents  whether its docstring describes the options.
    """

    file: str
    name: str
    names: tuple[str, ...] = tuple(OPTIONS)
    words: Mapping[str, str] = field(default_factory=dict)
    copies: str = ""
    documents: bool = True


TARGETS = (
    Target("bigforest/api/training.py", "train"),
    Target("bigforest/api/training.py", "plan_training", documents=False),
    Target("bigforest/api/files.py", "encode_store", _STORE),
    Target("bigforest/api/namespaces.py", "FrameNamespace.train", copies="train"),
    Target(
        "bigforest/sklearn/classifier.py",
        "BigForestClassifier",
        tuple(name for name in _ESTIMATOR if name != "keep_targets"),
        _IN_SKLEARN,
    ),
    Target(
        "bigforest/sklearn/regressor.py",
        "BigForestRegressor",
        tuple(name for name in _ESTIMATOR if name not in _CLASSES_ALONE and OPTIONS[name].of("axis")),
        _IN_SKLEARN,
    ),
)


def written() -> dict[str, str]:
    """The files that follow from the declarations, by their names, with the text that they must have."""
    texts: dict[str, str] = {}
    for target in TARGETS:
        text = texts.get(target.file) or (ROOT / target.file).read_text(encoding="utf-8")
        parameters, entries = [_parameter(OPTIONS[name]) for name in _ordered(target.names)], _entries(target)
        if target.copies:
            keywords, described = _keywords(texts[TARGETS[0].file], target.copies)
            parameters, entries = parameters + keywords, entries | described
        text = _with_signature(text, target, parameters)
        texts[target.file] = _with_entries(text, target, entries) if target.documents else text
    return {**texts, COMMAND_LINE: command_line(), PAGE: page()}


def _ordered(names: Iterable[str]) -> list[str]:
    wanted = set(names)
    return [name for name in OPTIONS if name in wanted]


def _parameter(one: Declared) -> str:
    """`trees: int = 100,`"""
    return f"{one.name}: {one.option.accepts or ' | '.join(map(_type, one.types))} = {_code(one.default)},"


def _type(kind: Any) -> str:
    if kind is NoneType:
        return "None"
    return kind.__name__ if isinstance(kind, type) else f"Literal[{', '.join(map(_code, kind.__args__))}]"


def _code(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _entries(target: Target) -> dict[str, tuple[str, str]]:
    """The entries of the options in a docstring, by their names: the line of the name, and the text."""
    found = {}
    for name in _ordered(target.names):
        one = OPTIONS[name]
        text = " ".join([one.option.help, one.option.more, *_notes(one)])
        for word, here in target.words.items():
            text = text.replace(word, here)
        found[name] = f"{name} : {_kinds(one)}, default={_code(one.default)}", re.sub(r"  +", " ", text).strip()
    return found


def _kinds(one: Declared) -> str:
    """The types in the words of numpydoc."""
    if one.option.accepts:
        return one.option.accepts.replace(" | ", " or ")
    words = [f"{{{', '.join(map(_code, one.choices))}}}"] if one.choices else []
    words += [kind.__name__ for kind in one.types if kind in (bool, int, float, str)]
    words += ["None"] if NoneType in one.types else []
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]


def _notes(one: Declared) -> list[str]:
    """What defaults mean, and the families."""
    notes = [f"{'None' if one.default is None else 'Empty'} means {one.option.unset}."] if one.option.unset else []
    notes += [f"Default for {_listed(of)}: {value}." for value, of in _own(one).items()]
    return notes + _families(one)


def _families(one: Declared) -> list[str]:
    of = one.option.families
    return [f"Only for the {'family' if len(of) == 1 else 'families'} {_listed(of)}."] if of else []


def _own(one: Declared) -> dict[str, list[str]]:
    """The families that have defaults of their own, by the default."""
    found: dict[str, list[str]] = {}
    for family, value in one.option.own.items():
        found.setdefault(_code(value), []).append(family)
    return found


def _listed(families: Iterable[str]) -> str:
    *first, last = families
    return f"{', '.join(first)} and {last}" if first else last


def _found(text: str, name: str) -> tuple[ast.AST, ast.FunctionDef]:
    """What has the docstring, and the function that has the signature."""
    node: Any = ast.parse(text)
    for part in name.split("."):
        node = next(one for one in node.body if getattr(one, "name", "") == part)
    if isinstance(node, ast.FunctionDef):
        return node, node
    return node, next(one for one in node.body if getattr(one, "name", "") == "__init__")


def _with_signature(text: str, target: Target, parameters: list[str]) -> str:
    """The text with these parameters between the comments of the function's signature."""
    _, function = _found(text, target.name)
    lines = text.split("\n")
    begin, end = (
        next(place for place in range(function.lineno, len(lines)) if lines[place].strip() == mark)
        for mark in (BEGIN, END)
    )
    indent = " " * (len(lines[begin]) - len(lines[begin].lstrip()))
    return "\n".join([*lines[: begin + 1], *(indent + parameter for parameter in parameters), *lines[end:]])


def _with_entries(text: str, target: Target, entries: Mapping[str, tuple[str, str]]) -> str:
    """The text with these entries in the section Parameters of the docstring."""
    node, _ = _found(text, target.name)
    lines = text.split("\n")
    begin, end = _section(lines, node)
    indent = " " * (len(lines[begin]) - len(lines[begin].lstrip()))
    kept: list[str] = []
    place = None
    for entry in _parsed(lines[begin:end], indent):
        if entry[0].split(" : ")[0].strip() not in entries:
            kept += entry
        elif place is None:
            place = len(kept)
    inner = indent + "    "
    new = [
        line
        for head, body in entries.values()
        for line in (
            indent + head,
            *textwrap.wrap(body, _WIDTH, initial_indent=inner, subsequent_indent=inner, break_on_hyphens=False),
        )
    ]
    place = len(kept) if place is None else place
    return "\n".join([*lines[:begin], *kept[:place], *new, *kept[place:], *lines[end:]])


def _section(lines: list[str], node: ast.AST) -> tuple[int, int]:
    """The first line of the section Parameters of a docstring, and the one behind its last."""
    docstring = node.body[0]  # type: ignore[attr-defined]
    inside = range(docstring.lineno, docstring.end_lineno)
    begin = next(place for place in inside if lines[place].strip() == "Parameters")
    return begin + 2, next(place for place in inside if place > begin and not lines[place].strip())


def _parsed(lines: list[str], indent: str) -> list[list[str]]:
    """The entries of a section, each a name with the lines about it."""
    found: list[list[str]] = []
    for line in lines:
        if line.startswith(f"{indent} "):
            found[-1].append(line)
        else:
            found.append([line])
    return found


def _keywords(text: str, name: str) -> tuple[list[str], dict[str, tuple[str, str]]]:
    """The keywords of a function that are no options, as parameters and with their entries."""
    node, function = _found(text, name)
    lines = text.split("\n")
    parameters = []
    for argument, default in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
        if argument.arg not in OPTIONS:
            assert argument.annotation is not None and default is not None
            written = f"{argument.arg}: {ast.unparse(argument.annotation)} = {ast.unparse(default)},"
            parameters.append(written.replace("'", '"'))
    begin, end = _section(lines, node)
    entries = {}
    for head, *body in _parsed(lines[begin:end], "    "):
        entries[head.split(" : ")[0].strip()] = head.strip(), " ".join(line.strip() for line in body)
    return parameters, {one.partition(":")[0]: entries[one.partition(":")[0]] for one in parameters}


def command_line() -> str:
    """The options of the command line: a module, so that asking for --help imports nothing of the package."""
    panels = [one for panel in PANELS for one in OPTIONS.values() if one.option.panel == panel]
    store = f"({', '.join(map(_code, _STORE))})"
    return _MODULE.format(options="\n".join(map(_choice, panels)), store=store)


_MODULE = '''\
"""The options that become a TrainConfig. Written by docs/options.py from their declarations: change these."""

# ruff: noqa: E501
# fmt: off
from .groups import Choice, number_or_word, option

# By the names of TrainConfig, panel by panel. What is not given is for the API to choose.
CONFIG: dict[str, Choice] = {{
{options}
}}
# Those on which a store depends.
STORE = {store}
'''


def _choice(one: Declared) -> str:
    kinds = [kind for kind in one.types if kind in (bool, int, float)]
    kind = kinds[0].__name__ if kinds and len(one.types) - (NoneType in one.types) == 1 else "str"
    metavar = one.option.metavar or "|".join(one.choices) or {"int": "N", "float": "F"}.get(kind, "COL")
    arguments = [
        f"{'list[str]' if one.is_list else kind} | None",
        "None",
        "None" if kind == "bool" else _code(metavar),
        repr(_help(one)) if '"' in _help(one) else _code(_help(one)),
        f"panel={_code(one.option.panel)}",
        *(["read=number_or_word"] if kinds and kind == "str" else []),
    ]
    return f"    {_code(one.name)}: option({', '.join(arguments)}),"


def _help(one: Declared) -> str:
    text = re.sub(r"`(\w+)`", lambda name: f"--{name[1].replace('_', '-')}", one.option.help)
    if one.is_list:
        text += " Repeat for more."
    if one.option.panel == FAMILY:
        text = f"{', '.join(one.option.families)}: {text[0].lower()}{text[1:]}"
    return f"{text}  [default: {one.default_text}]" if one.default_text else text


def page() -> str:
    """The page of the options."""
    parts = [_HEAD]
    head = "| option | values | default | meaning |\n|---|---|---|---|"
    for panel in PANELS:
        rows = [_row(one) for one in OPTIONS.values() if one.option.panel == panel]
        if rows:
            parts.append("\n".join([f"## {panel.capitalize()}\n", head, *rows]))
    return "\n\n".join(parts) + "\n"


_HEAD = """\
<!-- Written by docs/options.py from bigforest/schema/train_options.py: change the declarations there. -->
# Options of training

This page lists the training options. Each option is a keyword of `bigforest.train` and of `frame.bigforest.train`, and
an option of the command `bigforest train`, with dashes for underscores: `max_depth` is `--max-depth`. An option that is
on or off has two forms there, `--ranks` and `--no-ranks`. The options and the table determine the forest; `threads`,
`memory`, `scratch` and `scheduler` do not change a bit of it."""


def _row(one: Declared) -> str:
    text = " ".join(filter(None, [one.option.help, one.option.more, *_families(one)]))
    cells = [f"`{one.name}`", _values(one), one.default_text or "none", text]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _values(one: Declared) -> str:
    if one.is_list:
        return "names of columns"
    if bool in one.types:
        return "on, off"
    words = one.wanted.removeprefix("one of ").replace('"', "")
    for power in (31, 62, 63):
        words = words.replace(str(2**power - 1), f"2^{power} - 1").replace(str(2**power), f"2^{power}")
    return words


def main() -> int:
    """Write the files; with --check, say which would change."""
    texts = written()
    there = {file: (ROOT / file).read_text(encoding="utf-8") if (ROOT / file).exists() else "" for file in texts}
    changed = [file for file in texts if texts[file] != there[file]]
    for file in changed:
        if "--check" in sys.argv[1:]:
            print(f"{file} differs from the declarations; run python docs/options.py", file=sys.stderr)
        else:
            (ROOT / file).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / file).write_text(texts[file], encoding="utf-8")
    return int(bool(changed) and "--check" in sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
