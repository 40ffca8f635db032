"""What a fixed evaluation set is: its name, its examples, its hash, their layout.

A set holds exactly the examples that `ropejax.evaluation` draws for the same task,
length, samples and seed, so a model scores the same on either.
"""

import dataclasses
import hashlib
import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from experiments.building.imported import path_of
from ropejax.seeds import check_seed
from ropejax.tasks import ALL_TASKS, Autoregressive, Batch, Task
from ropejax.training.buckets import grid_buckets
from ropejax.typing import Rng

NAME, VERSION = "ropejax_evaluation", "1.0.0"
ROWS_AT_ONCE = 512

Row = Mapping[str, np.ndarray]
"""One example: `inputs` and `targets`, and `scored`, where accuracy is counted."""


@dataclasses.dataclass(frozen=True)
class SetKey:
    """Which set: everything that determines its examples.

    Attributes:
        task: what they are of, with placeholders (never `Autoregressive`).
        length: input length, in symbols.
        samples: number of examples.
        seed: of the examples; the evaluation's.
    """

    task: Task
    length: int
    samples: int
    seed: int

    def __post_init__(self):
        if self.samples < 1:
            raise ValueError(f"samples must be at least 1, got {self.samples}.")
        check_seed("seed", self.seed)
        self.task.tested.check_length(self.length)

    @property
    def name(self) -> str:
        """Name of the TFDS config: the folder's, and `tfds.data_source`'s."""
        of = f"length_{self.length}-samples_{self.samples}-seed_{self.seed}"
        return f"{folder_text(self.task)}-{of}"

    def folder(self, data_dir: str | pathlib.Path) -> pathlib.Path:
        """Returns where the set is within `data_dir`."""
        return pathlib.Path(data_dir) / NAME / self.name / VERSION

    def rows(self) -> Iterator[Row]:
        """Draws the examples, in order."""
        (size,) = grid_buckets([self.length])
        rng, _ = jax.random.split(
            jax.random.fold_in(jax.random.key(self.seed), self.length)
        )
        inputs = int(self.task.input_length(self.length))
        rows = min(ROWS_AT_ONCE, self.samples)
        for first in range(0, self.samples, rows):
            drawn = _draw(
                self.task.tested, rng, self.length, first, size=size, rows=rows
            )
            batch = jax.device_get(drawn)
            for at in range(min(rows, self.samples - first)):
                answers_from = 0 if self.task.in_place else inputs
                answer = slice(answers_from, int(batch.lengths[at]))
                yield {
                    "inputs": batch.tokens[at, :inputs],
                    "targets": batch.targets[at, answer],
                    "scored": batch.score_mask[at, answer],
                }


@partial(jax.jit, static_argnames=("task", "size", "rows"))
def _draw(
    task: Task,
    rng: Rng,
    length: Int[Array, ""],
    first: Int[Array, ""],
    *,
    size: int,
    rows: int,
) -> Batch:
    """Draws some rows of one length: a compiled program for all lengths of a size."""
    lengths = jnp.full((rows,), length, jnp.int32)
    return task.sample(rng, lengths, max_length=size, first_row=first)


def folder_text(task: Task) -> str:
    """Returns `task_text` in letters that a folder's name may have.

    Two tasks may have one (`shift=-1` and `shift=1`): readers check which it is.
    """
    return re.sub(r"[^A-Za-z0-9_.]+", "_", task_text(task)).strip("_")


def task_text(task: Task) -> str:
    """Returns a task as configs name it, with the settings that are not default."""
    names = {cls: name for name, cls in ALL_TASKS.items()}
    name = names.get(type(task)) or path_of(type(task))
    changed = [
        f"{field.name}={getattr(task, field.name)}"
        for field in dataclasses.fields(task)
        if getattr(task, field.name) != field.default
        # Which part of a file was held out by default has not always been the same.
        or (field.name == "held_out" and task.path)
    ]
    return f"{name}({', '.join(changed)})" if changed else name


def content_hash(rows: Iterable[Row]) -> str:
    """Returns the SHA-256 of examples, in order, as 64 hexadecimal digits.

    Of each example: the two lengths as 8-byte integers, inputs and targets as 4-byte
    integers, little-endian all, and a byte 0 or 1 for each entry of `scored`.
    """
    digest = hashlib.sha256()
    for row in rows:
        sizes = [len(row["inputs"]), len(row["targets"])]
        digest.update(np.asarray(sizes, "<i8").tobytes())
        digest.update(np.asarray(row["inputs"], "<i4").tobytes())
        digest.update(np.asarray(row["targets"], "<i4").tobytes())
        digest.update(np.asarray(row["scored"], np.uint8).tobytes())
    return digest.hexdigest()


@dataclasses.dataclass(frozen=True)
class FixedSet:
    """One set.

    Attributes:
        key: which set.
        rows: its examples, in order.
        sha256: hash of its content.
    """

    key: SetKey
    rows: tuple[Row, ...]
    sha256: str

    def batch(self, task: Task, max_length: int) -> Batch:
        """Returns all examples as `task.sample` would have laid them out.

        Args:
            task: the set's task, or the same one read back by a decoder.
            max_length: the length that rows are padded to.
        """
        own = self.key.task
        shape = (len(self.rows), own.num_tokens(max_length))
        tokens, targets = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
        answered, scored = np.zeros(shape, bool), np.zeros(shape, bool)
        lengths = np.zeros(shape[:1], np.int32)
        for at, row in enumerate(self.rows):
            start = 0 if own.in_place else len(row["inputs"])
            end = lengths[at] = start + len(row["targets"])
            tokens[at, start:end] = own.placeholder
            tokens[at, : len(row["inputs"])] = row["inputs"]
            targets[at, start:end] = row["targets"]
            scored[at, start:end] = row["scored"]
            answered[at, start:end] = row["scored"] if own.in_place else True
        batch = Batch(tokens, targets, answered, scored, lengths)
        return task.read_back(batch) if isinstance(task, Autoregressive) else batch
