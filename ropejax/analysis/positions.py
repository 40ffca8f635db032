"""Which positions a model was trained at, against those that it meets at test time.

A position, or a distance between two tokens, that never occurred in training is one
whose rotation, embedding or bias the model has had no occasion to learn.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from ropejax.positions.base import Placement, PositionScheme
from ropejax.tasks import Task
from ropejax.training.step import Recipe, TrainState, draw_batch, step_lengths
from ropejax.typing import Rng


class Histogram(NamedTuple):
    """Whole numbers and how often each occurred.

    Attributes:
        values: increasing.
        counts: occurrences of each.
    """

    values: Int[np.ndarray, " n"]
    counts: Int[np.ndarray, " n"]


class Seen(NamedTuple):
    """Where tokens were, over draws, layers and rows.

    Attributes:
        positions: of tokens, rounded to whole ones, the first axis if there are
            several; None for schemes that give distances alone.
        distances: between any two tokens of a row, without sign.
    """

    positions: Histogram | None
    distances: Histogram


def fraction_unseen(trained: Histogram, met: Histogram) -> float:
    """Returns the share of occurrences in `met` of values that `trained` lacks."""
    new = ~np.isin(met.values, trained.values)
    return float(met.counts[new].sum() / met.counts.sum())


def training_positions(
    recipe: Recipe,
    state: TrainState,
    *,
    steps: int,
    sampled: int = 500,
    rows: int = 2,
) -> Seen:
    """Returns what a run met in training, by drawing its positions again.

    Keys derive from the run's seed and the step, so these are the very positions of the
    run; where it has more steps than are sampled, evenly spaced ones are taken.

    Args:
        recipe: what was trained, and how.
        state: any state of the run; only its keys matter.
        steps: steps of the run.
        sampled: most steps to look at.
        rows: most rows of a batch to look at.

    Raises:
        ValueError: if there is no step to look at.
    """
    if steps < 1 or sampled < 1:
        raise ValueError(f"need {steps=} and {sampled=} of at least 1.")
    which = np.unique(np.linspace(0, steps - 1, min(steps, sampled)).astype(np.int32))

    def draw(step):
        at = state._replace(step=step)
        lengths = step_lengths(recipe, at)
        batch, placement, _ = draw_batch(recipe, at, lengths, recipe.buckets[-1])
        return batch.lengths, placement

    lengths, placements = jax.jit(lambda steps: jax.lax.map(draw, steps))(which)
    return _collect(np.asarray(lengths), placements, rows)


def met_positions(
    scheme: PositionScheme,
    task: Task,
    length: int,
    rng: Rng,
    *,
    num_layers: int = 1,
    draws: int = 4,
    rows: int = 2,
) -> Seen:
    """Returns what a model meets at one test length.

    Args:
        scheme: where tokens are said to be at test time.
        task: what gives the tokens.
        length: input length, in symbols.
        rng: PRNG key.
        num_layers: the model's, for schemes that draw once a layer.
        draws: draws of positions.
        rows: rows a draw.
    """

    def draw(rng):
        data_rng, positions_rng = jax.random.split(rng)
        lengths = jnp.full((rows,), length, jnp.int32)
        batch = task.sample(data_rng, lengths, max_length=length)
        placement = scheme(
            positions_rng,
            batch.lengths,
            num_tokens=batch.tokens.shape[1],
            num_layers=num_layers,
            tokens=task.placing_tokens(batch),
        )
        return batch.lengths, placement

    keys = jax.random.split(rng, draws)
    lengths, placements = jax.jit(lambda keys: jax.lax.map(draw, keys))(keys)
    return _collect(np.asarray(lengths), placements, rows)


def _collect(lengths: np.ndarray, placements: Placement, rows: int) -> Seen:
    """Histograms of draws stacked on a leading axis; lengths are `[draws, B]`."""
    per_layer = placements.per_layer
    if placements.distances is not None:
        return Seen(
            None, _histogram(_real(placements.distances, per_layer, lengths, rows))
        )
    if placements.positions is None:
        found = [np.arange(end) for end in lengths[:, :rows].reshape(-1)]
    else:
        placed = np.asarray(placements.positions)
        if placed.ndim - per_layer == 4:  # several axes
            placed = placed[..., 0]
        found = _real(placed, per_layer, lengths, rows)
    apart = [np.abs(row[:, None] - row)[np.tril_indices(len(row))] for row in found]
    return Seen(_histogram(found), _histogram(apart))


def _real(
    array: Array, per_layer: bool, lengths: np.ndarray, rows: int
) -> list[np.ndarray]:
    """Few rows of `[draws, (layers,) B or 1, P]`, each cut to its real tokens."""
    array = np.asarray(array)[..., :rows, :]
    ends = lengths[:, : array.shape[-2]]
    if per_layer:
        ends = np.broadcast_to(ends[:, None], array.shape[:-1])
    flat = array.reshape(-1, array.shape[-1])
    return [row[:end] for row, end in zip(flat, ends.reshape(-1), strict=True)]


def _histogram(rows: list[np.ndarray]) -> Histogram:
    whole = np.rint(np.concatenate(rows)).astype(np.int64)
    return Histogram(*np.unique(whole, return_counts=True))
