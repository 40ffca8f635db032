"""What was counted at each place of the answers of one length.

Accuracy by length says how far a model goes; by place it says where in the answer it
fails: at the first digit, at the carry, at the end. On text the places are those of the
window: a loss that falls along it is long context that is used, one that is high at its
beginning alone is the early-token curse, and the last S of them are what windows that
slide by S score (Press et al. 2021, arXiv 2108.12409, section 2 and appendix B).
"""

import dataclasses
import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ropejax.positions.base import Placement
from ropejax.tasks.base import Batch, Task
from ropejax.training.losses import TokenLosses
from ropejax.whole_numbers import whole_number


class PlaceSums(NamedTuple):
    """What some rows add up to at each token, in the tokens' own order.

    Attributes:
        loss: cross-entropy in nats, summed over rows.
        outputs: rows that have an output here.
        correct: rows whose symbol here is scored and right.
        scored: rows whose symbol here is scored.
        first_wrong: rows whose first mistake is here.
    """

    loss: Float[Array, " P"]
    outputs: Int[Array, " P"]
    correct: Int[Array, " P"]
    scored: Int[Array, " P"]
    first_wrong: Int[Array, " P"]


def place_sums(told: TokenLosses, batch: Batch, placement: Placement) -> PlaceSums:
    """Returns the sums of a batch at each token: those of `batch_sums`, apart.

    Args:
        told: loss and answer at each token.
        batch: the batch, with its targets and masks.
        placement: where its tokens are; says in which order they are stored.
    """
    correct, first_wrong = right_by_place(told.answers, batch, placement)
    count = lambda mask: jnp.sum(_in_order(mask, placement), 0, dtype=jnp.int32)
    return PlaceSums(
        loss=jnp.sum(_in_order(told.loss, placement), 0, dtype=jnp.float32),
        outputs=count(batch.target_mask),
        correct=correct,
        scored=count(batch.score_mask),
        first_wrong=first_wrong,
    )


def right_by_place(
    answers: Int[Array, "B P"], batch: Batch, placement: Placement
) -> tuple[Int[Array, " P"], Int[Array, " P"]]:
    """Returns how many rows are right at each token, and first wrong there.

    Args:
        answers: the symbol answered at each place, `[B, P]`.
        batch: the batch, with its targets and masks.
        placement: where its tokens are; says in which order they are stored.
    """
    right = _in_order(answers == batch.targets, placement)
    scored = _in_order(batch.score_mask, placement)
    missed = scored & ~right
    first = jnp.arange(missed.shape[1]) == jnp.argmax(missed, axis=1)[:, None]
    count = lambda mask: jnp.sum(mask, 0, dtype=jnp.int32)
    return count(scored & right), count(missed & first)


def _in_order(
    values: Float[Array, "B P"] | Bool[Array, "B P"], placement: Placement
) -> Float[Array, "B P"] | Bool[Array, "B P"]:
    """Undoes an order in which a mesh stores tokens."""
    if placement.order is None:
        return values
    return jnp.take(values, jnp.argsort(placement.order), axis=1)


@dataclasses.dataclass(frozen=True, eq=False)
class PlaceScores:
    """What was counted at each place of the answers of one length.

    Place 0 is the first symbol of the answer; of tasks whose answers are read at the
    input's own symbols (`Task.in_place`), the first symbol of the input. All arrays
    have an entry a place. Over all places, `loss`, `outputs`, `correct`, `scored` and
    `blind_correct` add up to those of the `LengthScore`, and `first_wrong` to the rows
    that are not exactly right.

    Attributes:
        loss: cross-entropy in nats, summed over rows.
        outputs: rows that have an output here: what the loss is a mean over.
        correct: rows whose symbol here is scored and right.
        scored: rows whose symbol here is scored: not behind the end of an answer, and
            not where a task asks for nothing.
        first_wrong: rows whose first mistake is here.
        blind_correct: rows whose scored symbol the best input-blind predictor gets
            right.
        rows: number of rows.
    """

    loss: Float[np.ndarray, " Y"]
    outputs: Int[np.ndarray, " Y"]
    correct: Int[np.ndarray, " Y"]
    scored: Int[np.ndarray, " Y"]
    first_wrong: Int[np.ndarray, " Y"]
    blind_correct: Int[np.ndarray, " Y"]
    rows: int

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PlaceScores):
            return NotImplemented
        return self.rows == other.rows and all(
            np.array_equal(getattr(self, name), getattr(other, name))
            for name in COUNTED
        )

    __hash__ = None

    def __len__(self) -> int:
        """The number of places."""
        return len(self.outputs)

    @property
    def accuracy(self) -> Float[np.ndarray, " Y"]:
        """Fraction of scored symbols that are right; NaN where none is scored."""
        return _ratio(self.correct, self.scored)

    @property
    def input_blind(self) -> Float[np.ndarray, " Y"]:
        """Accuracy of the best predictor that does not see the input; likewise."""
        return _ratio(self.blind_correct, self.scored)

    @property
    def mean_loss(self) -> Float[np.ndarray, " Y"]:
        """Mean cross-entropy in nats; NaN where there is no output."""
        return _ratio(self.loss, self.outputs)

    @property
    def right_so_far(self) -> Float[np.ndarray, " Y"]:
        """Fraction of rows without a mistake up to here; at the end, exact match."""
        return 1 - np.cumsum(self.first_wrong) / self.rows

    def in_stretches(self, most: int) -> "PlaceScores":
        """Returns sums over stretches of places that follow one another.

        Args:
            most: number of stretches, at least 1; their sizes differ by one at the
                most. Where there are no more places than that, each is one.

        Raises:
            ValueError: if `most` is not a whole number from 1 up.
        """
        starts = self.stretch_starts(most)
        sums = {name: np.add.reduceat(getattr(self, name), starts) for name in COUNTED}
        return PlaceScores(**sums, rows=self.rows)

    def stretch_starts(self, most: int) -> Int[np.ndarray, " M"]:
        """Returns the first place of each stretch of `in_stretches`."""
        parts = min(whole_number("most", most, least=1), len(self))
        return np.arange(parts) * len(self) // parts

    def sliding_perplexity(self, stride: int) -> float:
        """Returns the perplexity of windows of this length that slide by a stride.

        Each scores its last `stride` symbols alone, so that every symbol has at least
        length - stride before it:

            exp(sum of the loss at the last `stride` places / outputs there)

        It is that of a task with `last=stride` on the same windows.

        Args:
            stride: from 1 to the number of places; windows further apart would leave
                symbols out.

        Raises:
            ValueError: if the stride is not a whole number in that range, or some of
                those places were not asked for.

        References:
            Press et al. 2021 (ALiBi), arXiv 2108.12409, section 2 and appendix B.
        """
        stride = whole_number("stride", stride, least=1, most=len(self))
        if not self.outputs[-stride:].all():
            raise ValueError(
                f"stride={stride} goes over places that were not scored; score whole "
                "windows (last=None), or take a stride of at most "
                f"{int(np.argmin(self.outputs[::-1] > 0))}."
            )
        nats = self.loss[-stride:].sum() / self.outputs[-stride:].sum()
        return math.exp(min(nats, 700.0)) if not math.isnan(nats) else math.nan


COUNTED = tuple(
    field.name for field in dataclasses.fields(PlaceScores) if field.name != "rows"
)
"""The arrays of `PlaceScores`."""


def _ratio(part: np.ndarray, whole: np.ndarray) -> Float[np.ndarray, " Y"]:
    return np.divide(part, whole, out=np.full(len(whole), np.nan), where=whole > 0)


def answer_places(task: Task, length: int) -> slice:
    """Returns which tokens of a row are places of its answer.

    Args:
        task: what is answered.
        length: input length of the row.
    """
    inputs = int(task.input_length(length))
    if task.in_place:
        return slice(0, inputs)
    return slice(inputs, inputs + int(task.output_length(length)))


def place_scores(
    sums: PlaceSums, blind_correct: Int[np.ndarray, " P"], places: slice, rows: int
) -> PlaceScores:
    """Returns the sums at the places of answers.

    Args:
        sums: at each token, on the host.
        blind_correct: what the best input-blind predictor gets right at each token.
        places: which tokens are places of the answer.
        rows: number of rows.

    Raises:
        ValueError: if an output is elsewhere: rows that are no examples of the length.
    """
    outside = np.sum(sums.outputs) - np.sum(sums.outputs[places])
    if outside:
        raise ValueError(
            f"{int(outside)} outputs stand outside places {places.start} to "
            f"{places.stop - 1}, where answers of this length are; examples must be "
            "rows of the length that they are asked for."
        )
    counts = {
        name: np.asarray(own[places], np.float64 if name == "loss" else np.int64)
        for name, own in (sums._asdict() | {"blind_correct": blind_correct}).items()
    }
    return PlaceScores(**counts, rows=rows)
