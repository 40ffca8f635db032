"""Where padding stands in rows, as far as that is known before compilation."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from ropejax.concrete import known_values


def padding_before(valid: Bool[Array, "#B L"] | None) -> bool:
    """Returns True if padding is known to stand before the tokens of a row.

    Args:
        valid: False at padding; None if there is none. Of traced arrays nothing is
            known.
    """
    known = _known(valid)
    return known is not None and bool(np.any(~known[:, 0] & known.any(axis=1)))


def padding_between(valid: Bool[Array, "#B L"] | None) -> bool:
    """Returns True if padding is known to stand between the tokens of a row.

    Args:
        valid: False at padding; None if there is none. Of traced arrays nothing is
            known.
    """
    known = _known(valid)
    if known is None:
        return False
    begun = np.maximum.accumulate(known, axis=1)
    going_on = np.maximum.accumulate(known[:, ::-1], axis=1)[:, ::-1]
    return bool(np.any(~known & begun & going_on))


def real_first(valid: Bool[Array, "#B L"]) -> Int[Array, "#B L"]:
    """Returns the place of each token in its row with all padding moved behind.

    Args:
        valid: False at padding.
    """
    counted = lambda which: jnp.cumsum(which.astype(jnp.int32), axis=1) - 1
    real = counted(valid)
    return jnp.where(valid, real, real[:, -1:] + 1 + counted(~valid))


def check_padding_behind(valid: Bool[Array, "#B L"] | None) -> None:
    """Raises ValueError if padding is known to stand before or between tokens.

    Args:
        valid: False at padding; None if there is none. Of traced arrays nothing is
            known.
    """
    if padding_before(valid) or padding_between(valid):
        raise ValueError(
            "valid has padding before or between the tokens of a row, and this model "
            "counts places; put all padding behind the tokens."
        )


def _known(valid: Bool[Array, "#B L"] | None) -> np.ndarray | None:
    known = None if valid is None else known_values(valid)
    if known is None or known.ndim != 2 or not known.shape[1]:
        return None
    return known.astype(bool)
