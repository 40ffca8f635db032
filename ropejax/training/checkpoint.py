"""Checkpoints: all that determines the future of a run, whole on disk or not there.

A checkpoint holds every array of the state (step, parameters, optimizer state, keys),
and beside it a list of their names, shapes, dtypes and checksums, by which a state of
another model and a damaged file are told apart. Files are written in the background and
appear under their step by one rename, so a kill at any moment leaves earlier ones
whole.
"""

import json
import pathlib
import warnings
import zlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils
from orbax.checkpoint.checkpoint_managers import AnyPreservationPolicy, BestN, LatestN

from ropejax.training.step import TrainState


class CheckpointWarning(UserWarning):
    """A checkpoint is damaged."""


class Checkpoints:
    """The checkpoints of one run, newest and best.

    Args:
        directory: a folder of its own; made if absent.
        keep: how many of the newest to keep.
        keep_best: also keep the one with the lowest loss among those saved.
        metadata: JSON values stored with each checkpoint, such as the run's config.
        read_only: never write, delete or set aside; for reading beside a running run.

    Raises:
        ValueError: if `keep` is below 1, or metrics cannot be read and not be dropped.
    """

    def __init__(
        self,
        directory: str | pathlib.Path,
        *,
        keep: int = 3,
        keep_best: bool = True,
        metadata: Mapping[str, Any] | None = None,
        read_only: bool = False,
    ):
        if keep < 1:
            raise ValueError(f"keep must be at least 1, got {keep}.")
        self.directory = pathlib.Path(directory).absolute()
        self._metadata = dict(metadata or {})
        self._read_only = read_only
        self._manager = None
        if read_only and not self.directory.is_dir():
            return
        self._drop_unreadable_metrics()
        if read_only:
            options = ocp.CheckpointManagerOptions(
                read_only=True, create=False, save_interval_steps=0
            )
        else:
            best = [BestN(get_metric_fn=_minus_loss, n=1)] if keep_best else []
            options = ocp.CheckpointManagerOptions(
                preservation_policy=AnyPreservationPolicy([LatestN(n=keep), *best]),
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
        `<directory>.damaged`.

        Args:
            like: a state of the same model and optimizer; arrays are placed as there.

        Raises:
            ValueError: if a checkpoint is of another model or optimizer, or there are
                checkpoints but none can be read.
        """
        found, damaged = self.steps(), []
        for step in reversed(found):
            try:
                state = self._read(step, like)
            except _OtherStateError as other:
                raise ValueError(str(other)) from None
            except Exception as error:
                damaged.append(step)
                _warn(f"{self.directory / str(step)} is damaged", error)
            else:
                self._set_aside(damaged)
                return state
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
        try:
            return self._read(step, like)
        except _OtherStateError as other:
            raise ValueError(str(other)) from None

    def save(self, state: TrainState, metrics: Mapping[str, float]) -> None:
        """Writes a state in the background; the caller may go on and reuse its buffers.

        Args:
            state: the state; its step names the checkpoint.
            metrics: `loss` ranks checkpoints; others are kept beside it.
        """
        # A copy, since the next training step overwrites these buffers in place.
        leaves = jax.tree.map(jnp.copy, _leaves(state))
        about = {
            "leaves": {name: _describe(leaf) for name, leaf in leaves.items()},
            "checksums": {name: _checksum(leaf) for name, leaf in leaves.items()},
            "metadata": self._metadata,
        }
        self._manager.save(
            int(state.step),
            args=ocp.args.Composite(
                state=ocp.args.StandardSave(
                    {name: _raw(leaf) for name, leaf in leaves.items()}
                ),
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
        return self._about(step)["metadata"]

    def _about(self, step: int) -> dict[str, Any]:
        args = ocp.args.Composite(about=ocp.args.JsonRestore())
        return self._manager.restore(step, args=args).about

    def _read(self, step: int, like: TrainState) -> TrainState:
        about = self._about(step)
        wanted = _leaves(like)
        _check_same(self.directory / str(step), about["leaves"], wanted)
        abstract = {
            name: jax.ShapeDtypeStruct(raw.shape, raw.dtype, sharding=raw.sharding)
            for name, raw in ((name, _raw(leaf)) for name, leaf in wanted.items())
        }
        args = ocp.args.Composite(state=ocp.args.StandardRestore(abstract))
        raw = self._manager.restore(step, args=args).state
        for name, checksum in about["checksums"].items():
            if checksum is not None and _checksum(raw[name]) not in (checksum, None):
                raise OSError(f"{name} differs from what was written")
        leaves = [_like(raw[name], leaf) for name, leaf in wanted.items()]
        return jax.tree.unflatten(jax.tree.structure(like), leaves)

    def _set_aside(self, steps: list[int]) -> None:
        if self._read_only or not steps:
            return
        folder = self.directory.with_name(self.directory.name + ".damaged")
        folder.mkdir(exist_ok=True)
        for step in steps if jax.process_index() == 0 else []:
            taken = len(list(folder.glob(f"{step}*")))
            name = f"{step}.{taken}" if taken else str(step)
            (self.directory / str(step)).rename(folder / name)
        multihost_utils.sync_global_devices("damaged checkpoints are set aside")
        self._manager.reload()

    def _drop_unreadable_metrics(self) -> None:
        """Orbax reads all metrics when it opens a folder, and fails on bad ones."""
        for path in self.directory.glob("[0-9]*/metrics/metrics"):
            try:
                json.loads(path.read_text())
            except ValueError as error:
                if self._read_only:
                    raise ValueError(
                        f"{path} cannot be read ({error}); open the folder for writing "
                        "once, as training does, to drop it."
                    ) from None
                _warn(f"{path.parents[1]} has lost its metrics", error)
                path.unlink(missing_ok=True)

    def _metrics(self, step: int) -> dict[str, float]:
        path = self.directory / str(step) / "metrics" / "metrics"
        try:
            return json.loads(path.read_text())
        except (OSError, ValueError):
            return {}


def _warn(what: str, error: Exception) -> None:
    reason = str(error).strip().split("\n")[0][:200] or type(error).__name__
    warnings.warn(f"the checkpoint {what} ({reason}).", CheckpointWarning, stacklevel=3)


class _OtherStateError(Exception):
    """The checkpoint is whole, but of another model or optimizer."""


def _minus_loss(metrics: Mapping[str, float]) -> float:
    loss = metrics.get("loss", float("nan"))
    return -loss if np.isfinite(loss) else float("-inf")


def _leaves(state: TrainState) -> dict[str, jax.Array]:
    """Returns the arrays of a state by their path, such as `params/readout/kernel`."""
    paths, _ = jax.tree_util.tree_flatten_with_path(state)
    name = lambda path: jax.tree_util.keystr(path, simple=True, separator="/")
    return {name(path): jnp.asarray(leaf) for path, leaf in paths}


def _is_key(leaf: jax.Array) -> bool:
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _raw(leaf: jax.Array) -> jax.Array:
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _like(raw: jax.Array, leaf: jax.Array) -> jax.Array:
    if _is_key(leaf):
        return jax.random.wrap_key_data(raw, impl=jax.random.key_impl(leaf))
    return raw


def _describe(leaf: jax.Array) -> str:
    """Dtype and shape; of keys their value too, which only another seed changes."""
    if _is_key(leaf):
        return f"{leaf.dtype} {np.asarray(_raw(leaf)).tolist()}"
    return f"{leaf.dtype}{list(leaf.shape)}"


def _checksum(leaf: jax.Array) -> int | None:
    """CRC-32 of the bytes; None where other processes hold a part of them."""
    raw = _raw(leaf)
    if not (raw.is_fully_addressable or raw.is_fully_replicated):
        return None
    return zlib.crc32(np.ascontiguousarray(raw).reshape(-1).view(np.uint8))


def _check_same(
    path: pathlib.Path, found: Mapping[str, str], wanted: Mapping[str, jax.Array]
) -> None:
    """Raises `_OtherStateError` naming what differs, if anything does."""
    ours = {name: _describe(leaf) for name, leaf in wanted.items()}
    lines = [
        f"{name}: {found.get(name, 'absent')} there, {ours.get(name, 'absent')} here"
        for name in sorted(found.keys() | ours.keys())
        if found.get(name) != ours.get(name)
    ]
    if lines:
        more = f" and {len(lines) - 5} more" if len(lines) > 5 else ""
        raise _OtherStateError(
            f"the checkpoint {path} is of another model, optimizer or seed: "
            f"{'; '.join(lines[:5])}{more}. Use the config that it was trained with, "
            "or another workdir."
        )
