"""Forms of a bias that an engine may know how to compute in a faster way.

A bias is an array to most engines. Two simple forms allow more: one that is a product
of a factor of the query and a factor of the key can ride in appended dimensions of both
(FlashBias, Wu et al. 2025, arXiv 2505.12044), and one that is a function of the head
and the offset alone can be computed inside a kernel.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from ropejax.typing import Array, Float, Params, Shaped

BiasOfOffsets = Callable[[Any, Shaped[Array, "#B *P"]], Float[Array, "#B n *P"]]


class FactoredBias(NamedTuple):
    """A bias as a sum of R products, up to a number of each query.

    `bias[b, n, t, s] = sum_r query[b, t, n, r] key[b, s, n, r] + anything[b, n, t]`;
    the last term changes nothing after a softmax.

    Attributes:
        query: factors of the queries, float32.
        key: factors of the keys, float32.
    """

    query: Float[Array, "#B #T N R"]
    key: Float[Array, "#B S #N R"]


class NarrowBias(NamedTuple):
    """A bias of a head and an offset: `function(numbers, offset) + table[row]`.

    Attributes:
        numbers: arrays `[N]` of each head's numbers, by name; None if there is no
            function.
        function: `(numbers, offsets) -> bias`: takes numbers of n heads, `[n]` each,
            and offsets, key minus query, `[B, *P]`; returns `[B, n, *P]`.
        table: a number for each head and offset, `[N, R]`, R odd, the middle one for
            offset 0, and beyond its ends the last ones; None if there is none.
    """

    numbers: dict[str, Float[Array, " N"]] | None = None
    function: BiasOfOffsets | None = None
    table: Float[Array, "N R"] | None = None


def narrow_params(params: Params, *names: str) -> dict[str, Float[Array, " N"]]:
    """Returns those of the named parameters that there are, float32."""
    return {n: params[n].astype(jnp.float32) for n in names if n in params}
