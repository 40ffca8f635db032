"""FIRE: a learned function of distance, relative to how far the query could look.

The logarithm of the distance is divided by that of the query's position, so the input
of a small network stays in 0 .. 1 at any length: what is interpolated at test time was
seen in training. Near the start a learned threshold takes the place of the position.
"""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from ropejax.encodings.base import Dims, Encoding
from ropejax.encodings.choices import positive
from ropejax.encodings.linear import init_linear
from ropejax.tokens import Tokens, relative_positions
from ropejax.typing import Array, Float, Params, Rng


@dataclasses.dataclass(frozen=True)
class FIRE(Encoding):
    """Adds a small network of a normalized distance to the scaled logits.

    `f_h(psi(|i - j|) / (psi(max(i, L)) + eps))`, `psi(x) = log(|c x| + 1)`, f a network
    1 -> hidden -> N with a ReLU, i the query's position from 0, and
    `L = |threshold * multiplier|`; c, the multiplier and f are learned.

    Attributes:
        hidden: width of the network.
        threshold: L at the start, in tokens.
        initial_c: c at the start.
        epsilon: keeps the denominator away from zero.
        shared: True if all layers share the parameters (FIRE-S in the paper).

    Raises:
        ValueError: if a setting is not positive.

    References:
        Li et al., 2023, arXiv:2310.04418;
        mcleish7/arithmetic@86022a5, `embeddings.FIRE`; chuanyang-Zheng/DAPE@51cf9bd.

    Departures:
        Keys after the query, which the causal model of the paper never sees, get
        the distance's size, as in mcleish7/arithmetic. The network has one hidden
        layer, as in both repositories.
    """

    hidden: int = 32
    threshold: float = 512.0
    initial_c: float = 0.1
    epsilon: float = 1e-6
    shared: bool = False

    title: ClassVar[str] = "FIRE"
    summary: ClassVar[str] = "a network of log distance over log query position"
    reference: ClassVar[str] = "Li et al. 2023, arXiv:2310.04418"
    shift_invariant: ClassVar[bool] = False
    by_distance: ClassVar[bool] = False

    def __post_init__(self):
        super().__post_init__()
        positive(
            hidden=self.hidden,
            threshold=self.threshold,
            initial_c=self.initial_c,
            epsilon=self.epsilon,
        )

    def init_shared(self, rng: Rng, dims: Dims) -> Params:
        """Returns all parameters if shared, else nothing."""
        return self._init(rng, dims) if self.shared else {}

    def init_layer(self, rng: Rng, dims: Dims) -> Params:
        """Returns `{"c", "multiplier", "into", "out"}` unless shared."""
        return {} if self.shared else self._init(rng, dims)

    def bias(
        self, params: Params, query: Tokens, key: Tokens, scale: float | Array
    ) -> Float[Array, "B N T S"]:
        """Returns the network's output of each pair."""
        if query.positions.ndim != 2:
            raise ValueError(
                "FIRE takes positions on one axis, [batch, length], got shape "
                f"{query.positions.shape}."
            )
        distance = jnp.abs(relative_positions(query, key).astype(jnp.float32))
        position = query.positions.astype(jnp.float32)
        limit = jnp.abs(self.threshold * params["multiplier"])
        farthest = self._psi(params, jnp.maximum(position, limit)) + self.epsilon
        x = (self._psi(params, distance) / farthest[:, :, None])[:, None]
        into, out = params["into"], params["out"]
        each = (1, -1, 1, 1)
        hidden = jax.nn.relu(
            x * into["kernel"].reshape(each) + into["bias"].reshape(each)
        )
        bias = jnp.einsum("bmts,mn->bnts", hidden, out["kernel"])
        return bias + out["bias"].reshape(each)

    def _psi(self, params, x):
        return jnp.log1p(jnp.abs(params["c"] * x))

    def _init(self, rng, dims):
        rng_into, rng_out = jax.random.split(rng)
        return {
            "c": jnp.array(self.initial_c, jnp.float32),
            "multiplier": jnp.array(1.0, jnp.float32),
            "into": init_linear(rng_into, 1, self.hidden),
            "out": init_linear(rng_out, self.hidden, dims.num_heads),
        }
