"""Whether a model knows all symbols of a task, and can give all its answers."""

from typing import Any

from ropejax.tasks.base import Task


def check_alphabets(model: Any, task: Task) -> None:
    """Raises ValueError where a task has more symbols than a model knows.

    A model of more symbols, or more outputs, than a task uses is allowed.

    Args:
        model: how the model is made, with `num_symbols` and `num_outputs`.
        task: what it is trained on, or tested with.
    """
    for name, known, wanted in (
        ("num_symbols", model.num_symbols, task.num_symbols),
        ("num_outputs", model.num_outputs, task.output_vocab),
    ):
        if known < wanted:
            raise ValueError(
                f"the model's {name}={known} must be at least {wanted} for "
                f"{task.title}; make it with the task's own numbers, "
                f"num_symbols={task.num_symbols} and num_outputs={task.output_vocab}."
            )
