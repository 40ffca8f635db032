"""What a person sees of a run: a bar in a terminal, or now and then a line in a log."""

import time
from typing import NamedTuple

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)


class Line(NamedTuple):
    """The latest figures of a training run.

    Attributes:
        step: steps taken.
        steps_per_s: speed of late, compilation not counted.
        loss: mean cross-entropy, nats a symbol.
        accuracy: fraction of right symbols.
    """

    step: int
    steps_per_s: float
    loss: float
    accuracy: float


class Bar:
    """Shows how far something is; a context manager.

    Args:
        what: a word or two.
        total: how many steps there are.
        done: how many were done before.
        console: where to print.
        every_s: seconds between two lines where no bar can be drawn.
    """

    def __init__(
        self,
        what: str,
        total: int,
        done: int = 0,
        *,
        console: Console,
        every_s: float = 15.0,
    ):
        self._console, self._every_s = console, every_s
        self._what, self._total = what, total
        self._started = self._printed = time.monotonic()
        self._first = self._from = done
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            TextColumn("{task.fields[figures]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task(what, total=total, completed=done, figures="")

    def __enter__(self) -> "Bar":
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def show(self, done: int, figures: str = "") -> None:
        """Shows how many steps are done, and a few words."""
        if self._from == self._first and done > self._first:
            # The first dispatch compiled; it says nothing of the speed.
            self._from, self._started = done, time.monotonic()
        self._bar.update(self._task, completed=done, figures=figures)
        now = time.monotonic()
        finished = done >= self._total
        if self._console.is_terminal or not (
            finished or now - self._printed > self._every_s
        ):
            return
        self._printed = now
        speed = (done - self._from) / max(now - self._started, 1e-9)
        left = ""
        if speed and not finished:
            left = f", {clock((self._total - done) / speed)} left"
        self._console.print(f"{self._what} {done}/{self._total}  {figures}{left}")


def figures(line: Line) -> str:
    """Returns `61.0 steps/s  loss 0.693  accuracy 0.512`."""
    return (
        f"{line.steps_per_s:.3g} steps/s  loss {line.loss:.3f}  "
        f"accuracy {line.accuracy:.3f}"
    )


def clock(seconds: float) -> str:
    """Returns seconds as `1:02:03` or `2:03`."""
    minutes, seconds = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
