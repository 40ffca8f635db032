"""Whether a model knows all symbols of a task, and can give all its answers."""

from typing import Any

from ropejax.positions.base import PositionScheme
from ropejax.tasks.base import Task


def check_alphabets(model: Any, task: Task) -> None:
    """Raises ValueError where a task has more symbols than a model knows.

    A model of more symbols, or more outputs, than a task uses is allowed, and so is one
    of one's own that does not state them. One that finds the end of a row's input by a
    symbol, its `separator`, must have the task's placeholder for it, and the task must
    have that symbol nowhere else.

    Args:
        model: how the model is made, with `num_symbols`, `num_outputs` and `separator`
            if it states them.
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
    separator = getattr(model, "separator", None)
    if separator is None or task.in_place:
        return
    if task.placeholder < task.input_vocab:
        raise ValueError(
            f"{task.title}: the symbol at which answers are read, {task.placeholder}, "
            "may also stand in its inputs, where this model would take it for their "
            "end; use a model without a separator (encoder or decoder), or a symbol "
            f"of its own, {task.input_vocab} or more."
        )
    if separator != task.placeholder:
        raise ValueError(
            f"the model takes the symbol {separator} for the end of an input, which is "
            f"{task.placeholder} for {task.title}; make it with the task's own numbers."
        )


def check_named_symbols(positions: PositionScheme, task: Task) -> None:
    """Raises ValueError where a scheme looks for symbols that a task never has.

    BiPE without a separator in its rows, for instance, is one long segment, and digits
    beyond an alphabet of bits say that what follows these is taken for a digit too.

    Args:
        positions: where tokens are said to be.
        task: whose rows it places.
    """
    size = max(task.num_symbols, task.output_vocab)
    for name, symbols in positions.named_symbols:
        never = [symbol for symbol in symbols if not 0 <= symbol < size]
        if never:
            raise ValueError(
                f"{name}={tuple(symbols)} of {positions.title} positions names "
                f"{', '.join(map(str, never))}, and {task.title} has the symbols "
                f"0 .. {size - 1}; name those of the task: positions.options='{name}="
                "(..., )', or the field in Python."
            )
