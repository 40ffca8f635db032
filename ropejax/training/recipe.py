"""All that is static about a training run, as one frozen value."""

import dataclasses

import optax

from ropejax.nn import TransformerSpec
from ropejax.positions.base import PositionScheme
from ropejax.settings import Settings
from ropejax.sharding import Sharding
from ropejax.tasks.base import Task
from ropejax.training.alphabets import check_alphabets, check_named_symbols
from ropejax.training.curriculum import Curriculum, check_curriculum
from ropejax.training.nonfinite import check_policy
from ropejax.training.placed_rows import check_rows
from ropejax.training.places import check_reach
from ropejax.training.progressive import ProgressiveLoss
from ropejax.training.reading import check_read


@dataclasses.dataclass(frozen=True)
class Recipe(Settings):
    """Everything static about training; with a seed it determines every number.

    Attributes:
        model: how to make the model; hashable.
        task: what is learned.
        positions: where tokens are said to be in training.
        optimizer: an optax transformation.
        curriculum: which lengths a step sees.
        buckets: increasing lengths to which batches are padded, one compiled shape
            each; the last one holds `curriculum.max_length`.
        batch_size: rows a step.
        length_per_row: draw a length for each row rather than for the batch.
        accumulate: into how many parts a batch is cut that are computed one after the
            other, their gradients added; it alters memory, not numbers, but for the
            gradient of parameters beyond the range that they are held in
            (`ropejax.encodings.held`), which goes by the sign of each part's.
        sharding: how all of it is spread over a mesh of devices; None: one device.
        nonfinite: what a loss or gradient that is not finite does: "stop" (training
            stands still before that step), "skip" (the step changes no parameter) or
            "count" (nothing; it shows in the metrics).
        progressive: how the loops of a looped model enter its loss; None: it is taken
            after all of them.

    Raises:
        ValueError: if these do not fit each other: among others, where an encoding has
            a table of positions that the longest batches leave, where the task has
            symbols that the model does not know, where no encoding reads what the
            position scheme says (`ropejax.training.reading`), or where that scheme
            refuses rows for their symbols (`ropejax.training.placed_rows`).
    """

    model: TransformerSpec
    task: Task
    positions: PositionScheme
    optimizer: optax.GradientTransformation
    curriculum: Curriculum
    buckets: tuple[int, ...]
    batch_size: int = 128
    length_per_row: bool = False
    accumulate: int = 1
    sharding: Sharding | None = None
    nonfinite: str = "stop"
    progressive: ProgressiveLoss | None = None

    def __post_init__(self):
        self._check_kinds()
        object.__setattr__(self, "buckets", tuple(self.buckets))  # hashable
        check_policy(self.nonfinite)
        if self.progressive is not None:
            self.progressive.check(getattr(self.model, "loops", 1))
        if self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {self.batch_size}.")
        if self.accumulate < 1 or self.batch_size % self.accumulate:
            raise ValueError(
                f"accumulate={self.accumulate} must divide "
                f"batch_size={self.batch_size}, both at least 1."
            )
        if self.sharding is not None:
            self.sharding.check(self.model, self.batch_size, self.accumulate)
        if not self.buckets or list(self.buckets) != sorted(set(self.buckets)):
            raise ValueError(f"buckets must increase, got {self.buckets}.")
        if self.buckets[-1] < self.curriculum.max_length:
            raise ValueError(
                f"the largest bucket, {self.buckets[-1]}, must hold the curriculum's "
                f"longest length, {self.curriculum.max_length}."
            )
        check_curriculum(self.curriculum)
        self._check_shortest()
        check_alphabets(self.model, self.task)
        if self.task.left_to_right and not self.model.dims.causal:
            raise ValueError(
                f"answers of {self.task.title} are seen further on in its input: the "
                "model must be causal; set dims.causal=True and causal masks."
            )
        check_named_symbols(self.positions, self.task)
        for length in self.buckets:
            self.task.check_length(length)
            self._check_places(length)
        shortest = self.task.num_tokens(self.buckets[0])
        check_read(
            self.positions,
            self.model,
            shortest,
            what=f"batches of {self.buckets[0]} symbols are {shortest} tokens",
        )
        longest = self.curriculum.max_length
        what = f"inputs of {longest} symbols"
        check_rows(self.positions, self.task, longest, what=what)

    def _check_kinds(self) -> None:
        """Refuses what is no model's settings, and no optimizer."""
        for name, known, wanted in (
            ("model", ("init", "pattern", "dims"), "TransformerSpec(...)"),
            ("optimizer", ("init", "update"), "ropejax.training.adam(1e-3)"),
        ):
            value = getattr(self, name)
            if not all(hasattr(value, attribute) for attribute in known):
                raise ValueError(f"{name} must be like {wanted}, got {value!r}.")

    def _check_shortest(self) -> None:
        """Refuses a curriculum that asks for lengths of which there is no example."""
        try:
            self.task.check_length(self.curriculum.shortest)
        except ValueError as error:
            raise ValueError(
                f"the curriculum asks for lengths from {self.curriculum.shortest} on "
                f"(its `shortest`; Uniform has a min_length): {error}"
            ) from None

    def _check_places(self, length: int) -> None:
        """Refuses lengths that cannot be placed where the encodings have positions."""
        num_tokens = self.task.num_tokens(length)
        what = f"batches of {length} symbols are {num_tokens} tokens"
        if self.sharding is not None:
            padded = self.sharding.padded_length(num_tokens)
            if padded > num_tokens:
                what += f", padded to {padded} to divide over the mesh"
            num_tokens = padded
        check_reach(
            self.positions,
            self.model.pattern,
            num_tokens,
            what=what,
            remedy="give it a larger max_position",
        )
