"""Notices about columns that are probably not what they seem to be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import bigforest
from bigforest.events import Event, Notice

ROWS = 200
ORDER = np.random.default_rng(0).permutation(ROWS)
DAYS = [f"{day % 28 + 1}/{day % 12 + 1}/2024" for day in ORDER]
FEW_MISSING = [None if place % 9 == 0 else int(number) for place, number in enumerate(ORDER)]
DATES = "these columns are text, because their dates or times are not all written as 2024-03-15"
ROW_NUMBERS = "these columns have another value in nearly every row"


def notices(values: Any, **options: Any) -> list[str]:
    told: list[str] = []

    def hear(event: Event) -> None:
        if isinstance(event, Notice):
            told.append(event.message)

    table = pl.DataFrame({"own": values, "x": np.random.default_rng(1).normal(size=ROWS), "y": ["a", "b"] * 100})
    bigforest.encode_store(table, options.pop("out"), target="y", listener=hear, **options)
    return [message for message in told if "'own'" in message]


SIGNED = (
    "<{}",
    "≤ {}",
    "−{}",
    "€ {}",
    "{} kg",
    "{}cm",
    "{} m²",
    "{} USD",
    "1'{:03}",
    "1 {:03}",
    "1\u00a0{:03}",
    "1\u202f{:03}.5",
    "({}.5)",
    "{}.5-",
    "–{}.5",
    "'{}.5",
    "{}.5D+01",
    "1,{:02},500",
    "₹ 1,{:02},05,000.00",
)
COMMAS = ("{},5", "1.{:03},50", "1 {:03},5", "1\u00a0{:03},5")
BOTH_FORMS = ("{},5 €", "€ 1.{:03},50", "{},5%", "{},25 kg", "1 {:03},5 m²", "({},50)")
SIGNS = "these columns are text, because their numbers have signs"
COMMA = "these columns are text, because their numbers have a comma: "
BOTH = "these columns are text, because their numbers have a comma and signs or units"
ALIKE = "these columns have levels that differ in case, spaces or forms of letters alone"


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        (ORDER, {}, ROW_NUMBERS),
        (ORDER + 1e6, {}, ROW_NUMBERS),
        (ORDER, {"max_bins": 16}, ROW_NUMBERS),
        (FEW_MISSING, {}, ROW_NUMBERS),
        ([f"customer {number}" for number in ORDER], {}, ROW_NUMBERS),
        ([7] * ROWS, {}, "these columns have the same value in every row"),
        ([None] * ROWS, {}, "these columns have no value in any row"),
        (DAYS, {}, DATES),
        ([f"{1990 + day % 10}-{day % 12 + 1:02}" for day in ORDER], {}, DATES),
        ([f"{day % 24}:{day % 60:02}" for day in ORDER], {}, DATES),
        ([f"{day % 12 + 1} PM" for day in ORDER], {}, DATES),
        ([f"202401{day % 28 + 1:02}T{day % 24:02}3000Z" for day in ORDER], {}, DATES),
        ([f"Wed, {day % 28 + 1:02} Jan 2024 12:00:00 GMT" for day in ORDER], {}, DATES),
        ([f"Wed Jan {day % 28 + 1:>2} 12:00:00 2024" for day in ORDER], {}, DATES),
        ([f"2024-W{day % 50 + 1:02}-1" for day in ORDER], {}, DATES),
        *(([form.format(number) for number in ORDER // 2], {}, SIGNS) for form in SIGNED),
        *(([form.format(number) for number in ORDER // 2], {}, COMMA) for form in COMMAS),
        *(([form.format(number) for number in ORDER // 2], {}, BOTH) for form in BOTH_FORMS),
        (["(5.0)", "5.0", "(7.5)", "7.5"] * 50, {}, SIGNS),
        (["5.0-", "5.0", "7.5-", "7.5"] * 50, {}, SIGNS),
        (["−5.0", "5.0", "−7.5", "7.5"] * 50, {}, SIGNS),
        (["5,5 €", "6,25 €", "1.000,00 €"] * 66 + ["7 €", "7 €"], {}, BOTH),
        (["1,000", "2,500"] * 100, {}, SIGNS),
        (["5%", "10%", "0.5%", None] * 50, {}, SIGNS),
        (["$1,000", "$20"] * 100, {}, SIGNS),
        (["1,000", "2,500", "NA", " n/a"] * 50, {}, SIGNS),
        (["5%", "10%", "?", "0.5%"] * 50, {}, SIGNS),
        (["0,5", "1,5", "NA", "NULL"] * 50, {}, COMMA),
        (["6,5 %", "1,5 %", "NA", "NULL"] * 50, {}, BOTH),
        (["0,5", "1,5"] * 100, {}, COMMA),
        (["New York", "new york", "LA", "x"] * 50, {}, ALIKE),
        (["caf\u00e9", "cafe\u0301"] * 100, {}, ALIKE),
        (["a b", "a\u00a0b"] * 100, {}, ALIKE),
        (20240101 + ORDER % 28, {}, "these columns are whole numbers such as 20240315, which seem to be dates"),
    ],
)
def test_notice(tmp_path: Path, values: Any, options: dict[str, Any], message: str) -> None:
    (told,) = notices(values, out=tmp_path / "store", **options)
    assert told.startswith(message)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("values", "options"),
    [
        (ORDER // 2, {}),  # each number twice
        (np.random.default_rng(2).integers(0, ROWS, ROWS), {"max_bins": 16}),
        (ORDER * 1000, {}),  # far from each other, as prices
        ([None if number is None else number // 2 for number in FEW_MISSING], {}),
        (np.where(ORDER % 2, np.inf, -np.inf), {}),
        (np.where(ORDER % 2, 1e308, -1e308), {}),
        ([None, 7] * 100, {}),
        (["m", "M", "f", "F"] * 50, {}),
        *((levels * 100, {}) for levels in (["2nd", "3rd"], ["<5", ">9"], ["1", "2"], ["1%", "%1"], ["4WD", "2WD"])),
        (["1", "2", "NA", "n/a"] * 50, {}),
        (["5%", "NA"] * 100, {}),
        ([f"{number}{'ABCD'[number % 4]}" for number in ORDER // 2], {}),  # numbers of houses
        ([f"{number}-{number + 5}" for number in ORDER // 2], {}),
        (["5", "5-", "5+", "4-"] * 50, {}),  # marks in schools
        ([f"{number % 12}:{number % 7}" for number in ORDER], {}),  # results of games
        ([f"{2030 + number % 10}-{number % 9 + 20}" for number in ORDER], {}),  # ranges
    ],
)
def test_no_notice(tmp_path: Path, values: Any, options: dict[str, Any]) -> None:
    assert notices(values, out=tmp_path / "store", **options) == []


def test_notice__of_classes_that_are_written_in_two_ways(tmp_path: Path) -> None:
    told: list[Event] = []
    frame = pl.DataFrame({"x": np.arange(40) % 7, "y": ["yes", "Yes", "no", "NO"] * 10})
    bigforest.encode_store(frame, tmp_path / "store", target="y", listener=told.append)
    (message,) = [event.message for event in told if isinstance(event, Notice)]
    assert message.startswith(f"{ALIKE}: 'y' (")
