"""A trace of some training steps, for Perfetto (ui.perfetto.dev) and XProf."""

import pathlib

import jax


class Profiler:
    """Traces the dispatches that follow the first, which compiles.

    Args:
        folder: where the trace is written.
        steps: how many steps at the least; 0 for no trace.

    Raises:
        ValueError: if `steps` is negative.
    """

    def __init__(self, folder: pathlib.Path, steps: int):
        if steps < 0:
            raise ValueError(f"--profile must be a number of steps, got {steps}.")
        self._folder, self._steps = folder, steps
        self._until: int | None = None
        self._done = steps == 0

    def after(self, step: int) -> None:
        """Starts or ends the trace, between two dispatches.

        Args:
            step: steps taken so far.
        """
        if self._done:
            return
        if self._until is None:
            self._until = step + self._steps
            jax.profiler.start_trace(str(self._folder), create_perfetto_trace=True)
        elif step >= self._until:
            self.close()

    def close(self) -> None:
        """Ends a trace that is being made."""
        if self._until is not None and not self._done:
            jax.profiler.stop_trace()
        self._done = True
