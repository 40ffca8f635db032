"""A run that begins with parameters of another one, or of a checkpoint.

`train.init_from` and `model.pretrained` name them. They are written into the run's own
folder as its checkpoint of step 0, which stays there. So the other run is read once:
that it goes on, moves or is deleted later changes nothing, and the run is resumed and
replayed as any other. What it began with is in its config, and of a run in
`init_from.json` and in its results.
"""

import json
import os
import pathlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
from rich.console import Console

from experiments.building.mesh import AXES
from experiments.running import first_params, processes, workdir
from experiments.running.opening import open_run, read_run
from ropejax.nn.layer_stacks import restacked
from ropejax.nn.parameters import check_fit
from ropejax.sharding import Sharding
from ropejax.training import TrainState
from ropejax.training.checkpoint import Checkpoints
from ropejax.training.checkpoint_agreement import largest
from ropejax.typing import Params

FIELD = "train.init_from"
SEED = "{seed}"
_FILE = "init_from.json"


class Source(NamedTuple):
    """Where parameters come from.

    Attributes:
        folder: a run's workdir.
        step: of its checkpoint; the newest one if None.
    """

    folder: pathlib.Path
    step: int | None


def source_of(config: Mapping[str, Any]) -> Source | None:
    """Returns where a run's first parameters come from, None if from its seed.

    Args:
        config: its config, plain. `{seed}` in the text stands for the run's own seed;
            a folder below `checkpoints` for the step that it is named after.
    """
    train = config["train"]
    if not train["init_from"]:
        return None
    path = pathlib.Path(train["init_from"].replace(SEED, str(train["seed"])))
    if path.parent.name == workdir.CHECKPOINTS and path.name.isdigit():
        return Source(path.parents[1], int(path.name))
    return Source(path, None)


def allows_new(config: Mapping[str, Any]) -> bool:
    """Returns whether a run may have parameters that the other one lacks.

    Args:
        config: its config, plain.
    """
    return config["train"]["init_new"]


def check(config: Mapping[str, Any], folder: pathlib.Path, model: Any) -> None:
    """Raises ValueError unless a run can begin as its config says, if it has not yet.

    Args:
        config: the run's config, plain.
        folder: its workdir.
        model: its model.
    """
    source = source_of(config)
    first_params.check(config, folder)
    if source is None and allows_new(config) and not first_params.is_pretrained(config):
        raise ValueError(
            f"train.init_new=True is for runs that begin with another one; set {FIELD}."
        )
    if source is None or workdir.has_checkpoints(folder):
        return
    where = f"{FIELD}={config['train']['init_from']!r}"
    if source.folder.absolute() == pathlib.Path(folder).absolute():
        raise ValueError(f"{where} is this run's own workdir; name another run's.")
    try:
        other = read_run(source.folder)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    steps = workdir.steps_of_checkpoints(source.folder)
    if not steps or source.step not in (None, *steps):
        raise ValueError(
            f"{where}: {source.folder} has "
            + (f"checkpoints of steps {steps} only." if steps else "no checkpoint yet.")
        )
    before = other.experiment.recipe.model
    shapes = lambda spec: jax.eval_shape(spec.init, jax.random.key(0))
    try:
        there = jax.eval_shape(
            partial(restacked, before=before, after=model), shapes(before)
        )
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    what, allow_new = f"{where}: the parameters of that run", allows_new(config)
    try:
        check_fit(there, shapes(model), what, allow_new=allow_new)
    except ValueError as error:
        more = " Those that are absent there may be new: train.init_new=True."
        raise ValueError(f"{error}{'' if allow_new else more}") from None


def begin(
    config: Mapping[str, Any],
    folder: pathlib.Path,
    model: Any,
    checkpoints: Checkpoints,
    start: Callable[[Params], TrainState],
    console: Console,
    sharding: Sharding | None = None,
) -> None:
    """Writes the checkpoint of step 0 of a run that begins so; later, does nothing.

    Args:
        config: the run's config, plain.
        folder: its workdir.
        model: its model.
        checkpoints: those of the run.
        start: the state before the first step, with given parameters.
        console: where it is said.
        sharding: how parameters are spread over a mesh; None for one device.
    """
    source = source_of(config)
    from_checkpoint = first_params.is_pretrained(config) and config["train"]["steps"]
    if not (source or from_checkpoint) or largest(len(checkpoints.steps())):
        return
    if source is None:
        checkpoints.save(start(first_params.read(config, sharding)), {})
        checkpoints.wait()
        console.print(
            f"{folder}: begins with {config['model']['pretrained']}",
            highlight=False,
            soft_wrap=True,
        )
        return
    mesh = None if sharding is None else {axis: sharding.sizes[axis] for axis in AXES}
    run, state = open_run(source.folder, mesh, source.step)
    origin = {
        "run_id": run.run_id,
        "step": int(state.step),
        "folder": str(source.folder.absolute()),
    }
    if processes.is_first():
        path = folder / _FILE
        temporary = path.with_suffix(".json.tmp")
        temporary.write_text(json.dumps(origin, indent=2) + "\n")
        os.replace(temporary, path)
    params = restacked(state.params, run.experiment.recipe.model, model)
    checkpoints.save(start(params), {})
    checkpoints.wait()
    console.print(
        f"{folder}: begins with the parameters of {source.folder} at step "
        f"{origin['step']}, {origin['run_id']}",
        highlight=False,
        soft_wrap=True,
    )


def origin(folder: pathlib.Path) -> dict[str, Any] | None:
    """Returns what a run began with, None if with parameters of its own.

    Args:
        folder: its workdir.
    """
    try:
        return json.loads((folder / _FILE).read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
