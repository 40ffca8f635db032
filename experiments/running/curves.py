"""The training curve of a run: means over some steps, as rows and for TensorBoard."""

import pathlib
from collections.abc import Callable, Mapping

import numpy as np
import optax

from experiments.results.store import ResultsWriter
from experiments.running.board import Board
from experiments.running.progress import Line
from ropejax.training import Progress

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
        self._window: list[Mapping[str, np.ndarray]] = []
        self._seconds: list[tuple[int, float]] = []
        self._unfinished = unfinished

    def add(self, progress: Progress) -> Line:
        """Takes the metrics of a dispatch, and returns the latest figures."""
        count = len(progress.metrics.loss)
        metrics = progress.metrics._asdict()
        self._seconds = [*self._seconds[-19:], (count, progress.seconds)]
        first = progress.step - count
        self._take_up(first, metrics)
        start = 0
        for end in range(1, count + 1):
            if (first + end) % self._every == 0:
                self._window.append({k: v[start:end] for k, v in metrics.items()})
                self._write(first + end)
                start = end
        if start < count:
            self._window.append({k: v[start:] for k, v in metrics.items()})
        return Line(
            progress.step,
            self._speed(),
            float(metrics["loss"].mean()),
            float(metrics["accuracy"].mean()),
        )

    def window(self) -> Window:
        """Returns the metrics of the steps since the last point, to be gone on with."""
        names = self._window[0] if self._window else ()
        return {
            name: [x for part in self._window for x in part[name].tolist()]
            for name in names
        }

    def _take_up(self, first: int, metrics: Mapping[str, np.ndarray]) -> None:
        """At the first step here, goes on with the point that was not finished."""
        unfinished, self._unfinished = self._unfinished, None
        found = unfinished(first) if unfinished is not None and first else None
        if found:
            as_before = lambda name: np.asarray(found[name], metrics[name].dtype)
            self._window = [{name: as_before(name) for name in found}]

    def close(self) -> None:
        """Releases the files of TensorBoard."""
        self._board.close()

    def _speed(self) -> float:
        """Steps a second, without the slowest dispatch: it is the one that compiled."""
        timed = sorted(self._seconds, key=lambda one: one[1] / one[0])
        timed = timed[:-1] if len(timed) > 1 else timed
        return sum(count for count, _ in timed) / sum(seconds for _, seconds in timed)

    def _write(self, step: int) -> None:
        mean = lambda name: float(
            np.concatenate([w[name] for w in self._window]).mean()
        )
        point = {name: mean(name) for name in ("loss", "accuracy", "grad_norm")}
        point["mean_length"] = mean("length")
        point["learning_rate"] = float(self._learning_rate(step - 1))
        point["steps_per_s"] = self._speed()
        if self._utilization is not None:
            lengths = np.concatenate([w["length"] for w in self._window])
            point["mfu"] = self._utilization(lengths, point["steps_per_s"])
        self._window = []
        self._writer.write("training", step=step, **point)
        named = {f"train/{name}": value for name, value in point.items()}
        self._board.add(step, named)
