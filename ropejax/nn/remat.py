"""Rematerialization: computing a layer's inside again instead of keeping it.

Training keeps what each layer computed for the backward pass. With "full" only what
enters a layer is kept, for about a third more computation; "dots" keeps the outputs of
projections as well, which are the dear part.
"""

from collections.abc import Callable
from types import MappingProxyType

import jax

from ropejax.encodings.choices import check_choice

_policies = jax.checkpoint_policies
REMATS = MappingProxyType(
    {
        "none": None,
        "full": _policies.nothing_saveable,
        "dots": _policies.dots_with_no_batch_dims_saveable,
    }
)
"""Name in configs -> what is kept; None keeps everything."""


def check_remat(name: str) -> None:
    """Raises ValueError unless it is the name of a policy."""
    check_choice("remat", name, REMATS)


def rematerialized(layer: Callable, name: str) -> Callable:
    """Returns a function that gives the same, and keeps less for its gradient.

    Args:
        layer: a function of arrays.
        name: a policy of `REMATS`.
    """
    policy = REMATS[name]
    return layer if policy is None else jax.checkpoint(layer, policy=policy)
