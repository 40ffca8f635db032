"""The trained length of methods that ask for it: that of the run itself, if not given.

RoPE's extensions, log n scaling and some layer patterns have a setting `train_length`,
in tokens. In a config its default is what this run's longest training input is to the
model: a decoder's includes the answer, a task's its separators.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

from ml_collections import ConfigDict

from experiments.building.pretrained import is_pretrained, read_config
from ropejax.nn.from_hf import trained_length
from ropejax.tasks import Task

SETTING = "train_length"


def defaults(config: ConfigDict, task: Task) -> dict[str, int]:
    """Returns the settings that follow from a run's training where they are not given.

    Those of a checkpoint follow from its own training, if it tells how long that was.

    Args:
        config: the config.
        task: its task, as its kind of model sees it.

    Raises:
        ValueError: if the task has no inputs of `train.max_length` symbols.
    """
    task.check_length(config.train.max_length)
    if is_pretrained(config) and (known := trained_length(read_config(config))):
        return {SETTING: known}
    return {SETTING: task.num_tokens(config.train.max_length)}


def notes(config: ConfigDict, task: Task, model: Any) -> list[str]:
    """Returns a line for each trained length that a run's model has.

    Args:
        config: the config.
        task: its task, as its kind of model sees it.
        model: its model.
    """
    own = defaults(config, task)[SETTING]
    if is_pretrained(config):
        return _notes_of_checkpoint(own, model)
    earlier = ""
    if config.train.init_from:
        earlier = (
            " It begins with another run's parameters: a method that extends a model "
            f"asks for the length of that one's training; say {SETTING} if it differs."
        )
    read = f"{own} tokens, inputs of up to {config.train.max_length} symbols"
    lines = []
    for name, length in dict.fromkeys(_found(model)):
        if length == own:
            lines.append(f"{SETTING} of {name} is that of this run: {read}.{earlier}")
        elif abs(length - own) == 1:  # with or without one that ends the input
            lines.append(
                f"{SETTING}={length} of {name} is within a token of that of this run: "
                f"{read}."
            )
        elif not earlier:
            lines.append(
                f"note: {SETTING}={length} of {name} is not that of this run ({read}); "
                "without it, it would be."
            )
    return lines


def _notes_of_checkpoint(own: int, model: Any) -> list[str]:
    return [
        f"{SETTING}={length} of {name} is "
        + ("" if length == own else f"not the {own} tokens ")
        + "that the checkpoint says it was trained on."
        for name, length in dict.fromkeys(_found(model))
    ]


def _found(value: Any) -> Iterator[tuple[str, int]]:
    """Yields class names and trained lengths of all settings within settings."""
    if isinstance(value, tuple | list):
        for item in value:
            yield from _found(item)
    if not dataclasses.is_dataclass(value):
        return
    for field in dataclasses.fields(value):
        inner = getattr(value, field.name)
        if field.init and field.name == SETTING:
            yield type(value).__name__, inner
        yield from _found(inner)
