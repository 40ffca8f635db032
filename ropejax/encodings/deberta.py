"""DeBERTa: content and position as two vectors that meet each other.

A token's content meets the other's content, and the vector of their offset as seen by
query and by key. The vectors come from one table for all layers, through projections
of each layer.
"""

import dataclasses
import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from ropejax.encodings.base import Dims, Encoding, Views
from ropejax.encodings.buckets import deberta_buckets
from ropejax.encodings.choices import not_negative, positive
from ropejax.encodings.heads import dot_product
from ropejax.encodings.relative_terms import (
    clipped_rows,
    key_logits,
    relative_logits,
)
from ropejax.tokens import Tokens
from ropejax.typing import Array, Float, Logits, Params, Rng


@dataclasses.dataclass(frozen=True)
class DeBERTa(Encoding):
    """Adds content-to-position and position-to-content terms to the product.

    `(q_i . k_j + q_i . K[d] + k_j . Q[d]) / sqrt(terms)`, times the scale 1 / sqrt(H),
    with `K = P W_k + b_k` and `Q = P W_q + b_q` for a table P of 2 s rows, and
    `d = clip(bucket(i - j) + s, 0, 2 s - 1)`.

    Attributes:
        num_buckets: rows for each sign, s, if offsets fall into logarithmic buckets
            (version 2); None for one row an offset (version 1).
        max_distance: where buckets end; or, without buckets, s itself.
        content_to_position: include `q . K`.
        position_to_content: include `k . Q`.
        share_projections: True if W_k, b_k, W_q, b_q are the model's own projections of
            keys and queries (`share_att_key`). The encoding makes none then, and the
            layer's parameters must hold them as "wk", "bk", "wq" and "bq".
        init_std: standard deviation of the table at the start.

    Raises:
        ValueError: if no term is left, a setting is out of range, positions are
            fractional, or shared projections are missing.

    References:
        He et al., 2020, arXiv:2006.03654, equations 2 to 4;
        huggingface/transformers v5.24, `DisentangledSelfAttention`.

    Departures:
        As in the released code and not in equation 4, both terms use the row of i - j.
        The table's layer norm (`norm_rel_ebd`) and the absolute positions before the
        last softmax are left to the model.
    """

    num_buckets: int | None = 256
    max_distance: int = 512
    content_to_position: bool = True
    position_to_content: bool = True
    share_projections: bool = False
    init_std: float = 0.02

    title: ClassVar[str] = "DeBERTa"
    summary: ClassVar[str] = "disentangled attention of content and offset vectors"
    reference: ClassVar[str] = "He et al. 2020, arXiv:2006.03654"
    sees_turns: ClassVar[bool] = True

    def __post_init__(self):
        super().__post_init__()
        positive(max_distance=self.max_distance)
        not_negative(init_std=self.init_std)
        if self.num_buckets is not None:
            deberta_buckets(self.num_buckets, self.max_distance)
        if not (self.content_to_position or self.position_to_content):
            raise ValueError(
                "DeBERTa needs content_to_position or position_to_content; use the "
                "encoding 'none' for neither."
            )

    @property
    def span(self) -> int:
        """Rows of the table for each sign, s."""
        return self.max_distance if self.num_buckets is None else self.num_buckets

    def init_shared(self, rng: Rng, dims: Dims) -> Params:
        """Returns `{"table": [2 s, D]}`."""
        shape = (2 * self.span, dims.embed_dim)
        return {"table": self.init_std * jax.random.normal(rng, shape, jnp.float32)}

    def init_layer(self, rng: Rng, dims: Dims) -> Params:
        """Returns `{"wk", "bk", "wq", "bq"}` as far as used; nothing if shared."""
        if self.share_projections:
            return {}
        shape = (dims.embed_dim, dims.num_heads, dims.head_dim)
        init = jax.nn.initializers.variance_scaling(
            1.0, "fan_in", "truncated_normal", in_axis=0, out_axis=(1, 2)
        )
        params = {}
        for side, one in zip(self._sides(), jax.random.split(rng), strict=False):
            params["w" + side] = init(one, shape, jnp.float32)
            params["b" + side] = jnp.zeros(shape[1:], jnp.float32)
        return params

    def prepare(
        self, shared: Params, layer: Params, query: Tokens, key: Tokens, dims: Dims
    ) -> Params:
        """Returns the projected vector of each offset up to `max_distance`."""
        missing = {w + s for s in self._sides() for w in "wb"} - set(layer)
        if missing:
            raise ValueError(
                f"share_projections needs the model's {sorted(missing)} among the "
                "layer's parameters; or set share_projections=False."
            )
        rows = jnp.asarray(self._rows())
        vectors = {}
        for side in self._sides():
            each = jnp.einsum("rd,dnh->rnh", shared["table"], layer["w" + side])
            if each.shape[1] != dims.num_heads:
                each = jnp.repeat(each, dims.num_heads // each.shape[1], axis=1)
            vectors[side] = (each + self._bias(layer, side, dims))[rows]
        return vectors

    def product(
        self, params: Params, q: Views, k: Views, query: Tokens, key: Tokens
    ) -> Logits:
        """Returns all terms over the square root of their number."""
        rows = clipped_rows(self.max_distance)
        logits = dot_product(q[0], k[0])
        if self.content_to_position:
            logits = logits + relative_logits(q[0], params["k"], rows, query, key)
        if self.position_to_content:
            heads = q[0].shape[2]
            logits = logits + key_logits(k[0], params["q"], rows, query, key, heads)
        return logits / math.sqrt(1 + len(self._sides()))

    def _sides(self):
        return "k" * self.content_to_position + "q" * self.position_to_content

    def _rows(self):
        """Returns the table's row of each offset, key minus query, up to the limit."""
        limit = self.max_distance
        if self.num_buckets is None:
            distance = np.arange(limit + 1)
        else:
            distance = deberta_buckets(self.num_buckets, limit)
        behind = np.concatenate([distance[:0:-1], -distance])
        return np.clip(behind + self.span, 0, 2 * self.span - 1)

    def _bias(self, layer, side, dims) -> Float[Array, "1 N H"]:
        bias = layer["b" + side][None]
        return jnp.repeat(bias, dims.num_heads // bias.shape[1], axis=1)
