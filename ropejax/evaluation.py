"""Accuracy by length, far past the training lengths, in a few compiled shapes.

Every length is scored on fresh examples and keyed by its length. Beside each score
stands that of the best *input-blind* predictor, which answers every output position
with its most frequent symbol: on some tasks it is far above chance, so a bare score
misleads.

Models that read their answers back are scored on what they decode greedily; their loss
is that of each next symbol after the right ones.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ropejax.evaluation_checks import check_kinds, checked
from ropejax.evaluation_parts import DECODING_BYTES, LOGITS_BYTES, filled, in_parts
from ropejax.nn import TransformerSpec
from ropejax.nn.decoder_greedy import decode_batch
from ropejax.positions.base import Placement, PositionScheme
from ropejax.sharding import Sharding
from ropejax.tasks import Autoregressive
from ropejax.tasks.base import Batch, Task
from ropejax.training.buckets import bucket_of
from ropejax.training.losses import Sums, batch_sums, count_right
from ropejax.training.step import apply_model
from ropejax.typing import Params, Rng


class LengthScore(NamedTuple):
    """What was counted at one length.

    Attributes:
        length: input length, in symbols.
        loss: cross-entropy in nats, summed over outputs.
        outputs: number of outputs.
        correct: right symbols among the scored ones.
        scored: number of scored symbols.
        exact: rows whose scored symbols are all right.
        rows: number of rows.
        blind_correct: scored symbols that the best input-blind predictor gets right.
    """

    length: int
    loss: float
    outputs: int
    correct: int
    scored: int
    exact: int
    rows: int
    blind_correct: int

    @property
    def accuracy(self) -> float:
        """Fraction of scored symbols that are right."""
        return self.correct / self.scored

    @property
    def exact_match(self) -> float:
        """Fraction of rows without a mistake."""
        return self.exact / self.rows

    @property
    def mean_loss(self) -> float:
        """Mean cross-entropy an output, in nats."""
        return self.loss / self.outputs

    @property
    def perplexity(self) -> float:
        """The number of equally likely symbols that would be as hard to tell."""
        return math.exp(min(self.mean_loss, 700.0))  # beyond that, no number holds it

    @property
    def input_blind(self) -> float:
        """Accuracy of the best predictor that does not see the input."""
        return self.blind_correct / self.scored


def evaluate(
    model: TransformerSpec,
    params: Params,
    task: Task,
    positions: PositionScheme,
    lengths: Iterable[int],
    *,
    samples: int = 512,
    draws: int = 8,
    seed: int = 1,
    buckets: tuple[int, ...] | None = None,
    on_length: Callable[[LengthScore], None] | None = None,
    examples: Callable[[int, int], Batch] | None = None,
    sharding: Sharding | None = None,
) -> dict[int, LengthScore]:
    """Scores a model at each length, without dropout.

    A length's examples and positions depend on `seed`, the length, `samples` and
    `draws` alone: not on the other lengths, the buckets, how many rows a program takes,
    or the mesh.

    Args:
        model: how the model is made.
        params: its parameters, placed as `sharding` places them.
        task: what it was trained on; what it holds out, if anything, is scored.
        positions: where tokens are said to be at test time.
        lengths: input lengths to score, in symbols.
        samples: rows a length.
        draws: position draws a length; each places `samples / draws` rows.
        seed: determines examples and positions.
        buckets: increasing lengths to which batches are padded, one compiled shape
            each; chosen from `lengths` if None.
        on_length: called with each score as it comes.
        examples: a function of a length and a bucket that returns `samples` rows to
            score, padded to the bucket; they are drawn from the task if None.
        sharding: how model and rows are spread over a mesh, as in training; answers
            are decoded there too. All processes of the mesh must call this alike, and
            get the same scores. None for one device.

    Returns:
        Scores keyed by length, in increasing order.

    Raises:
        ValueError: if a length has no examples or cannot be placed, or only where an
            encoding has no positions, `draws` does not divide `samples`, no bucket
            holds a length, a number is not whole, the seed is not in 0 .. 2**31 - 1,
            the task has symbols that the model does not know, no encoding reads what
            the positions say, or the model cannot be spread so.
    """
    if sharding is not None:
        sharding.check_one_model()
        sharding.check(model)
    scores = {}
    for length, (sums, histogram) in counted_by_length(
        partial(evaluate_length, model, params, sharding=sharding),
        model,
        task,
        positions,
        lengths,
        samples=samples,
        draws=draws,
        seed=seed,
        buckets=buckets,
        padded=None if sharding is None else sharding.padded_length,
        examples=examples,
    ):
        scores[length] = score_of(length, sums, histogram)
        if on_length is not None:
            on_length(scores[length])
    return scores


def counted_by_length(
    count: Callable[..., tuple[Sums, Array]],
    model: TransformerSpec,
    task: Task,
    positions: PositionScheme,
    lengths: Iterable[int],
    *,
    samples: int,
    draws: int,
    seed: int,
    buckets: tuple[int, ...] | None,
    padded: Callable[[int], int] | None = None,
    examples: Callable[[int, int], Batch] | None = None,
) -> Iterator[tuple[int, tuple[Sums, np.ndarray]]]:
    """Yields what `count` finds at each length, for one model or many.

    Args:
        count: `evaluate_length` of one model, or of all members of a population; called
            with all its arguments behind model and parameters.
        model: how the model, or each of them, is made.
        task: see `evaluate`, like all that follow.
        positions: where tokens are said to be at test time.
        lengths: input lengths to score.
        samples: rows a length.
        draws: position draws a length.
        seed: determines examples and positions.
        buckets: increasing lengths to which batches are padded, or None.
        padded: to how many tokens a mesh pads that many, or None.
        examples: rows to score by length and bucket, or None.

    Yields:
        Lengths in increasing order, each with what was counted, on the host.

    Raises:
        ValueError: as `evaluate`.
    """
    check_kinds(task, positions)
    task = task.tested
    amounts = checked(
        model,
        task,
        positions,
        lengths,
        samples=samples,
        draws=draws,
        seed=seed,
        buckets=buckets,
        padded=padded,
    )
    rng = jax.random.key(amounts.seed)
    for length in amounts.lengths:
        bucket = bucket_of(length, amounts.buckets)
        given = {} if examples is None else {"examples": examples(length, bucket)}
        counted = count(
            task,
            positions,
            jax.random.fold_in(rng, length),
            jnp.int32(length),
            bucket=bucket,
            samples=amounts.samples,
            draws=amounts.draws,
            **given,
        )
        yield length, jax.device_get(counted)


@partial(
    jax.jit,
    static_argnames=(
        "model",
        "task",
        "positions",
        "bucket",
        "samples",
        "draws",
        "sharding",
    ),
)
def evaluate_length(
    model: TransformerSpec,
    params: Params,
    task: Task,
    positions: PositionScheme,
    rng: Rng,
    length: Int[Array, ""],
    *,
    bucket: int,
    samples: int,
    draws: int,
    examples: Batch | None = None,
    sharding: Sharding | None = None,
) -> tuple[Sums, Int[Array, "2 Y V"]]:
    """Scores one traced length in one dispatch; compiled once a bucket.

    Args:
        model: how the model is made.
        params: its parameters.
        task: what it was trained on.
        positions: where tokens are said to be.
        rng: PRNG key of this length.
        length: input length, at most `bucket`.
        bucket: the length that batches are padded to.
        samples: rows in all.
        draws: position draws.
        examples: the rows to score; drawn from the task if None.
        sharding: how model and rows are spread over a mesh; None for one device.

    Returns:
        Sums over all rows, and how often each symbol was the target at each output
        position, among the even rows and among the odd rows.
    """
    data_rng, positions_rng = jax.random.split(rng)
    rows = samples // draws
    reading = decoding = _Reader.of(model, params, sharding)
    decodes = isinstance(task, Autoregressive)
    if decodes and sharding is not None:
        decoding = _Reader.of(model, params, sharding.by_rows)

    def one_draw(draw: Int[Array, ""]):
        first = draw * rows
        if examples is None:
            lengths = jnp.full((rows,), length, jnp.int32)
            batch = task.sample(data_rng, lengths, max_length=bucket, first_row=first)
        else:
            batch = jax.tree.map(
                lambda x: jax.lax.dynamic_slice_in_dim(x, first, rows), examples
            )
        if sharding is not None:
            batch = sharding.padded(batch)
        placement = positions(
            jax.random.fold_in(positions_rng, draw),
            batch.lengths if positions.rows_differ else batch.lengths[:1],
            num_tokens=batch.tokens.shape[1],
            num_layers=model.dims.num_layers,
            tokens=task.placing_tokens(batch),
        )
        symbols = _histogram(task, batch, (first + jnp.arange(rows)) % 2)
        batch, placement, extra = filled(batch, placement, decoding.rows_at_once)
        sums = reading.in_parts(_sums, batch, placement, budget=LOGITS_BYTES)
        if decodes:
            count = partial(_decoded_right, task, bucket)
            right = decoding.in_parts(count, batch, placement, budget=DECODING_BYTES)
            sums = sums._replace(correct=right[0], exact=right[1])
        sums = jax.tree.map(lambda x: x.sum(0), sums)
        # Rows that only fill a mesh have nothing to answer, and so nothing wrong.
        sums = sums._replace(rows=sums.rows - extra, exact=sums.exact - extra)
        return sums, symbols

    found = jax.lax.map(one_draw, jnp.arange(draws))
    found = jax.tree.map(lambda x: x.sum(0), found)
    return found if sharding is None else sharding.everywhere(found)


class _Reader(NamedTuple):
    """A model with its parameters, and how rows are spread over devices for it.

    Attributes:
        model: how the model is made, its settings those for the mesh.
        params: its parameters.
        sharding: how rows and model are spread; None for one device.
    """

    model: TransformerSpec
    params: Params
    sharding: Sharding | None

    @classmethod
    def of(cls, model, params, sharding: Sharding | None) -> "_Reader":
        """Returns a reader; under `jax.jit`."""
        if sharding is None:
            return cls(model, params, None)
        return cls(sharding.model(model), sharding.gathered(model, params), sharding)

    @property
    def rows_at_once(self) -> int:
        """What the number of rows must be a multiple of."""
        return 1 if self.sharding is None else self.sharding.batch_parts

    def in_parts(self, count, batch: Batch, placement: Placement, *, budget: int):
        """Returns what `count(self, rows, where they are)` finds in parts of rows."""
        return in_parts(
            partial(count, self),
            batch,
            placement,
            num_heads=self.model.dims.num_heads,
            budget=budget,
            sharding=self.sharding,
        )


def _sums(reader: _Reader, batch: Batch, placement: Placement) -> Sums:
    return batch_sums(apply_model(reader.model, reader.params, batch, placement), batch)


def _decoded_right(
    task: Autoregressive,
    bucket: int,
    reader: _Reader,
    batch: Batch,
    placement: Placement,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Right symbols and rows, of answers that are decoded greedily."""
    answers = decode_batch(
        reader.model.bind(reader.params),
        task,
        batch,
        placement,
        max_length=bucket,
        same_length=True,
        held=None if reader.sharding is None else reader.sharding.caches,
    )
    return count_right(answers, batch)


def _histogram(
    task: Task, batch: Batch, parity: Int[Array, " B"]
) -> Int[Array, "2 P V"]:
    """Counts target symbols at each place, among even and among odd rows."""
    symbols = jnp.arange(task.output_vocab)
    hits = (batch.targets[..., None] == symbols) & batch.score_mask[..., None]
    half = lambda which: hits & (parity == which)[:, None, None]
    return jnp.stack([half(which).sum(0, dtype=jnp.int32) for which in (0, 1)])


def score_of(length: int, sums: Sums, histogram: np.ndarray) -> LengthScore:
    """Turns sums into a score; the blind predictor is chosen on the other half of rows.

    Choosing on the rows that are scored would flatter it, the more the fewer rows.
    """
    even, odd = histogram
    chosen = lambda own, other: np.take_along_axis(
        own, other.argmax(-1)[..., None], axis=-1
    ).sum()
    whole = lambda x: int(round(float(x)))
    return LengthScore(
        length=length,
        loss=float(sums.loss),
        outputs=whole(sums.outputs),
        correct=whole(sums.correct),
        scored=whole(sums.scored),
        exact=whole(sums.exact),
        rows=whole(sums.rows),
        blind_correct=int(chosen(even, odd) + chosen(odd, even)),
    )
