"""The report from end to end: what is printed, what is written, what is refused."""

import csv
import json
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

from experiments.report import __main__ as report
from experiments.report import latex
from experiments.report import tables as report_tables
from experiments.results import store as results

TRAIN_MAX, TEST_MAX = 3, 8


def _write_run(workdir, task, positions, seed, rate, *, step=3, run_id=None):
    """A run whose token accuracy beyond the training lengths is `rate` of 200."""
    common = {
        "task": task,
        "task_title": task.replace("_", " ").title(),
        "encoding": "rope",
        "encoding_title": "RoPE",
        "positions": positions,
        "seed": seed,
        "train_max_length": TRAIN_MAX,
    }
    run_id = run_id or f"{task}-{positions}-{seed}"
    with results.ResultsWriter(workdir, run_id, common) as writer:
        writer.write("run", config={"seed": seed, "model": {"layers": 2}})
        for done in (1, 2, 3):
            writer.write("training", step=done, loss=1 / done, accuracy=0.5)
        writer.evaluation(
            {
                "step": step,
                "length": n,
                "correct": 200 if n <= TRAIN_MAX else rate,
                "tokens": 200,
                "exact": 5,
                "rows": 10,
                "input_blind": 0.5 if task == "even_pairs" else 0.75,
                "test_max_length": TEST_MAX,
            }
            for n in range(1, TEST_MAX + 1)
        )
    return writer.path


@pytest.fixture
def study(tmp_path):
    """Two tasks, plain and randomized, two seeds; half of it already compacted."""
    folder = tmp_path / "study"
    for task, positions, rate in (
        ("even_pairs", "consecutive", 100),
        ("even_pairs", "randomized", 180),
        ("bucket_sort", "randomized", 160),
    ):
        for seed in (0, 1):
            workdir = folder / f"task={task}" / f"{positions}{seed}"
            _write_run(workdir, task, positions, seed, rate + 10 * seed)
    results.compact(folder / "task=even_pairs")
    return folder


def _table(text):
    lines = [line for line in text.split("\n") if line.startswith("|")]
    rows = [[part.strip() for part in line.strip("|").split("|")] for line in lines]
    return [dict(zip(rows[0], row, strict=True)) for row in rows[2:]]


def _csv(path):
    return list(csv.DictReader(path.read_text().splitlines()))


def test_the_command_prints_the_table_and_writes_everything(study, capsys):
    assert report.main([str(study), "--formats", "pdf,png"]) == 0
    printed = capsys.readouterr()
    assert printed.err == "missing: RoPE, consecutive: no run on Bucket Sort\n"
    rows = _table(printed.out)
    shown = [(r["Task"], r["Positions"], r["Best"], r["Mean [95%]"]) for r in rows]
    assert shown == [
        ("Even Pairs", "consecutive", "55.0", "52.5 [50.0, 55.0]"),
        ("Even Pairs", "randomized", "95.0", "92.5 [90.0, 95.0]"),
        ("Bucket Sort", "randomized", "85.0", "82.5 [80.0, 85.0]"),
    ]
    assert [row["Input-blind"] for row in rows] == ["50.0", "50.0", "75.0"]
    assert [row["Seeds"] for row in rows] == ["2"] * 3
    out = study / "report"
    pictures = {
        f"{name}.{suffix}"
        for name in (
            *("accuracy_by_length", "score_heatmap", "seed_sensitivity"),
            *("training_loss", "training_accuracy"),
        )
        for suffix in ("png", "pdf")
    }
    tables = {"report.html", "report.md", "report.json", "scores.tex"}
    tables |= {"table.csv", "scores.csv", "runs.csv", "curves.csv"}
    tables |= {"sensitivity.csv", "gains.csv", "published.csv"}
    assert {path.name for path in out.iterdir()} == pictures | tables
    assert str(out) in printed.out
    text = (out / "report.md").read_text()
    assert _table(text.split("\n\n")[1]) == rows
    for name in pictures:
        assert (f"]({name})" in text) == name.endswith("png")
    figures = json.loads((out / "report.json").read_text())
    assert figures["warnings"] == []
    assert [round(cell["mean"], 9) for cell in figures["scores"]] == [
        *(0.525, 0.925, 0.825),
    ]
    runs = _csv(out / "runs.csv")
    assert len(runs) == 6
    assert np.mean([float(run["score"]) for run in runs]) == pytest.approx(2.275 / 3)
    assert len(_csv(out / "curves.csv")) == 3 * TEST_MAX
    tex = (out / "scores.tex").read_text()
    assert r"\textbf{95.0}" in tex
    page = (out / "report.html").read_text()
    for note in (report_tables.INTERVAL, report_tables.BOLD):
        assert note in text
        assert note in page
        assert latex.text(note) in tex
    assert {row["interval"] for row in _csv(out / "scores.csv")} == {"range"}
    # the rest was compacted, and the report is the same from shards alone
    assert not list(study.rglob("*.jsonl"))
    assert len(list(study.rglob("*.parquet"))) == 6
    report.main([str(study), "--formats", "none", "--out", str(study / "again")])
    assert _table(capsys.readouterr().out) == rows


def test_a_part_can_be_chosen_and_the_files_left_alone(study, capsys, tmp_path):
    arguments = [str(study), "--formats", "none", "--out", str(tmp_path / "out")]
    where = "task = 'bucket_sort' AND seed = 1"
    assert report.main([*arguments, "--no-compact", "--where", where]) == 0
    (row,) = _table(capsys.readouterr().out)
    assert (row["Task"], row["Mean [95%]"]) == ("Bucket Sort", "85.0")
    both = ["--where=model.layers=2", "--where", "task = 'bucket_sort'"]
    assert report.main([*arguments, "--no-compact", *both]) == 0
    (row,) = _table(capsys.readouterr().out)
    assert (row["Task"], row["Seeds"]) == ("Bucket Sort", "2")
    assert not list((tmp_path / "out").glob("*.png"))
    assert len(list(study.rglob("*.jsonl"))) == 2


def test_runs_of_another_model_are_a_setting_of_their_own(study, capsys):
    workdir = study / "more"
    _write_run(workdir, "even_pairs", "randomized", 2, 100)
    with results.ResultsWriter(workdir, "even_pairs-randomized-2") as writer:
        writer.write("run", seed=2, config={"seed": 2, "model": {"layers": 5}})
    assert report.main([str(study), "--formats", "none"]) == 0
    rows = _table(capsys.readouterr().out)
    shown = {(r["Task"], r["Positions"]): r["Mean [95%]"] for r in rows}
    assert shown == {
        ("Even Pairs", "consecutive"): "52.5 [50.0, 55.0]",
        ("Even Pairs", "randomized, model.layers=2"): "92.5 [90.0, 95.0]",
        ("Even Pairs", "randomized, model.layers=5"): "50.0",
        ("Bucket Sort", "randomized, model.layers=2"): "82.5 [80.0, 85.0]",
    }


def test_runs_that_differ_in_the_optimizer_are_named(study, capsys):
    for seed in (0, 1):
        name, path = f"even_pairs-randomized-{seed}", study / "task=even_pairs"
        with results.ResultsWriter(path / f"randomized{seed}", name) as writer:
            more = {"optim": {"b2": 0.9 + seed / 100}}
            config = {"seed": seed, "model": {"layers": 2}} | more
            writer.write("run", seed=seed, config=config)
    assert report.main([str(study), "--formats", "none"]) == 0
    line = (
        "Even Pairs, RoPE, randomized: runs differ in config optim.b2: 0.9 "
        "(even_pairs-randomized-0); 0.91 (even_pairs-randomized-1)"
    )
    printed = capsys.readouterr()
    assert f"warning: {line}\n" in printed.err
    (row,) = [r for r in _table(printed.out) if r["Best"] == "95.0"]
    assert row["Mean [95%]"] == "95.0"  # of one config
    assert f"- {line}\n" in (study / "report/report.md").read_text()


def test_what_cannot_be_read_is_named_once_and_the_rest_reported(study, capsys):
    shard = next(study.rglob("task=even_pairs/randomized0/results/*.parquet"))
    shard.write_bytes(b"PAR1")
    (source,) = study.rglob("task=bucket_sort/randomized0/results/*.jsonl")
    with source.open("ab") as file:
        file.write(b'{"kind": "evalua')
    assert report.main([str(study), "--formats", "none", "--no-compact"]) == 0
    printed = capsys.readouterr()
    assert [row["Seeds"] for row in _table(printed.out)] == ["2", "1", "2"]
    assert printed.err.count("warning: ") == 2
    assert f"{shard.name} cannot be read" in printed.err
    assert f"{source.name}, line 13 is not a row" in printed.err
    assert "missing: Even Pairs, RoPE, randomized: 1 of 2 runs; lacks seed" in (
        printed.err
    )
    # a shard remembers the damage of the file that it replaces
    for _ in range(2):
        assert report.main([str(study), "--formats", "none"]) == 0
        again = capsys.readouterr().err
        assert sorted(again.splitlines()) == sorted(printed.err.splitlines())
    assert not source.exists()
    text = (study / "report/report.html").read_text()
    assert f"{shard.name} cannot be read" in text
    assert f"{source.name}, line 13 is not a row" in text


def test_a_run_of_other_steps_is_left_out_and_a_repeated_one_counts_once(study, capsys):
    _write_run(study / "short", "even_pairs", "randomized", 2, 20, step=2)
    _write_run(study / "twice", "even_pairs", "randomized", 1, 190, run_id="again")
    assert report.main([str(study), "--formats", "none"]) == 0
    printed = capsys.readouterr()
    (row,) = [row for row in _table(printed.out) if row["Best"] == "95.0"]
    assert (row["Mean [95%]"], row["Seeds"]) == ("92.5 [90.0, 95.0]", "2")
    where = "warning: Even Pairs, RoPE, randomized: "
    assert printed.err.splitlines()[:2] == [
        f"{where}left out, not to be averaged with the other 3: steps trained 2, not 3 "
        "(even_pairs-randomized-2)",
        f"{where}seed 1 has 2 runs of the same config: the latest, again, counts; left "
        "out: even_pairs-randomized-1",
    ]
    names = {run["run_id"] for run in _csv(study / "report/runs.csv")}
    assert names & {"again", "even_pairs-randomized-1"} == {"again"}
    assert "even_pairs-randomized-2" not in names


def test_a_copied_study_and_a_run_made_twice_count_once(study, capsys):
    shutil.copytree(study, study.parent / "copy")
    again = study.parent / "copy" / "again"
    _write_run(again, "bucket_sort", "randomized", 1, 180)
    both = [str(study), str(study.parent / "copy")]
    assert report.main([*both, "--formats", "none", "--out", str(study / "o")]) == 0
    printed = capsys.readouterr()
    shown = [(r["Mean [95%]"], r["Seeds"]) for r in _table(printed.out)]
    assert shown == [
        ("52.5 [50.0, 55.0]", "2"),
        ("92.5 [90.0, 95.0]", "2"),
        ("85.0 [80.0, 90.0]", "2"),  # the latest is 90
    ]
    (line,) = [line for line in printed.err.splitlines() if "evaluations in" in line]
    assert str(again / "results") in line
    assert line.endswith("latest row of each length (bucket_sort-randomized-1)")


def test_studies_that_share_the_names_of_runs_are_each_reported_whole(tmp_path, capsys):
    """A run_id leaves `train.steps` out, and the later score is of the shorter run."""
    for study, steps, right in (("long", 4, 180), ("short", 3, 120)):
        for seed in (0, 1):
            fields = {"study": study, "train": {"steps": steps, "seed": seed}}
            run_id = f"even_pairs-rope-seed{seed}-01234567"
            path = _write_run(
                tmp_path / study, "even_pairs", "randomized", seed, right, run_id=run_id
            )
            rows = [json.loads(line) for line in path.read_text().splitlines()]
            for row in rows:
                row["study"] = study
                row |= {"config": fields} if row["kind"] == "run" else {}
                row |= {"step": steps} if row["kind"] == "evaluation" else {}
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "long/failed").mkdir()
    (tmp_path / "long/failed" / f"{run_id}.txt").write_text("once, before it was done")
    assert report.main([str(tmp_path), "--formats", "none"]) == 0
    printed = capsys.readouterr()
    shown = [(r["Positions"], r["Best"], r["Seeds"]) for r in _table(printed.out)]
    assert shown == [
        ("randomized, long", "90.0", "2"),
        ("randomized, short", "60.0", "2"),
    ]
    runs = {(run["run_id"], run["step"]) for run in _csv(tmp_path / "report/runs.csv")}
    assert (f"{run_id} (long)", "4") in runs
    assert (f"{run_id} (short)", "3") in runs
    assert "missing: " not in printed.err


def test_the_command_that_looks_into_trained_models_is_named(tmp_path, capsys):
    path = _write_run(tmp_path, "even_pairs", "consecutive", 0, 100)
    out = ["--formats", "none", "--out", str(tmp_path / "out")]
    report.main([str(tmp_path), *out])
    assert "experiments.analysis" not in capsys.readouterr().out  # no model is here
    (path.parents[1] / "config.json").write_text("{}")
    report.main([str(tmp_path), *out])
    line = f"python -m experiments.analysis {tmp_path}"
    assert f"{line}    looks into" in capsys.readouterr().out
    for name in ("report.md", "report.html"):
        assert f"none yet: `{line}` draws" in (tmp_path / "out" / name).read_text()


@pytest.mark.parametrize(("fraction", "warned"), [(0.0, 1), (1.0, 0)])
def test_a_run_that_was_extended_under_a_decaying_rate_is_named(
    tmp_path, capsys, fraction, warned
):
    with results.ResultsWriter(tmp_path, "even_pairs-consecutive-0") as writer:
        for steps in (1, 3):
            fields = {"train": {"steps": steps}, "optim": {"final_fraction": fraction}}
            writer.write("run", seed=0, config=fields)
    path = _write_run(tmp_path, "even_pairs", "consecutive", 0, 100)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if '"kind":"run"' not in line))
    assert report.main([str(tmp_path), "--formats", "none"]) == 0
    said = "1 of the runs went on after train.steps was raised, 1 to 3, while"
    assert capsys.readouterr().err.count(said) == warned


def test_the_wide_table_and_the_published_one_are_files_too(study):
    report.make_report(study, study / "out", formats=[])
    even, bucket = _csv(study / "out/table.csv")
    assert (even["level"], bucket["level"]) == ("regular", "context-sensitive")
    assert float(even["RoPE, randomized: best"]) == pytest.approx(0.95)
    assert float(even["RoPE, consecutive: mean"]) == pytest.approx(0.525)
    assert float(even["RoPE, consecutive: low"]) == pytest.approx(0.5)
    assert bucket["RoPE, consecutive: best"] == ""
    published = _csv(study / "out/published.csv")
    assert {row["standing"] for row in published} == {"unverified"}
    assert {row["difference"] for row in published} == {""}  # trained to 3, not to 40
    text = (study / "out/report.md").read_text()
    assert "unverified: recalled, not checked against the paper" in text
    points = _csv(study / "out/sensitivity.csv")
    assert [(p["seeds"], p["chosen"]) for p in points] == [("2", "True")] * 3
    assert float(points[0]["lowest"]) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing"], "'missing' is not a folder"),
        (["empty"], "no results in 'empty': looked for results/*.jsonl and results/"),
        (["trained"], "looked for rows of kind 'evaluation'"),
        (["study", "--where", "taks = 'x'"], "where=\"taks = 'x'\" is no condition"),
        (["study", "--where", "seed = 9"], "no evaluation row meets where='seed = 9'"),
    ],
)
def test_a_mistake_is_explained_and_nothing_written(
    study, capsys, monkeypatch, arguments, message
):
    monkeypatch.chdir(study.parent)
    pathlib.Path("empty").mkdir()
    with results.ResultsWriter("trained", "a") as writer:
        writer.write("training", step=1)
    assert report.main([*arguments, "--out", "out"]) == 1
    printed = capsys.readouterr()
    assert printed.err.startswith("error: ")
    assert message in printed.err
    assert printed.out == ""
    assert not pathlib.Path("out").exists()


def test_an_unknown_format_is_refused(study, capsys):
    with pytest.raises(SystemExit) as stopped:
        report.main([str(study), "--formats", "png,jpg"])
    assert stopped.value.code == 2
    assert "unknown ['jpg']; choose from ['png', 'pdf', 'svg']" in (
        capsys.readouterr().err
    )


def test_the_command_starts_without_jax_and_explains_itself():
    code = (
        "import sys; from experiments.report import __main__ as report\n"
        "try: report.main(['--help'])\n"
        "finally: print(sorted({'jax', 'matplotlib', 'duckdb'} & sys.modules.keys()))"
    )
    text = subprocess.run(
        [sys.executable, "-c", code],
        cwd=pathlib.Path(report.__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for option in ("--out", "--where", "--formats", "--no-compact"):
        assert option in text
    assert text.endswith("[]\n")


def test_pictures_of_sensitivity_are_drawn_where_there_is_some(tmp_path):
    """One seed a cell, and a learning rate a task: neither has been varied."""
    for task, seed in (("even_pairs", 0), ("bucket_sort", 1)):
        _write_run(tmp_path / task, task, "consecutive", seed, 150)
    (tmp_path / "out").mkdir()
    for name in ("seed_sensitivity.svg", "loss_by_step.svg", "gains.csv"):
        (tmp_path / "out" / name).touch()  # of an earlier report, or of others
    report.make_report(tmp_path, tmp_path / "out", formats=["svg"])
    names = {path.stem for path in (tmp_path / "out").glob("*.svg")}
    assert {"accuracy_by_length", "loss_by_step"} < names
    assert not {"seed_sensitivity", "learning_rate_sensitivity"} & names
    assert not (tmp_path / "out" / "gains.csv").exists()


def test_a_run_too_short_to_log_anything_is_named_and_has_no_empty_picture(tmp_path):
    path = _write_run(tmp_path / "run", "even_pairs", "consecutive", 0, 150)
    lines = path.read_text().splitlines()
    path.write_text("".join(f"{x}\n" for x in lines if '"training"' not in x))
    report.make_report(tmp_path, tmp_path / "out", formats=["svg"])
    names = {found.stem for found in (tmp_path / "out").glob("*.svg")}
    assert not {"training_loss", "training_accuracy"} & names
    (line,) = json.loads((tmp_path / "out/report.json").read_text())["missing"]
    assert line.startswith("no training curve of even_pairs-consecutive-0: nothing was")
