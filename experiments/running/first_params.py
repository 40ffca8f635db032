"""What a run begins with if neither its seed nor another run says: a checkpoint.

A run of `train.steps=0` trains nothing, and keeps no copy of what it scores: its
parameters are those of the checkpoint in `model.pretrained`, or its seed's.
"""

import pathlib
from collections.abc import Mapping
from typing import Any

from experiments.building.build import Experiment
from experiments.building.pretrained import FIELD
from experiments.running import workdir
from ropejax.nn.from_hf import decoder_from_hf, open_checkpoint
from ropejax.sharding import Sharding
from ropejax.training import TrainState, init_state, start_from
from ropejax.typing import Params


def is_pretrained(config: Mapping[str, Any]) -> bool:
    """Returns whether a run begins with a checkpoint, and not with another run.

    Args:
        config: its config, plain.
    """
    return bool(config["model"]["pretrained"]) and not config["train"]["init_from"]


def check(config: Mapping[str, Any], folder: pathlib.Path) -> None:
    """Raises ValueError unless the checkpoint's files are there, where they are needed.

    Args:
        config: the run's config, plain.
        folder: its workdir.
    """
    if is_pretrained(config) and not workdir.has_checkpoints(folder):
        _opened(config)


def read(config: Mapping[str, Any], sharding: Sharding | None = None) -> Params:
    """Returns the parameters of the checkpoint that a run begins with.

    Args:
        config: its config, plain.
        sharding: how they are spread over a mesh; on the default device if None.

    Raises:
        ValueError: if arrays are missing, left over or of another shape.
    """
    own, tensors = _opened(config)
    shardings = None if sharding is None else sharding.parameters
    try:
        return decoder_from_hf(own, tensors, shardings=shardings)[1]
    except ValueError as error:
        raise ValueError(f"{_told(config)}: {error}") from None


def untrained(config: Mapping[str, Any], experiment: Experiment) -> TrainState:
    """Returns the state before the first step of a run without checkpoints.

    Args:
        config: its config, plain.
        experiment: its objects.

    Raises:
        ValueError: as `read`, or if the model has parameters that the checkpoint lacks
            and `train.init_new` does not allow.
    """
    recipe, seeds = experiment.recipe, (experiment.seed, experiment.length_seed)
    if not is_pretrained(config):
        return init_state(recipe, *seeds)
    allow_new = config["train"]["init_new"]
    params = read(config, recipe.sharding)
    try:
        return start_from(
            recipe,
            params,
            seed=experiment.seed,
            length_seed=experiment.length_seed,
            allow_new=allow_new,
        )
    except ValueError as error:
        more = " Those that are absent there may be new: train.init_new=True."
        raise ValueError(
            f"{_told(config)}: {error}{'' if allow_new else more}"
        ) from None


def _opened(config: Mapping[str, Any]):
    try:
        return open_checkpoint(config["model"]["pretrained"])
    except ValueError as error:
        raise ValueError(f"{_told(config)}: {error}") from None


def _told(config: Mapping[str, Any]) -> str:
    return f"{FIELD}={config['model']['pretrained']!r}"
