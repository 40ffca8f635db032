"""The training curve of a run: means over some steps, as rows and for TensorBoard.

Loss and accuracy are means over all symbols of these steps, of which long batches have
more than short ones; gradient norm and length are means over the steps.
"""

import pathlib
from collections.abc import Callable, Sequence

import numpy as np
import optax

from experiments.results.store import ResultsWriter
from experiments.running.board import Board
from experiments.running.progress import Line
from ropejax.training import Progress
from ropejax.training.step import StepMetrics

Window = dict[str, list[float]]
"""Metrics of some steps, by name."""


class Curves:
    """Writes a point every `every` steps, each the mean over the steps since the last.

    Args:
        writer: where rows go.
        folder: where TensorBoard's files go.
        every: steps a point.
        first: step at which this process starts; a later point of an earlier process,
            killed after its last checkpoint, is overwritten.
        learning_rate: its value by step.
        utilization: model FLOPs utilization by lengths and speed; None if unknown.
        unfinished: what `window` returned at the step where this process starts, in
            whose middle of a point the one before it was stopped; None if unknown.
    """

    def __init__(
        self,
        writer: ResultsWriter,
        folder: pathlib.Path,
        *,
        every: int,
        first: int,
        learning_rate: optax.Schedule,
        utilization: Callable[[np.ndarray, float], float] | None = None,
        unfinished: Callable[[int], Window | None] | None = None,
    ):
        self._writer, self._every = writer, every
        self._learning_rate, self._utilization = learning_rate, utilization
        self._board = Board(folder, purge_step=first + 1)
        self._window: list[StepMetrics] = []
        self._seconds: list[tuple[int, float]] = []
        self._unfinished = unfinished

    def add(self, progress: Progress) -> Line:
        """Takes the metrics of a dispatch, and returns the latest figures."""
        metrics = progress.metrics
        count = len(metrics.loss)
        self._seconds = [*self._seconds[-19:], (count, progress.seconds)]
        first = progress.step - count
        self._take_up(first, metrics)
        start = 0
        for end in range(1, count + 1):
            if (first + end) % self._every == 0:
                self._window.append(_steps(metrics, start, end))
                self._write(first + end)
                start = end
        if start < count:
            self._window.append(_steps(metrics, start, count))
        return Line(
            progress.step, self._speed(), metrics.mean_loss(), metrics.mean_accuracy()
        )

    def window(self) -> Window:
        """Returns the metrics of the steps since the last point, to be gone on with."""
        if not self._window:
            return {}
        joined = _joined(self._window)
        return {name: series.tolist() for name, series in joined._asdict().items()}

    def _take_up(self, first: int, metrics: StepMetrics) -> None:
        """At the first step here, goes on with the point that was not finished."""
        unfinished, self._unfinished = self._unfinished, None
        found = unfinished(first) if unfinished is not None and first else None
        # Versions that kept no counts left what cannot be averaged any more.
        if found and found.keys() >= set(StepMetrics._fields):
            as_before = lambda name: np.asarray(
                found[name], getattr(metrics, name).dtype
            )
            self._window = [StepMetrics(*map(as_before, StepMetrics._fields))]

    def close(self) -> None:
        """Releases the files of TensorBoard."""
        self._board.close()

    def _speed(self) -> float:
        """Steps a second, without the slowest dispatch: it is the one that compiled."""
        timed = sorted(self._seconds, key=lambda one: one[1] / one[0])
        timed = timed[:-1] if len(timed) > 1 else timed
        return sum(count for count, _ in timed) / sum(seconds for _, seconds in timed)

    def _write(self, step: int) -> None:
        metrics = _joined(self._window)
        point = {
            "loss": metrics.mean_loss(),
            "accuracy": metrics.mean_accuracy(),
            "grad_norm": float(metrics.grad_norm.mean()),
            "mean_length": float(metrics.length.mean()),
        }
        point["learning_rate"] = float(self._learning_rate(step - 1))
        point["steps_per_s"] = self._speed()
        if self._utilization is not None:
            point["mfu"] = self._utilization(metrics.length, point["steps_per_s"])
        self._window = []
        self._writer.write("training", step=step, **point)
        named = {f"train/{name}": value for name, value in point.items()}
        self._board.add(step, named)


def _steps(metrics: StepMetrics, start: int, end: int) -> StepMetrics:
    return StepMetrics(*(series[start:end] for series in metrics))


def _joined(parts: Sequence[StepMetrics]) -> StepMetrics:
    return StepMetrics(*map(np.concatenate, zip(*parts, strict=True)))
