"""Whole studies: every run as if alone, done once, whatever is killed when."""

import json
import pathlib
import random
import shutil
import time
import warnings

import jax
import numpy as np
import pytest
from rich.console import Console

from configs.sweep import product
from experiments.evaluation_sets.builder import make_set
from experiments.evaluation_sets.content import SetKey
from experiments.evaluation_sets.read import read_set
from experiments.results import store as results
from experiments.results.store import ResultsWarning
from experiments.running import workdir
from experiments.running.interrupt import StoppedError
from experiments.running.opening import open_run
from experiments.running.run import run_experiment
from experiments.running.storage import StorageError
from experiments.study import __main__ as study
from experiments.study import sweep
from experiments.study import train as study_train
from experiments.study.claims import Claims
from experiments.study.folder import StudyFolder
from experiments.study.train import Work
from experiments.study.work import How, Worker, count
from ropejax.tasks import TASKS
from tests.compiled_programs import kept_in
from tests.experiments import study_process, tiny_study

TINY = str(pathlib.Path(__file__).parent / "tiny_study.py")
TOGETHER = {"task.name": "even_pairs", "optim.learning_rate": 1e-2}
QUIET = Console(quiet=True)
ROW = ("run_id", "step", "length", "correct", "tokens", "exact", "loss", "input_blind")
POINT = ("run_id", "step", "loss", "accuracy", "grad_norm", "mean_length")


@pytest.fixture(scope="module", autouse=True)
def compiled(tmp_path_factory):
    """Compiled programs are kept, since every process makes its own."""
    with kept_in(tmp_path_factory.mktemp("compiled")) as folder:
        yield folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A study's folder after an uninterrupted run; tests must not write there."""
    folder = tmp_path_factory.mktemp("finished")
    counts = work(folder)
    assert (counts.done, counts.left, counts.failed) == (8, 0, 0)
    return folder


def work(folder, config=TINY, **how):
    """One worker, in this process, to its end."""
    runs, _ = sweep.load(config)
    return Worker(StudyFolder(folder), runs, How(**how), QUIET).work()


def rows(folder, kind="evaluation", names=ROW, task=""):
    """What the store says, but for times; of one task, or all."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResultsWarning)  # lines cut off by a kill
        table = results.read(pathlib.Path(folder) / "results", kind)
    found = [row for row in table.to_pylist() if row["run_id"].startswith(task)]
    return sorted(tuple(row[name] for name in names) for row in found)


def files(folder):
    """Every file with its time, but for claims and what only looks at the folder."""
    return {
        path: path.stat().st_mtime_ns
        for path in pathlib.Path(folder).rglob("*")
        if path.is_file() and path.parent.name != "claims"
    }


def assert_like(folder, finished):
    """Row for row what the uninterrupted study gave."""
    assert rows(folder) == rows(finished)
    curves = rows(folder, "training", POINT)
    assert curves == rows(finished, "training", POINT)


# A whole study


def test_a_study_is_one_store_with_a_row_a_run_and_length(finished):
    runs, _ = sweep.load(TINY)
    table = results.read(finished)
    assert set(table["store"].to_pylist()) == {str((finished / "results").resolve())}
    got = [(row["run_id"], row["length"]) for row in table.to_pylist()]
    assert sorted(got) == sorted((r.run_id, n) for r in runs for n in (3, 5, 6))
    configs = results.read(finished, "run").to_pylist()
    assert {row["run_id"]: json.loads(row["config"]) for row in configs} == {
        run.run_id: run.config for run in runs
    }
    assert set(table["study"].to_pylist()) == {"tiny"}
    assert len(rows(finished, "training", POINT)) == 8 * 3
    assert list((finished / "claims").iterdir()) == []
    assert [path.suffix for path in (finished / "results").iterdir()] == [".parquet"]


def test_a_run_of_a_study_is_that_of_the_main_command(finished, tmp_path):
    """Its config alone makes the same run; its folder is one that others can open."""
    runs, _ = sweep.load(TINY)
    run = runs[3]
    alone = run_experiment(run.config, tmp_path, console=QUIET, summary=False)
    theirs = {row[2]: row for row in rows(finished) if row[0] == run.run_id}
    for length, score in alone.items():
        _, step, _, _, tokens, _, loss, blind = theirs[length]
        assert (step, tokens, blind) == (12, score.scored, score.input_blind)
        assert loss == pytest.approx(score.mean_loss, rel=1e-3)
    points = {row[1]: row for row in rows(tmp_path, "training", POINT)}
    for run_id, step, loss, _, _, length in rows(finished, "training", POINT):
        if run_id != run.run_id:
            continue
        assert loss == pytest.approx(points[step][2], rel=1e-3)
        assert length == points[step][5]
    opened, state = open_run(StudyFolder(finished).run(run.run_id))
    assert (opened.run_id, int(state.step)) == (run.run_id, 12)


def test_runs_of_a_study_begin_with_the_parameters_of_another_run(finished, tmp_path):
    """All members of a program, each as the main command would."""
    source = StudyFolder(finished).run(sweep.load(TINY)[0][0].run_id)
    fixed = {"task.name": ["even_pairs"], "train.init_from": [str(source)]}
    chosen = {"optim.learning_rate": [1e-2, 1e-3], "train.seed": [0, 1]}
    points = product(fixed, chosen)
    runs, _ = sweep.expand(tiny_study.get_config(), points)
    # Scored before the first step, and trained later.
    scored = [{**point, "train.steps": 0} for point in points]
    for some in (sweep.expand(tiny_study.get_config(), scored)[0], runs):
        counts = Worker(StudyFolder(tmp_path / "study"), some, How(), QUIET).work()
        assert counts.done == 4
    _, wanted = open_run(source)
    for run in runs:
        _, state = open_run(StudyFolder(tmp_path / "study").run(run.run_id), step=0)
        for one, other in zip(
            jax.tree.leaves(state.params), jax.tree.leaves(wanted.params), strict=True
        ):
            np.testing.assert_array_equal(one, other)
    run_experiment(runs[3].config, tmp_path / "alone", console=QUIET, summary=False)
    alone = rows(tmp_path / "alone", "training", POINT)
    together = rows(tmp_path / "study", "training", POINT, runs[3].run_id)
    for one, other in zip(alone, together, strict=True):
        assert one[:2] == other[:2]
        assert one[2] == pytest.approx(other[2], rel=1e-3)


def test_what_is_finished_is_not_done_again(finished, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(finished, folder)
    before = files(folder)
    assert work(folder).done == 8
    assert files(folder) == before


def test_models_trained_at_once_give_the_rows_of_models_one_after_another(
    finished, tmp_path
):
    counts = work(tmp_path, f"{TINY}:tasks=1", at_once=3)  # of four: three, then one
    assert counts.done == 4
    assert_close_rows(tmp_path, finished)
    members = [
        json.loads(path.read_text())["cost"]["members"]
        for path in (tmp_path / "done").iterdir()
    ]
    assert sorted(members) == [1, 3, 3, 3]


def test_models_of_a_study_are_spread_each_over_devices_of_its_own(
    finished, tmp_path, monkeypatch
):
    """Two of eight devices a model, and four models; three of them go first here."""
    train, seen = study_train.train_population, []

    def watched(population, *given, **how):
        sizes = population.recipe.sharding.sizes
        seen.append((sizes["population"], sizes["tensor"]))
        return train(population, *given, **how)

    monkeypatch.setattr(study_train, "train_population", watched)
    runs = f"{TINY}:tasks=1,tensor=2"
    names = {run.run_id for run in sweep.load(runs)[0]}
    assert names <= {run.run_id for run in sweep.load(TINY)[0]}  # a mesh is no name
    assert work(tmp_path, runs, at_once=3).done == 4
    assert seen == [(3, 2), (3, 2)]
    assert_close_rows(tmp_path, finished)


def assert_close_rows(folder, finished):
    """Runs of the first task, trained and scored in another way."""
    ours, theirs = rows(folder), rows(finished, task="even_pairs")
    assert [row[:3] for row in ours] == [row[:3] for row in theirs]
    for one, other in zip(ours, theirs, strict=True):
        assert one[6] == pytest.approx(other[6], rel=1e-2)
    ours = rows(folder, "training", POINT)
    theirs = rows(finished, "training", POINT, task="even_pairs")
    for one, other in zip(ours, theirs, strict=True):
        assert one[:2] == other[:2]
        assert one[2] == pytest.approx(other[2], rel=1e-2)


# Stopped, damaged, failed


def test_a_stopped_study_goes_on_and_its_rows_are_those_of_the_whole(
    finished, tmp_path, monkeypatch
):
    """Ctrl-C at step 7 of the third run, between two of its checkpoints."""
    after, dispatches = Work._after, []

    def stop(self, progress, bar, interrupt):
        dispatches.append(progress.step)
        interrupt.asked = interrupt.asked or len(dispatches) == 2 * 6 + 3
        return after(self, progress, bar, interrupt)

    monkeypatch.setattr(Work, "_after", stop)
    with pytest.raises(StoppedError, match="stopped at step 7,"):
        work(tmp_path)
    monkeypatch.undo()
    runs, _ = sweep.load(TINY)
    folder = StudyFolder(tmp_path)
    assert sum(folder.is_finished(run) for run in runs) == 2
    assert count(folder, runs, Claims(folder.claims)).running == 0
    assert work(tmp_path).done == 8
    assert_like(tmp_path, finished)  # the point at step 8 too, begun at step 5


def test_runs_whose_rows_are_damaged_are_scored_again_without_training(
    finished, tmp_path
):
    folder = tmp_path / "copy"
    shutil.copytree(finished, folder)
    (shard,) = (folder / "results").iterdir()
    whole = shard.read_bytes()
    shard.write_bytes(whole[:100] + bytes(100) + whole[200:])
    runs, _ = sweep.load(TINY)
    checkpoints = {p: t for p, t in files(folder).items() if "checkpoints" in p.parts}
    with pytest.warns(ResultsWarning, match=f"{shard.name} cannot be read"):
        lost = StudyFolder(folder).reopen_lost(runs)
    assert sorted(lost) == sorted(run.run_id for run in runs)
    with pytest.warns(ResultsWarning, match="cannot be read"):
        assert work(folder).done == 8
    assert rows(folder) == rows(finished)
    after = {p: t for p, t in files(folder).items() if "checkpoints" in p.parts}
    assert after == checkpoints
    with pytest.warns(ResultsWarning, match="cannot be read"):
        assert StudyFolder(folder).reopen_lost(runs) == []


def test_fixed_sets_are_scored_without_training_again(finished, tmp_path):
    """A set holds what its task draws from the seed, so the counts are the same."""
    folder, sets = tmp_path / "copy", tmp_path / "sets"
    shutil.copytree(finished, folder)
    hashes = {}
    for length in (3, 5, 6):
        key = SetKey(TASKS["even_pairs"](), length, 8, 1)
        make_set(key, sets)
        hashes[length] = read_set(key, sets).sha256
    runs, _ = sweep.load(f"{TINY}:tasks=1")
    checkpoints = {p: t for p, t in files(folder).items() if "checkpoints" in p.parts}
    fixed = StudyFolder(folder, fixed_sets=True)
    assert not any(fixed.is_finished(run) for run in runs)
    assert Worker(fixed, runs, How(at_once=4, sets=str(sets)), QUIET).work().done == 4
    after = {p: t for p, t in files(folder).items() if "checkpoints" in p.parts}
    assert after == checkpoints
    names = ("run_id", "length", "correct", "tokens", "input_blind")
    fresh = rows(finished, names=names, task="even_pairs")
    found = results.read(folder / "results").to_pylist()
    on_sets = [row for row in found if row["set_hash"] is not None]
    assert sorted(tuple(row[name] for name in names) for row in on_sets) == fresh
    assert {row["length"]: row["set_hash"] for row in on_sets} == hashes
    assert len(rows(folder, task="even_pairs")) == 2 * len(fresh)  # both are kept


def test_a_run_that_fails_is_named_and_the_others_are_done(
    tmp_path, monkeypatch, capsys
):
    run_work = Work.run

    def fail(self):
        if self._runs[0].config["task"]["name"] == "parity_check":
            raise RuntimeError("broken for the test")
        return run_work(self)

    monkeypatch.setattr(Work, "run", fail)
    words = [f"--config={TINY}:seeds=1", f"--workdir={tmp_path}", "--compile_cache="]
    assert study.main(words) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert "2 done, 0 running, 2 failed, 0 left" in printed
    assert printed.count("failed: RuntimeError: broken for the test") == 2
    failures = StudyFolder(tmp_path).failures()
    assert {name.split("-")[0] for name in failures} == {"parity_check"}
    assert "broken for the test" in next(iter(failures.values())).read_text()
    monkeypatch.undo()
    assert study.main(words) == 1  # given up until --retry
    assert study.main([*words, "--retry"]) == 0
    assert "4 done, 0 running, 0 left" in capsys.readouterr().out


def test_out_of_memory_halves_the_models_at_once(finished, tmp_path, monkeypatch):
    import jax

    train, asked = study_train.train_population, []

    def scarce(*args, at_once, **settings):
        asked.append(at_once)
        if at_once > 1:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory")
        return train(*args, at_once=at_once, **settings)

    monkeypatch.setattr(study_train, "train_population", scarce)
    assert work(tmp_path, f"{TINY}:tasks=1", at_once=4).done == 4
    assert asked == [4, 2, 1]
    theirs = rows(finished, "training", POINT, task="even_pairs")
    assert rows(tmp_path, "training", POINT) == theirs


def test_a_model_that_diverges_is_scored_and_leaves_the_others_alone(
    finished, tmp_path
):
    """Two of a program at once; with a rate of 1e30 the first step ends in NaN."""
    rates = {"optim.learning_rate": 1e30}
    runs, _ = sweep.expand(tiny_study.get_config(), [TOGETHER, TOGETHER | rates])
    counts = Worker(StudyFolder(tmp_path), runs, How(at_once=2), QUIET).work()
    assert counts.done == 2
    fine, diverged = (rows(tmp_path, task=run.run_id) for run in runs)
    assert all(np.isfinite(row[6]) for row in fine)
    assert not any(np.isfinite(row[6]) for row in diverged)
    ours = [row for row in rows(finished) if row[0] == runs[0].run_id]
    assert [row[6] for row in fine] == pytest.approx([r[6] for r in ours], rel=1e-2)


def test_a_folder_of_another_study_is_refused(finished, tmp_path):
    StudyFolder(tmp_path).begin("other", "python ...", ["a", "b", "c"])
    with pytest.raises(ValueError, match="holds the study 'other'"):
        study.main([f"--config={TINY}", f"--workdir={tmp_path}", "--compile_cache="])


@pytest.mark.fast
def test_a_study_and_a_single_run_share_no_folder(tmp_path):
    """Their results would be one store, all of which a report counts."""
    config = workdir.plain(tiny_study.get_config())
    for name in ("run", "study"):
        (tmp_path / name).mkdir()
    workdir.write_config(tmp_path / "run", config)
    words = [f"--config={TINY}", f"--workdir={tmp_path / 'run'}", "--compile_cache="]
    with pytest.raises(ValueError, match="run holds a single run .* another --workdir"):
        study.main(words)
    StudyFolder(tmp_path / "study").begin("tiny", "python ...", ["a"])
    with pytest.raises(ValueError, match="study holds a study .* another --workdir"):
        workdir.check_same(tmp_path / "study", config)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["config.json"]


# The command


@pytest.mark.fast
def test_a_dry_run_lists_programs_and_costs_and_makes_no_folder(tmp_path, capsys):
    words = [f"--config={TINY}", f"--workdir={tmp_path / 'none'}", "--dry-run"]
    assert study.main([*words, "--workers=2", "--compile_cache="]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "8 runs of 2 programs; 0 done, 8 left." in printed
    assert "estimated, at 1.6e+10 operations a second of one CPU core" in printed
    assert not (tmp_path / "none").exists()


@pytest.mark.fast
@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_a_file_in_place_of_the_folder_is_told_in_one_line(tmp_path, more):
    file = tmp_path / "file"
    file.write_text("mine")
    words = [f"--config={TINY}", f"--workdir={file}", "--compile_cache="]
    with pytest.raises(StorageError, match="file.* Remove the file that is where"):
        study.main([*words, *more])


@pytest.mark.fast
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--shard=0/4"], "from 1 to N, as in 3/16, got '0/4'"),
        (["--shard=5/4"], "got '5/4'"),
        (["--workers=0"], "--workers must be above 0"),
        (["--members-at-once=0"], "--members-at-once must be above 0"),
        (["--sharb=1/2"], "no option '--sharb'.*--shard"),
    ],
)
def test_slips_on_the_command_line_are_refused(words, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        study.main([f"--config={TINY}", f"--workdir={tmp_path}", *words])


# Killed


def kill_and_go_on(folder, cache, moments, *, workers=1, more=()):
    """Starts `workers` processes, kills one after each moment, starts another.

    Returns after one of them has ended by itself with nothing left to do; meanwhile
    what was finished stays finished.
    """
    finished_at: dict[pathlib.Path, int] = {}
    start = lambda: study_process.start(TINY, folder, cache, *more)
    processes = [start() for _ in range(workers)]
    moments = iter(moments)
    end = time.monotonic() + 900
    try:
        while processes:
            moment = next(moments, None)
            processes[0].join(600 if moment is None else moment)
            assert time.monotonic() < end
            ended = processes[0].exitcode
            if ended is None:
                processes[0].kill()
                processes[0].join()
                processes = [*processes[1:], start()]
            else:
                assert ended == 0, folder.with_suffix(".log").read_text()[-2000:]
                processes = processes[1:]
            for mark, when in finished_at.items():
                assert mark.stat().st_mtime_ns == when
            marks = (folder / "done").glob("[!.]*.json")
            finished_at |= {mark: mark.stat().st_mtime_ns for mark in marks}
    finally:
        for process in processes:
            process.kill()
            process.join()


def test_a_study_killed_at_random_moments_gives_the_rows_of_the_whole(
    finished, tmp_path, compiled
):
    folder = tmp_path / "study"
    draw = random.Random(0)
    moments = [draw.uniform(1.0, 6.0) for _ in range(3)]
    kill_and_go_on(folder, compiled, moments)
    assert_like(folder, finished)
    assert len(list((folder / "done").iterdir())) == 8


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_two_workers_killed_again_and_again_give_the_rows_of_the_whole(
    finished, tmp_path, compiled, seed
):
    """Fifty kills, at moments from the first line of the program to its last."""
    folder = tmp_path / "study"
    draw = random.Random(seed)
    moments = [draw.uniform(0.0, 5.0) for _ in range(50)]
    kill_and_go_on(folder, compiled, moments, workers=2)
    assert_like(folder, finished)


def test_workers_of_one_command_share_the_work(finished, tmp_path, compiled, capsys):
    words = [f"--config={TINY}", f"--workdir={tmp_path}", "--workers=2"]
    assert study.main([*words, f"--compile_cache={compiled}"]) == 0
    assert "8 done, 0 running, 0 left" in capsys.readouterr().out
    assert_like(tmp_path, finished)
    logs = [path.read_text() for path in sorted((tmp_path / "logs").iterdir())]
    assert len(logs) == 2
    trained = [text.count(" 12/12 ") for text in logs]
    assert sum(trained) == 8
    assert workdir.read_config(next((tmp_path / "runs").iterdir())) is not None
