"""Factors on logits that depend on how many keys a query sees, and normalized vectors.

The factors are arrays `[B, T, N]` for `attend(..., row_scale=...)`, made of counts from
`visible_counts(query, key, mask)`, so padding and masks count rightly and rows do not
depend on later tokens. The log-n family of fixed forms is
`ropejax.encodings.log_scale.log_scale`, which takes the same counts.
"""

import math
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ropejax.encodings.choices import check_choice
from ropejax.whole_numbers import whole_number

Normalization = Literal["key", "query", "cosine"]
NORMALIZATIONS = ("key", "query", "cosine")


def ssmax(
    counts: Int[Array, "#B T #N"],
    s: Float[Array, " N"] | float,
    b: Float[Array, " N"] | float | None = None,
) -> Float[Array, "B T N"]:
    """Returns the scalable softmax's factor, `s ln n + b`, for each query and head.

    Args:
        counts: visible keys of each query, n.
        s: learned factor of each head, or one number; about `1 / mean(ln n)` over
            trained lengths (0.168 for 1 to 1,024) starts as a plain softmax would.
        b: learned offset of each head; None for 0. Found to hurt length generalization.

    References:
        Nakanishi 2025, "Scalable-Softmax Is Superior for Attention", arXiv 2501.19399.
    """
    n = jnp.maximum(counts, 1).astype(jnp.float32)
    factor = jnp.asarray(s, jnp.float32) * jnp.log(n)
    return factor if b is None else factor + jnp.asarray(b, jnp.float32)


def adaptive_scale(
    counts: Int[Array, "#B T #N"],
    beta: Float[Array, "#B #T N"] | float,
    gamma: Float[Array, "#B #T N"] | float,
    delta: float = 1.0,
) -> Float[Array, "B T N"]:
    """Returns ASEntmax's factor, `delta + beta (ln(n + 1)) ** gamma`.

    With `Entmax(1.5)` it is Adaptive-Scalable Entmax. The paper's adaptive beta and
    gamma are of each token and head, `softplus(x W_b)` and `2 tanh(x W_g)`.

    Args:
        counts: visible keys of each query, n.
        beta: non-negative weight.
        gamma: exponent.
        delta: what is left for beta 0.

    References:
        Vasylenko et al. 2025, "Long-Context Generalization with Sparse Attention",
        arXiv 2506.16640; ln(n + 1) rather than ln n is the published code's.
    """
    n = jnp.maximum(counts, 1).astype(jnp.float32)
    power = jnp.log(n + 1) ** jnp.asarray(gamma, jnp.float32)
    return delta + jnp.asarray(beta, jnp.float32) * power


def cosine_scale(
    counts: Int[Array, "#B T #N"], weight: float = 4.0
) -> Float[Array, "B T N"]:
    """Returns the factor of cosine attention, `weight ln n`, at least `weight ln 2`.

    Args:
        counts: visible keys of each query, n.
        weight: 4 in Su's article 9859, 3.5 in 9812.

    References:
        Su 2023, spaces.ac.cn/archives/9859 and 9812.

    Departures:
        A query that sees one key has factor `weight ln 2`, where the article's is zero;
        its one weight is the same.
    """
    n = jnp.maximum(counts, 2).astype(jnp.float32)
    return weight * jnp.log(n)


def normalized(
    q: Float[Array, "B T N H"], k: Float[Array, "B S K H"], kind: Normalization
) -> tuple[Float[Array, "B T N H"], Float[Array, "B S K H"]]:
    """Returns queries and keys of which one or both have length one.

    Attend with `scale=1.0`: the methods have no `1 / sqrt(H)`. Cosine attention takes
    `row_scale=cosine_scale(counts)`, or a learned scale (Henry et al.:
    `query_key_scale`). Rotations keep lengths, so RoPE may follow.

    Args:
        q: queries.
        k: keys.
        kind: "key" (KNA: `q . k / |k|`), "query" (QNA; does not extrapolate), or
            "cosine" (CosA: both).

    References:
        Su 2023, spaces.ac.cn/archives/9859; Henry et al. 2020, arXiv 2010.04245.
    """
    check_choice("kind", kind, NORMALIZATIONS)
    if kind in {"query", "cosine"}:
        q = unit(q)
    if kind in {"key", "cosine"}:
        k = unit(k)
    return q, k


def query_key_scale(train_length: int) -> float:
    """Returns where Henry et al. start the learned scale of cosines: `log2(N^2 - N)`.

    Args:
        train_length: N, in tokens; the paper takes a high percentile of the lengths.

    Raises:
        ValueError: if the length is no whole number, or below 2, where there is no such
            number.

    References:
        Henry et al. 2020, "Query-Key Normalization for Transformers", arXiv 2010.04245.
    """
    n = whole_number("train_length", train_length, least=2)
    return math.log2(n**2 - n)


def unit(x: Float[Array, "*B H"]) -> Float[Array, "*B H"]:
    """Returns vectors of length one, computed in float32; a zero vector stays zero.

    Vectors of any size are scaled by their largest element first, so that no square
    overflows or vanishes. At a zero vector gradients pass unchanged.

    Args:
        x: vectors in the last axis.

    Raises:
        ValueError: if they are not floating-point.
    """
    if not jnp.issubdtype(jnp.result_type(x), jnp.floating):
        raise ValueError(
            f"x must be floating-point, got {jnp.result_type(x)}, whose parts of a "
            "vector of length one would be 0; cast it with astype(jnp.float32)."
        )
    wide = x.astype(jnp.float32)
    # The length does not depend on this size, so no gradient need pass through it; its
    # bounds keep one over it a normal number.
    largest = jax.lax.stop_gradient(jnp.abs(wide).max(-1, keepdims=True))
    size = jnp.where(largest > 0, jnp.clip(largest, 2.0**-126, 2.0**126), 1.0)
    near_one = wide / size
    square = (near_one * near_one).sum(-1, keepdims=True)
    return (near_one * jnp.where(square > 0, square, 1.0) ** -0.5).astype(x.dtype)
