"""A run as it lies in its folder: config, objects, newest state.

From a notebook, where `run.experiment.recipe` has the model and all about it:

    from experiments.running.opening import open_run

    run, state = open_run("runs/reverse")
"""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

import jax

from experiments.building.build import Experiment, build
from experiments.building.mesh import (
    AXES,
    make_sharding,
    on_other_mesh,
    without_mesh,
)
from experiments.results.store import ResultsWriter
from experiments.running import labels, workdir
from experiments.running.first_params import untrained
from ropejax.sharding import mesh_sizes
from ropejax.training import TrainState, init_state
from ropejax.training.checkpoint import Checkpoints


@dataclasses.dataclass(frozen=True)
class Run:
    """A config, its objects, and the folder where everything about it is.

    Attributes:
        config: all settings, plain.
        experiment: what they describe.
        folder: the run's workdir.
    """

    config: Mapping[str, Any]
    experiment: Experiment
    folder: pathlib.Path

    @property
    def run_id(self) -> str:
        """The run's name in the results."""
        return labels.run_id(self.config)

    @property
    def test_positions(self) -> str | None:
        """Name of the test-time scheme of the config; None for that of training."""
        return self.experiment.evaluation.label

    def score_labels(
        self, step: int, *, positions: str | None = None, encoding: str | None = None
    ) -> dict[str, Any]:
        """Returns the fields that tell one evaluation of the run from another.

        Args:
            step: steps that the model was trained for.
            positions: the test-time scheme; that of training if None.
            encoding: the test-time encoding; that of training if None.
        """
        trained = labels.run_labels(self.config, self.experiment)
        return {
            "run_id": self.run_id,
            "step": step,
            "test_positions": positions or trained["positions"],
            "test_encoding": encoding or trained["encoding"],
        }

    def writer(self) -> ResultsWriter:
        """Returns a writer of the run's rows."""
        common = labels.run_labels(self.config, self.experiment)
        return ResultsWriter(self.folder, self.run_id, common)


def read_run(folder: str | pathlib.Path) -> Run:
    """Returns the run of a folder, on one device, without touching it.

    Raises:
        ValueError: if there is no run.
    """
    folder = pathlib.Path(folder)
    config = workdir.whole_config(folder)
    if config is None:
        raise ValueError(
            f"{folder} holds no run (no config.json); train one there with "
            "python -m experiments.main --workdir=..."
        )
    return Run(config, build(without_mesh(config)), folder)


def open_run(
    folder: str | pathlib.Path,
    mesh: Mapping[str, int] | None = None,
    step: int | None = None,
) -> tuple[Run, TrainState]:
    """Returns a run and one of its states, without touching its folder.

    Args:
        folder: the run's workdir.
        mesh: sizes by axis of the mesh that the state is put on, whatever that of
            training was; None for one device.
        step: of its checkpoint; the newest one that can be read if None.

    Raises:
        ValueError: if there is no run, no checkpoint that can be read, or the mesh does
            not fit model or devices.
    """
    run = read_run(folder)
    folder = run.folder
    if mesh is not None:
        run = _on_mesh(run, mesh)
    experiment = run.experiment
    keeps_none = not (experiment.steps or run.config["train"]["init_from"])
    if keeps_none and step is None and not workdir.has_checkpoints(folder):
        return run, untrained(run.config, experiment)
    checkpoints = Checkpoints(folder / workdir.CHECKPOINTS, read_only=True)
    like = init_state(experiment.recipe, experiment.seed, experiment.length_seed)
    state = checkpoints.latest(like) if step is None else checkpoints.at(step, like)
    checkpoints.close()
    if state is None:
        raise ValueError(f"{folder} has no checkpoint yet; train longer.")
    return run, state


def _on_mesh(run: Run, sizes: Mapping[str, int]) -> Run:
    """The run with a mesh to read it on: as many rows at once as the mesh cuts."""
    full = mesh_sizes(sizes, len(jax.devices()))
    here = {axis: full[axis] for axis in AXES}
    sharding = make_sharding(on_other_mesh(run.config, here))
    if sharding is None:
        return run
    recipe = dataclasses.replace(
        run.experiment.recipe,
        sharding=sharding,
        batch_size=sharding.batch_parts,
        accumulate=1,
    )
    experiment = dataclasses.replace(run.experiment, recipe=recipe)
    return dataclasses.replace(run, experiment=experiment)
