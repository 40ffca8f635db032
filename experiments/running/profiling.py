"""A trace of some training steps, for Perfetto (ui.perfetto.dev) and XProf."""

import pathlib
import tempfile

import jax


def check_left(profile: int, done: int, steps: int, dispatch: int) -> None:
    """Raises ValueError if a trace is asked for and there is nothing to trace.

    Args:
        profile: how many steps are to be traced; 0 for no trace.
        done: steps that the run has taken.
        steps: steps in all.
        dispatch: steps of the next dispatch, which compiles and is not traced.
    """
    left = steps - done
    if profile <= 0 or left > dispatch:
        return
    if left <= 0:
        raise ValueError(
            f"--profile={profile} has nothing to trace: this run is already trained to "
            f"{done} steps. Raise train.steps to go on, or use another --workdir."
        )
    raise ValueError(
        f"--profile={profile} has nothing to trace: the first dispatch, which "
        f"compiles, is left out, and the {left} steps that are left are one dispatch. "
        "Lower train.steps_per_dispatch, or raise train.steps."
    )


class Profiler:
    """Traces the dispatches that follow the first, which compiles.

    Args:
        folder: where the trace is written.
        steps: how many steps at the least; 0 for no trace.

    Raises:
        ValueError: if `steps` is negative.
        OSError: if the folder cannot be written, before anything is trained.
    """

    def __init__(self, folder: pathlib.Path, steps: int):
        if steps < 0:
            raise ValueError(f"--profile must be a number of steps, got {steps}.")
        self._folder, self._steps = folder, steps
        self._until: int | None = None
        self._done = steps == 0
        if steps:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass  # the tracer would fail at its end, and not say where

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
