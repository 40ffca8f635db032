"""Fixed evaluation sets: the samplers' own examples, whole, hashed, without TensorFlow.

Fault: TFDS's parquet format loses rows in silence, so what is read back is compared
with what was drawn, row by row.
"""

import dataclasses
import hashlib
import io
import json
import pathlib
import shutil
import subprocess
import sys

import grain
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow_datasets as tfds
from rich.console import Console

from configs import base
from experiments.building.checks import Evaluation
from experiments.evaluate import evaluate_run
from experiments.evaluation_sets import __main__ as evaluation_sets
from experiments.evaluation_sets.asked import as_held
from experiments.evaluation_sets.builder import RopejaxEvaluation, make_set
from experiments.evaluation_sets.content import SetKey, content_hash, task_text
from experiments.evaluation_sets.read import held_lengths, read_set, read_sets
from experiments.results import store as results
from experiments.running.run import run_experiment
from experiments.running.storage import StorageError
from ropejax.positions import Consecutive
from ropejax.tasks import (
    ALL_TASKS,
    Autoregressive,
    EvenPairs,
    ModularArithmetic,
    ReverseString,
)

ROOT = pathlib.Path(__file__).parents[2]
QUIET = Console(quiet=True)
KEY = SetKey(ReverseString(), 5, 6, 1)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with the set of `KEY`; tests must not write there."""
    folder = tmp_path_factory.mktemp("sets")
    make_set(KEY, folder)
    return folder


def drawn(key, size):
    """What the evaluation draws: see `ropejax.evaluation.evaluate_length`."""
    rng = jax.random.fold_in(jax.random.key(key.seed), key.length)
    lengths = jnp.full((key.samples,), key.length)
    return key.task.sample(jax.random.split(rng)[0], lengths, max_length=size)


@pytest.mark.parametrize(
    ("key", "size"),
    [
        (KEY, 9),
        (SetKey(ModularArithmetic(modulus=3), 8, 4, 2), 8),
        (SetKey(ALL_TASKS["stack_manipulation"](), 5, 4, 1), 8),
        (SetKey(ALL_TASKS["masked_text"](), 9, 4, 1), 12),  # answers in place
    ],
)
def test_a_set_read_back_is_what_the_task_draws(key, size, tmp_path):
    make_set(key, tmp_path)
    found = read_set(key, tmp_path).batch(key.task, size)
    wanted = drawn(key, size)
    for name in wanted._fields:
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))
        assert getattr(found, name).dtype == getattr(wanted, name).dtype, name


def test_a_decoder_reads_the_answers_of_a_set_back(made):
    task = Autoregressive(KEY.task)
    found = read_set(KEY, made).batch(task, 5)
    np.testing.assert_array_equal(found.tokens, task.read_back(drawn(KEY, 5)).tokens)
    assert read_sets(task, [5], made, samples=6, seed=1)[5].key == KEY


def test_others_read_a_set_by_its_name_and_shuffle_it_with_grain(made):
    source = tfds.data_source(
        f"ropejax_evaluation/{KEY.name}", split="test", data_dir=made
    )
    assert len(source) == 6
    for row, wanted in zip(source, KEY.rows(), strict=True):
        for name in ("inputs", "targets", "scored"):
            np.testing.assert_array_equal(row[name], wanted[name])
            assert row[name].dtype == {"scored": np.bool_}.get(name, np.int32)
    loader = grain.MapDataset.source(source).seed(0).shuffle().batch(3)
    seen = np.concatenate([batch["inputs"] for batch in loader])
    rows = np.array([row["inputs"] for row in KEY.rows()])
    assert sorted(map(tuple, seen)) == sorted(map(tuple, rows))
    assert "tensorflow" not in sys.modules


def test_the_hash_is_of_the_content_and_follows_the_seed(made, tmp_path):
    make_set(KEY, tmp_path)
    hashes = [read_set(KEY, folder).sha256 for folder in (made, tmp_path)]
    assert hashes[0] == hashes[1]
    recorded = json.loads((KEY.folder(made) / "metadata.json").read_text())
    assert recorded["sha256"] == hashes[0]
    assert (recorded["task"], recorded["length"]) == ("reverse_string", 5)
    other = SetKey(KEY.task, 5, 6, 2)
    assert content_hash(other.rows()) != hashes[0]
    assert content_hash(KEY.rows()) == hashes[0]


def test_the_hash_is_as_documented():
    row = {"inputs": [1, 0, 2], "targets": [5], "scored": [True]}
    wanted = hashlib.sha256(
        b"\3"
        + bytes(7)
        + b"\1"
        + bytes(7)
        + b"\1\0\0\0"
        + b"\0\0\0\0"
        + b"\2\0\0\0"
        + b"\5\0\0\0"
        + b"\1"
    )
    assert content_hash([row]) == wanted.hexdigest()


def test_sets_of_more_rows_than_are_drawn_at_once_are_whole(monkeypatch):
    few = [row["inputs"] for row in KEY.rows()]
    monkeypatch.setattr("experiments.evaluation_sets.content.ROWS_AT_ONCE", 4)
    np.testing.assert_array_equal([row["inputs"] for row in KEY.rows()], few)


def test_an_interrupted_write_leaves_nothing_and_is_done_again(tmp_path, monkeypatch):
    whole = KEY.folder(tmp_path)

    def stopped(self):
        for at, row in enumerate(KEY.rows()):
            if at == 3:
                raise KeyboardInterrupt
            yield at, row

    with monkeypatch.context() as patch:
        patch.setattr(RopejaxEvaluation, "_generate_examples", stopped)
        with pytest.raises(KeyboardInterrupt):
            make_set(KEY, tmp_path)
    assert not whole.exists()
    killed = whole.with_name("1.0.0.incompleteABC")  # as after kill -9
    killed.mkdir(parents=True)
    assert make_set(KEY, tmp_path) == whole
    assert [path.name for path in whole.parent.iterdir()] == ["1.0.0"]
    before = whole.stat().st_mtime_ns
    make_set(KEY, tmp_path)
    assert whole.stat().st_mtime_ns == before


def flip(path, at):
    content = bytearray(path.read_bytes())
    content[at] ^= 255
    path.write_bytes(content)


def test_damage_is_found_and_the_remedy_named(tmp_path):
    folder = make_set(KEY, tmp_path)
    (records,) = folder.glob("*.array_record*")
    again = "Delete that folder.*python -m experiments.evaluation_sets"
    whole = records.read_bytes()
    flip(records, len(whole) // 2)
    with pytest.raises(ValueError, match=f"cannot be read.*{again}"):
        read_set(KEY, tmp_path)
    records.write_bytes(whole)
    other = SetKey(KEY.task, 5, 6, 9)
    (foreign,) = make_set(other, tmp_path).glob("*.array_record*")
    records.write_bytes(foreign.read_bytes())
    with pytest.raises(ValueError, match=f"has the hash .*{again}"):
        read_set(KEY, tmp_path)
    with pytest.raises(ValueError, match="damaged"):
        evaluation_sets.make_sets("reverse_string", [5], tmp_path, samples=6)


def test_missing_sets_are_refused_with_the_command_that_makes_them(made):
    task = ModularArithmetic(modulus=3)
    with pytest.raises(ValueError, match="lacks 4 of 4") as error:
        read_sets(task, [4, 6, 7, 8], made, samples=6, seed=3)
    line = str(error.value).split("make them by: ")[1]
    assert line == (
        "python -m experiments.evaluation_sets "
        "--tasks='modular_arithmetic(modulus=3)' --lengths=4,6:8 --samples=6 --seed=3 "
        f"--data-dir={made}"
    )


@pytest.mark.fast
def test_a_folder_of_the_name_that_holds_another_task_is_told(made, tmp_path):
    """Names of folders lack signs, and two files may differ in those alone."""
    shutil.copytree(made, tmp_path / "sets")
    about = KEY.folder(tmp_path / "sets") / "metadata.json"
    there = json.loads(about.read_text()) | {"task": "reverse_string(vocab_size=-2)"}
    about.write_text(json.dumps(there))
    said = r"holds examples of reverse_string\(vocab_size=-2\), not of reverse_string,"
    with pytest.raises(ValueError, match=said):
        read_set(KEY, tmp_path / "sets")
    del there["task"]  # of an earlier version
    about.write_text(json.dumps(there))
    assert read_set(KEY, tmp_path / "sets").key == KEY


def test_tasks_are_read_with_their_settings_and_named_without_defaults():
    text = "even_pairs,modular_arithmetic(modulus=3),modular_arithmetic(modulus=5)"
    tasks = evaluation_sets.parse_tasks(text)
    assert tasks == [EvenPairs(), ModularArithmetic(modulus=3), ModularArithmetic()]
    assert [task_text(task) for task in tasks] == [
        "even_pairs",
        "modular_arithmetic(modulus=3)",
        "modular_arithmetic",
    ]
    assert len(evaluation_sets.parse_tasks("all")) == len(ALL_TASKS)
    names = {SetKey(task, 8, 4, 1).name for task in tasks}
    assert len(names) == 3
    with pytest.raises(ValueError, match="Did you mean 'even_pairs'"):
        evaluation_sets.parse_tasks("even_pars")


def tiny():
    config = base.get_config()
    config.update_from_flattened_dict(
        {
            "task.name": "reverse_string",
            "positions.name": "randomized",
            "positions.options": "max_position=32, per_sequence=True",
            "model.num_layers": 1,
            "model.embed_dim": 8,
            "model.num_heads": 2,
            "train.steps": 2,
            "train.batch_size": 2,
            "train.max_length": 4,
            "train.buckets": 1,
            "eval.lengths": "3,5",
            "eval.samples": 6,
            "eval.draws": 2,
        }
    )
    return config


def test_a_run_scores_the_same_on_sets_as_on_fresh_examples_and_rows_say_which(
    tmp_path,
):
    run, sets = tmp_path / "run", tmp_path / "sets"
    fresh = run_experiment(tiny(), run, console=QUIET, summary=False)
    assert results.read(run)["set_hash"].to_pylist() == [None, None]
    with pytest.raises(ValueError, match=r"--lengths=3,5 --samples=6 --seed=1"):
        evaluate_run(run, sets=sets, console=QUIET)
    text = io.StringIO()
    hashes = evaluation_sets.make_sets(
        "reverse_string", [3, 5], sets, samples=6, console=Console(file=text)
    )
    assert all(sha256 in text.getvalue() for sha256 in hashes.values())
    assert evaluate_run(run, sets=sets, console=QUIET) == fresh
    rows = results.read(run).to_pylist()
    assert {row["length"]: row["set_hash"] for row in rows} == {
        3: hashes["reverse_string-length_3-samples_6-seed_1"],
        5: hashes["reverse_string-length_5-samples_6-seed_1"],
    }
    # A further length, too, is scored without being asked for.
    evaluation_sets.make_sets("reverse_string", [4], sets, samples=6, console=QUIET)
    assert list(evaluate_run(run, sets=sets, console=QUIET)) == [3, 4, 5]
    # Another seed's examples score otherwise: the sets are what is scored.
    evaluation_sets.make_sets(
        "reverse_string", [3, 5], sets, samples=6, seed=2, console=QUIET
    )
    other = evaluate_run(run, sets=sets, changes={"seed": 2}, console=QUIET)
    assert {one.loss for one in other.values()}.isdisjoint(
        one.loss for one in fresh.values()
    )


class Held:
    """Sets by name alone, for what is chosen before they are read."""

    def __init__(self, folder, *keys):
        self.folder = folder
        for key in keys:
            key.folder(folder).mkdir(parents=True)

    def chosen(self, changes, lengths_text=None):
        asked = Evaluation(Consecutive(), (3, 5), samples=6, draws=4, seed=1)
        asked = dataclasses.replace(asked, **changes)
        return as_held(KEY.task, asked, self.folder, lengths_text, changes)


def test_what_is_not_given_is_as_the_sets_are(tmp_path):
    key = lambda length, samples, seed, task=KEY.task: SetKey(
        task, length, samples, seed
    )
    held = Held(tmp_path, key(7, 10, 1), key(9, 10, 1), key(5, 9, 1, EvenPairs()))
    assert held_lengths(Autoregressive(KEY.task), tmp_path) == {(10, 1): (7, 9)}
    found = held.chosen({})
    assert (found.lengths, found.samples, found.seed) == ((7, 9), 10, 1)
    assert found.draws == 2  # as many as divide the samples
    assert held.chosen({}, lengths_text="3,5").lengths == (3, 5)
    assert held.chosen({"draws": 5}).draws == 5
    # What is asked for and not there is left to the refusal that says how to make it.
    assert held.chosen({"seed": 2}).lengths == (3, 5)
    several = Held(tmp_path, key(7, 12, 1))
    with pytest.raises(ValueError, match="--samples=10 --seed=1, --samples=12 --seed"):
        several.chosen({})
    assert several.chosen({"samples": 12}).lengths == (7,)
    own = Held(tmp_path, key(8, 6, 1))
    assert (own.chosen({}).lengths, own.chosen({}).samples) == ((8,), 6)


@pytest.mark.slow
def test_the_command_makes_sets_in_a_process_of_its_own(tmp_path):
    line = "-m experiments.evaluation_sets --tasks=even_pairs --lengths=4 --samples=3"
    done = subprocess.run(
        [sys.executable, *line.split(), f"--data-dir={tmp_path}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    sha256 = read_set(SetKey(EvenPairs(), 4, 3, 1), tmp_path).sha256
    assert sha256 in done.stdout


@pytest.mark.fast
def test_a_file_in_place_of_the_folder_is_told_in_one_line(tmp_path):
    (tmp_path / "sets").write_text("mine")
    words = ["--tasks=even_pairs", "--lengths=4", "--samples=2", "--compile_cache="]
    with pytest.raises(StorageError, match=r"sets cannot be .* Remove the file that"):
        evaluation_sets.main([*words, f"--data-dir={tmp_path / 'sets'}"])


@pytest.mark.fast
@pytest.mark.parametrize("seed", [-1, 2**31, 2**32 + 1])
def test_a_seed_that_would_repeat_another_is_refused(seed, tmp_path):
    with pytest.raises(ValueError, match=f"seed must be in 0 .. 2147483647.*{seed}"):
        evaluation_sets.make_sets("even_pairs", [4], tmp_path, samples=2, seed=seed)
