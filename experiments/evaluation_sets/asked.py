"""The fixed sets that an evaluation asks for, or that there are."""

import dataclasses
import math
import pathlib
from collections.abc import Mapping
from typing import Any

from experiments.building.checks import Evaluation
from experiments.evaluation_sets.content import FixedSet
from ropejax.tasks import Task


def as_held(
    task: Task,
    evaluation: Evaluation,
    data_dir: str | pathlib.Path,
    lengths_text: str | None,
    changes: Mapping[str, Any],
) -> Evaluation:
    """Returns the evaluation with what was not given taken from the sets that are held.

    Samples and seed are the run's own where there are such sets.

    Args:
        task: the task.
        evaluation: how the run is scored.
        data_dir: where sets are.
        lengths_text: the lengths that were given, None if none were.
        changes: `samples`, `draws` and `seed` that were given.

    Raises:
        ValueError: if there are only others, and of more than one kind.
    """
    from experiments.evaluation_sets.read import held_lengths  # imports TFDS: a second

    held = {
        (samples, seed): of_lengths
        for (samples, seed), of_lengths in held_lengths(task, data_dir).items()
        if samples == changes.get("samples", samples)
        and seed == changes.get("seed", seed)
    }
    if not held:
        return evaluation  # `fixed_sets` tells how to make them
    own = (evaluation.samples, evaluation.seed)
    if own not in held and len(held) > 1:
        kinds = ", ".join(f"--samples={one} --seed={seed}" for one, seed in held)
        raise ValueError(
            f"{data_dir} has several kinds of sets of this task, and none with the "
            f"run's {own[0]} samples and seed {own[1]}; add one of: {kinds}."
        )
    samples, seed = own if own in held else next(iter(held))
    found = {"samples": samples, "seed": seed}
    if lengths_text is None:
        found |= {"lengths": held[samples, seed], "buckets": None}
    if "draws" not in changes:
        found["draws"] = math.gcd(evaluation.draws, samples)
    return dataclasses.replace(evaluation, **found)


def fixed_sets(
    task: Task, evaluation: Evaluation, data_dir: str | pathlib.Path
) -> dict[int, FixedSet]:
    """Returns the fixed set of each length, with the evaluation's samples and seed.

    Raises:
        ValueError: if one is missing, with the command that makes it, or damaged.
    """
    from experiments.evaluation_sets.read import read_sets  # imports TFDS: a second

    return read_sets(
        task,
        evaluation.lengths,
        data_dir,
        samples=evaluation.samples,
        seed=evaluation.seed,
    )
