"""A resumed run is the uninterrupted one; kills and damage lose no more than they must.

Faults B21 (resuming repeats or skips data) and B22 (resuming repeats random draws).
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.encodings import Dims, Rotary
from ropejax.nn import BlockSettings, LayerKind, TransformerSpec
from ropejax.positions import Randomized
from ropejax.tasks import TASKS
from ropejax.training import Recipe, TrainState, Uniform, adam, init_state, train
from ropejax.training.checkpoint import Checkpoints, CheckpointWarning
from ropejax.training.loop import dispatch
from ropejax.training.step import draw_batch, step_lengths
from tests.compiled_programs import kept_in

STEPS = 10
ROOT = pathlib.Path(__file__).parents[2]


def tiny_recipe() -> Recipe:
    """Dropout 0.5 and positions drawn in every layer: all that randomness can spoil."""
    task = TASKS["reverse_string"]()
    model = TransformerSpec(
        num_symbols=task.num_symbols,
        num_outputs=task.output_vocab,
        dims=Dims(2, 2, 4, 8, num_layers=2),
        settings=BlockSettings(mlp_dim=16, dropout=0.5),
        pattern=(LayerKind(Rotary()),),
    )
    return Recipe(
        model=model,
        task=task,
        positions=Randomized(max_position=64, per_layer=True),
        optimizer=adam(1e-2),
        curriculum=Uniform(max_length=4),
        buckets=(4,),
        batch_size=4,
    )


RECIPE = tiny_recipe()


def run(steps: int, saver: Checkpoints | None = None, save_every: int = 5):
    """Trains, and returns the last state and every step's metrics by step."""
    metrics = {}

    def keep(progress):
        count = len(progress.metrics.loss)
        for at in range(count):
            step = progress.step - count + at
            metrics[step] = jax.tree.map(lambda x, at=at: x[at], progress.metrics)

    state = train(
        RECIPE,
        steps=steps,
        seed=3,
        steps_per_dispatch=4,
        save_every=save_every,
        saver=saver,
        on_dispatch=keep,
    )
    return state, metrics


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """A folder of compiled programs, so that other processes need not compile again."""
    with kept_in(tmp_path_factory.mktemp("compiled")) as folder:
        yield folder


@pytest.fixture(scope="module")
def straight(compiled):
    """The uninterrupted run."""
    state, metrics = run(STEPS)
    return raw(state), metrics


def raw(state: TrainState) -> list[np.ndarray]:
    """Every array of a state, keys as numbers."""
    is_key = lambda x: jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)
    return [
        np.array(jax.random.key_data(leaf) if is_key(leaf) else leaf)
        for leaf in jax.tree.leaves(state)
    ]


def assert_equal_bits(found: list[np.ndarray], wanted: list[np.ndarray]) -> None:
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == other.dtype
        assert one.tobytes() == other.tobytes()


def a_state(step: int, width: int = 8) -> TrainState:
    """A small state whose numbers tell its step."""
    params = {"kernel": jnp.arange(width, dtype=jnp.float32) + step, "scale": None}
    return TrainState(
        step=jnp.int32(step),
        params=params,
        opt_state=(jnp.full((3,), step / 7, jnp.bfloat16), ()),
        rng=jax.random.key(5),
        length_rng=jax.random.key(6),
    )


def save_some(folder, steps, losses=None, **settings) -> None:
    checkpoints = Checkpoints(folder, **settings)
    for step, loss in zip(steps, losses or [1.0] * len(steps), strict=True):
        checkpoints.save(a_state(step), {"loss": loss})
    checkpoints.close()


def reopened(folder, step_of_like: int = 0, **settings) -> TrainState | None:
    checkpoints = Checkpoints(folder, **settings)
    state = checkpoints.latest(a_state(step_of_like))
    checkpoints.close()
    return state


# Resuming


@pytest.mark.fast
@pytest.mark.parametrize("first", [1, 5])
def test_resumed_run_equals_the_uninterrupted_one(tmp_path, straight, first):
    wanted, wanted_metrics = straight
    _, before = run(first, Checkpoints(tmp_path), save_every=2)
    state, after = run(STEPS, Checkpoints(tmp_path), save_every=2)
    assert_equal_bits(raw(state), wanted)
    assert sorted(before) == list(range(first))
    assert sorted(after) == list(range(first, STEPS))
    for step, metrics in (before | after).items():
        assert metrics == wanted_metrics[step]


def test_resuming_from_step_zero_and_from_the_last_step(tmp_path, straight):
    wanted, _ = straight
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(init_state(RECIPE, 3), {})
    state, _ = run(STEPS, checkpoints)
    assert_equal_bits(raw(state), wanted)
    state, metrics = run(STEPS, Checkpoints(tmp_path))
    assert_equal_bits(raw(state), wanted)
    assert not metrics


def test_resumed_run_draws_what_the_uninterrupted_one_would_have(tmp_path):
    """Fault B22: data, positions, dropout keys of steps 5..9, not those of 0..4."""

    draw = jax.jit(lambda s: draw_batch(RECIPE, s, step_lengths(RECIPE, s), 4))

    def draws(state):
        batch, placement, dropout_rng = draw(state)
        return (
            np.asarray(batch.tokens).tobytes(),
            np.asarray(placement.positions).tobytes(),
            np.asarray(jax.random.key_data(dropout_rng)).tobytes(),
        )

    start = init_state(RECIPE, 3)
    drawn = [draws(start._replace(step=jnp.int32(step))) for step in range(10)]
    run(5, Checkpoints(tmp_path))
    resumed = Checkpoints(tmp_path).latest(like=start)
    assert int(resumed.step) == 5
    again = [draws(resumed._replace(step=resumed.step + more)) for more in range(5)]
    assert again == drawn[5:]
    for part in zip(*drawn, strict=True):
        assert len(set(part)) == 10


def test_saving_is_not_spoiled_by_training_on(tmp_path):
    """The next dispatch reuses the buffers while files are still being written."""
    checkpoints = Checkpoints(tmp_path, keep=20)
    state = init_state(RECIPE, 0)
    wanted = {}
    for step in range(8):
        wanted[step] = raw(state)
        checkpoints.save(state, {"loss": 1.0})
        state, _ = dispatch(RECIPE, state, 1, capacity=4)
    checkpoints.wait()
    like = init_state(RECIPE, 0)
    for step, arrays in wanted.items():
        assert_equal_bits(raw(checkpoints.at(step, like)), arrays)


def test_a_larger_number_of_steps_extends_a_finished_run(tmp_path, straight):
    run(4, Checkpoints(tmp_path))
    with pytest.raises(ValueError, match=r"at step 4, past steps=3"):
        run(3, Checkpoints(tmp_path))
    state, _ = run(STEPS, Checkpoints(tmp_path))
    assert_equal_bits(raw(state), straight[0])


# What is stored


@pytest.mark.fast
def test_every_kind_of_leaf_comes_back_as_it_was(tmp_path):
    keys = [jax.random.key(1, impl=impl) for impl in ("threefry2x32", "rbg")]
    state = a_state(7)._replace(rng=keys[0], length_rng=keys[1])
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(state, {"loss": 0.5})
    found = checkpoints.latest(like=state)
    assert jax.tree.structure(found) == jax.tree.structure(state)
    assert [x.dtype for x in jax.tree.leaves(found)] == [
        x.dtype for x in jax.tree.leaves(state)
    ]
    assert_equal_bits(raw(found), raw(state))
    # A restored key goes on as the saved one would have.
    for name in ("rng", "length_rng"):
        bits = [jax.random.bits(getattr(s, name), (4,)) for s in (found, state)]
        np.testing.assert_array_equal(*bits)


@pytest.mark.fast
def test_newest_and_best_are_kept(tmp_path):
    losses = [5.0, 1.0, 4.0, float("nan"), 3.0, 2.0]
    save_some(tmp_path, range(1, 7), losses, keep=2)
    checkpoints = Checkpoints(tmp_path, keep=2)
    assert checkpoints.steps() == [2, 5, 6]
    assert checkpoints.best_step() == 2
    np.testing.assert_array_equal(
        checkpoints.at(2, a_state(0)).params["kernel"], a_state(2).params["kernel"]
    )
    with pytest.raises(
        ValueError, match=r"no checkpoint at step=3; there are \[2, 5, 6"
    ):
        checkpoints.at(3, a_state(0))


def test_without_best_only_the_newest_are_kept(tmp_path):
    save_some(tmp_path, range(1, 5), [1.0, 2.0, 3.0, 4.0], keep=2, keep_best=False)
    assert Checkpoints(tmp_path).steps() == [3, 4]


def test_metadata_is_stored_with_each_checkpoint(tmp_path):
    config = {"config": {"train": {"steps": 5}, "task": "even_pairs"}}
    save_some(tmp_path, [1, 2], metadata=config)
    assert Checkpoints(tmp_path).metadata(2) == config


def test_an_empty_or_absent_folder_has_nothing(tmp_path):
    assert reopened(tmp_path / "new") is None
    assert reopened(tmp_path / "absent", read_only=True) is None
    assert not (tmp_path / "absent").exists()


def test_keep_must_be_positive(tmp_path):
    with pytest.raises(ValueError, match="keep must be at least 1, got 0"):
        Checkpoints(tmp_path, keep=0)


# What does not fit


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"params": {"kernel": jnp.zeros(9), "scale": None}},
            r"params/kernel: float32\[8\] there, float32\[9\] here",
        ),
        (
            {"params": {"kernel": jnp.zeros(8, jnp.bfloat16), "scale": None}},
            r"params/kernel: float32\[8\] there, bfloat16\[8\] here",
        ),
        (
            {"params": {"weight": jnp.zeros(8), "scale": None}},
            r"params/kernel: float32\[8\] there, absent here; params/weight: absent",
        ),
        ({"opt_state": ()}, r"opt_state/0: bfloat16\[3\] there, absent here"),
        ({"rng": jax.random.key(9)}, r"rng: key<fry> \[0, 5\] there, .*\[0, 9\] here"),
        ({"rng": jax.random.key(5, impl="rbg")}, r"rng: key<fry>.* there, key<rbg>"),
    ],
)
def test_a_state_of_another_kind_is_refused_naming_what_differs(
    tmp_path, change, message
):
    save_some(tmp_path, [1, 2])
    with pytest.raises(ValueError, match=message):
        Checkpoints(tmp_path).latest(like=a_state(0)._replace(**change))
    assert Checkpoints(tmp_path).steps() == [1, 2]


def test_training_with_another_seed_or_model_is_refused(tmp_path):
    run(1, Checkpoints(tmp_path))
    with pytest.raises(
        ValueError, match=r"another model, optimizer or seed: length_rng"
    ):
        train(RECIPE, steps=2, seed=4, saver=Checkpoints(tmp_path))


# Damage


def flip_a_bit_of_the_largest_file(path):
    files = [file for file in (path / "state").rglob("*") if file.is_file()]
    file = max(files, key=lambda one: one.stat().st_size)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def cut_the_largest_file(path):
    files = [file for file in (path / "state").rglob("*") if file.is_file()]
    file = max(files, key=lambda one: one.stat().st_size)
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def remove_the_manifest(path):
    (path / "state" / "manifest.ocdbt").unlink()


def spoil_the_shapes(path):
    (file,) = (path / "state" / "array_metadatas").iterdir()
    file.write_text("garbage")


def spoil_the_description(path):
    (path / "about" / "metadata").write_text('{"leaves": ')


def empty_the_folder(path):
    for file in path.rglob("*"):
        if file.is_file():
            file.unlink()


@pytest.mark.parametrize(
    "damage",
    [
        flip_a_bit_of_the_largest_file,
        cut_the_largest_file,
        remove_the_manifest,
        spoil_the_shapes,
        spoil_the_description,
        empty_the_folder,
    ],
)
def test_a_damaged_newest_checkpoint_is_named_and_the_one_before_used(tmp_path, damage):
    folder = tmp_path / "checkpoints"
    checkpoints = Checkpoints(folder)
    for step in (1, 2, 3):
        checkpoints.save(big_state(step), {"loss": 1.0})
    checkpoints.close()
    damage(folder / "3")
    with pytest.warns(CheckpointWarning, match=rf"{folder}/3 is damaged \("):
        checkpoints, state = opened(folder)
    assert_equal_bits(raw(state), raw(big_state(2)))
    # The step can be saved again, and the damaged files are kept for a look.
    checkpoints.save(big_state(3), {"loss": 1.0})
    checkpoints.close()
    assert (tmp_path / "checkpoints.damaged" / "3").is_dir()
    assert_equal_bits(raw(Checkpoints(folder).latest(big_state(0))), raw(big_state(3)))


def opened(folder):
    checkpoints = Checkpoints(folder)
    return checkpoints, checkpoints.latest(like=big_state(0))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (remove_the_manifest, "manifest.ocdbt is missing"),
        (spoil_the_shapes, "array_metadatas/process_0: Expecting value"),
    ],
)
def test_arrays_that_are_known_to_be_damaged_are_not_read(
    tmp_path, monkeypatch, damage, reason
):
    """Their readers would still print errors when they are waited for no more."""
    save_some(tmp_path, [1])
    damage(tmp_path / "1")
    monkeypatch.setattr("ropejax.training.checkpoint._reader", None)
    with pytest.raises(ValueError, match=rf"/1 is damaged \({reason}"):
        Checkpoints(tmp_path, read_only=True).at(1, a_state(0))


def test_a_checkpoint_that_may_not_be_read_is_not_called_damaged(tmp_path, monkeypatch):
    folder = tmp_path / "checkpoints"
    save_some(folder, [1, 2])
    forbidden, access = folder / "2" / "state", os.access
    allowed = lambda path, how: path != forbidden and access(path, how)
    monkeypatch.setattr(os, "access", allowed)
    with pytest.raises(ValueError, match=rf"^{forbidden} cannot be read \(Permission"):
        Checkpoints(folder).latest(like=a_state(0))
    assert sorted(tmp_path.iterdir()) == [folder]


def big_state(step: int) -> TrainState:
    """Noise, so that its bytes fill most of the files."""
    kernel = jax.random.normal(jax.random.key(step), (64, 64))
    return a_state(step)._replace(params={"kernel": kernel})


@pytest.mark.parametrize(
    "content", ["", "null", "[]", "3.5", '{"loss": "x"}', '{"loss": 1, "other": null}']
)
def test_lost_metrics_cost_a_checkpoint_its_rank_only(tmp_path, content):
    save_some(tmp_path, [1, 2, 3], [3.0, 2.0, 1.0])
    (tmp_path / "3" / "metrics" / "metrics").write_text(content)
    with pytest.raises(ValueError, match="3/metrics/metrics cannot be read"):
        Checkpoints(tmp_path, read_only=True)
    with pytest.warns(CheckpointWarning, match="/3 has lost its metrics"):
        checkpoints = Checkpoints(tmp_path)
    assert checkpoints.best_step() == 2
    assert_equal_bits(raw(checkpoints.latest(a_state(0))), raw(a_state(3)))
    assert Checkpoints(tmp_path, read_only=True).best_step() == 2


def test_a_folder_in_the_place_of_metrics_is_dropped(tmp_path):
    save_some(tmp_path, [1, 2], [2.0, 1.0])
    metrics = tmp_path / "2" / "metrics" / "metrics"
    metrics.unlink()
    metrics.mkdir()
    with pytest.warns(CheckpointWarning, match="/2 has lost its metrics"):
        checkpoints = Checkpoints(tmp_path)
    assert checkpoints.best_step() == 1


@pytest.mark.parametrize(
    "metadata", [{"seed": np.int64(3)}, {"weights": np.ones(2)}, {1, 2}]
)
def test_metadata_that_is_not_json_is_refused_before_it_is_written(tmp_path, metadata):
    with pytest.raises(ValueError, match="metadata must be JSON values by name"):
        Checkpoints(tmp_path, metadata=metadata)
    checkpoints = Checkpoints(tmp_path, metadata=lambda: metadata)
    with pytest.raises(ValueError, match="metadata must be JSON values by name"):
        checkpoints.save(a_state(1), {"loss": 1.0})
    checkpoints.close()
    assert checkpoints.steps() == []


def test_if_all_are_damaged_training_does_not_silently_start_again(tmp_path):
    folder = tmp_path / "checkpoints"
    save_some(folder, [1, 2])
    for step in (1, 2):
        spoil_the_description(folder / str(step))
    for _ in range(2):  # nor the next time
        checkpoints = Checkpoints(folder)
        with (
            pytest.warns(CheckpointWarning, match="is damaged"),
            pytest.raises(ValueError, match=r"none of the checkpoints \[1, 2\] .* can"),
        ):
            checkpoints.latest(like=a_state(0))


def test_reading_beside_a_running_run_changes_nothing(tmp_path):
    folder = tmp_path / "checkpoints"
    save_some(folder, [1, 2])
    spoil_the_description(folder / "2")
    files = sorted(tmp_path.rglob("*"))
    with pytest.warns(CheckpointWarning, match="/2 is damaged"):
        state = reopened(folder, read_only=True)
    assert int(state.step) == 1
    assert sorted(tmp_path.rglob("*")) == files


def test_what_a_running_run_drops_meanwhile_is_not_called_damaged(tmp_path):
    """Its only checkpoint went after the folder was opened; the next one is read."""
    save_some(tmp_path, [1])
    reader = Checkpoints(tmp_path, read_only=True)
    assert reader.steps() == [1]
    save_some(tmp_path, [2], keep=1, keep_best=False)
    assert not (tmp_path / "1").exists()
    assert int(reader.latest(a_state(0)).step) == 2
    spoil_the_description(tmp_path / "2")
    with (
        pytest.warns(CheckpointWarning, match="/2 is damaged"),
        pytest.raises(ValueError, match=r"none of the checkpoints \[2\] .* once they"),
    ):
        reader.latest(a_state(0))
    reader.close()


# Kills


def start(code: str, *arguments: object) -> subprocess.Popen:
    """A process of its own, which shares compiled programs with the others."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        env=environment,
        cwd=ROOT,
    )


def wait_for(condition, process: subprocess.Popen, timeout_s: float = 120.0) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert process.poll() is None, "the process ended by itself"
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.002)


def kill(process: subprocess.Popen) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


@pytest.mark.fast
def test_a_kill_in_the_middle_of_a_save_leaves_the_previous_one(tmp_path):
    folder = tmp_path / "checkpoints"
    save_some(folder, [1])
    kernel = (4000, 4000)  # 64 MB: long enough to be killed while being written
    process = start(
        f"""
        import sys
        import jax.numpy as jnp
        from tests.training.test_checkpoint import Checkpoints, a_state
        checkpoints = Checkpoints(sys.argv[1])
        state = a_state(2)._replace(params=dict(kernel=jnp.ones({kernel})))
        checkpoints.save(state, dict(loss=1.0))
        checkpoints.wait()
        """,
        folder,
    )
    unfinished = lambda: [path for path in folder.iterdir() if "tmp" in path.name]
    wait_for(unfinished, process)
    kill(process)
    assert unfinished()
    assert not (folder / "2").exists()
    checkpoints = Checkpoints(folder)
    state = checkpoints.latest(like=a_state(0))
    assert_equal_bits(raw(state), raw(a_state(1)))
    assert not unfinished()
    checkpoints.save(a_state(2), {"loss": 1.0})
    checkpoints.close()
    assert_equal_bits(raw(reopened(folder)), raw(a_state(2)))


TRAIN = """
    import sys
    import jax
    jax.config.update("jax_compilation_cache_dir", sys.argv[2])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    from tests.training.test_checkpoint import Checkpoints, run
    run(int(sys.argv[3]), Checkpoints(sys.argv[1]), save_every=1)
"""


@pytest.mark.parametrize(
    "goals", [(3,), pytest.param((1, 2, 4, 5, 7), marks=pytest.mark.slow)]
)
def test_runs_killed_at_any_moment_end_as_the_uninterrupted_one(
    tmp_path, straight, compiled, goals
):
    """Each process is killed as soon as a checkpoint past its goal is there."""
    folder = tmp_path / "checkpoints"
    done = lambda: max(
        [int(p.name) for p in folder.glob("*") if p.name.isdigit()] + [0]
    )
    for goal in goals:
        process = start(TRAIN, folder, compiled, STEPS - 1)
        wait_for(lambda goal=goal: done() >= goal, process)
        kill(process)
    process = start(TRAIN, folder, compiled, STEPS)
    assert process.wait() == 0
    state = Checkpoints(folder).latest(like=init_state(RECIPE, 3))
    assert_equal_bits(raw(state), straight[0])


def test_descriptions_are_readable_json(tmp_path):
    save_some(tmp_path, [1])
    about = json.loads((tmp_path / "1" / "about" / "metadata").read_text())
    assert about["leaves"]["params/kernel"] == "float32[8]"
