"""Accuracy by length, far past the training lengths, in a few compiled shapes.

Every length is scored on fresh examples and keyed by its length. Beside each score
stands that of the best *input-blind* predictor, which answers every output position
with its most frequent symbol: on some tasks it is far above chance, so a bare score
misleads.

Where in the answer a model fails is counted if asked for (`evaluation_places`).

Models that read their answers back are scored on what they decode greedily; their loss
is that of each next symbol after the right ones.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from ropejax.evaluation_checks import check_kinds, checked
from ropejax.evaluation_parts import (
    DECODING_BYTES,
    LOGITS_BYTES,
    filled,
    held_a_token,
    in_parts,
)
from ropejax.evaluation_places import (
    PlaceSums,
    answer_places,
    place_sums,
    right_by_place,
)
from ropejax.evaluation_scores import LengthScore as LengthScore
from ropejax.evaluation_scores import score_of
from ropejax.input_blind import scored_targets
from ropejax.nn import TransformerSpec
from ropejax.nn.decoder_greedy import decode_batch
from ropejax.positions.base import Placement, PositionScheme
from ropejax.sharding import Sharding
from ropejax.tasks import Autoregressive
from ropejax.tasks.base import Batch, Task
from ropejax.training.applying import apply_and_read
from ropejax.training.buckets import bucket_of
from ropejax.training.losses import Sums, batch_sums, count_right
from ropejax.typing import Params, Rng

Counted = tuple[Sums, Int[Array, "S P"], PlaceSums | None]
"""What is found at one length: counts in all, right symbols, and counts by token."""


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
    on_bucket: Callable[[int], None] | None = None,
    examples: Callable[[int, int], Batch] | None = None,
    sharding: Sharding | None = None,
    by_place: bool = False,
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
        on_bucket: called with each bucket before its first length: its program is
            compiled then, unless an earlier call of the process did.
        examples: a function of a length and a bucket that returns `samples` rows to
            score, padded to the bucket; they are drawn from the task if None.
        sharding: how model and rows are spread over a mesh, as in training; answers
            are decoded there too. All processes of the mesh must call this alike, and
            get the same scores. None for one device.
        by_place: also count at each place of the answer (`LengthScore.places`); its
            programs, as many, are others than without.

    Returns:
        Scores keyed by length, in increasing order.

    Raises:
        ValueError: if a length has no examples or cannot be placed, or only where an
            encoding has no positions, `draws` does not divide `samples`, no bucket
            holds a length, a number is not whole, the seed is not in 0 .. 2**31 - 1,
            the task has symbols that the model does not know, no encoding reads what
            the positions say, the model cannot be spread so, or, by place, examples
            have answers elsewhere than rows of their length have.
    """
    if sharding is not None:
        sharding.check_one_model()
        sharding.check(model)
    scores = {}
    for length, counted in counted_by_length(
        partial(
            evaluate_length, model, params, sharding=sharding, by_place=bool(by_place)
        ),
        model,
        task,
        positions,
        lengths,
        samples=samples,
        draws=draws,
        seed=seed,
        buckets=buckets,
        padded=None if sharding is None else sharding.padded_length,
        on_bucket=on_bucket,
        examples=examples,
    ):
        scores[length] = score_of(length, *counted, answer_places(task.tested, length))
        if on_length is not None:
            on_length(scores[length])
    return scores


def counted_by_length(
    count: Callable[..., Counted],
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
    on_bucket: Callable[[int], None] | None = None,
    examples: Callable[[int, int], Batch] | None = None,
) -> Iterator[tuple[int, Counted]]:
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
        on_bucket: called with each bucket before its first length, or None.
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
    last = None
    for length in amounts.lengths:
        bucket = bucket_of(length, amounts.buckets)
        if bucket != last and on_bucket is not None:
            on_bucket(bucket)
        last = bucket
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
        "by_place",
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
    by_place: bool = False,
) -> Counted:
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
        by_place: whether to count at each token too.

    Returns:
        Sums over all rows; the right symbol of each row at each token, -1 where none
        is scored; and sums at each token, or None.
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
        targets = scored_targets(batch)
        batch, placement, extra = filled(batch, placement, decoding.rows_at_once)
        count = partial(_sums, by_place)
        sums, places = reading.in_parts(
            *(count, batch, placement),
            num_outputs=task.output_vocab,
            budget=LOGITS_BYTES,
        )
        if decodes:
            count = partial(_decoded_right, by_place, task, bucket)
            right, here = decoding.in_parts(
                count, batch, placement, budget=DECODING_BYTES
            )
            sums = sums._replace(correct=right[0], exact=right[1])
            if by_place:
                places = places._replace(correct=here[0], first_wrong=here[1])
        sums, places = jax.tree.map(lambda x: x.sum(0), (sums, places))
        # Rows that only fill a mesh have nothing to answer, and so nothing wrong.
        sums = sums._replace(rows=sums.rows - extra, exact=sums.exact - extra)
        return sums, targets, places

    sums, targets, places = jax.lax.map(one_draw, jnp.arange(draws))
    sums, places = jax.tree.map(lambda x: x.sum(0), (sums, places))
    found = sums, targets.reshape(samples, -1), places
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

    def in_parts(
        self,
        count,
        batch: Batch,
        placement: Placement,
        *,
        num_outputs: int = 1,
        budget: int,
    ):
        """Returns what `count(self, rows, where they are)` finds in parts of rows."""
        return in_parts(
            partial(count, self),
            batch,
            placement,
            numbers_a_token=held_a_token(self.model, batch.tokens.shape[1]),
            num_outputs=num_outputs,
            budget=budget,
            sharding=self.sharding,
        )


def _sums(
    by_place: bool, reader: _Reader, batch: Batch, placement: Placement
) -> tuple[Sums, PlaceSums | None]:
    told = apply_and_read(
        reader.model, reader.params, batch, placement, sharding=reader.sharding
    )
    places = place_sums(told, batch, placement) if by_place else None
    return _exact(batch_sums(told, batch)), places


def _exact(sums: Sums) -> Sums:
    """Counts of a part as integers: a float32 counts up to 2^24, a length has more."""
    whole = jax.tree.map(lambda x: x.astype(jnp.int32), sums)
    return whole._replace(loss=sums.loss)


def _decoded_right(
    by_place: bool,
    task: Autoregressive,
    bucket: int,
    reader: _Reader,
    batch: Batch,
    placement: Placement,
) -> tuple[
    tuple[Int[Array, ""], Int[Array, ""]],
    tuple[Int[Array, " P"], Int[Array, " P"]] | None,
]:
    """Right symbols and rows, in all and by place, of what is decoded greedily."""
    answers = decode_batch(
        reader.model.bind(reader.params),
        task,
        batch,
        placement,
        max_length=bucket,
        same_length=True,
        held=None if reader.sharding is None else reader.sharding.caches,
    )
    here = right_by_place(answers, batch, placement) if by_place else None
    right = tuple(x.astype(jnp.int32) for x in count_right(answers, batch))
    return right, here
