"""Writes what follows from the options of training as they are declared in bigforest/options/train_options.py, from the
families of bigforest/grow/families/, from the criteria of bigforest/grow/criteria.py, and from the parts of an
explanation in bigforest/explain/explain.py.

    python docs/options.py            # write signatures, docstrings, and NAMES, COMMAND_LINE, PAGE and FAMILIES
    python docs/options.py --check    # exit with 1 where a file differs

In a signature the options stand between the comments BEGIN and END. The rows of the table of the families are those of
`Family.splits_on` and `Family.tasks`; those for regression also become the entry `family` in the docstring of
REGRESSOR. The parts of an explanation become options of the command line and the entry `parts` in the docstring of
EXPLAIN. What is written is committed.
"""

from __future__ import annotations

import ast
import os
import re
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from bigforest.explain.explain import SECTIONS  # noqa: E402
from bigforest.grow.criteria import PACKAGE_CRITERIA  # noqa: E402
from bigforest.grow.families.family import Family  # noqa: E402
from bigforest.grow.families.registry import package_families  # noqa: E402
from bigforest.options.declaration import FAMILY, PANELS, Option  # noqa: E402
from bigforest.options.names import families, known_family  # noqa: E402
from bigforest.options.signatures import (  # noqa: E402
    SKLEARN_NAMES,
    families_note,
    literal,
    named_entry,
    section,
    with_section,
)
from bigforest.options.train_options import OPTIONS  # noqa: E402

NAMES = "bigforest/options/package_names.py"
PAGE = "docs/reference/options.md"
FAMILIES = "docs/guide/families.md"
COMMAND_LINE = "cli/config.py"
EXPLAIN = "bigforest/explain/explain.py"
REGRESSOR = "bigforest/sklearn/regressor.py"
_WIDTH = 120
BEGIN = "# Options, written by docs/options.py."
END = "# End of the options."
# Of the store; and of the estimators, which have the others by scikit-learn's names or as arguments of fit.
_STORE = tuple(name for name, one in OPTIONS.items() if one.encodes)
_OTHERWISE = {
    *SKLEARN_NAMES.values(),
    *("bootstrap", "group", "weight", "class_weight", "task", "categories", "missing", "ties"),
}
_ESTIMATOR = tuple(name for name in OPTIONS if name not in _OTHERWISE)
_CLASSES_ALONE = ("family", "sampling", "vote", "power", "mean_difference", "mean_difference_scope")
_NUMBERS = [family for family in map(known_family, families()) if "regression" in family.tasks]


@dataclass(frozen=True)
class Target:
    """A function that has options in its signature. Its docstring is completed when it is imported
    (bigforest/options/signatures.py), or says where they are described.

    names  the options it has.
    """

    file: str
    name: str
    names: tuple[str, ...] = tuple(OPTIONS)


TARGETS = (
    Target("bigforest/training/train.py", "train"),
    Target("bigforest/encode/encode.py", "encode_store", _STORE),
    Target(
        "bigforest/sklearn/classifier.py",
        "BigForestClassifier.__init__",
        tuple(name for name in _ESTIMATOR if name != "keep_targets"),
    ),
    Target(
        REGRESSOR,
        "BigForestRegressor.__init__",
        tuple(
            name
            for name in _ESTIMATOR
            if name not in _CLASSES_ALONE and any(family.has(OPTIONS[name]) for family in _NUMBERS)
        ),
    ),
)


def written() -> dict[str, str]:
    """The files that follow from the declarations, by their names, with the text that they must have."""
    texts = {NAMES: package_names()}
    for target in TARGETS:
        text = texts.get(target.file) or (ROOT / target.file).read_text(encoding="utf-8")
        parameters = [_parameter(OPTIONS[name]) for name in target.names]
        texts[target.file] = _with_signature(text, target, parameters)
    texts[EXPLAIN] = _with_entries((ROOT / EXPLAIN).read_text(encoding="utf-8"), "explain_forest", parts_entry())
    texts[REGRESSOR] = _with_entries(texts[REGRESSOR], "BigForestRegressor", number_families_entry())
    return {**texts, COMMAND_LINE: command_line(), PAGE: page(), FAMILIES: families_page()}


def _parameter(one: Option) -> str:
    """`trees: int = 100,`"""
    return f"{one.name}: {one.accepts or ' | '.join(map(_type, one.types))} = {literal(one.default)},"


def _type(kind: Any) -> str:
    if kind is NoneType:
        return "None"
    return kind.__name__ if isinstance(kind, type) else f"Literal[{', '.join(map(literal, kind.__args__))}]"


def _function(text: str, name: str) -> ast.FunctionDef:
    """The function of this name."""
    node: Any = ast.parse(text)
    for part in name.split("."):
        node = next(one for one in node.body if getattr(one, "name", "") == part)
    return node  # type: ignore[no-any-return]


def _with_signature(text: str, target: Target, parameters: list[str]) -> str:
    """The text with these parameters between the comments of the function's signature."""
    function = _function(text, target.name)
    lines = text.split("\n")
    begin, end = (
        next(place for place in range(function.lineno, len(lines)) if lines[place].strip() == mark)
        for mark in (BEGIN, END)
    )
    indent = " " * (len(lines[begin]) - len(lines[begin].lstrip()))
    return "\n".join([*lines[: begin + 1], *(_wrapped(indent, parameter) for parameter in parameters), *lines[end:]])


def _wrapped(indent: str, parameter: str) -> str:
    """The line of a parameter, or several lines if its words are too many for one, as ruff formats them."""
    if len(indent + parameter) <= _WIDTH:
        return indent + parameter
    before, words, after = re.split(r"(?<=Literal\[)(.*)(?=\])", parameter)
    inner = f"{indent}    {words}"
    if len(inner) > _WIDTH:
        inner = "\n".join(f"{indent}    {word}," for word in words.split(", "))
    return "\n".join([indent + before, inner, indent + after])


def _with_entries(text: str, name: str, entries: dict[str, str]) -> str:
    """The text with these entries in the docstring of the function `name`, in the place of the first of them."""
    function = _function(text, name)
    docstring = ast.get_docstring(function) or ""
    own = section(docstring, "Parameters")
    order = [name for name in own if name not in entries]
    first = next((place for place, name in enumerate(own) if name in entries), len(own))
    order[first:first] = entries
    known = own | entries
    described = textwrap.indent(with_section(docstring, "Parameters", [known[name] for name in order]), "    ")
    lines, inside = text.split("\n"), function.body[0]
    before, after = lines[: inside.lineno - 1], lines[inside.end_lineno :]
    return "\n".join([*before, f'    """{described.strip()}', '    """', *after])


def parts_entry() -> dict[str, str]:
    """The parts of an explanation, in the docstring of the function that makes them."""
    needs = {
        kind: ", ".join(literal(name) for name, one in SECTIONS.items() if one.needs == kind)
        for kind in ("forest", "rows", "out of bag")
    }
    fast = ", ".join(literal(name) for name, one in SECTIONS.items() if one.fast)
    text = (
        f"Parts of the explanation: of the forest alone ({needs['forest']}), of any rows ({needs['rows']}), and of "
        f"out-of-bag rows ({needs['out of bag']}). None for the fast ones ({fast}); those on out-of-bag rows only "
        "with `data`, and not after boosting."
    )
    return {"parts": named_entry("parts : iterable of str, str or None, default=None", text)}


def number_families_entry() -> dict[str, str]:
    """The families that do regression, in the docstring of the regressor."""
    names = ", ".join(literal(family.name) for family in package_families() if "regression" in family.tasks)
    text = (
        "A forest that splits on features, a single tree on all rows, or a forest that splits on projections; see "
        "`bigforest.train`. The other families of BigForestClassifier support classification only."
    )
    return {"family": named_entry(f'family : {{{names}}}, default="axis"', text)}


def package_names() -> str:
    """The names of families and criteria, for the options: a module of the schema, which does not import their code."""
    families = list(package_families())

    def rows(texts: Mapping[str, str]) -> str:
        return "".join(f"\n    {literal(name)}: {text}," for name, text in texts.items()) + "\n"

    return _NAMES.format(
        names=", ".join(literal(family.name) for family in families),
        families=rows({family.name: _known(family) for family in families}),
        impurities=", ".join(literal(criterion.name) for criterion in PACKAGE_CRITERIA),
        task=rows({criterion.name: literal(criterion.task) for criterion in PACKAGE_CRITERIA}),
        meanings=rows({criterion.name: literal(criterion.meaning) for criterion in PACKAGE_CRITERIA}),
    )


def _known(family: Family) -> str:
    """The `KnownFamily` of a family, as Python code."""
    arguments = [literal(family.options_of or family.name), _tuple(family.tasks)]
    arguments += [literal("{} ({})".format(*family.splits_on)), *([_tuple(family.lacks)] if family.lacks else [])]
    return f"KnownFamily({', '.join(arguments)})"


def _tuple(texts: tuple[str, ...]) -> str:
    return f"({', '.join(map(literal, texts))}{',' if len(texts) == 1 else ''})"


_NAMES = '''\
"""The families and criteria of the package. Written by docs/options.py from bigforest/grow/families/ and
bigforest/grow/criteria.py: change these."""

# ruff: noqa: E501
# fmt: off
from typing import Literal

from bigforest.options.declaration import KnownFamily
from bigforest.options.values import Task

Family = Literal[{names}]
FAMILIES = {{{families}}}
Impurity = Literal[{impurities}]
# Task of each impurity.
IMPURITIES: dict[str, Task] = {{{task}}}
# Definition of each impurity.
MEANINGS = {{{meanings}}}
'''


def command_line() -> str:
    """The options of the command line: a module, so that asking for --help imports nothing of the package."""
    panels = [one for panel in PANELS for one in OPTIONS.values() if one.panel == panel]
    store = f"({', '.join(map(literal, _STORE))})"
    flags = (f'"{name}": flag({literal(one.help)}, "--{name}", panel="parts"),' for name, one in SECTIONS.items())
    parts = "\n".join(f"    {line}" for line in flags)
    return _MODULE.format(options="\n".join(map(_choice, panels)), store=store, parts=parts)


_MODULE = '''\
"""Options that become a TrainConfig, and options for parts of an explanation. docs/options.py writes this file from the
declarations of the options: change the declarations."""

# ruff: noqa: E501
# fmt: off
from .options import Choice, flag, number_or_word, option

# Options by field of TrainConfig, panel by panel.
CONFIG: dict[str, Choice] = {{
{options}
}}
# Options on which a store depends.
STORE = {store}
# Options by part of an explanation.
PARTS: dict[str, Choice] = {{
{parts}
}}
'''


def _choice(one: Option) -> str:
    kinds = [kind for kind in one.types if kind in (bool, int, float)]
    kind = kinds[0].__name__ if kinds and len(one.types) - (NoneType in one.types) == 1 else "str"
    metavar = one.metavar or "|".join(one.choices) or {"int": "N", "float": "F"}.get(kind, "COL")
    arguments = [
        "list[str]" if one.is_list else kind,
        "None" if kind == "bool" else literal(metavar),
        repr(_help(one)) if '"' in _help(one) else literal(_help(one)),
        f"panel={literal(one.panel)}",
        *(["read=number_or_word"] if kinds and kind == "str" else []),
    ]
    return f"    {literal(one.name)}: option({', '.join(arguments)}),"


def _help(one: Option) -> str:
    text = re.sub(r"`(\w+)`", lambda name: f"--{name[1].replace('_', '-')}", one.help)
    if one.is_list:
        text += " Repeat for more."
    if one.panel == FAMILY:
        text = f"{', '.join(one.families)}: {text[0].lower()}{text[1:]}"
    return f"{text}  [default: {one.default_text}]" if one.default_text else text


def page() -> str:
    """The page of the options."""
    parts = [_HEAD]
    head = "| option | values | default | meaning |\n|---|---|---|---|"
    for panel in PANELS:
        rows = [_row(one) for one in OPTIONS.values() if one.panel == panel]
        if rows:
            parts.append("\n".join([f"## {panel.capitalize()}\n", head, *rows]))
    return "\n\n".join(parts) + "\n"


_HEAD = """\
<!-- Written by docs/options.py from bigforest/options/train_options.py: change the declarations there. -->
# Options of training

This page lists the training options. Each option is a keyword of `bigforest.train` and of `frame.bigforest.train`, and
an option of the command `bigforest train`, with dashes for underscores: `max_depth` is `--max-depth`. An option that is
on or off has two forms there, `--ranks` and `--no-ranks`. The options and the table determine the forest; `threads`,
`memory`, `scratch` and `scheduler` do not change a bit of it."""


def _row(one: Option) -> str:
    text = " ".join(filter(None, [one.help, one.more, *families_note(one)]))
    cells = [f"`{one.name}`", _values(one), one.default_text or "none", text]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _values(one: Option) -> str:
    if one.is_list:
        return {"a text": "names of columns"}.get(one.text, one.text)
    if bool in one.types:
        return "on, off"
    words = one.wanted.removeprefix("one of ").replace('"', "")
    for power in (31, 62, 63):
        words = words.replace(str(2**power - 1), f"2^{power} - 1").replace(str(2**power), f"2^{power}")
    return words


def families_page() -> str:
    """The guide to the families, with their table."""
    rows = [
        f"| `{family.name}` | {family.splits_on[0]} | {', '.join(family.tasks)} | {family.splits_on[1]} |\n"
        for family in package_families()
    ]
    before, after = re.split(r"(?<=\|---\|---\|---\|---\|\n)(?:\|.*\n)*", (ROOT / FAMILIES).read_text(encoding="utf-8"))
    return "".join([before, *rows, after])


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
            if file == NAMES:  # the other files follow from it
                os.execv(sys.executable, [sys.executable, *sys.argv])
    return int(bool(changed) and "--check" in sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
