"""A run from start to end: stopped, killed, resumed, extended, scored, recorded."""

import dataclasses
import io
import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import time

import jax
import numpy as np
import pytest
from rich.console import Console
from tensorboardX.proto.event_pb2 import Event

from configs import base
from experiments import main as main_module
from experiments.building import overrides
from experiments.building.build import build
from experiments.evaluate import evaluate_run
from experiments.results import store as results
from experiments.running import run as run_module
from experiments.running import workdir
from experiments.running.curves import Curves
from experiments.running.interrupt import StoppedError
from experiments.running.opening import open_run
from experiments.running.run import run_experiment
from experiments.running.storage import StorageError
from ropejax.evaluation import evaluate
from ropejax.positions import Consecutive, EvenlySpaced
from ropejax.training.checkpoint import Checkpoints, CheckpointWarning
from tests.compiled_programs import kept_in

ROOT = pathlib.Path(__file__).parents[2]
TINY = {
    "task.name": "reverse_string",
    "positions.name": "randomized",
    "positions.options": "max_position=64",
    "model.num_layers": 2,
    "model.embed_dim": 8,
    "model.num_heads": 2,
    "model.dropout": 0.5,
    "optim.learning_rate": 1e-2,
    "train.steps": 20,
    "train.batch_size": 4,
    "train.max_length": 4,
    "train.buckets": 1,
    "train.steps_per_dispatch": 4,
    "train.log_every": 5,
    "train.save_every": 10,
    "eval.lengths": "1:8",
    "eval.samples": 8,
    "eval.draws": 2,
}
QUIET = Console(quiet=True)


def tiny(**changes):
    """The smallest config, with fields changed: `train__steps=30`."""
    config = base.get_config()
    named = {name.replace("__", "."): value for name, value in changes.items()}
    config.update_from_flattened_dict(TINY | named)
    return config


@pytest.fixture(scope="module", autouse=True)
def compiled(tmp_path_factory):
    """Compiled programs are kept, since every run makes its own."""
    with kept_in(tmp_path_factory.mktemp("compiled")) as folder:
        yield folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Folder and scores of an uninterrupted run; tests must not write there."""
    folder = tmp_path_factory.mktemp("finished")
    return folder, run_experiment(tiny(), folder, console=QUIET)


def command_words(folder, compiled) -> list[str]:
    """The command, after `python`, that trains the tiny config in a folder."""
    return [
        *("-m", "experiments.main", f"--workdir={folder}"),
        *(f"--config={ROOT / 'configs' / 'base.py'}", f"--compile_cache={compiled}"),
        *(f"--config.{name}={value}" for name, value in TINY.items()),
    ]


def numbers(folder: pathlib.Path) -> list[bytes]:
    """Every parameter and optimizer state of a run's newest checkpoint, as bytes."""
    _, state = open_run(folder)
    leaves = jax.tree.leaves((state.step, state.params, state.opt_state))
    return [np.asarray(leaf).tobytes() for leaf in leaves]


def curve(folder: pathlib.Path) -> list[tuple]:
    """What was written of training, but for times."""
    names = ("step", "loss", "accuracy", "grad_norm", "mean_length")
    return [
        tuple(row[name] for name in names)
        for row in sorted(
            results.read(folder, "training").to_pylist(), key=lambda row: row["step"]
        )
    ]


def events(file: pathlib.Path) -> list[Event]:
    """What is in one of TensorBoard's files."""
    found, data = [], file.read_bytes()
    while data:  # length, its checksum, an event, its checksum
        (size,) = struct.unpack("<Q", data[:8])
        found.append(Event.FromString(data[12 : 12 + size]))
        data = data[16 + size :]
    return found


def points(folder: pathlib.Path) -> dict[int, float]:
    """The loss in TensorBoard's files, by step."""
    found = {}
    for file in sorted((folder / "tensorboard").iterdir()):
        for event in events(file):
            for value in event.summary.value:
                if value.tag == "train/loss":
                    found[event.step] = value.simple_value
    return found


def rounded(scores):
    """Scores without the last digits of the loss, which other shapes change."""
    return {n: score._replace(loss=round(score.loss, 4)) for n, score in scores.items()}


# A whole run


@pytest.mark.fast
def test_a_run_writes_down_config_curve_and_scores(finished):
    folder, scores = finished
    assert sorted(scores) == list(range(1, 9))
    assert json.loads((folder / "config.json").read_text()) == workdir.plain(tiny())
    assert [row[0] for row in curve(folder)] == [5, 10, 15, 20]
    losses = points(folder)
    for step, loss, *_ in curve(folder):
        assert losses[step] == pytest.approx(loss, rel=1e-6)
    assert Checkpoints(folder / "checkpoints", read_only=True).steps() == [10, 20]
    (row,) = results.read(folder, "run").to_pylist()
    assert json.loads(row["config"]) == workdir.plain(tiny())
    assert json.loads(row["versions"])["jax"] == jax.__version__
    assert "cpu" in row["device"]
    assert row["run_id"].startswith("reverse_string-rope-randomized-seed0-")


@pytest.mark.fast
def test_rows_hold_what_was_counted(finished):
    folder, scores = finished
    rows = {row["length"]: row for row in results.read(folder).to_pylist()}
    assert sorted(rows) == sorted(scores)
    for length, score in scores.items():
        row = rows[length]
        assert (row["correct"], row["tokens"]) == (score.correct, score.scored)
        assert (row["exact"], row["rows"]) == (score.exact, 8)
        assert row["accuracy"] == score.accuracy
        assert row["input_blind"] == score.input_blind
        assert (row["step"], row["seed"]) == (20, 0)
        assert (row["train_max_length"], row["test_max_length"]) == (4, 8)
        assert row["position_draws"] == 2
        assert row["task_title"] == "Reverse String"
        assert row["positions"] == "randomized(max_position=64)"


def test_scores_are_those_of_the_library_called_directly(finished):
    folder, scores = finished
    run, state = open_run(folder)
    recipe = run.experiment.recipe
    direct = evaluate(
        recipe.model,
        state.params,
        recipe.task,
        recipe.positions,
        [3, 7],
        samples=8,
        draws=2,
        seed=1,
    )
    assert rounded(direct) == rounded({length: scores[length] for length in (3, 7)})


def test_the_summary_names_the_input_blind_baseline(tmp_path):
    console = Console(record=True, width=100, file=io.StringIO())
    run_experiment(tiny(train__steps=4), tmp_path, console=console)
    printed = console.export_text()
    assert "input-blind" in printed
    assert "RoPE, randomized" in printed
    assert "train 4/4" in printed
    assert "steps/s" in printed


def test_the_same_command_again_does_nothing_anew(finished, monkeypatch):
    folder, scores = finished
    lines = len(results.read(folder, latest=False))
    monkeypatch.setattr("experiments.running.scoring.evaluate", None)
    again = run_experiment(tiny(), folder, console=QUIET)
    assert rounded(again) == rounded(scores)
    assert len(results.read(folder, latest=False)) == lines


def test_more_lengths_are_scored_without_the_ones_already_known(tmp_path, monkeypatch):
    run_experiment(tiny(eval__lengths="1:3"), tmp_path, console=QUIET)
    asked = []
    real = evaluate

    def watched(*arguments, **settings):
        asked.extend(arguments[4])
        return real(*arguments, **settings)

    monkeypatch.setattr("experiments.running.scoring.evaluate", watched)
    scores = run_experiment(tiny(eval__lengths="2:5"), tmp_path, console=QUIET)
    assert asked == [4, 5]
    assert list(scores) == [2, 3, 4, 5]


# Going on


def test_more_steps_extend_a_finished_run(finished, tmp_path):
    folder, _ = finished
    run_experiment(tiny(train__steps=10), tmp_path, console=QUIET)
    run_experiment(tiny(), tmp_path, console=QUIET)
    assert numbers(tmp_path) == numbers(folder)
    assert curve(tmp_path) == curve(folder)
    assert {row["step"] for row in results.read(tmp_path).to_pylist()} == {10, 20}


def test_a_run_goes_on_by_its_folder_alone(finished):
    """Without --config, and with what is to be changed, as for one that is given."""
    folder, _ = finished
    held = main_module._config_of_run(folder)
    assert workdir.plain(held) == workdir.plain(tiny())
    texts = ["--config.train.steps=40", "--config.train.length_seed=3"]
    changed = workdir.plain(overrides.changed(held, texts))
    assert changed == workdir.plain(tiny(train__steps=40, train__length_seed=3))


def test_a_run_shorter_than_a_point_of_the_curve_has_one(tmp_path):
    short = tiny(train__steps=4, train__log_every=100, train__save_every=4)
    run_experiment(short, tmp_path, console=QUIET)
    assert [step for step, *_ in curve(tmp_path)] == [4]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_saves_and_resumes_to_the_same_end(
    finished, tmp_path, monkeypatch, number
):
    folder, scores = finished
    add = Curves.add

    def stop(self, progress):
        if progress.step == 4:
            os.kill(os.getpid(), number)
        return add(self, progress)

    before = signal.getsignal(number)
    monkeypatch.setattr(Curves, "add", stop)
    with pytest.raises(StoppedError, match="stopped at step 4 of 20") as stopped:
        run_experiment(tiny(), tmp_path, console=QUIET)
    assert stopped.value.code == {signal.SIGINT: 130, signal.SIGTERM: 75}[number]
    assert signal.getsignal(number) is before
    assert Checkpoints(tmp_path / "checkpoints", read_only=True).steps() == [4]
    monkeypatch.undo()
    resumed = run_experiment(tiny(), tmp_path, console=QUIET)
    assert numbers(tmp_path) == numbers(folder)
    assert curve(tmp_path) == curve(folder)  # a point of 5 steps, stopped after 4
    assert rounded(resumed) == rounded(scores)


def test_a_run_stopped_while_it_saves_its_last_state_is_not_scored(
    tmp_path, monkeypatch
):
    """SIGTERM after the last dispatch: it was forgotten, and all lengths scored."""
    save = Checkpoints.save

    def stop(self, state, metrics):
        save(self, state, metrics)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Checkpoints, "save", stop)
    with pytest.raises(StoppedError, match="stopped at step 4 of 4, all saved") as end:
        run_experiment(tiny(train__steps=4), tmp_path, console=QUIET)
    assert end.value.code == 75
    assert Checkpoints(tmp_path / "checkpoints", read_only=True).steps() == [4]
    assert len(results.read(tmp_path)) == 0


def test_a_run_says_from_where_it_goes_on(copied):
    """After a damaged checkpoint is known to be one, not before."""
    (copied / "checkpoints" / "20" / "about" / "metadata").write_text("")
    console = Console(record=True, width=200, file=io.StringIO())
    with pytest.warns(CheckpointWarning, match="20 is damaged"):
        run_experiment(tiny(), copied, console=console)
    shown = console.export_text()
    assert "resuming at step 10 of 20" in shown
    assert "already trained" not in shown
    *_, newest = sorted((copied / "tensorboard").iterdir())
    purged = [one.step for one in events(newest) if one.HasField("session_log")]
    assert purged == [11]


def test_scoring_that_is_terminated_asks_to_be_started_again(copied, compiled):
    """What was scored stays, and is not scored again."""
    begun = [sys.executable, *command_words(copied, compiled)]
    fields = {"positions": "consecutive", "lengths": "1:400", "buckets": "400"}
    begun += [f"--config.eval.{name}={value}" for name, value in fields.items()]
    named = lambda: results.read(copied)["test_positions"].to_pylist()
    scored = lambda: named().count("consecutive")
    process = subprocess.Popen(
        begun, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    end = time.monotonic() + 200
    while scored() < 10:
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.1)
    process.terminate()
    _, said = process.communicate(timeout=60)
    assert process.returncode == 75
    assert said == "stopped by SIGTERM; the same command goes on from there.\n"
    assert 10 <= scored() < 400


def test_a_killed_command_resumes_to_the_same_end(finished, tmp_path, compiled):
    """`kill -9` once the first checkpoint is there; the rows it wrote stay."""
    folder, scores = finished
    command = [sys.executable, *command_words(tmp_path, compiled)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    end = time.monotonic() + 200
    while not (tmp_path / "checkpoints" / "10").exists():
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.005)
    process.kill()
    process.wait()
    resumed = run_experiment(tiny(), tmp_path, console=QUIET)
    assert numbers(tmp_path) == numbers(folder)
    assert curve(tmp_path) == curve(folder)
    assert rounded(resumed) == rounded(scores)


# One folder, one run


def test_a_folder_of_another_config_is_refused_and_left_alone(finished):
    folder, _ = finished
    files = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    other = tiny(optim__learning_rate=0.5, model__num_layers=1)
    with pytest.raises(ValueError, match="holds a run of another config") as refused:
        run_experiment(other, folder, console=QUIET)
    message = str(refused.value)
    assert "model.num_layers is 2 there and 1 here" in message
    assert "optim.learning_rate is 0.01 there and 0.5 here" in message
    assert "train." not in message
    with pytest.raises(ValueError, match=r"train.steps=19 is below the 20 there"):
        run_experiment(tiny(train__steps=19), folder, console=QUIET)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == files


def test_without_config_json_the_checkpoints_say_whose_folder_it_is(copied):
    (copied / "config.json").unlink()
    files = {path: path.stat().st_mtime_ns for path in copied.rglob("*")}
    with pytest.raises(ValueError, match="train.seed is 0 there and 1 here"):
        run_experiment(tiny(train__seed=1), copied, console=QUIET)
    assert {path: path.stat().st_mtime_ns for path in copied.rglob("*")} == files
    workdir.check_same(copied, workdir.plain(tiny()))  # the rightful command goes on


def test_a_trace_of_a_finished_run_is_refused_and_nothing_is_written(copied):
    files = {path: path.stat().st_mtime_ns for path in copied.rglob("*")}
    with pytest.raises(ValueError, match="already trained to 20 steps"):
        run_experiment(tiny(), copied, console=QUIET, profile=4)
    longer = tiny(train__steps=24)
    with pytest.raises(ValueError, match="the 4 steps that are left are one dispatch"):
        run_experiment(longer, copied, console=QUIET, profile=4)
    assert {path: path.stat().st_mtime_ns for path in copied.rglob("*")} == files


def test_a_trace_that_cannot_be_written_is_told_before_training(tmp_path, monkeypatch):
    """It was found out at the end, and the workdir was blamed for it."""
    monkeypatch.setattr(run_module, "train_run", None)
    (tmp_path / "profile").write_text("")
    told = rf"^{tmp_path}/profile cannot be written \(File exists\)\. Remove the file"
    with pytest.raises(StorageError, match=told):
        run_experiment(tiny(), tmp_path, console=QUIET, profile=4)


def test_two_processes_cannot_train_in_one_folder(tmp_path):
    with (
        workdir.locked(tmp_path),
        pytest.raises(ValueError, match="another process is training in"),
    ):
        run_experiment(tiny(), tmp_path, console=QUIET)


def test_a_bad_config_leaves_no_folder(tmp_path):
    with pytest.raises(ValueError, match="task.name"):
        run_experiment(tiny(task__name="x"), tmp_path / "new", console=QUIET)
    assert not (tmp_path / "new").exists()


def test_only_what_alters_training_alters_the_run_id():
    one, *others = (
        workdir.config_hash(workdir.plain(config))
        for config in (
            tiny(),
            tiny(train__steps=99, eval__lengths="5", study="x", positions__title="y"),
            tiny(train__seed=1),
            tiny(optim__b2=0.98),
        )
    )
    assert others[0] == one
    assert len({one, *others}) == 3


# Scoring a finished run


@pytest.fixture
def copied(finished, tmp_path):
    """A finished run that a test may write to."""
    folder = tmp_path / "run"
    subprocess.run(["cp", "-r", finished[0], folder], check=True)
    return folder


def test_lengths_include_both_ends_and_a_bar_says_what_is_compiled(copied, monkeypatch):
    shown = []
    show = lambda bar, done, figures="": shown.append((done, figures.split("  ")[0]))
    monkeypatch.setattr("experiments.running.progress.Bar.show", show)
    scores = evaluate_run(copied, lengths_text="7:10", console=QUIET)
    assert list(scores) == [7, 8, 9, 10]
    (before,) = (at for at, one in enumerate(shown) if one[1].startswith("compiling"))
    done, said = shown[before]
    assert said == "compiling for lengths to 10"
    assert shown[before + 1] == (done + 1, f"length {7 + done}")
    assert {row["length"] for row in results.read(copied).to_pylist()} == set(
        range(1, 11)
    )


def test_a_run_is_scored_by_place_once_and_says_where_it_fails(copied, monkeypatch):
    console = Console(record=True, width=200, file=io.StringIO())
    ask = {"lengths_text": "8,9", "by_place": True}
    scores = evaluate_run(copied, console=console, **ask)
    said = console.export_text()
    assert "Reverse String by place in the answer" in said
    assert "Reverse String by eighths of the answer" in said
    # Length 8, scored before without places, is scored again, to the same counts.
    before, after = (
        row["correct"]
        for row in results.read(copied, latest=False).to_pylist()
        if row["length"] == 8
    )
    assert before == after == scores[8].places.correct.sum()
    # What is there is not scored again, and comes back as it was.
    monkeypatch.setattr("experiments.running.scoring.evaluate", None)
    again = evaluate_run(copied, console=QUIET, **ask)
    assert rounded(again) == rounded(scores)
    plain = evaluate_run(copied, lengths_text="8:9", console=QUIET)
    assert rounded(plain) == {
        n: score._replace(places=None) for n, score in rounded(scores).items()
    }


def test_positions_encoding_and_model_may_change_at_test_time(copied):
    run, state = open_run(copied)
    recipe = run.experiment.recipe
    even = evaluate_run(
        copied,
        lengths_text="6",
        positions="evenly_spaced(max_position=64)",
        encoding_options="max_wavelength=500",
        fields={"model.loops": 2},
        changes={"samples": 4, "draws": 1, "seed": 5},
        console=QUIET,
    )
    pattern = tuple(
        kind._replace(encoding=type(kind.encoding)(max_wavelength=500))
        for kind in recipe.model.pattern
    )
    wanted = evaluate(
        dataclasses.replace(recipe.model, pattern=pattern, loops=2),
        state.params,
        recipe.task,
        EvenlySpaced(max_position=64),
        [6],
        samples=4,
        draws=1,
        seed=5,
    )
    assert rounded(even) == rounded(wanted)
    rows = results.read(copied).to_pylist()
    labels = {(row["test_positions"], row["test_encoding"]) for row in rows}
    trained = "randomized(max_position=64)", "rope"
    assert labels == {
        trained,
        ("evenly_spaced(max_position=64)", "rope(max_wavelength=500, loops=2)"),
    }


def test_the_configs_own_test_positions_are_used(tmp_path):
    config = tiny(train__steps=4, eval__positions="consecutive", eval__lengths="5")
    assert build(config).evaluation.positions == Consecutive()
    run_experiment(config, tmp_path, console=QUIET)
    (row,) = results.read(tmp_path).to_pylist()
    assert row["test_positions"] == "consecutive"
    assert row["positions"] == "randomized(max_position=64)"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"lengths_text": "40"},
            "80 tokens: Rows of 80 tokens do not fit max_position=64",
        ),
        ({"positions": "evenly"}, "--positions='evenly' is unknown. .*'evenly_spaced'"),
        (
            {"positions": "shifted(ofset=2)"},
            "no setting 'ofset'. Did you mean 'offset'",
        ),
        ({"encoding_options": "trainable=layer"}, "what was trained are not those"),
        (
            {"encoding_options": "layuot=half"},
            "no setting 'layuot'. Did you mean 'layout",
        ),
        ({"changes": {"draws": 3}}, "draws=3 must divide eval.samples=8"),
    ],
)
def test_what_cannot_be_scored_is_refused(finished, settings, message):
    with pytest.raises(ValueError, match=message):
        evaluate_run(finished[0], **settings, console=QUIET)


def test_a_folder_without_a_run_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"holds no run \(no config.json\)"):
        evaluate_run(tmp_path, console=QUIET)


def test_nothing_of_the_library_is_needed_but_plain_objects():
    """The notebook form in the docstring of experiments/running/run.py is complete."""
    assert "run_experiment(config," in run_module.__doc__
