"""Standard input and output, CSV of any separator, predictions as text, and options in a file."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
import typer

import bigforest
from bigforest.options.names import known_family
from bigforest.options.train_options import OPTIONS
from cli.app import app
from tests.commands import Run, folder, run
from tests.streams import Streams

__all__ = ["folder", "run"]  # fixtures


@pytest.fixture
def stdin(streams: Streams) -> io.BytesIO:
    """What comes by standard input."""
    content = io.BytesIO()
    streams(stdin=SimpleNamespace(buffer=content))
    return content


def bigforest_commands() -> list[str]:
    """The names of all commands."""
    return sorted(typer.main.get_group(app).commands)


def things() -> pl.DataFrame:
    return pl.read_parquet("things.parquet")


@pytest.mark.parametrize("kind", ["csv", "ndjson", "parquet", "ipc"])
def test_stdin__is_a_table(folder: Path, run: Run, stdin: io.BytesIO, kind: str) -> None:
    getattr(things(), f"write_{kind}")(stdin)
    stdin.seek(0)
    facts = run.json("train", "-", "--trees", "2", "--out", "f")
    assert (facts["rows"], facts["trees"]) == (things().height, 2)
    stdin.seek(0)
    assert run.json("plan", "-", "--trees", "2")["rows"] == things().height
    for words in (("explain", "f", "-", "--permutation"), ("plot", "f", "-", "--what", "swarm"), ("report", "f", "-")):
        stdin.seek(0)
        assert run(*words).code == 0, run.err


def test_stdin__has_no_path_for_later_commands(folder: Path, run: Run, stdin: io.BytesIO) -> None:
    things().write_parquet(stdin)
    stdin.seek(0)
    run("train", "-", "--trees", "2", "--out", "f")
    assert "grown on" not in run("inspect", "f").out
    for words in (("train", "--resume", "f", "--trees", "3"), ("shrink", "f", "--out", "s")):
        assert run(*words).code == 2 and "a table in memory or on standard input; give it again" in run.err
    stdin.seek(0)
    assert run.json("train", "-", "--resume", "f", "--trees", "3")["trees"] == 3
    assert run.json("inspect", "f")["origin"]["data"] is None


def test_stdout__has_the_predictions_and_nothing_else(folder: Path, grown: Path) -> None:
    command = [sys.executable, "-m", "cli", "predict", str(grown), "-", "--proba", "--out", "-"]
    text = things().write_csv().encode()
    done = subprocess.run(command, input=text, capture_output=True, cwd=Path(__file__).resolve().parents[2], check=True)
    found = pl.read_csv(done.stdout)
    wanted = bigforest.read_forest(grown).predict_proba(things())
    assert found.columns == ["prediction", *wanted.columns]
    assert found.select(wanted.columns).equals(wanted)
    assert not [line for line in done.stderr.splitlines() if b"compiling" not in line]


def test_stdout__is_not_for_both(folder: Path, run: Run, grown: Path) -> None:
    run("predict", grown, "things.parquet", "--out", "-", "--json")
    assert run.code == 2
    assert "cannot both go to standard output" in run.err


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".ndjson", ".jsonl", ".parquet"])
def test_predict__the_kind_of_file_is_its_ending(folder: Path, run: Run, grown: Path, ending: str) -> None:
    for more in ([], ["--overwrite"]):
        run("predict", grown, "things.parquet", "--proba", "--out", f"p{ending}", "--quiet", *more)
        assert (run.code, run.err) == (0, "")
    read = {
        ".csv": pl.read_csv,
        ".tsv": lambda path: pl.read_csv(path, separator="\t"),
        ".parquet": pl.read_parquet,
    }.get(ending, pl.read_ndjson)
    run("predict", grown, "things.parquet", "--proba", "--out", "expected", "--quiet")
    assert read(f"p{ending}").equals(pl.read_parquet("expected"))  # type: ignore[operator]


@pytest.mark.parametrize(
    ("column", "ending", "words"),
    [
        (
            pl.duration(minutes=pl.int_range(60) % 2),
            ".csv",
            "'kept' is a duration, which CSV cannot hold; write Parquet or",
        ),
        (pl.lit(b"a"), ".csv", "'kept' is Binary, which no text can hold; write Parquet"),
        (pl.concat_list(pl.lit(b"a")), ".ndjson", "'kept' is List(Binary), which no text can hold; write Parquet"),
    ],
)
def test_predict__what_a_text_cannot_hold(folder: Path, run: Run, column: pl.Expr, ending: str, words: str) -> None:
    pl.DataFrame({"x": range(60), "y": [1, 2] * 30}).with_columns(kept=column).write_parquet("t.parquet")
    run("train", "t.parquet", "--target", "y", "--exclude", "kept", "--trees", "2", "--quiet")
    run("predict", "t.forest", "t.parquet", "--keep", "kept", "--out", f"p{ending}")
    assert run.code == 2
    assert words in run.err
    assert not Path(f"p{ending}").exists()


def test_predict__another_text_is_not_replaced(folder: Path, run: Run, grown: Path) -> None:
    things().write_csv("things.csv")
    before = Path("things.csv").read_bytes()
    assert run("predict", grown, "things.parquet", "--out", "things.csv", "--overwrite").code == 2
    assert "is not a bigforest prediction" in run.err
    assert Path("things.csv").read_bytes() == before


def test_predict__says_that_rows_were_in_the_training(folder: Path, run: Run) -> None:
    run("train", "things.parquet", "--trees", "2", "--out", "f", "--quiet")
    run("predict", "f", "things.parquet", "--out", "p")
    told = "note: the forest was trained on these rows"
    assert told in run.err and "out-of-bag report" in run.err
    run("prune", "f", "things.parquet", "--out", "pruned")
    assert f"{told}, which its trees know, so little is pruned; give rows" in run.err
    run("calibrate", "f", "things.parquet", "--out", "calibrated")
    assert f"{told}, so probabilities stay too certain; give rows" in run.err
    run("validate", "f", "things.parquet")
    assert f"{told}, so the error is too low; give rows" in run.err
    run("train", "things.parquet", "--validate", "things.parquet", "--trees", "2", "--out", "g")
    assert f"{told}, so the error is too low; give rows" in run.err
    run("explain", "f", "things.parquet", "--permutation", "--new-rows", "--out", "x")
    assert f"{told}, so they are not new: drop --new-rows" in run.err
    things().write_parquet("others.parquet")
    for words in (["predict"], ["prune"], ["calibrate"], ["explain", "--permutation", "--new-rows"]):
        run(words[0], "f", "others.parquet", *words[1:], "--out", f"other {words[0]}")
        assert run.code == 0 and told not in run.err, words


@pytest.mark.parametrize("mark", [";", "\t", "|", ","])
def test_csv__of_any_separator_with_dates(folder: Path, run: Run, mark: str) -> None:
    frame = things().with_columns(day=pl.date(2024, 1, 1) + pl.duration(days=pl.int_range(pl.len())))
    frame.write_csv("t.csv", separator=mark)
    found = run.json("train", "t.csv", "--trees", "2", "--mtry", "sqrt", "--out", "f")
    assert found["features"] == frame.width - 1
    features = bigforest.read_forest("f").features
    assert features.filter(name="day")["dtype"].item() == "Date"


@pytest.mark.parametrize(("name", "mark"), [("~", "~"), ("tab", "\t"), (";", ";")])
def test_separator__holds_for_every_table_of_a_command(folder: Path, run: Run, name: str, mark: str) -> None:
    text = things().drop("target").with_columns(text=pl.lit("a,b;c|d"), target=things()["target"])
    text.write_csv("t.csv", separator=mark)
    said = ("--separator", name, "--quiet")
    run("train", "t.csv", *said, "--validate", "t.csv", "--trees", "2", "--out", "f")
    assert (run.code, run.err) == (0, "")
    plain = bigforest.train(text, trees=2)
    assert bigforest.read_forest("f").nodes.collect().equals(plain.nodes.collect())
    run("predict", "f", "t.csv", *said, "--out", "p.parquet")
    assert (run.code, run.err) == (0, "")
    assert pl.read_parquet("p.parquet").equals(plain.predict(text))


def test_predict__a_column_of_numbers_has_only_na(folder: Path, run: Run) -> None:
    """Where it was a category, NA is a level as in training."""
    draw = pl.Series(range(60))
    table = pl.DataFrame({"size": draw * 7 % 60, "kind": ["NA", "a", "b"] * 20, "target": (draw * 7 % 60 < 30)})
    forest = bigforest.train(table, trees=3, out="f")
    rows = table.head(6).with_columns(size=pl.lit(None, pl.Int64), kind=pl.lit("NA"))
    rows.select("size", "kind").write_csv("t.csv", null_value="NA")
    run("predict", "f", "t.csv", "--proba", "--out", "p", "-q")
    assert (run.code, run.err) == (0, "")
    assert pl.read_parquet("p").select("p_true").equals(forest.predict_proba(rows).select("p_true"))


@pytest.mark.parametrize("mark", ["~", ";"])
def test_separator__is_kept_for_the_same_table_given_again(folder: Path, run: Run, mark: str) -> None:
    things().write_csv("t.csv", separator=mark)
    run("train", "t.csv", "--separator", mark, "--trees", "2", "--refine", "off", "--out", "f", "-q")
    run("train", "t.csv", "--resume", "f", "--trees", "3", "-q")
    assert (run.code, run.err, bigforest.read_forest("f").trees) == (0, "", 3)
    run("shrink", "f", "--data", "t.csv", "--out", "g", "-q")
    assert (run.code, run.err) == (0, "")


@pytest.mark.parametrize("kind", ["ndjson", "parquet", "csv"])
def test_keep__integers_of_more_than_64_bits(folder: Path, run: Run, grown: Path, kind: str) -> None:
    numbers = [2**70 + row for row in range(len(things()))]
    getattr(things().with_columns(id=pl.Series(numbers, dtype=pl.Int128)), f"write_{kind}")(f"t.{kind}")
    for out in ("p.parquet", "p.ndjson"):
        run("predict", grown, f"t.{kind}", "--keep", "id", "--out", out, "-q")
        assert (run.code, run.err) == (0, "")
    assert pl.read_parquet("p.parquet")["id"].to_list() == [str(number) for number in numbers]


@pytest.mark.parametrize("mark", ["", "ab", "é", '"', "\n"])
def test_separator__is_one_character(folder: Path, run: Run, mark: str) -> None:
    run("train", "things.parquet", "--separator", mark, "--out", "f")
    assert run.code == 2 and "it must be tab, or one character of ASCII other than quotes and line ends" in " ".join(
        run.err.split()
    )


def test_missing__words_of_csv_are_kept_for_predictions(folder: Path, run: Run) -> None:
    table = pl.DataFrame(
        {
            "size": [None if row % 4 == 1 else row * 7 % 60 for row in range(60)],
            "kind": [None if row % 3 == 0 else f"a{row % 2}" for row in range(60)],
            "target": [row * 7 % 60 < 30 for row in range(60)],
        }
    )
    words = ("--missing", "-999", "--missing", "not known")
    text = table.with_columns(pl.col("size").cast(pl.String).fill_null("-999"), pl.col("kind").fill_null("not known"))
    text.write_csv("t.csv")
    expected = bigforest.train(table, trees=3)
    run("train", "t.csv", *words, "--trees", "3", "--out", "f", "--validate", "t.csv", "-q")
    assert (run.code, run.err) == (0, "")
    forest = bigforest.read_forest("f")
    assert forest.spec.missing_words == forest.config.missing == ("-999", "not known")
    assert forest.nodes.collect().equals(expected.nodes.collect())
    text.drop("target").write_csv("new.csv")
    run("predict", "f", "new.csv", "--proba", "--out", "p", "-q")
    assert (run.code, run.err) == (0, "")
    assert pl.read_parquet("p").select("p_true").equals(expected.predict_proba(table).select("p_true"))
    read = pl.read_csv("new.csv")  # the words are in other tables, too
    for rows in (read, read.lazy(), read.to_pandas(), read.to_dicts(), read.to_dict(), read.to_numpy()):
        found = forest.predict_proba(rows)
        found = found.collect() if isinstance(found, pl.LazyFrame) else found
        assert np.array_equal(np.asarray(found), expected.predict_proba(table).to_numpy())
    numbers = bigforest.train("t.csv", trees=3, missing=["-999"], exclude=["kind"])
    expected = bigforest.train(table, trees=3, exclude=["kind"]).predict_proba(table).to_numpy()
    for kind in (np.int16, np.float32, object):
        assert np.array_equal(numbers.predict_proba(read.select("size").to_numpy().astype(kind)), expected)
    run("encode", "t.csv", *words, "--out", "s", "-q")
    run("train", "s", "--trees", "3", "--out", "g", "-q")
    assert bigforest.read_forest("g").spec == forest.spec
    run("train", "s", "--missing", "x", "--trees", "3", "--out", "h")
    assert run.code == 2 and "was made with --missing ('-999', 'not known'), not with ('x',)" in run.err
    run("train", "things.parquet", "--missing", "x", "--out", "h")
    assert run.code == 2 and "--missing applies to CSV files, and the table is not in one" in run.err


def test_separator__is_for_csv(folder: Path, run: Run) -> None:
    things().write_csv("t.csv")
    run("train", "things.parquet", "--separator", ";", "--trees", "2", "--out", "f")
    assert (run.code, run.err) == (2, "error: --separator is for CSV files, and things.parquet is not one; drop it\n")
    run("train", "t.csv", "--validate", "things.parquet", "--separator", ",", "--trees", "2", "--out", "f", "-q")
    assert (run.code, run.err) == (0, "")
    run("explain", "f", "--separator", ",", "--out", "why")
    assert (run.code, run.err) == (2, "error: --separator is for CSV files, and no table is read; drop it\n")
    run("train", "nowhere.csv", "--separator", ";")
    assert run.code == 2 and "nowhere.csv: there is no such file" in run.err


def test_separator__is_for_every_command_that_reads_a_table(run: Run) -> None:
    with_it = {name for name in bigforest_commands() if "--separator" in run(name, "--help").out}
    readers = "train compare predict explain plot report encode plan prune calibrate shrink validate"
    assert with_it == set(readers.split())


def test_config__of_a_forest_grows_it_again(folder: Path, run: Run) -> None:
    weights = json.dumps({str(label): 2.5 for label in things()["target"].unique()})
    options = ("--mtry", "0.5", "--no-replace", "--class-weight", weights, "--sample-fraction", "0.7", "--trees", "3")
    run("train", "things.parquet", *options, "--out", "a", "--quiet")
    assert (run.code, run.err) == (0, "")
    text = run("inspect", "a", "--config").out
    assert 'target = "target"' in text and "mtry = 0.5" in text and "replace = false" in text
    Path("run.toml").write_text(text, encoding="utf-8-sig")  # as on Windows
    run("train", "things.parquet", "--config", "run.toml", "--out", "b", "--quiet")
    assert (run.code, run.err) == (0, "")
    first, second = (bigforest.read_forest(name) for name in "ab")
    assert first.config == second.config
    assert first.nodes.collect().equals(second.nodes.collect())
    assert run("inspect", "b", "--config").out == text


def test_config__of_a_forest_with_any_name_of_a_column(folder: Path, run: Run) -> None:
    target = 'a "\\\N{DELETE}\N{GRINNING FACE}'
    things().rename({"target": target}).write_parquet("t.parquet")
    run("train", "t.parquet", "--target", target, "--trees", "2", "--out", "a", "--quiet")
    assert (run.code, run.err) == (0, "")
    assert tomllib.loads(run("inspect", "a", "--config").out)["target"] == target


def test_config__of_training_is_read_by_encode_too(folder: Path, run: Run) -> None:
    Path("bigforest.toml").write_text("trees = 4\nmax-bins = 2\n")
    run("encode", "things.parquet", "--out", "s")
    assert (run.code, run.err) == (0, "")
    store = bigforest.Store.open(Path("s"))
    assert max(feature.codes - feature.missing for feature in store.spec.features if feature.kind == "numeric") == 2


@pytest.mark.parametrize("command", ["plan", "encode"])
def test_config__options_of_other_commands_that_read_it(folder: Path, run: Run, command: str) -> None:
    text = 'tune = 2\nvalidate = "things.parquet"\nresume = "f"\noverwrite = true\n'
    Path("bigforest.toml").write_text(text)
    run(command, "things.parquet", "--out", "s", "--quiet")
    assert (run.code, run.err) == (0, "")
    for name in ("data", "keep"):
        Path("bigforest.toml").write_text(f'{name} = "things.parquet"\n')
        run(command, "things.parquet", "--out", "s2", "--quiet")
        assert run.code == 2
        assert f"{command} has no option '{name}'" in " ".join(run.err.split())


def test_config__the_command_line_comes_first(folder: Path, run: Run) -> None:
    Path("bigforest.toml").write_text('trees = 4\nmax-depth = 1\nfamily = "axis"\nexclude = "size"\nquiet = true\n')
    run("train", "things.parquet", "--trees", "2", "--out", "f")
    assert (run.code, run.err) == (0, "")
    forest = bigforest.read_forest("f")
    assert (forest.trees, forest.config.max_depth) == (2, 1)
    assert "size" not in forest.features["name"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tres = 3", "train has no option 'tres'; did you mean trees"),
        *[(text, "cannot be read as TOML") for text in ("trees = [", "trees = " + "[" * 5000, f"seed = {'9' * 5000}")],
        (
            "class_weight = {small = 2020-01-01}",
            "must be above 0 and finite, not '2020-01-01' of 'small'",
        ),
        ("trees = 'many'", "Invalid value for '--trees'"),
        ("trees = 0", "--trees must be a whole number"),
        ("seed = true", "c.toml: seed cannot be true"),
        ("target = ['a']", "c.toml: target cannot be a list"),
    ],
)
@pytest.mark.usefixtures("no_collection")
def test_config__that_cannot_be(folder: Path, run: Run, text: str, message: str) -> None:
    Path("c.toml").write_text(text)
    run("train", "things.parquet", "--config", "c.toml", "--out", "f")
    assert run.code == 2
    assert message in " ".join(run.err.split())


def test_inspect__shows_the_options_of_the_family_only(folder: Path, run: Run) -> None:
    run("train", "things.parquet", "--family", "tree", "--out", "f", "--quiet")
    options = run("inspect", "f").out.partition("\noptions")[2].partition("\ngrown by")[0]
    shown = {part.split()[0] for part in options.split(",")}
    assert {"splitter", "family"} <= shown
    assert all(known_family("tree").has(OPTIONS[name]) for name in shown)


def test_train__without_a_target_offers_near_names_and_the_last(folder: Path, run: Run) -> None:
    things().rename({"target": "Traget"}).with_columns(last=1).write_parquet("t.parquet")
    run("train", "t.parquet")
    assert run.code == 2
    assert "set --target to the column to predict, such as 'Traget' or 'last': the columns are " in run.err


def test_version__is_short_too(run: Run) -> None:
    assert run("-V").out == f"bigforest {bigforest.__version__}\n"


def test_python_m_bigforest__is_the_command_line() -> None:
    done = subprocess.run([sys.executable, "-m", "bigforest", "-V"], capture_output=True, text=True, check=True)
    assert done.stdout == f"bigforest {bigforest.__version__}\n"


def test_completion__is_offered(run: Run) -> None:
    assert "--install-completion" in run("--help").out


def test_files_that_are_not_there__are_told_in_a_line(folder: Path, run: Run) -> None:
    wrong = {
        ("train", "--config"): "nowhere.toml: there is no such file; check the path",
        ("compare", "--candidates"): "nowhere.toml: no such file of candidates; check the path",
    }
    pl.DataFrame({"x": range(20), "y": [0, 1] * 10}).write_parquet("t.parquet")
    for (command, option), message in wrong.items():
        run(command, "t.parquet", "--target", "y", option, "nowhere.toml")
        assert run.code != 0 and message in run.err and "Errno" not in run.err


def test_predictions__of_an_ending_that_is_none_of_theirs(folder: Path, run: Run, grown: Path) -> None:
    run("predict", grown, "things.parquet", "--out", "p.xlsx")
    assert run.code != 0 and "drop .xlsx or end it in" in run.err and ".csv" in run.err


def test_predict__a_field_called_binary_is_no_bytes(folder: Path, run: Run) -> None:
    kept = pl.struct(Binary=pl.int_range(60))
    pl.DataFrame({"x": range(60), "y": [1, 2] * 30}).with_columns(kept=kept).write_parquet("t.parquet")
    run("train", "t.parquet", "--target", "y", "--exclude", "kept", "--trees", "2", "--quiet")
    run("predict", "t.forest", "t.parquet", "--keep", "kept", "--out", "p.ndjson")
    assert run.code == 0
    assert pl.read_ndjson("p.ndjson")["kept"].struct.field("Binary").to_list() == [*range(60)]


def test_errors_by_number_of_trees__are_said_to_be_without_the_stage(folder: Path, run: Run) -> None:
    for rounds in ("2", "off"):
        run(*f"train things.parquet --validate things.parquet --trees 4 --refine {rounds} --out {rounds}.f".split())
        printed = [run.out]
        for command in (f"validate {rounds}.f things.parquet", f"oob {rounds}.f"):
            run(*command.split())
            printed.append(run.out)
        for text in printed:
            assert ("trees alone, without the boosted stage" in " ".join(text.split())) == (rounds == "2")
