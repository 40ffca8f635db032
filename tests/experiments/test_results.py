"""The store loses nothing and counts nothing twice, wherever a process dies."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from experiments.results import schema as results_schema
from experiments.results import shards as results_shards
from experiments.results import store as results
from experiments.results.walk import walk

pytestmark = pytest.mark.fast

COMMON = {
    "task": "even_pairs",
    "encoding": "rope",
    "positions": "randomized",
    "seed": 3,
    "train_max_length": 4,
}


def _evaluation(length, correct, *, step=10, **more):
    row = {"length": length, "correct": correct, "tokens": 8, "exact": correct // 2}
    return row | {"rows": 4, "input_blind": 0.5, "step": step} | more


def _run(workdir, run_id="a", corrects=(8, 6, 4), **common):
    """Write a run of a config row, two training rows and one evaluation."""
    with results.ResultsWriter(workdir, run_id, COMMON | common) as writer:
        writer.write("run", config={"train": {"steps": 10}, "lengths": (1, 4)})
        writer.write("training", step=5, loss=1.5)
        writer.write("training", step=10, loss=float("nan"), learning_rate=1e-3)
        writer.evaluation(_evaluation(n, c) for n, c in enumerate(corrects, start=1))
    return writer.path


def _everything(store, *, latest=True):
    """All rows of all kinds, without what a compaction may change."""
    tables = {k: results.read(store, k, latest=latest) for k in results_schema.KEYS}
    return {
        kind: sorted(repr(row | {"store": ""}) for row in table.to_pylist())
        for kind, table in tables.items()
    }


def test_a_row_comes_back_as_it_was_written(tmp_path):
    _run(tmp_path, learning_rate=1)
    row = results.read(tmp_path, "evaluation").to_pylist()[1]
    expected = COMMON | _evaluation(2, 6) | {"learning_rate": 1.0, "accuracy": 0.75}
    assert row["test_positions"] == "randomized"
    assert row["test_encoding"] == "rope"
    assert row["time"].endswith("+00:00")
    assert {name: row[name] for name in expected} == expected
    run = results.read(tmp_path, "run").to_pylist()[0]
    assert json.loads(run["config"]) == {"train": {"steps": 10}, "lengths": [1, 4]}
    losses = results.read(tmp_path, "training")["loss"].to_pylist()
    assert losses[0] == 1.5
    assert np.isnan(losses[1])


def test_every_documented_column_is_there_even_where_no_row_has_it(tmp_path):
    _run(tmp_path)
    for kind in results_schema.KEYS:
        declared = [n for n, f in results_schema.FIELDS.items() if kind in f[1]]
        assert results.read(tmp_path, kind).column_names == declared


def test_array_scalars_are_written_as_numbers(tmp_path):
    with results.ResultsWriter(tmp_path, "a") as writer:
        writer.write("training", step=np.int32(3), loss=np.float32(0.5), odd=np.ones(2))
    row = results.read(tmp_path, "training").to_pylist()[0]
    assert (row["step"], row["loss"], row["odd"]) == (3, 0.5, "[1.0, 1.0]")


def test_the_latest_evaluation_wins_and_nothing_is_counted_twice(tmp_path):
    _run(tmp_path, corrects=(8, 6, 4))
    results.compact(tmp_path)
    with results.ResultsWriter(tmp_path, "a", COMMON) as writer:
        writer.evaluation([_evaluation(2, 1), _evaluation(3, 2, step=20)])
        writer.evaluation([_evaluation(3, 7, test_positions="consecutive")])
        old = "2001-02-03T04:05:06+02:00"
        writer.write("evaluation", time=old, **_evaluation(1, 0))
    table = results.read(tmp_path)
    names = ("length", "step", "test_positions", "correct")
    rows = sorted(zip(*(table[name].to_pylist() for name in names), strict=True))
    assert rows == [
        (1, 10, "randomized", 8),  # the one dated 2001 is older
        (2, 10, "randomized", 1),
        (3, 10, "consecutive", 7),
        (3, 10, "randomized", 4),
        (3, 20, "randomized", 2),
    ]
    assert len(results.read(tmp_path, latest=False)) == 3 + 3 + 1
    assert "2001-02-03T02:05:06.000000+00:00" in (
        results.read(tmp_path, latest=False)["time"].to_pylist()
    )


def test_some_columns_and_some_runs_are_those_of_all(tmp_path):
    """From shards and lines, of two folders that have one name for two trainings."""
    for place, steps in (("one", 10), ("two", 20)):
        for run_id in ("a", "b"):
            _run(tmp_path / place, run_id, study=None if run_id == "a" else "s")
            with results.ResultsWriter(tmp_path / place, "c", COMMON) as writer:
                writer.write("run", config={"train": {"steps": steps}})
                writer.evaluation([_evaluation(n, n, set_hash="x") for n in (1, 2)])
        results.compact(tmp_path / place)
        _run(tmp_path / place, "d", corrects=(1, 2))
    names = ("run_id", "store", "study", "set_hash", "length", "correct", "time")
    plain = results.read(tmp_path).select(names)
    columns = {"evaluation": ("study", "correct"), "training": ("loss",)}
    lean = results.read_kinds(tmp_path, ["evaluation", "training"], columns=columns)
    assert lean["evaluation"].select(names).to_pylist() == plain.to_pylist()
    assert {"c (one)", "c (two)"} < {*plain["run_id"].to_pylist()}
    assert "task" not in lean["evaluation"].column_names
    assert pa.types.is_dictionary(lean["evaluation"].schema.field("run_id").type)
    every = {"evaluation": results_schema.EVERY}
    whole = results.read_kinds(tmp_path, ["evaluation"], columns=every)["evaluation"]
    assert whole.to_pylist() == results.read(tmp_path).to_pylist()
    assert pa.types.is_dictionary(whole.schema.field("encoding").type)
    losses = results.read(tmp_path, "training")["loss"]
    assert str(lean["training"]["loss"].to_pylist()) == str(losses.to_pylist())
    one = results.read(tmp_path / "one", run_ids=["d", "none"])
    assert {*one["run_id"].to_pylist()} == {"d"}
    assert one["correct"].to_pylist() == [1, 2]


def test_checkpoints_of_runs_are_not_looked_into(tmp_path):
    """A study of thousands of runs has hundreds of thousands of folders in these."""
    for folder in ("a/checkpoints/5/results", "a/results", "checkpoints/b/results"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "x.jsonl").touch()
    (tmp_path / "a" / "config.json").touch()
    looked = {str(folder.relative_to(tmp_path)) for folder, _ in walk(tmp_path)}
    assert looked == {".", "a", "a/results", *("checkpoints" + s for s in _BELOW)}
    assert len(results.find_stores(tmp_path)) == 2


_BELOW = ("", "/b", "/b/results")


def test_overlapping_folders_and_copies_count_once(tmp_path):
    _run(tmp_path / "study/one")
    once = _everything(tmp_path)
    shutil.copytree(tmp_path / "study/one", tmp_path / "copy")
    assert _everything([tmp_path, tmp_path / "study", tmp_path / "copy"]) == once


def test_members_of_a_population_share_a_writer(tmp_path):
    with results.ResultsWriter(tmp_path, "group", COMMON) as writer:
        writer.evaluation(
            _evaluation(1, seed, run_id=f"member{seed}", seed=seed) for seed in (1, 2)
        )
    table = results.read(tmp_path)
    assert table["run_id"].to_pylist() == ["member1", "member2"]
    assert table["seed"].to_pylist() == [1, 2]


def test_unknown_fields_are_kept_whatever_their_types(tmp_path):
    values = {
        "same": [1, 2, 3],
        "number": [1, 0.5, 2],
        "mixed": [1, "x", 2.5],
        "nested": [{"a": [1]}, [2], "text"],
        "flag": [True, False, True],
        "sparse": [None, None, "here"],
    }
    expected = values | {
        "mixed": ["1", "x", "2.5"],
        "nested": ['{"a": [1]}', "[2]", "text"],
    }
    for i in range(3):  # a shard, a shard, and JSONL: types meet across tables
        with results.ResultsWriter(tmp_path, f"r{i}") as writer:
            writer.write("training", step=i, **{n: v[i] for n, v in values.items()})
        if i < 2:
            results.compact(tmp_path)
    table = results.read(tmp_path, "training")
    assert {name: table[name].to_pylist() for name in values} == expected


def test_a_writer_makes_no_file_before_its_first_row_and_may_go_on_after_close(
    tmp_path,
):
    writer = results.ResultsWriter(tmp_path, "a")
    writer.close()
    assert not list(tmp_path.iterdir())
    for step in (1, 2):
        writer.write("training", step=step)
        writer.close()
    assert results.read(tmp_path, "training")["step"].to_pylist() == [1, 2]


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("evaluations", {}, "did you mean 'evaluation'"),
        ("evaluation", {"length": None}, r"lacks \['length'\]"),
        ("evaluation", {"length": 2.5}, "length must be of type integer"),
        ("evaluation", {"seed": True}, "seed must be of type integer"),
        ("evaluation", {"seed": 2**63}, "seed must be of type integer"),
        ("evaluation", {"input_blind": "0.5"}, "input_blind must be of type number"),
        ("evaluation", {"correct": 9}, "correct must lie in 0..tokens"),
        ("evaluation", {"exact": -1}, "exact must lie in 0..rows"),
        ("evaluation", {"tokens": 0, "correct": 0}, "tokens above 0"),
        ("evaluation", {"accuracy": 0.6}, "accuracy 0.6 is not correct / tokens"),
        ("evaluation", {"time": "2026-01-02T03:04:05"}, "time must name its zone"),
    ],
)
def test_a_wrong_row_is_refused_and_nothing_written(tmp_path, kind, change, message):
    writer = results.ResultsWriter(tmp_path, "a", COMMON)
    with pytest.raises(ValueError, match=message):
        writer.write(kind, **(_evaluation(1, 4) | change))
    assert not list(tmp_path.iterdir())


def test_a_run_id_that_is_no_file_name_is_refused(tmp_path):
    with pytest.raises(ValueError, match="run_id must be"):
        results.ResultsWriter(tmp_path, "a/b")


def test_folders_without_results_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="missing' is not a folder"):
        results.read(tmp_path / "missing")
    (tmp_path / "results").mkdir()
    with pytest.raises(FileNotFoundError, match=r"looked for results/\*\.jsonl"):
        results.read(tmp_path)
    with pytest.raises(ValueError, match="kind must be one of"):
        results.read(tmp_path, "metrics")


def test_sql_over_runs_and_evaluations(tmp_path):
    _run(tmp_path / "encoding=rope", "a", (8, 6, 4), seed=0)
    _run(tmp_path / "encoding=alibi", "b", (2, 2, 2), seed=1, encoding="alibi")
    results.compact(tmp_path / "encoding=rope")
    table = results.query(
        tmp_path,
        """SELECT evaluation.encoding, (config->>'$.train.steps')::INT AS steps,
               sum(correct) / sum(tokens) AS accuracy
           FROM evaluation JOIN run USING (run_id) GROUP BY ALL ORDER BY 1""",
    )
    assert table.to_pylist() == [
        {"encoding": "alibi", "steps": 10, "accuracy": 0.25},
        {"encoding": "rope", "steps": 10, "accuracy": 0.75},
    ]


def test_compaction_changes_no_row_and_its_shards_read_with_plain_duckdb(tmp_path):
    _run(tmp_path, "a")
    _run(tmp_path, "b", (1, 2, 3))
    before = _everything(tmp_path)
    (shard,) = results.compact(tmp_path)
    assert [p.name for p in (tmp_path / "results").iterdir()] == [shard.name]
    assert _everything(tmp_path) == before
    assert results.compact(tmp_path) == []
    import duckdb

    sql = f"SELECT sum(correct) FROM '{shard}' WHERE kind = 'evaluation'"
    assert duckdb.sql(sql).fetchall() == [(8 + 6 + 4 + 1 + 2 + 3,)]


def test_the_file_of_a_living_writer_is_left_alone(tmp_path):
    writer = results.ResultsWriter(tmp_path, "a")
    writer.write("training", step=1)
    assert results.compact(tmp_path) == []
    writer.write("training", step=2)
    assert results.read(tmp_path, "training")["step"].to_pylist() == [1, 2]
    writer.close()
    assert len(results.compact(tmp_path)) == 1
    assert results.read(tmp_path, "training")["step"].to_pylist() == [1, 2]


def test_a_writer_whose_file_was_taken_away_starts_another(tmp_path):
    writer = results.ResultsWriter(tmp_path, "a")
    writer.write("training", step=1)
    writer.path.rename(tmp_path / "taken")
    writer.write("training", step=2)
    writer.close()
    assert results.read(tmp_path, "training")["step"].to_pylist() == [2]


def test_a_source_that_grew_after_its_shard_is_read_on(tmp_path):
    """As on a file system whose locks do nothing."""
    path = _run(tmp_path)
    kept = path.read_bytes()
    results.compact(tmp_path)
    more = {"kind": "training", "run_id": "a", "step": 11, "time": "2100"}
    path.write_bytes(kept + json.dumps(more).encode() + b"\n")
    steps = [5, 10, 11]
    assert results.read(tmp_path, "training")["step"].to_pylist() == steps
    lines = results.read(tmp_path, "training")["line"].to_pylist()
    assert lines == [2, 3, 7]
    results.compact(tmp_path)
    assert not path.exists()
    assert results.read(tmp_path, "training")["step"].to_pylist() == steps
    assert len(results.read(tmp_path, "training", latest=False)) == 3


def test_a_last_line_cut_anywhere_loses_that_line_alone_and_is_named(tmp_path):
    path = _run(tmp_path)
    whole = path.read_bytes()
    last = whole.rindex(b"\n", 0, len(whole) - 1) + 1
    for cut in range(last + 1, len(whole) - 1, 7):
        path.write_bytes(whole[:cut])
        with pytest.warns(results.ResultsWarning, match=f"{path.name}, line 6"):
            assert results.read(tmp_path)["length"].to_pylist() == [1, 2]
    path.write_bytes(whole[:-1])  # only the end of line is missing
    assert results.read(tmp_path)["length"].to_pylist() == [1, 2, 3]


def test_text_that_is_no_row_is_named_and_survives_compaction(tmp_path):
    path = _run(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    wrong = json.loads(lines[3]) | {"correct": "many"}
    lines[1] = b"\xff\x00nonsense\n"
    lines[3] = json.dumps(wrong).encode() + b"\n"
    path.write_bytes(b"".join(lines))
    with pytest.warns(results.ResultsWarning) as caught:
        results.compact(tmp_path)
    assert ["line 2" in str(w.message) for w in caught] == [True, False]
    assert ["line 4" in str(w.message) for w in caught] == [False, True]
    damaged = results.read(tmp_path, "damaged").to_pylist()
    assert [row["line"] for row in damaged] == [2, 4]
    assert damaged[0]["text"] == "\\xff\x00nonsense"
    assert json.loads(damaged[1]["text"]) == wrong
    assert results.read(tmp_path)["length"].to_pylist() == [2, 3]


def _damage(shard, how):
    data = bytearray(shard.read_bytes())
    if how == "cut":
        shard.write_bytes(data[: len(data) // 2])
    elif how == "bit":  # inside the values, where the footer does not see it
        chunk = pq.ParquetFile(shard).metadata.row_group(0)
        names = [chunk.column(i).path_in_schema for i in range(chunk.num_columns)]
        column = chunk.column(names.index("run_id"))
        data[column.dictionary_page_offset + column.total_compressed_size - 3] ^= 1
        shard.write_bytes(data)
    elif how == "empty":
        shard.write_bytes(b"")
    else:
        pq.write_table(pa.table({"kind": ["evaluation"]}), shard)


@pytest.mark.parametrize("damage", ["cut", "bit", "empty", "foreign"])
def test_a_damaged_shard_is_named_and_the_rest_is_read(tmp_path, damage):
    _run(tmp_path, "a", (1, 1, 1))
    (bad,) = results.compact(tmp_path)
    _run(tmp_path, "b", (2, 2, 2))
    results.compact(tmp_path)
    _run(tmp_path, "c", (3, 3, 3))
    _damage(bad, damage)
    with pytest.warns(results.ResultsWarning, match=f"{bad.name} cannot be read"):
        table = results.read(tmp_path)
    assert table["run_id"].to_pylist() == ["b"] * 3 + ["c"] * 3


@pytest.mark.parametrize("damage", ["cut", "bit"])
def test_a_source_beside_a_damaged_shard_is_read_and_compacted_again(tmp_path, damage):
    path = _run(tmp_path)
    lines = path.read_bytes()
    before = _everything(tmp_path)
    (shard,) = results.compact(tmp_path)
    path.write_bytes(lines)  # compaction died before deleting it
    _damage(shard, damage)
    with pytest.warns(results.ResultsWarning, match="cannot be read"):
        assert _everything(tmp_path) == before
    if damage == "bit":  # the footer alone promises the rows
        with pytest.warns(results.ResultsWarning, match="cannot be read"):
            assert results.compact(tmp_path) == [shard]
    else:
        assert results.compact(tmp_path) == [shard]
    assert not path.exists()
    assert _everything(tmp_path) == before


def test_a_row_written_while_its_file_is_compacted_is_kept(tmp_path, monkeypatch):
    """As on a file system whose locks do nothing."""
    path = _run(tmp_path)
    write = results_shards._write_shard

    def write_after_a_row_came(*arguments):
        row = {"kind": "training", "run_id": "a", "step": 11, "time": "2100"}
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        return write(*arguments)

    monkeypatch.setattr(results_shards, "_write_shard", write_after_a_row_came)
    results.compact(tmp_path)
    monkeypatch.undo()
    for _ in range(2):
        steps = results.read(tmp_path, "training", latest=False)["step"].to_pylist()
        assert steps == [5, 10, 11]
        results.compact(tmp_path)
    assert not path.exists()


def test_a_compaction_while_a_reader_reads_hides_nothing(tmp_path, monkeypatch):
    _run(tmp_path)
    expected = _everything(tmp_path)
    read_source = results_shards._read_source

    def read_after_compaction(source):
        monkeypatch.undo()
        results.compact(tmp_path)
        return read_source(source)

    monkeypatch.setattr(results_shards, "_read_source", read_after_compaction)
    assert _everything(tmp_path) == expected
    assert not list((tmp_path / "results").glob("*.jsonl"))


def test_a_shard_that_does_not_read_back_replaces_nothing(tmp_path, monkeypatch):
    path = _run(tmp_path)
    expected = _everything(tmp_path)
    write = pq.write_table

    def write_half(table, file, **options):
        write(table.slice(0, 2), file, **options)

    monkeypatch.setattr(pq, "write_table", write_half)
    with pytest.raises(OSError, match="does not read back"):
        results.compact(tmp_path)
    monkeypatch.undo()
    assert path.exists()
    assert _everything(tmp_path) == expected
    results.compact(tmp_path)
    assert [p.suffix for p in (tmp_path / "results").iterdir()] == [".parquet"]


def test_a_file_taken_away_before_it_is_locked_is_made_again(tmp_path, monkeypatch):
    lock = results_shards.fcntl.flock

    def lock_too_late(file, operation):
        monkeypatch.undo()
        (path,) = (tmp_path / "results").iterdir()
        path.unlink()
        lock(file, operation)

    monkeypatch.setattr(results_shards.fcntl, "flock", lock_too_late)
    with results.ResultsWriter(tmp_path, "a") as writer:
        writer.write("training", step=1)
    assert results.read(tmp_path, "training")["step"].to_pylist() == [1]


def test_sources_are_compacted_in_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(results_shards, "_BATCH_FILES", 2)
    for run_id in "abcde":
        _run(tmp_path, run_id)
    before = _everything(tmp_path)
    assert len(results.compact(tmp_path)) == 3
    assert _everything(tmp_path) == before


# Kills itself with SIGKILL at the n-th event of a compaction of the n-th folder. An
# event is the moment before, or after, a change of the file system; and the middle of
# the writing of a shard.
_KILLED_COMPACTION = """
import os, signal, sys
import pyarrow.parquet as pq
from experiments.results import store as results

def kill_at(limit):
    count = 0
    def event():
        nonlocal count
        count += 1
        if count == limit:
            os.kill(os.getpid(), signal.SIGKILL)
    def watched(function):
        def call(*arguments, **options):
            event()
            value = function(*arguments, **options)
            event()
            return value
        return call
    write = pq.write_table
    def write_half_then_all(table, file, **options):
        file.write(b"PAR1 half of a shard")
        file.flush()
        event()
        file.truncate(0)
        write(table, file, **options)
    pq.write_table = write_half_then_all
    for name in ("open", "fsync", "replace", "unlink"):
        setattr(os, name, watched(getattr(os, name)))

for number, folder in enumerate(sys.argv[1:], start=1):
    child = os.fork()
    if child == 0:
        kill_at(number)
        results.compact(folder)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    print("killed" if os.WIFSIGNALED(status) else f"ended {status}")
"""


def _python(code, *arguments):
    root = pathlib.Path(results.__file__).parents[2]
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=root,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_compaction_killed_at_any_moment_loses_and_doubles_nothing(tmp_path):
    template = tmp_path / "template"
    _run(template, "a")
    _run(template, "a", (0, 1, 2))  # evaluated again
    results.compact(template)
    _run(template, "b")
    path = _run(template, "c")
    expected = _everything(template, latest=False)
    folders = [tmp_path / f"copy{number}" for number in range(1, 41)]
    for folder in folders:
        shutil.copytree(template, folder)
    with _python(_KILLED_COMPACTION, *folders) as process:
        outcomes = process.communicate()[0].split("\n")[:-1]
    kills = outcomes.count("killed")
    assert outcomes == ["killed"] * kills + ["ended 0"] * (len(folders) - kills)
    assert kills >= 15
    assert len(folders) > kills  # every moment was met
    states = set()
    for folder in folders[: kills + 1]:
        left = [p.suffix for p in (folder / "results").iterdir()]
        states.add(tuple(sorted(left)))
        assert _everything(folder, latest=False) == expected
        results.compact(folder)
        assert {p.suffix for p in (folder / "results").iterdir()} == {".parquet"}
        assert _everything(folder, latest=False) == expected
    assert (".jsonl", ".jsonl", ".parquet", ".tmp") in states
    assert (".jsonl", ".jsonl", ".parquet", ".parquet") in states
    assert path.exists()  # the template was not touched


_WRITER = """
import sys
from experiments.results import store as results

with results.ResultsWriter(sys.argv[1], sys.argv[2]) as writer:
    for step in range(100_000):
        writer.write("training", step=step, text="x" * 5000)
        print(step, flush=True)
"""


@pytest.mark.filterwarnings("ignore::experiments.results.shards.ResultsWarning")
def test_a_killed_writer_has_every_row_that_it_was_told_is_written(tmp_path):
    for number in range(2):
        acknowledged = -1
        with _python(_WRITER, tmp_path, f"run{number}") as process:
            for line in process.stdout:
                acknowledged = int(line)
                if acknowledged >= 20 + 13 * number:
                    process.kill()
        rows = results.read(tmp_path, "training").to_pylist()
        steps = [row["step"] for row in rows if row["run_id"] == f"run{number}"]
        assert steps == list(range(len(steps)))
        assert len(steps) >= acknowledged + 1
        results.compact(tmp_path)  # its lock died with it
        assert not list((tmp_path / "results").glob("*.jsonl"))
        assert results.read(tmp_path, "training").to_pylist() == rows


def test_two_compactions_at_once_count_each_row_once(tmp_path):
    for run_id in "abcdef":
        _run(tmp_path, run_id)
    expected = _everything(tmp_path)
    code = (
        "import sys; from experiments.results import store; store.compact(sys.argv[1])"
    )
    processes = [_python(code, tmp_path) for _ in range(2)]
    for process in processes:
        process.communicate()
    assert [process.returncode for process in processes] == [0, 0]
    assert _everything(tmp_path) == expected
    assert {p.suffix for p in (tmp_path / "results").iterdir()} == {".parquet"}
    assert os.listdir(tmp_path) == ["results"]


def test_a_run_id_of_two_trainings_is_shown_with_its_folder_and_a_copy_is_not(tmp_path):
    for folder, steps in (("one", 5), ("two", 7)):
        with results.ResultsWriter(tmp_path / folder, "a") as writer:
            writer.write("run", seed=0, config={"train": {"steps": 5}, "eval": {}})
            writer.write("training", step=1)
            writer.write("run", seed=0, config={"train": {"steps": steps}})
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    found = results.read(tmp_path, "training").to_pylist()
    assert sorted(row["run_id"] for row in found) == ["a (copy)", "a (two)"]
    both = results.read([tmp_path / "one", tmp_path / "copy"], "training")
    assert both["run_id"].to_pylist() == ["a"]
    # gone on with in one of the folders, its first rows belong to either
    with results.ResultsWriter(tmp_path / "copy", "a") as writer:
        writer.write("run", seed=0, config={"train": {"steps": 9}})
        writer.write("training", step=2)
    both = results.read([tmp_path / "one", tmp_path / "copy"], "training")
    pairs = list(zip(both["run_id"].to_pylist(), both["step"].to_pylist(), strict=True))
    assert sorted(pairs) == [("a (copy)", 1), ("a (copy)", 2), ("a (one)", 1)]
    sql = "SELECT count(DISTINCT run_id) AS n FROM training"
    assert results.query(tmp_path, sql)["n"].to_pylist() == [3]
