"""Accuracy by length, far past the training lengths, in a few compiled shapes.

Every length is scored on fresh examples and keyed by its length. Beside each score
stands that of the best *input-blind* predictor, which answers every output position
with its most frequent symbol: on some tasks it is far above chance, so a bare score
misleads.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from ropejax.nn import TransformerSpec
from ropejax.positions.base import Placement, PositionScheme
from ropejax.tasks.base import Batch, Task
from ropejax.training.buckets import bucket_of, grid_buckets
from ropejax.training.losses import Sums, batch_sums
from ropejax.training.step import apply_model
from ropejax.typing import Params, Rng

LOGITS_BYTES = 2**25
"""Rows a program are chosen so that a layer's attention logits take about this."""


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
) -> dict[int, LengthScore]:
    """Scores a model at each length, without dropout.

    A length's examples and positions depend on `seed`, the length, `samples` and
    `draws`
    alone: not on the other lengths, the buckets, or how many rows a program takes.

    Args:
        model: how the model is made.
        params: its parameters.
        task: what it was trained on.
        positions: where tokens are said to be at test time.
        lengths: input lengths to score, in symbols.
        samples: rows a length.
        draws: position draws a length; each places `samples / draws` rows.
        seed: determines examples and positions.
        buckets: increasing lengths to which batches are padded, one compiled shape
            each; chosen from `lengths` if None.
        on_length: called with each score as it comes.

    Returns:
        Scores keyed by length, in increasing order.

    Raises:
        ValueError: if a length has no examples or cannot be placed, `draws` does not
            divide `samples`, or no bucket holds a length.
    """
    lengths = sorted(set(lengths))
    buckets = grid_buckets(lengths) if buckets is None else tuple(sorted(buckets))
    if draws < 1 or samples < 1 or samples % draws:
        raise ValueError(
            f"{draws=} must divide {samples=}, so that each draw places as many rows."
        )
    # A bucket beyond every length asked for need only hold the longest of them.
    buckets = tuple(min(size, lengths[-1]) for size in buckets)
    for length in lengths:
        task.check_length(length)
        bucket_of(length, buckets)
    for size in buckets:
        positions.check(task.num_tokens(size))
    rng = jax.random.key(seed)
    scores = {}
    for length in lengths:
        counted = evaluate_length(
            model,
            params,
            task,
            positions,
            jax.random.fold_in(rng, length),
            jnp.int32(length),
            bucket=bucket_of(length, buckets),
            samples=samples,
            draws=draws,
        )
        sums, histogram = jax.device_get(counted)
        scores[length] = _score(length, sums, histogram)
        if on_length is not None:
            on_length(scores[length])
    return scores


@partial(
    jax.jit,
    static_argnames=("model", "task", "positions", "bucket", "samples", "draws"),
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

    Returns:
        Sums over all rows, and how often each symbol was the target at each output
        position, among the even rows and among the odd rows.
    """
    data_rng, positions_rng = jax.random.split(rng)
    rows_a_draw = samples // draws
    rows = rows_a_program(rows_a_draw, task.num_tokens(bucket), model.dims.num_heads)

    def one_draw(draw: Int[Array, ""]):
        lengths = jnp.full((rows_a_draw,), length, jnp.int32)
        batch = task.sample(
            data_rng, lengths, max_length=bucket, first_row=draw * rows_a_draw
        )
        placement = positions(
            jax.random.fold_in(positions_rng, draw),
            batch.lengths if positions.rows_differ else batch.lengths[:1],
            num_tokens=batch.tokens.shape[1],
            num_layers=model.dims.num_layers,
            tokens=batch.tokens,
        )

        def part(first_row: Int[Array, ""]) -> Sums:
            some = jax.tree.map(
                lambda x: jax.lax.dynamic_slice_in_dim(x, first_row, rows), batch
            )
            where = placement_rows(placement, first_row, rows, rows_a_draw)
            return batch_sums(apply_model(model, params, some, where), some)

        sums = jax.lax.map(part, jnp.arange(0, rows_a_draw, rows))
        parity = (draw * rows_a_draw + jnp.arange(rows_a_draw)) % 2
        return jax.tree.map(lambda x: x.sum(0), sums), _histogram(task, batch, parity)

    sums, histogram = jax.lax.map(one_draw, jnp.arange(draws))
    return jax.tree.map(lambda x: x.sum(0), (sums, histogram))


def rows_a_program(rows: int, num_tokens: int, num_heads: int) -> int:
    """Returns how many of `rows` to run at once: the most that fit `LOGITS_BYTES`.

    Args:
        rows: rows in all.
        num_tokens: tokens a row.
        num_heads: attention heads.

    Returns:
        A divisor of `rows`, at least 1.
    """
    fitting = max(1, LOGITS_BYTES // (4 * num_heads * num_tokens**2))
    return max(
        part for part in range(1, rows + 1) if rows % part == 0 and part <= fitting
    )


def placement_rows(
    placement: Placement, first_row: Int[Array, ""], rows: int, of: int
) -> Placement:
    """Returns the placement of some rows of a batch of `of` rows."""
    axis = int(placement.per_layer)

    def cut(array, axis):
        if array.shape[axis] != of:
            return array
        return jax.lax.dynamic_slice_in_dim(array, first_row, rows, axis)

    own, shared = placement.layers()
    own = jax.tree.map(lambda array: cut(array, axis), own)
    shared = jax.tree.map(lambda array: cut(array, 0), shared)
    return Placement(**own, **shared, per_layer=placement.per_layer)


def _histogram(
    task: Task, batch: Batch, parity: Int[Array, " B"]
) -> Int[Array, "2 P V"]:
    """Counts target symbols at each place, among even and among odd rows."""
    symbols = jnp.arange(task.output_vocab)
    hits = (batch.targets[..., None] == symbols) & batch.score_mask[..., None]
    half = lambda which: hits & (parity == which)[:, None, None]
    return jnp.stack([half(which).sum(0, dtype=jnp.int32) for which in (0, 1)])


def _score(length: int, sums: Sums, histogram: np.ndarray) -> LengthScore:
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
