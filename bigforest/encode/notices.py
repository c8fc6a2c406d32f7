"""Notices about columns of a probably wrong type or without use, found from dictionaries and levels.

numbers in text     "12", "n/a", "7"          words, commas, signs or quotes keep the column from being numeric
dates in text       "3/15/2024", "2 PM"       another form than 2024-03-15 or 14:00:00, or several forms
dates in numbers    20240315
row numbers         3, 1, 2                   a different number in each row
names of rows       "Ann", "Bob", "Cem"       a different text in nearly each row
constants           7, 7, 7; or null          the same value in all rows, or no value in any row
spellings           "NY", "ny"                levels, or classes, that differ only in case, spaces or composed letters
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.columns.types import kind_of
from bigforest.errors import api, listed
from bigforest.source.text import MISSING_WORDS
from bigforest.store.format import BLOCK_ROWS
from bigforest.store.store import Store

# A text column is reported as numbers if its levels are at least 10 numbers and at most 3 words. Two numbers suffice if
# they have commas or signs, such as 1,000 and 5%, and are all different without these. This does not hold for numbers
# with a character of _NAMING: "2nd" and "3rd", or "<5" and ">9", are names.
_MIN_NUMBERS, _MAX_WORDS = 10, 3
_NAMING = r"[\p{L}<>≤≥~]"
# Marks between thousands. _SIGNS adds signs and units next to numbers.
_MARKS = r"['’ \x{a0}\x{202f}](\d{3})\b"
_SIGNS = r"\s?[%$€£¥₹<>≤≥~]\s?|(\d)(?:\s\p{L}{1,3}|\p{L}{2,3})[²³]?$|,(\d{3})\b|" + _MARKS
# Replacements that make plain numbers of numbers with signs.
_PLAIN = (
    ("[−–]", "-"),
    ("^'", ""),  # marks text in spreadsheets
    (r"^\((.*)\)$|^(.*\d)-$", "-${1}${2}"),  # in accounting
    (r"^([-+]?\d*\.\d+)[dD]([-+]\d+)$", "${1}e${2}"),  # in Fortran
    (r"^(\D*\d{1,2}),(\d{2})(?:,(\d{2}))?,(\d{3})\b", "${1}${2}${3}${4}"),  # lakhs and crores
    (_SIGNS, "${1}${2}${3}"),
)
_FRACTION = r"\d\.\d"  # whole numbers may be codes, such as postal codes
_THOUSANDS = r"^[^\d,]*[1-9]\d{0,2}(,\d{3})+\b"
# Tables with more levels are not searched for numbers and dates in text.
_MAX_SEARCHED = 100_000
# A day in numbers or with the name of its month, perhaps with its weekday and a time; a day and a time without marks
# between their parts; a week or a month of a year; or a time of day.
_DATE = (
    r"(?i)^\s*(([a-z]{3,9},? )?(\d{1,4}[-/. ]\d{1,2}[-/. ]\d{1,4}|\d{1,2}[-/. ]?[a-z]{3,9}[-/., ]+\d{2,4}"
    r"|[a-z]{3,9}[-/. ]\d{1,2},? \d{4})\.?([T, ]\s*\d{1,2}:\d{2}.*)?|(19|20)\d{2}[-/](0[1-9]|1[0-2])"
    r"|([a-z]{3,9} )?[a-z]{3,9} +\d{1,2} \d{1,2}:\d{2}:\d{2} .*\d{4}"
    r"|(19|20)\d{6}T\d{4,6}(\.\d+)?(Z|[-+]\d{2}:?\d{2})?|(19|20)\d{2}-?W\d{2}(-?\d)?"
    r"|([01]?\d|2[0-3]):[0-5]\d(:[0-5]\d)?(\s?[ap]\.?m\.?)?|(0?[1-9]|1[0-2])\s?[ap]\.?m\.?)\s*$"
)
# A text column has dates if it has at least _MIN_DATES levels, of which at least _DATE_SHARE are dates. A column of
# numbers has dates if all its values, at least _MIN_DATES, are dates.
_MIN_DATES, _DATE_SHARE = 5, 0.9
_FIRST_DAY, _LAST_DAY = 19_000_101, 21_001_231
# A text column has names of rows if it has at least _DISTINCT_SHARE * max(rows, _MIN_ROWS) distinct texts.
_MIN_ROWS, _DISTINCT_SHARE = 20, 0.9
# Whole numbers that differ in all rows are reported as row numbers if this is unlikely to be chance. Random draws from
# their range have rows**2 / (2 * range) repeats on average. If that is 10, the probability of no repeat is exp(-10).
_MIN_REPEATS = 10.0
# Most names of columns in a message, and most spellings of a word.
_NAMED = 5
_MAX_SPELLINGS = 3


def column_notices(store: Store) -> Iterator[str]:
    """Yield messages about columns of an encoded table that probably have a wrong type or no use."""
    target = store.spec.target
    texts = _searched_texts(store)
    target_text = {target.name: pl.Series(target.classes, dtype=pl.String)} if target.dtype == "String" else {}
    of_dates = {name: levels.str.contains(_DATE).mean() for name, levels in texts.items() if len(levels) >= _MIN_DATES}
    dates = {name for name, share in of_dates.items() if share >= _DATE_SHARE}  # type: ignore[operator]
    numbers = [*_numbers_in_text(target_text | {name: texts[name] for name in texts if name not in dates})]
    yield from (message for _, message in numbers)
    named = {name for names, _ in numbers for name in names}
    if target_text and target.name not in named and (missing := sorted({*MISSING_WORDS} & {*target.classes})):
        yield f"{target.name!r} has the class {missing[0]!r}; if that means missing, leave the cells empty (null)"
    alike = {name: _alike(levels) for name, levels in (target_text | texts).items()}
    if pairs := [f"{name!r} ({', '.join(map(repr, found))})" for name, found in alike.items() if found]:
        yield (
            f"these columns have levels that differ in case, spaces or forms of letters alone: "
            f"{listed(pairs, _NAMED)}; each spelling is a level of its own, so use one spelling"
        )
    features = [(number, feature.name) for number, feature in enumerate(store.spec.features)]
    suspicions = {name: _suspicion(store, number, dates) for number, name in features if name not in named}
    for suspicion, message in _MESSAGES.items():
        if names := [repr(name) for name, suspected in suspicions.items() if suspected == suspicion]:
            yield message.format(listed(names, _NAMED), api("exclude"))


_MESSAGES = {
    "dates in text": "these columns are text, because their dates or times are not all written as 2024-03-15 or "
    "14:05:00: {0}; write them in this way, and thresholds are dates or times",
    "dates in numbers": "these columns are whole numbers such as 20240315, which seem to be dates: {0}; convert them "
    "to dates, and thresholds are days",
    "row numbers": "these columns have another value in nearly every row, as numbers and names of rows have: {0}; if "
    "they number or name rows, leave them out with {1}, because new rows have other values",
    "empty": "these columns have no value in any row: {0}; leave them out with {1}, or check how they are read",
    "constant": "these columns have the same value in every row, so they cannot help to predict: {0}; leave them out "
    "with {1}, or check how they are read",
}


def _suspicion(store: Store, number: int, dates: Collection[str]) -> str | None:
    """Return the key in _MESSAGES that applies to a feature; None if no key applies.

    dates  names of the text columns with dates
    """
    feature = store.spec.features[number]
    different = feature.codes - feature.missing
    if different < 2:
        return "empty" if not different else None if feature.missing else "constant"
    if feature.kind == "category":
        if feature.name in dates:
            return "dates in text"
        distinct = different >= max(_DISTINCT_SHARE * store.rows, _MIN_ROWS * _DISTINCT_SHARE)
        return "row numbers" if distinct and kind_of(feature.dtype).family == "text" else None
    if kind_of(feature.dtype).family != "number":
        return None
    values = store.low(number)[int(feature.missing) :]
    if _are_days(values):
        return "dates in numbers"
    alone = len(store.spec.features) == 1  # the only feature cannot be left out
    return "row numbers" if not alone and _are_row_numbers(store, number) else None


def _alike(levels: pl.Series) -> list[str]:
    """Return up to _MAX_SPELLINGS levels that are spellings of one word. Levels of one character, which may be codes,
    are left out."""
    words = levels.filter(levels.str.len_chars() > 1)
    folded = words.str.normalize("NFKC").str.to_lowercase().str.replace_all(r"\s+", " ")
    repeated = folded.filter(folded.is_duplicated())
    return words.filter(folded == repeated[0]).to_list()[:_MAX_SPELLINGS] if len(repeated) else []


def _are_days(values: NDArray[np.float64]) -> bool:
    """Return True if all values, ascending, are days such as 20240315."""
    if len(values) < _MIN_DATES or values[0] < _FIRST_DAY or values[-1] > _LAST_DAY:
        return False
    month, day = values // 100 % 100, values % 100
    return bool(((month >= 1) & (month <= 12) & (day >= 1) & (day <= 31) & (day % 1 == 0)).all())


def _are_row_numbers(store: Store, number: int) -> bool:
    """Return True for whole numbers in a narrow range that are different in all rows with a value.

    If the numbers are in bins, they are different if each bin has as many rows as whole numbers from its low to its
    high end.
    """
    missing = int(store.spec.features[number].missing)
    low, high = store.low(number)[missing:], store.high(number)[missing:]
    spanned = float(high[-1]) - float(low[0]) + 1.0
    if store.rows**2 < 2.0 * _MIN_REPEATS * spanned or low[0] % 1.0 or (low % 1.0).any() or (high % 1.0).any():
        return False
    widths = high - low + 1.0
    different = int(widths.sum())
    binned = len(widths) < different
    if different > store.rows or not (missing or binned):
        return different == store.rows
    codes, size = store.feature_codes(number), len(widths) + missing if binned else 1
    counts = np.zeros(size, np.int64)
    for first in range(0, store.rows, BLOCK_ROWS):
        block = codes[first : first + BLOCK_ROWS]
        counts += np.bincount(block, minlength=size) if binned else np.count_nonzero(block == 0)
    rows = store.rows - (int(counts[0]) if missing else 0)
    all_differ = np.array_equal(counts[missing:], widths) if binned else different == rows
    return all_differ and rows**2 >= 2.0 * _MIN_REPEATS * spanned


def _searched_texts(store: Store) -> dict[str, pl.Series]:
    """Return the levels of the String columns. Empty if the table has too many levels to be searched."""
    if not 0 < sum(feature.levels for feature in store.spec.features) <= _MAX_SEARCHED:
        return {}
    levels, features = store.levels(), enumerate(store.spec.features)
    return {feature.name: levels.of(number) for number, feature in features if feature.dtype == "String"}


def _numbers_in_text(text: Mapping[str, pl.Series]) -> Iterator[tuple[Collection[str], str]]:
    """Yield the names of columns and a message for each kind of text columns that look like numbers.

    The kinds are numbers with a decimal point, numbers with a few words among them, numbers with a decimal comma,
    numbers with signs, units or marks between thousands, and numbers with a decimal comma and such signs.
    """
    words = {name: _words_among_numbers(levels) for name, levels in text.items()}
    plain = [name for name, odd_words in words.items() if odd_words == [] and text[name].str.contains(_FRACTION).any()]
    with_words = {name: odd_words for name, odd_words in words.items() if odd_words}
    few = listed([repr(word) for word in sorted({word for odd_words in with_words.values() for word in odd_words})])
    comma = [name for name, levels in text.items() if _may_be_decimal_comma(levels)]
    comma = [name for name in comma if _are_numbers(text[name], _with_points(text[name]))]
    others = [name for name, odd_words in words.items() if name not in comma and odd_words is None]
    plain_of = {name: _without_signs(text[name]) for name in others}
    signed = [name for name, plain_levels in plain_of.items() if _are_numbers(text[name], plain_levels)]
    both = [name for name in others if name not in signed and _may_be_decimal_comma(text[name])]
    both = [name for name in both if _are_numbers(text[name], _with_points(plain_of[name]))]
    signs = "signs such as % and $, units, or marks between thousands"
    kinds: list[tuple[Collection[str], str, str]] = [
        (plain, "and all their values are numbers", "convert them"),
        (with_words, f"because they have {few} among numbers", "if that means missing, leave the cells empty (null)"),
        (comma, "because their numbers have a comma", "replace it by a point"),
        (signed, f"because their numbers have {signs}", "remove these"),
        (both, "because their numbers have a comma and signs or units, as 6,5 %", "write 6.5"),
    ]
    for names, why, advice in kinds:
        if names:
            found = listed([*map(repr, names)])
            yield names, f"these columns are text, {why}: {found}; {advice}, and the columns are numeric"


def _without_signs(levels: pl.Series) -> pl.Series:
    """Return the levels as plain numbers, without signs, units, and marks between thousands."""
    for pattern, plain in _PLAIN:
        levels = levels.str.replace_all(pattern, plain)
    return levels


def _with_points(levels: pl.Series) -> pl.Series:
    """Return the levels without marks between thousands, and with a point instead of a comma."""
    plain = levels.str.replace_all(r"\.(\d{3})\b|" + _MARKS, "${1}${2}")
    return plain.str.replace(",", ".", literal=True)


def _may_be_decimal_comma(levels: pl.Series) -> bool:
    """Return True if some levels have a comma that does not separate thousands."""
    commas = levels.filter(levels.str.contains(",", literal=True))
    return len(commas) > 0 and not bool(commas.str.contains(_THOUSANDS).all())


def _are_numbers(levels: pl.Series, plain: pl.Series) -> bool:
    """Return True for levels that are numbers with commas or signs, except for words such as NA.

    plain  the levels without commas and signs
    """
    valued = ~levels.str.strip_chars().is_in(MISSING_WORDS)
    levels, plain = levels.filter(valued), plain.filter(valued)
    if _words_among_numbers(plain) is not None:
        return True
    if len(levels) < 2 or plain.equals(levels) or levels.str.contains(_NAMING).any():
        return False
    numbers = plain.cast(pl.Float64, strict=False)
    return bool(numbers.is_finite().all(ignore_nulls=False)) and plain.is_unique().all()


def _words_among_numbers(levels: pl.Series) -> list[str] | None:
    """Return the levels that are not numbers; None if there are many of them, or few numbers."""
    words = levels.filter(~levels.cast(pl.Float64, strict=False).is_finite().fill_null(value=False))
    fits = len(words) <= _MAX_WORDS and len(levels) - len(words) >= _MIN_NUMBERS
    return words.to_list() if fits else None
