"""Several processes that train one model together, started by the same command.

Each computes its part of every step on its own devices; data are made on the devices
from keys, so each makes its own part of a batch. Only the first process writes a run's
config, rows and curves; checkpoints are written by all of them.
"""

import contextlib
import importlib.metadata
import json
import os
import platform
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jax

import ropejax
from experiments.running.storage import StorageError
from experiments.running.workdir import flat
from ropejax.sharding import Sharding
from ropejax.training.checkpoint_agreement import gathered

VERSIONS = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")
"""Packages of which all processes must have the same version."""

SETTINGS = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
    "jax_numpy_dtype_promotion",
)
"""Settings of JAX that must be the same, since they alter what is computed."""

HEARTBEAT_S = 100
"""Seconds of silence after which a process is taken for dead, JAX's own default."""


def initialize(
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    heartbeat_s: int = HEARTBEAT_S,
) -> None:
    """Joins the other processes; call before anything else of JAX.

    What is not given is looked for in JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and
    JAX_PROCESS_ID, and then in what Slurm, Open MPI, Kubernetes or a TPU's metadata say
    (`jax.distributed`).

    Args:
        coordinator: HOST:PORT of the first process.
        num_processes: how many there are.
        process_id: which one this is, from 0.
        heartbeat_s: seconds of silence after which a process is taken for dead, and
            all others end.

    Raises:
        ValueError: if they are not known, or are no numbers.
    """
    if heartbeat_s < 1:
        raise ValueError(f"heartbeat_s must be at least 1 second, got {heartbeat_s}.")
    coordinator = coordinator or os.environ.get("JAX_COORDINATOR_ADDRESS")
    if coordinator and not coordinator.rpartition(":")[2].isdigit():
        raise ValueError(f"the coordinator must be HOST:PORT, got {coordinator!r}.")
    num_processes = _number(num_processes, "JAX_NUM_PROCESSES")
    process_id = _number(process_id, "JAX_PROCESS_ID")
    # Its handler of SIGTERM would swallow those that come before ours is there.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(
            coordinator,
            num_processes,
            process_id,
            heartbeat_timeout_seconds=heartbeat_s,
        )
    except ValueError as error:
        raise ValueError(
            f"--distributed cannot find the other processes ({error}); give "
            "--coordinator=HOST:PORT, --num_processes and --process_id, or start under "
            "Slurm, Open MPI, Kubernetes or on a TPU pod."
        ) from None


def is_first() -> bool:
    """Returns True in the process that writes, and where there is only one."""
    return jax.process_index() == 0


def check_agreement(config: Mapping[str, Any]) -> None:
    """Raises ValueError in every process unless all have the same config and versions.

    Args:
        config: all settings of this process, plain.
    """
    if jax.process_count() == 1:
        return
    own = flat(config) | {name: importlib.metadata.version(name) for name in VERSIONS}
    own |= {"python": platform.python_version(), "ropejax": ropejax.__version__}
    own |= {name: getattr(jax.config, name) for name in SETTINGS}
    given = gathered(json.dumps(own, sort_keys=True))
    everyone = [json.loads(text) for text in given]
    first = everyone[0]
    lines = [
        f"{name} is {first.get(name, 'absent')!r} in process 0 and "
        f"{other.get(name, 'absent')!r} in process {number}"
        for number, other in enumerate(everyone)
        for name in sorted(first.keys() | other.keys())
        if first.get(name) != other.get(name)
    ]
    if lines:
        more = f" and {len(lines) - 5} more" if len(lines) > 5 else ""
        raise ValueError(
            f"the processes disagree: {'; '.join(lines[:5])}{more}. Start all of them "
            "with the same command, packages and environment."
        )


def as_the_first(value: Any) -> Any:
    """Returns what the first process has, in all that call this.

    Args:
        value: anything that JSON can hold.
    """
    if jax.process_count() == 1:
        return value
    return json.loads(gathered(json.dumps(value))[0])


@contextlib.contextmanager
def failing_together() -> Iterator[None]:
    """Lets what cannot be in one process end all, so that none waits for one gone.

    All processes must enter and leave it, and may not meet within.

    Raises:
        ValueError: in the others too, if one raised it, saying which one.
        StorageError: in the others, if one could not read or write.
    """
    if jax.process_count() == 1:
        yield
        return
    failed: Exception | None = None
    try:
        yield
    except (ValueError, OSError, StorageError) as error:
        failed = error
    mine = None if failed is None else [isinstance(failed, ValueError), str(failed)]
    everyone = [json.loads(text) for text in gathered(json.dumps(mine))]
    if failed is not None:
        raise failed
    for number, theirs in enumerate(everyone):
        if theirs is not None:
            kind = ValueError if theirs[0] else StorageError
            raise kind(f"in process {number}: {theirs[1]}")


def check_mesh(sharding: Sharding | None, flag: str) -> None:
    """Raises ValueError if several processes would each work for themselves.

    Args:
        sharding: the mesh that they share; None if there is none.
        flag: what would give them one, for the message.
    """
    if sharding is None and jax.process_count() > 1:
        raise ValueError(
            f"{jax.process_count()} processes have {jax.device_count()} devices, but "
            f"one is used; give them a mesh, such as {flag}."
        )


class Silent:
    """A writer of rows, and of anything else, that writes nothing."""

    def write(self, kind: str, **fields: Any) -> None:
        """Drops a row."""

    def evaluation(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Drops rows."""

    def close(self) -> None:
        """Does nothing."""

    def __enter__(self) -> "Silent":
        return self

    def __exit__(self, *exception: object) -> None:
        pass


def _number(given: int | None, variable: str) -> int | None:
    text = os.environ.get(variable)
    if given is not None or text is None:
        return given
    if not text.isdigit():
        raise ValueError(f"{variable} must be a number, got {text!r}.")
    return int(text)
