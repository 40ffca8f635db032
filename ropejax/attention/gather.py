"""What is spread over a mesh axis, brought together on each of its devices.

All of it is called inside `jax.shard_map`, where the axis is manual.
"""

from typing import Any

import jax

from ropejax.tokens import Tokens


def gathered(tree: Any, axis: str) -> Any:
    """Returns every leaf `[B, L, ...]` with the tokens of all devices, in their order.

    Its gradient is summed over devices and spread again.
    """
    one = lambda x: jax.lax.all_gather(x, axis, axis=1, tiled=True)
    return jax.tree.map(one, tree)


def gathered_tokens(where: Tokens, axis: str, *, in_order: bool = False) -> Tokens:
    """Returns the Tokens of all devices, features included.

    Args:
        where: this device's Tokens.
        axis: the mesh axis.
        in_order: devices hold consecutive parts of a sequence. If that is not known,
            nothing is consecutive.
    """
    return where.replace(
        **gathered(where.per_token(), axis),
        consecutive_index=in_order and where.consecutive_index,
        consecutive_positions=in_order and where.consecutive_positions,
    )
