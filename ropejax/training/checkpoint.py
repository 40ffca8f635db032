"""Checkpoints: all that determines the future of a run, whole on disk or not there.

A checkpoint holds every array of the state (step, parameters, optimizer state, keys),
and beside it a list of their names, shapes, dtypes and checksums, by which a state of
another model and a damaged file are told apart. Files are written in the background and
appear under their step by one rename, so a kill at any moment leaves earlier ones
whole.

Several processes write a checkpoint together, each its own parts of the arrays, and
read it each for itself: what one of them cannot read, none uses.
"""

import functools
import json
import pathlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from orbax.checkpoint.checkpoint_managers import (
    AnyPreservationPolicy,
    BestN,
    CustomSteps,
    LatestN,
)

from ropejax.training.checkpoint_agreement import gathered, largest
from ropejax.training.checkpoint_files import (
    UnreadableError,
    check_files,
    check_metrics,
    check_readable,
    remove,
)
from ropejax.training.checkpoint_leaves import (
    OtherStateError,
    check_same,
    checksum,
    describe,
    leaves_of,
    raw,
    sums,
    undo_raw,
)
from ropejax.training.step import TrainState
from ropejax.whole_numbers import whole_number


class CheckpointWarning(UserWarning):
    """A checkpoint is damaged."""


class Checkpoints:
    """The checkpoints of one run, newest and best.

    Args:
        directory: a folder of its own; made if absent.
        keep: how many of the newest to keep; one of step 0 always stays.
        keep_best: also keep the one with the lowest loss among those saved.
        metadata: JSON values stored with each checkpoint, such as the run's config; or
            a function that returns them when a state is saved.
        read_only: never write, delete or set aside; for reading beside a running run.

    Raises:
        ValueError: if `keep` is below 1, `metadata` is not JSON, or metrics cannot be
            read and not be dropped.
    """

    def __init__(
        self,
        directory: str | pathlib.Path,
        *,
        keep: int = 3,
        keep_best: bool = True,
        metadata: Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None = None,
        read_only: bool = False,
    ):
        keep = whole_number("keep", keep, least=1)
        self.directory = pathlib.Path(directory).absolute()
        fixed = {} if callable(metadata) else _json_values(metadata or {})
        self._metadata = metadata if callable(metadata) else lambda: fixed
        self._read_only = read_only
        self._manager = None
        if read_only and not self.directory.is_dir():
            return
        if read_only or jax.process_index() == 0:
            self._drop_unreadable_metrics()
        if not read_only:
            largest(0)  # the others wait for that
        if read_only:
            options = ocp.CheckpointManagerOptions(
                read_only=True, create=False, save_interval_steps=0
            )
        else:
            best = [BestN(get_metric_fn=_minus_loss, n=1)] if keep_best else []
            first = CustomSteps(steps=[0])  # parameters that were given, if any
            options = ocp.CheckpointManagerOptions(
                preservation_policy=AnyPreservationPolicy(
                    [LatestN(n=keep), first, *best]
                ),
                best_fn=_minus_loss,
                cleanup_tmp_directories=True,
            )
        self._manager = ocp.CheckpointManager(
            self.directory, options=options, item_names=("state", "about")
        )

    def steps(self) -> list[int]:
        """Returns the steps that have a checkpoint, in order."""
        return [] if self._manager is None else sorted(self._manager.all_steps())

    def best_step(self) -> int | None:
        """Returns the step with the lowest loss among the checkpoints, None if none."""
        return max(
            self.steps(),
            key=lambda step: _minus_loss(self._metrics(step)),
            default=None,
        )

    def latest(self, like: TrainState) -> TrainState | None:
        """Returns the newest state that can be read, or None if there is none.

        A damaged checkpoint is named in a `CheckpointWarning`, and the one before it is
        used; if that one can be read, the damaged one is moved to the folder
        `<directory>.damaged`. Several processes, which must all call it, use the newest
        one that all of them can read.

        Args:
            like: a state of the same model and optimizer; arrays are placed as there.

        Raises:
            ValueError: if a checkpoint is of another model or optimizer, or this user
                may not read it, or there are checkpoints but none can be read.
        """
        self.wait()
        found, damaged = self._common_steps(), []
        for step in reversed(found):
            state, other, reason = self._attempt(step, like)
            if other:
                raise ValueError(other)
            if state is not None:
                self._set_aside(damaged)
                return state
            if self._read_only and not (self.directory / str(step)).exists():
                continue  # the run that is going on has newer ones
            damaged.append(step)
            _warn(f"{self.directory / str(step)} is damaged", reason)
        if found and self._read_only:
            self._manager.reload()
            if self._common_steps() != found:
                return self.latest(like)
            raise ValueError(
                f"none of the checkpoints {found} in {self.directory} can be read; "
                "the command that trains there starts from step 0 once they are gone."
            )
        if found:
            raise ValueError(
                f"none of the checkpoints {found} in {self.directory} can be read; "
                "remove the folder to start from step 0, or use another workdir."
            )
        return None

    def at(self, step: int, like: TrainState) -> TrainState:
        """Returns the state at a step that has a checkpoint.

        Raises:
            ValueError: if there is none, or it is damaged, or of another model.
        """
        if step not in self.steps():
            raise ValueError(f"no checkpoint at {step=}; there are {self.steps()}.")
        self.wait()
        state, other, reason = self._attempt(step, like)
        if state is None:
            path = self.directory / str(step)
            raise ValueError(other or f"the checkpoint {path} is damaged ({reason}).")
        return state

    def save(self, state: TrainState, metrics: Mapping[str, float]) -> None:
        """Writes a state in the background; the caller may go on and reuse its buffers.

        Args:
            state: the state; its step names the checkpoint.
            metrics: `loss` ranks checkpoints; others are kept beside it.
        """
        # A copy, since the next training step overwrites these buffers in place.
        leaves = jax.tree.map(jnp.copy, leaves_of(state))
        numbers = {name: raw(leaf) for name, leaf in leaves.items()}
        about = {
            "leaves": {name: describe(name, leaf) for name, leaf in leaves.items()},
            "checksums": {name: checksum(leaf) for name, leaf in leaves.items()},
            "metadata": _json_values(self._metadata()),
        }
        if None in about["checksums"].values():
            about["sums"] = sums(numbers)
        self._manager.save(
            int(state.step),
            args=ocp.args.Composite(
                state=ocp.args.StandardSave(numbers),
                about=ocp.args.JsonSave(about),
            ),
            metrics={name: float(value) for name, value in metrics.items()},
            force=True,
        )

    def wait(self) -> None:
        """Returns when everything is on disk."""
        if self._manager is not None:
            self._manager.wait_until_finished()

    def close(self) -> None:
        """Waits, and releases threads."""
        if self._manager is not None:
            self._manager.close()

    def metadata(self, step: int) -> dict[str, Any]:
        """Returns what `metadata` was when a step was saved."""
        self.wait()
        return self._about(step)["metadata"]

    def _about(self, step: int) -> dict[str, Any]:
        text = (self.directory / str(step) / "about" / "metadata").read_text()
        return json.loads(text)

    def _common_steps(self) -> list[int]:
        """The steps that all processes see."""
        seen = [set(json.loads(text)) for text in gathered(json.dumps(self.steps()))]
        return sorted(set.intersection(*seen))

    def _attempt(
        self, step: int, like: TrainState
    ) -> tuple[TrainState | None, str, str]:
        """Returns a state, or None with why it is not for us, or how it is damaged."""
        wanted, state = leaves_of(like), None
        other = reason = ""
        try:
            check_readable(self.directory / str(step))
            about = self._about(step)
            check_same(self.directory / str(step), about["leaves"], wanted)
            state = self._read(step, wanted, about)
        except (OtherStateError, UnreadableError) as error:
            other = str(error)
        except Exception as error:
            reason = _first_line(error)
        others, reasons = zip(
            *(json.loads(text) for text in gathered(json.dumps([other, reason]))),
            strict=True,
        )
        if not any(others + reasons) and "sums" in about:
            reasons = (_differing(about["sums"], sums(state)),)
        if any(others) or any(reasons):
            return None, next(filter(None, others), ""), _told(reasons)
        leaves = [undo_raw(state[name], leaf) for name, leaf in wanted.items()]
        return jax.tree.unflatten(jax.tree.structure(like), leaves), "", ""

    def _read(
        self, step: int, wanted: Mapping[str, jax.Array], about: Mapping[str, Any]
    ) -> dict[str, jax.Array]:
        """Reads this process's parts of the arrays; no other process needs to."""
        check_files(self.directory / str(step) / "state")
        abstract = {
            name: jax.ShapeDtypeStruct(one.shape, one.dtype, sharding=one.sharding)
            for name, one in ((name, raw(leaf)) for name, leaf in wanted.items())
        }
        found = _reader().restore(
            self.directory / str(step) / "state",
            args=ocp.args.StandardRestore(abstract),
        )
        for name, known in about["checksums"].items():
            if known is not None and checksum(found[name]) not in (known, None):
                raise OSError(f"{name} differs from what was written")
        return found

    def _set_aside(self, steps: list[int]) -> None:
        if self._read_only or not steps:
            return
        folder = self.directory.with_name(self.directory.name + ".damaged")
        for step in steps if jax.process_index() == 0 else []:
            folder.mkdir(exist_ok=True)
            taken = len(list(folder.glob(f"{step}*")))
            name = f"{step}.{taken}" if taken else str(step)
            (self.directory / str(step)).rename(folder / name)
        largest(0)  # the others wait for that
        self._manager.reload()

    def _drop_unreadable_metrics(self) -> None:
        """Orbax reads all metrics when it opens a folder, and fails on bad ones."""
        for path in self.directory.glob("[0-9]*/metrics/metrics"):
            try:
                check_metrics(json.loads(path.read_text()))
            except (IsADirectoryError, ValueError) as error:
                if self._read_only:
                    raise ValueError(
                        f"{path} cannot be read ({error}); open the folder for writing "
                        "once, as training does, to drop it."
                    ) from None
                _warn(f"{path.parents[1]} has lost its metrics", _first_line(error))
                remove(path)

    def _metrics(self, step: int) -> dict[str, float]:
        path = self.directory / str(step) / "metrics" / "metrics"
        try:
            metrics = json.loads(path.read_text())
            check_metrics(metrics)
        except (OSError, ValueError):
            return {}
        return metrics


@functools.cache
def _reader() -> ocp.Checkpointer:
    """Reads without a word to other processes, each of which may fail alone."""
    me = jax.process_index()
    alone = ocp.options.MultiprocessingOptions(
        primary_host=me, active_processes={me}, barrier_sync_key_prefix=f"reader{me}"
    )
    handler = ocp.StandardCheckpointHandler(multiprocessing_options=alone)
    return ocp.Checkpointer(handler, multiprocessing_options=alone)


def _json_values(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata as it is; refused here and not while it is written."""
    try:
        values = dict(metadata)
        json.dumps(values)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"metadata must be JSON values by name, and is not: {error}. Turn numbers "
            "and arrays of numpy into those of Python, by item() and tolist()."
        ) from None
    return values


def _differing(known: Mapping[str, int], found: Mapping[str, int]) -> str:
    names = [name for name in known if known[name] != found[name]]
    return f"{names[0]} differs from what was written" if names else ""


def _told(reasons: tuple[str, ...]) -> str:
    """The first reason, and whose it is if there are several processes."""
    for number, reason in enumerate(reasons):
        if reason:
            return reason if len(reasons) == 1 else f"process {number}: {reason}"
    return ""


def _warn(what: str, reason: str) -> None:
    warnings.warn(f"the checkpoint {what} ({reason}).", CheckpointWarning, stacklevel=3)


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:200] or type(error).__name__


def _minus_loss(metrics: Mapping[str, float]) -> float:
    loss = metrics.get("loss", float("nan"))
    return -loss if np.isfinite(loss) else float("-inf")
