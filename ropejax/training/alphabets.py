"""Whether a model knows all symbols of a task, and can give all its answers."""

from typing import Any

from ropejax.tasks.base import Task


def check_alphabets(model: Any, task: Task) -> None:
    """Raises ValueError where a task has more symbols than a model knows.

    A model of more symbols, or more outputs, than a task uses is allowed, and so is one
    of one's own that does not state them.

    Args:
        model: how the model is made, with `num_symbols` and `num_outputs` if it states
            them.
        task: what it is trained on, or tested with.
    """
    for name, wanted in (
        ("num_symbols", task.num_symbols),
        ("num_outputs", task.output_vocab),
    ):
        known = getattr(model, name, wanted)
        if known < wanted:
            raise ValueError(
                f"the model's {name}={known} must be at least {wanted} for "
                f"{task.title}; make it with the task's own numbers, "
                f"num_symbols={task.num_symbols} and num_outputs={task.output_vocab}."
            )
