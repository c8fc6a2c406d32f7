"""Text of tables and files as it may be shown on a terminal."""

from __future__ import annotations


def plain(text: str) -> str:
    r"""The text on one line: what is no letter, sign or space as its escape, so `\t` or `\x1b`."""
    return text if text.isprintable() else "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)
