"""RePo: every head says where a token is, and RoPE turns it by that.

Positions are not counted, they are read off the hidden state: a small gated network
gives each token one real number a head. Tokens that belong together can come to lie
side by side whatever stands between them, and a head can put all tokens at one place,
which is no encoding at all. The order of tokens shows in the causal mask alone.
"""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from ropejax.encodings.angles import pair_angles
from ropejax.encodings.base import Dims, Views
from ropejax.encodings.choices import not_negative, positive
from ropejax.encodings.rotary_base import Rotation
from ropejax.encodings.rotation import rotate
from ropejax.encodings.sequence_order import without_padding
from ropejax.tokens import Tokens
from ropejax.typing import Array, Float, Params, Rng


@dataclasses.dataclass(frozen=True, kw_only=True)
class RePo(Rotation):
    """Rotates heads by learned positions: `p_h(x) = w_h . (silu(G x) * C x)`.

    x is the layer's input. Logits are those of RoPE with `p_h(x_i) - p_h(x_j)` in place
    of the offset `i - j`; where tokens are said to be is not looked at. A key head and
    its query heads share one position.

    Attributes:
        width: rows of G and C; 0 for an eighth of the model's width, as published.
        init_std: standard deviation of all weights at the start, cut at 3 of them.

    Raises:
        ValueError: if width is negative, or init_std not positive: from zeros, no
            weight gets a gradient.

    References:
        Li et al. (2025), RePo, arXiv:2512.14391; SakanaAI/repo@c0488bd,
        `OLMo/olmo/model.py`, mode "swigluex_multihead" (the code was read, not the
        paper).

    Departures:
        The code has a position for each query head, and no grouped heads. It rounds
        cosines to the width of x. Its models keep RoPE below a layer (5 of 16, 10 of
        the 7B model's); layers of several kinds do that here.
    """

    width: int = 0
    init_std: float = 0.02

    title: ClassVar[str] = "RePo"
    summary: ClassVar[str] = "RoPE at positions that a small network reads off tokens"
    reference: ClassVar[str] = "Li et al. 2025, arXiv:2512.14391"
    by_distance: ClassVar[bool] = True

    def __post_init__(self):
        """Refuses negative settings."""
        super().__post_init__()
        not_negative(width=self.width)
        positive(init_std=self.init_std)

    def init_layer(self, rng: Rng, dims: Dims) -> Params:
        """Returns `gate [D, width]`, `content [D, width]` and `position [width, K]`."""
        width = self.width or max(1, dims.embed_dim // 8)
        shapes = {
            "gate": (dims.embed_dim, width),
            "content": (dims.embed_dim, width),
            "position": (width, dims.num_kv_heads),
        }
        draw = lambda rng, shape: jax.random.truncated_normal(
            rng, -3.0, 3.0, shape, jnp.float32
        )
        drawn = {
            name: self.init_std * draw(key, shape)
            for key, (name, shape) in zip(
                jax.random.split(rng, 3), shapes.items(), strict=True
            )
        }
        return super().init_layer(rng, dims) | drawn

    def learned_positions(
        self, params: Params, x: Float[Array, "B L D"]
    ) -> Float[Array, "B L K"]:
        """Returns where each head puts each token, in tokens, float32."""
        x = x.astype(jnp.float32)
        gate, content, position = (
            params[name].astype(jnp.float32) for name in ("gate", "content", "position")
        )
        return (jax.nn.silu(x @ gate) * (x @ content)) @ position

    def query_features(self, params, x, q, query: Tokens, state=None):
        """Returns the learned positions of the queries, `[B, T, K]`."""
        return self.learned_positions(params, without_padding(x, query))

    def key_features(self, params, x, k, key: Tokens, state=None):
        """Returns the learned positions of the keys, `[B, S, K]`, and no state."""
        return self.learned_positions(params, without_padding(x, key)), None

    def queries(
        self, params: Params, q: Float[Array, "B T N H"], query: Tokens
    ) -> Views:
        """Returns queries rotated by the positions of their heads."""
        return (self._turned(params, q, query),)

    def keys(self, params: Params, k: Float[Array, "B S K H"], key: Tokens) -> Views:
        """Returns keys rotated by the positions of their heads."""
        return (self._turned(params, k, key),)

    def _turned(self, params, x, where: Tokens):
        frequencies = self.frequencies_of_pairs(params, x.shape[-1])
        angles = pair_angles(where.features[..., None], frequencies)
        angles = jnp.repeat(angles, x.shape[2] // angles.shape[2], axis=2)
        return rotate(x, angles, layout=self.layout)
