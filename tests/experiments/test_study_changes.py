"""A study whose folder holds runs of other settings says so before it begins any."""

import json
import pathlib

import pytest

from experiments.running import workdir
from experiments.study import __main__ as study
from experiments.study import changes, sweep
from experiments.study.folder import StudyFolder
from experiments.study.sweep import expand
from experiments.study.work import Counts
from tests.experiments import tiny_study

TINY = str(pathlib.Path(__file__).parent / "tiny_study.py")


def runs_with(**changed):
    config = tiny_study.get_config()
    named = {name.replace("__", "."): value for name, value in changed.items()}
    config.update_from_flattened_dict(named)
    return expand(config, tiny_study.get_sweep())[0]


def began(path, runs):
    """A folder in which runs were begun."""
    folder = StudyFolder(path)
    for run in runs:
        folder.run(run.run_id).mkdir(parents=True)
        workdir.write_config(folder.run(run.run_id), run.config)
    folder.begin("tiny", "python ...", [run.run_id for run in runs])
    return folder


@pytest.fixture
def trained(monkeypatch):
    """Nothing is trained; the workers that would have, by number of runs."""
    found = []

    class Idle:
        def __init__(self, folder, runs, how, console):
            found.append(len(runs))

        def work(self):
            return Counts(done=0, running=1, failed=0, left=0, seconds=0.0)

    monkeypatch.setattr("experiments.study.work.Worker", Idle)
    return found


def test_runs_that_are_the_studys_are_none_of_others(tmp_path):
    runs = runs_with()
    folder = began(tmp_path, runs[:3])
    assert changes.others(folder, runs) is None
    # What alters no training is no other run.
    assert changes.others(folder, runs_with(train__steps=99, eval__samples=16)) is None


def test_differing_fields_are_those_to_the_run_most_like(tmp_path):
    folder = began(tmp_path, runs_with(train__batch_size=2, model__dropout=0.5))
    found = changes.others(folder, runs_with())
    assert (found.count, found.begins) == (8, 8)
    assert found.fields == {"train.batch_size": (2, 4), "model.dropout": (0.5, 0.0)}
    assert "train.batch_size is 2 there and 4 here" in str(found)


def test_a_changed_study_is_refused_unless_both_are_wanted(tmp_path, trained, capsys):
    began(tmp_path, runs_with(train__batch_size=2))
    words = [f"--config={TINY}", f"--workdir={tmp_path}", "--compile_cache="]
    with pytest.raises(ValueError, match="batch_size is 2 there and 4 here.*--extend"):
        study.main(words)
    assert trained == []
    assert study.main([*words, "--extend"]) == 0
    assert trained == [8]
    assert "also holds 8 runs" in " ".join(capsys.readouterr().out.split())


def test_a_part_of_a_study_is_gone_on_with(tmp_path, trained, capsys):
    """Its other runs are named, and nothing is refused: no run is begun."""
    runs, _ = sweep.load(TINY)
    began(tmp_path, runs)
    words = [f"--config={TINY}:tasks=1", f"--workdir={tmp_path}", "--compile_cache="]
    assert study.main(words) == 0
    assert trained == [4]
    printed = " ".join(capsys.readouterr().out.split())
    assert (
        "4 runs that this study does not have: task.name is 'parity_check'" in printed
    )


def test_a_larger_study_goes_on_without_a_word(tmp_path, trained, capsys):
    runs, _ = sweep.load(TINY)
    began(tmp_path, runs)
    words = [f"--config={TINY}:seeds=3", f"--workdir={tmp_path}", "--compile_cache="]
    assert study.main(words) == 0
    assert trained == [12]
    assert "also holds" not in capsys.readouterr().out


def test_runs_of_an_earlier_version_are_not_others(tmp_path):
    """Fields that were added since make no difference."""
    runs = runs_with()
    folder = began(tmp_path, runs)
    for run in runs:
        path = folder.run(run.run_id) / "config.json"
        config = json.loads(path.read_text())
        del config["train"]["progressive_weight"], config["train"]["gradient_loops"]
        path.write_text(json.dumps(config))
    assert changes.others(folder, runs) is None


@pytest.mark.parametrize(("fraction", "told"), [(0.0, True), (1.0, False)])
def test_a_longer_training_under_a_decaying_rate_is_said_to_be_another(
    tmp_path, trained, capsys, fraction, told
):
    began(tmp_path, runs_with(optim__final_fraction=fraction)[:3])
    words = [f"--config={TINY}", f"--workdir={tmp_path}", "--compile_cache="]
    words.append(f"--config.optim.final_fraction={fraction}")
    study.main([*words, "--config.train.steps=99"])
    printed = " ".join(capsys.readouterr().out.split())
    said = (
        "3 runs are extended: the learning rate decays over train.steps, which was 12"
    )
    assert (f"note: {said} and is now 99" in printed) is told
    study.main(words)
    assert "note:" not in capsys.readouterr().out


def test_a_damaged_mark_is_none_and_a_damaged_study_is_named(tmp_path):
    folder, runs = StudyFolder(tmp_path), runs_with()
    for run in runs[:2]:
        folder.finish(run, {"step_s": 1.0})
    for text in ("", "{", "[]", "{}"):
        (tmp_path / "done" / f"{runs[0].run_id}.json").write_text(text)
        fresh = StudyFolder(tmp_path)
        assert [fresh.is_finished(run) for run in runs[:2]] == [False, True]
        assert list(fresh.costs()) == [runs[1].run_id]
        (tmp_path / "study.json").write_text(text)
        with pytest.raises(ValueError, match=r"study\.json cannot be read; remove it"):
            folder.check("tiny")


def test_the_order_of_the_sweep_is_kept_up_to_date(tmp_path):
    folder = StudyFolder(tmp_path)
    for order in (["b", "a"], ["b", "c", "a"]):
        folder.begin("tiny", "python ...", order)
        there = json.loads((tmp_path / "study.json").read_text())
        assert (there["order"], there["runs"]) == (order, len(order))
    before = (tmp_path / "study.json").stat().st_mtime_ns
    folder.begin("tiny", "python other", order)
    assert (tmp_path / "study.json").stat().st_mtime_ns == before


def test_failures_of_runs_that_the_study_no_longer_has_are_not_listed(
    tmp_path, monkeypatch, capsys
):
    runs = runs_with()
    folder = StudyFolder(tmp_path)
    folder.fail(runs[0].run_id, "broken")
    folder.fail("even_pairs-rope-randomized-seed0-00000000", "of an earlier file")
    (tmp_path / "done").mkdir()

    class Failed:
        def __init__(self, folder, runs, how, console):
            pass

        def work(self):
            return Counts(done=7, running=0, failed=1, left=0, seconds=0.0)

    monkeypatch.setattr("experiments.study.work.Worker", Failed)
    assert (
        study.main([f"--config={TINY}", f"--workdir={tmp_path}", "--compile_cache="])
        == 1
    )
    printed = "".join(capsys.readouterr().out.split())
    assert printed.count("failed:see") == 1
    assert f"{runs[0].run_id}.txt;--retry" in printed


@pytest.mark.parametrize("more", [[], ["--dry-run"], ["--workers=2"]])
def test_missing_sets_are_told_before_anything_is_trained(tmp_path, trained, more):
    words = [f"--config={TINY}", f"--workdir={tmp_path / 'study'}", *more]
    message = r"lacks 3 of 3 evaluation sets, such as even_pairs.*\n1 more tasks lack"
    with pytest.raises(ValueError, match=message):
        study.main([*words, f"--sets={tmp_path}", "--compile_cache="])
    assert not trained
    assert not (tmp_path / "study").exists()
