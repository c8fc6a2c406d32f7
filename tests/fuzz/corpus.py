"""Cases that once crashed, hung or raised another error than a BigForestError, by name: what makes them."""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tests.fuzz import damage

# From the originals and an empty folder, a damaged copy in it and what is wrong.
Case = Callable[[Path, Path], tuple[Path, str]]
CASES: dict[str, Case] = {}


def case(kind: str, original: str) -> Callable[[Callable[[Path], None]], Case]:
    """Make a case of a function that damages a copy of an original, and put it into CASES."""

    def named(function: Callable[[Path], None]) -> Case:
        name = f"{kind} {function.__name__.strip('_').replace('_', ' ')}"

        def make(originals: Path, folder: Path) -> tuple[Path, str]:
            source, copy = originals / kind / original, folder / original
            shutil.copytree(source, copy) if source.is_dir() else shutil.copyfile(source, copy)
            function(copy)
            return copy, name

        CASES[name] = make
        return make

    return named


def _column(path: Path, name: str, column: Any, rename: str | None = None) -> None:
    table = pq.read_table(path)
    damage.write(table.set_column(table.column_names.index(name), rename or name, column(table.num_rows)), path)


def _link(path: Path, to: str) -> None:
    path.unlink()
    path.symlink_to(to)


def _rows(path: Path, rows: int) -> None:
    damage.write(pq.read_table(path).slice(0, rows), path)


def _manifest(store: Path, change: Callable[[dict[str, Any]], None]) -> None:
    raw = json.loads((store / "manifest.json").read_text())
    change(raw["dataspec"])
    (store / "manifest.json").write_text(json.dumps(raw))


@case("forest", "mixed")
def _report_that_is_a_device(forest: Path) -> None:
    _link(forest / "oob/confusion.parquet", "/dev/zero")


@case("forest", "mixed")
def _report_that_is_another_file(forest: Path) -> None:
    _link(forest / "oob/confusion.parquet", "/etc/passwd")


@case("forest", "mixed")
def _report_of_a_terabyte(forest: Path) -> None:
    (forest / "oob/curve.parquet").unlink()
    with (forest / "oob/curve.parquet").open("wb") as file:
        file.truncate(1 << 40)


@case("forest", "mixed")
def _run_that_is_a_pipe(forest: Path) -> None:
    (forest / "run.parquet").unlink()
    os.mkfifo(forest / "run.parquet")


@case("forest", "mixed")
def _columns_in_another_order(forest: Path) -> None:
    part = next(forest.glob("trees/*"))
    table = pq.read_table(part)
    damage.write(table.select(table.column_names[::-1]), part)


@case("forest", "mixed")
def _no_rows_in_run(forest: Path) -> None:
    _rows(forest / "run.parquet", 0)


@case("forest", "refined")
def _no_weight_in_confusion(forest: Path) -> None:
    path = forest / "oob/confusion.parquet"
    table = pq.read_table(path)
    place, field = table.column_names.index("weight"), table.schema.field("weight")  # which has no nulls
    damage.write(table.set_column(place, field, pa.array([0.0] * table.num_rows)), path)


@case("forest", "mixed")
def _no_rows_in_curve(forest: Path) -> None:
    _rows(forest / "oob/curve.parquet", 0)


@case("forest", "mixed")
def _features_of_another_table(forest: Path) -> None:
    _column(forest / "features.parquet", "name", lambda rows: pa.array([f"f{n}" for n in range(rows)]))


@case("forest", "numbers")
def _part_of_targets_without_a_number(forest: Path) -> None:
    shutil.copyfile(next(forest.glob("targets/part-*")), forest / "targets/part-x.parquet")


@case("forest", "mixed")
def _part_of_thirty_digits(forest: Path) -> None:
    shutil.copyfile(next(forest.glob("trees/*")), forest / f"trees/part-{'9' * 30}.parquet")


@case("forest", "mixed")
def _metadata_that_is_no_text(forest: Path) -> None:
    part = next(forest.glob("trees/*"))
    damage.write(pq.read_table(part).replace_schema_metadata({b"bigforest": b"\xff\xfe"}), part)


@case("forest", "mixed")
def _children_out_of_range(forest: Path) -> None:
    part = next(forest.glob("trees/*"))
    table = pq.read_table(part)
    place = table.column_names.index("right")
    damage.write(
        table.set_column(place, table.field(place), pc.add(table["right"], pa.scalar(10**6, pa.uint32()))), part
    )


def _forged_pages(path: Path, place: int) -> None:
    """Make the sizes in the headers of pages, variable-length integers, as large as their bytes allow."""
    content = bytearray(path.read_bytes())
    chunk = pq.read_metadata(path).row_group(0).column(place)
    begin = chunk.dictionary_page_offset or chunk.data_page_offset
    # A header begins 15 <kind> 15 <uncompressed> 15 <compressed>, each number of as many bytes as its highest bits say.
    at = begin + 3
    while content[at] & 0x80:
        content[at] = 0xFF
        at += 1
    content[at] = 0x7E
    path.write_bytes(content)
    damage.reseal(path)


for _place in range(8):

    @case("forest", "mixed")
    def _page_of_any_size(forest: Path, place: int = _place) -> None:
        _forged_pages(next(forest.glob("trees/*")), place)

    CASES[f"forest page of any size {_place}"] = CASES.pop("forest page of any size")


@case("store", "numeric")
def _manifest_that_is_a_device(store: Path) -> None:
    _link(store / "manifest.json", "/dev/zero")


@case("store", "numeric")
def _manifest_of_a_terabyte(store: Path) -> None:
    os.truncate(store / "manifest.json", 1 << 40)


@case("store", "numbers")
def _step_too_large(store: Path) -> None:
    _manifest(store, lambda spec: spec["target"].update(step=2.0**1000))


@case("store", "numbers")
def _step_too_small(store: Path) -> None:
    _manifest(store, lambda spec: spec["target"].update(step=2.0**-1000))


@case("store", "numbers")
def _no_rows(store: Path) -> None:
    _manifest(store, lambda spec: spec.update(rows=0))


@case("store", "numeric")
def _more_classes_than_rows(store: Path) -> None:
    _manifest(store, lambda spec: spec["target"].update(classes=list(range(65_535))))


def _with_column(path: Path, name: str, column: Any) -> None:
    table = pq.read_table(path)
    damage.write(table.append_column(name, column(table.num_rows)), path)


def _fits_parquet(column: Any) -> bool:
    try:
        pq.write_table(pa.table({"odd": column(2)}), io.BytesIO())
    except pa.ArrowException:
        return False
    return True


for _number, _odd in enumerate(filter(_fits_parquet, damage.ODD_COLUMNS)):

    @case("table", "plain.parquet")
    def _odd_column(table: Path, odd: Any = _odd) -> None:
        _with_column(table, "odd", odd)

    CASES[f"table odd column {_number}"] = CASES.pop("table odd column")


@case("table", "plain.parquet")
def _name_with_a_zero_byte(table: Path) -> None:
    _with_column(table, "a\0b", lambda rows: pa.array(["u", "v"] * (rows // 2)))


@case("table", "plain.parquet")
def _footer_of_other_bits(table: Path) -> None:
    content = bytearray(table.read_bytes())
    content[-60] ^= 0x40
    table.write_bytes(content)
