"""The best predictor that does not see the input: each place's most frequent symbol."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from ropejax.tasks.base import Batch

_UNSCORED = -1


def scored_targets(batch: Batch) -> Int[Array, "B P"]:
    """Returns the right symbol at each token, -1 where none is scored."""
    return jnp.where(batch.score_mask, batch.targets, _UNSCORED)


def blind_correct(targets: Int[np.ndarray, "S P"]) -> Int[np.ndarray, " P"]:
    """Returns how many rows the predictor gets right at each token.

    What it answers even rows is the most frequent symbol among the odd ones, and the
    other way round: chosen on the rows that are scored, it would be flattered, the more
    the fewer rows. Of equally frequent symbols it takes the smallest, and where the
    other rows have none, 0.

    Args:
        targets: the right symbol at each token, -1 where none is scored.
    """
    even, odd = targets[0::2], targets[1::2]
    right = lambda rows, others: (rows == _most_frequent(others)).sum(0)
    return right(even, odd) + right(odd, even)


def _most_frequent(targets: Int[np.ndarray, "R P"]) -> Int[np.ndarray, " P"]:
    """The symbol at each token; in memory that does not grow with the alphabet."""
    row, place = np.nonzero(targets != _UNSCORED)
    symbols = targets.max(initial=0) + 1
    found, counts = np.unique(place * symbols + targets[row, place], return_counts=True)
    place, symbol = np.divmod(found, symbols)
    chosen = np.zeros(targets.shape[1], targets.dtype)
    # Of several that are written to a place the last stays: the most frequent one, and
    # of these the smallest.
    order = np.lexsort((-symbol, counts))
    chosen[place[order]] = symbol[order]
    return chosen
