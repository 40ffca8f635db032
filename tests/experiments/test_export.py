"""Results as one file: what was written is what is read back."""

import csv
import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from experiments.results import __main__ as command
from experiments.results import export, store
from tests.experiments.evaluation_rows import scored
from tests.experiments.evaluation_rows import store as stored

pytestmark = pytest.mark.fast
CONFIGS = {
    "a": {"train": {"steps": 7, "seed": 0}, "note": "x"},
    "b": {"train": {"steps": 9, "seed": 1}},
}


@pytest.fixture
def folder(tmp_path):
    """Two runs; a title has a comma, quotes, a line break and letters of all kinds."""
    odd = 'RoPE, "é中" \n2'
    rows = (
        scored("a", 50, accuracy=None, encoding_title=odd, extra_field=1.5),
        scored("b", 70, seed=1),
    )
    return stored(tmp_path / "study", *rows, configs=CONFIGS)


@pytest.mark.parametrize("suffix", export.FORMATS)
def test_every_row_and_value_is_in_the_file(folder, tmp_path, suffix, capsys):
    out = tmp_path / f"rows{suffix}"
    assert command.main([str(folder), f"--out={out}"]) == 0
    assert "12 rows" in capsys.readouterr().out
    wanted = store.read(folder).to_pylist()
    if suffix == ".parquet":
        assert pq.read_table(out).to_pylist() == wanted
        return
    if suffix == ".csv":
        found = list(csv.DictReader(io.StringIO(out.read_text(), newline="")))
        wanted = [{n: "" if v is None else v for n, v in r.items()} for r in wanted]
    else:
        found = [json.loads(line) for line in out.read_text().splitlines()]
        wanted = [{n: v for n, v in r.items() if v is not None} for r in wanted]
    assert [set(row) for row in found] == [set(row) for row in wanted]
    for row, other in zip(found, wanted, strict=True):
        for name in ("run_id", "encoding_title"):
            assert row.get(name, "") == other.get(name, "")
        for name in ("length", "accuracy", "correct", "extra_field"):
            if other.get(name, "") != "":
                assert float(row[name]) == other[name]


def test_fields_of_the_configs_become_columns(folder):
    table = export.rows(folder, fields=["train.steps", "note"])
    seen = {
        (r["run_id"], r["config.train.steps"], r["config.note"])
        for r in table.to_pylist()
    }
    assert seen == {("a", 7, "x"), ("b", 9, None)}
    mixed = {"a": {"x": 1}, "b": {"x": [1, 2]}}
    runs = pa.table(
        {"run_id": [*mixed], "config": [json.dumps(c) for c in mixed.values()]}
    )
    joined = export.with_config(runs, runs, ["x"])
    assert joined["config.x"].to_pylist() == ["1", "[1, 2]"]


def test_sql_goes_to_standard_output(folder, capfdbinary):
    sql = "SELECT run_id, sum(correct) AS n FROM evaluation GROUP BY 1 ORDER BY 1"
    assert command.main([str(folder), f"--sql={sql}", "--fields=train.seed"]) == 0
    lines = capfdbinary.readouterr().out.decode().splitlines()
    assert lines[1:] == ['"a",400,0', '"b",480,1']


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--fields=train.step"],
            "no config here has a field 'train.step'; did you mean",
        ),
        (["--sql=SELECT nothing FROM evaluation"], "nothing"),
        (["--sql=SELECT 1 AS one", "--fields=note"], "need a column run_id"),
        (["none"], "'none' is not a folder"),
    ],
)
def test_slips_are_told_in_one_line(folder, words, message, capsys):
    assert command.main([str(folder), *words]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert message in said


def test_a_format_that_cannot_be_written_is_refused_before_reading(tmp_path, capsys):
    with pytest.raises(SystemExit):
        command.main([str(tmp_path), "--out=a.xlsx"])
    assert "must end in one of .csv, .parquet, .jsonl" in capsys.readouterr().err


def test_damaged_lines_are_told_and_the_rest_is_written(folder, tmp_path, capsys):
    (source, *_) = sorted((folder / "results").glob("*.jsonl"))
    source.write_text(source.read_text() + "{half a row")
    out = tmp_path / "rows.csv"
    assert command.main([str(folder), f"--out={out}"]) == 0
    assert "is not a row, and is left out" in capsys.readouterr().err
