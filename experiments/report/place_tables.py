"""Scores by place in the answer as a table in the terminal."""

from collections.abc import Mapping
from typing import Any

from experiments.report.summaries import perplexity_of
from experiments.report.tables import four_digits, percent
from ropejax.evaluation import LengthScore
from ropejax.evaluation_places import PlaceScores
from ropejax.tasks.base import Task

PARTS = 8
"""Into so many stretches a longer answer is cut."""


def print_places(
    task: Task, scores: Mapping[int, LengthScore], console: Any = None
) -> None:
    """Prints scores by place: each place of short answers, of longer ones by eighths.

    Args:
        task: what was answered.
        scores: by length, counted by place.
        console: a `rich.console.Console`; the terminal if None.
    """
    import rich.console

    console = console or rich.console.Console()
    short = [n for n, one in scores.items() if len(one.places) <= PARTS]
    long = [n for n in scores if n not in short]
    what = "input" if task.in_place else "answer"
    for lengths, title in (
        (short, f"by place in the {what}"),
        (long, f"by eighths of the {what}"),
    ):
        if lengths:
            some = {length: scores[length].places for length in lengths}
            console.print(_table(task, some, title))
    if task.in_place and task.left_to_right:
        for length in long:
            if scores[length].places.outputs[-1]:
                line = _sliding(length, scores[length].places)
                console.print(line, highlight=False, soft_wrap=True)


def _table(task: Task, places: Mapping[int, PlaceScores], title: str) -> Any:
    import rich.box
    import rich.table

    long = any(len(one) > PARTS for one in places.values())
    table = rich.table.Table(
        title=f"{task.title} {title}, in %" + "; perplexity too" * task.in_place,
        box=rich.box.SIMPLE_HEAD,
        padding=(0, 0, 0, 1),
        pad_edge=False,
    )
    columns = PARTS if long else max(map(len, places.values()))
    table.add_column("length", justify="right")
    table.add_column("")
    for number in range(1, 1 + columns):
        name = f"{number}/{PARTS}" if long else str(number)
        table.add_column(name, justify="right", no_wrap=True)
    for length, one in places.items():
        parts = one.in_stretches(PARTS)
        table.add_row(str(length), "right", *map(percent, parts.accuracy))
        table.add_row("", "input-blind", *map(percent, parts.input_blind), style="dim")
        if task.in_place:
            table.add_row(
                "",
                "perplexity",
                *(four_digits(perplexity_of(nats)) for nats in parts.mean_loss),
            )
        else:
            first = parts.first_wrong / parts.rows
            table.add_row("", "first mistake", *map(percent, first))
    return table


def _sliding(length: int, places: PlaceScores) -> str:
    """Says the perplexity of windows that slide by strides that were all scored."""
    shown = [
        f"by {stride}: {four_digits(places.sliding_perplexity(stride))}"
        for stride in (len(places) // part for part in (1, 2, 4, 8))
        if places.outputs[-stride:].all()
    ]
    return f"perplexity of windows of {length} that slide {', '.join(shown)}"
