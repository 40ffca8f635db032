"""Multiplicative GRAPE: positions as rotations whose steps the content decides.

Without context it is RoPE with learned frequencies, `Rotary(trainable="layer")`, or a
rotation in learned planes (`plane_rotation`); with context every token adds a learned
step to the angle.
"""

import dataclasses
import math
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ropejax.concrete import known_values
from ropejax.encodings.angles import pair_angles
from ropejax.encodings.base import Dims, Views
from ropejax.encodings.choices import positive
from ropejax.encodings.rotary_base import Rotation
from ropejax.encodings.rotation import rotate
from ropejax.encodings.sequence_order import (
    accurate_cumsum,
    add_pairs,
    in_one_order,
    in_storage,
    without_padding,
)
from ropejax.tokens import Tokens
from ropejax.typing import Params, Rng


def plane_rotation(
    x: Float[Array, "*B H"],
    a: Float[Array, " H"],
    b: Float[Array, " H"],
    steps: float | Array,
) -> Float[Array, "*B H"]:
    """Returns `exp(steps L) x` with `L = a b^T - b a^T`, without forming a matrix.

    `exp(L) = I + sin(s) / s L + (1 - cos(s)) / s ** 2 L ** 2`, where
    `s ** 2 = |a|^2 |b|^2 - (a . b)^2`: a rotation by s in the plane of a and b.

    The angle of many steps loses whole turns before it is rounded. If a and b are
    known, s is that of float64; of traced ones it has float32's rounding, and n steps
    may turn by some `2e-7 n s` too little or too much.

    Args:
        x: `[*B, H]`.
        a: first vector of the plane, `[H]`.
        b: second vector, `[H]`, not parallel to a (traced ones that are give NaN).
        steps: how often the generator acts, a number or an array that meets `[*B, 1]`.

    Returns:
        `[*B, H]`, float32.

    Raises:
        ValueError: if a and b are known to be parallel, or one of them 0.

    References:
        Zhang et al. (2025), arXiv:2512.07805; model-architectures/GRAPE, README.
    """
    angle = _plane_angle(a, b)
    turn = pair_angles(jnp.atleast_1d(steps), angle[None])
    x, a, b = (v.astype(jnp.float32) for v in (x, a, b))
    angle = jnp.asarray(angle, jnp.float32)

    def generate(x: Array) -> Array:
        outer = lambda u, v: (x @ v)[..., None] * u.reshape((1,) * (x.ndim - 1) + (-1,))
        return outer(a, b) - outer(b, a)

    once = generate(x)
    return (
        x
        + jnp.sin(turn) / angle * once
        + (1 - jnp.cos(turn)) / angle**2 * generate(once)
    )


def _plane_angle(a: Array, b: Array) -> Float[np.ndarray, ""] | Float[Array, ""]:
    """Returns the angle of one step: in float64 on the host if a and b are known."""
    known = [known_values(v) for v in (a, b)]
    if any(v is None for v in known):
        a, b = (v.astype(jnp.float32) for v in (a, b))
        return jnp.linalg.norm(a) * jnp.linalg.norm(b - (a @ b) / (a @ a) * a)
    a, b = (v.astype(np.float32).astype(np.float64) for v in known)
    lengths = np.linalg.norm(a) * np.linalg.norm(b)
    angle = np.asarray(lengths)
    if lengths:
        angle = np.linalg.norm(a) * np.linalg.norm(b - (a @ b) / (a @ a) * a)
    if angle <= 1e-6 * lengths:
        raise ValueError(
            "a and b must not be parallel, nor 0, as they span no plane then, got "
            f"a={a} and b={b}."
        )
    return np.asarray(angle)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GrapeM(Rotation):
    """Contextual multiplicative GRAPE: RoPE at a learned position, `R(phase_i) q_i`.

    The phase of a token is the sum of the steps of all tokens before it,
    `softplus(w . x + b)`, so a model decides how far apart tokens are; positions are
    not used. Frequencies are learned unless `trainable` says otherwise.

    Index must go on through a packed row: one that repeats in it is refused, or gives
    NaN if it is traced.

    Attributes:
        per_head: learn a phase for each key head rather than one for all.
        initial_step: step at the start of training, in tokens.

    References:
        Zhang et al. (2025), GRAPE, arXiv:2512.07805; model-architectures/GRAPE,
        `llama-mha-grape-m-ctx.py` (code and README were read, not the paper).

    Departures:
        The code rotates the other way, which amounts to the opposite sign of half the
        channels of queries and keys. Padding takes no step.
    """

    trainable: Literal["none", "layer", "shared"] = "layer"
    per_head: bool = False
    initial_step: float = 1e-3

    title: ClassVar[str] = "GRAPE-M"
    summary: ClassVar[str] = "RoPE at phases that grow by a learned step a token"
    reference: ClassVar[str] = "Zhang et al. 2025, arXiv:2512.07805"
    by_distance: ClassVar[bool] = True

    def __post_init__(self):
        """Refuses a step that is not positive."""
        positive(initial_step=self.initial_step)
        super().__post_init__()

    def init_layer(self, rng: Rng, dims: Dims) -> Params:
        """Returns `step_weight [D, G]` of zeros and `step_bias [G]`; G is 1 or K."""
        groups = dims.num_kv_heads if self.per_head else 1
        bias = math.log(math.expm1(self.initial_step))
        return super().init_layer(rng, dims) | {
            "step_weight": jnp.zeros((dims.embed_dim, groups), jnp.float32),
            "step_bias": jnp.full((groups,), bias, jnp.float32),
        }

    def query_features(self, params, x, q, query, state=None):
        """Returns the phase of each query, two numbers `[B, T, G]`, high plus low."""
        return self._phase(params, x, query, state)[0]

    def key_features(self, params, x, k, key, state=None):
        """Returns the phase of each key, and that after the last token as state."""
        return self._phase(params, x, key, state)

    def queries(
        self, params: Params, q: Float[Array, "B T N H"], query: Tokens
    ) -> Views:
        """Returns queries rotated by their phases."""
        return (self._turn(params, q, query),)

    def keys(self, params: Params, k: Float[Array, "B S K H"], key: Tokens) -> Views:
        """Returns keys rotated by their phases."""
        return (self._turn(params, k, key),)

    def _phase(self, params, x, where: Tokens, state):
        weight, bias = (params[f"step_{n}"] for n in ("weight", "bias"))
        x = without_padding(x, where).astype(jnp.float32)
        step = jnp.einsum("bld,dg->blg", x, weight)
        step = jax.nn.softplus(step + bias[None, None])
        if where.valid is not None:
            step = jnp.where(where.valid[..., None], step, 0.0)
        step = in_one_order(step, where, self.title)
        after = accurate_cumsum(step)
        if state is not None:
            after = add_pairs(tuple(total[:, None] for total in state), after)
        before = add_pairs(after, (-step, jnp.zeros_like(step)))
        last = tuple(part[:, -1] for part in after)
        return tuple(in_storage(part, where, axis=1) for part in before), last

    def _turn(self, params, x, where: Tokens):
        frequencies = self.frequencies_of_pairs(params, x.shape[-1])
        high, low = (
            pair_angles(part[..., None], frequencies) for part in where.features
        )
        groups = high.shape[2]
        angles = jnp.repeat(high + low, x.shape[2] // groups, axis=2)
        return rotate(x, angles, layout=self.layout)
