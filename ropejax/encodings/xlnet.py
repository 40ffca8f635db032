"""XLNet: Transformer-XL's terms in both directions, and one for segments.

Segments here are parts of an input, such as two sentences, that may attend to each
other. They come as the stream "segment" of `Tokens.streams`; `Tokens.segments`, which
keeps packed sequences apart, is another thing.
"""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from ropejax.encodings.base import Apart, Dims, Views
from ropejax.encodings.transformer_xl import TransformerXL
from ropejax.tokens import Tokens
from ropejax.typing import Array, Float, Logits, Params, Rng

_STREAM = "segment"


@dataclasses.dataclass(frozen=True)
class XLNet(TransformerXL):
    """Adds relative terms and, if asked, a term of equal or different segments.

    `(q_i + u) . k_j + (q_i + v) . W R(i - j) + (q_i + s) . e[segment_i != segment_j]`,
    all of it scaled.

    Attributes:
        segments: True for the segment term; tokens need a stream "segment" then.

    Raises:
        ValueError: as for `TransformerXL`, or if the stream is missing.

    References:
        Yang et al., 2019, arXiv:1906.08237, sections 2.4 and 2.5; checked against
        huggingface/transformers v5.24, `XLNetRelativeAttention`.

    Departures:
        As for `TransformerXL`. Each layer has biases of its own (`tied=False`), as in
        the released models. Bi-directional data streams are the model's business.
    """

    tied: bool = False
    segments: bool = False

    title: ClassVar[str] = "XLNet"
    summary: ClassVar[str] = "Transformer-XL's terms and one for segments"
    reference: ClassVar[str] = "Yang et al. 2019, arXiv:1906.08237"

    def init_layer(self, rng: Rng, dims: Dims) -> Params:
        """Returns `{"w", "u", "v"}`, and `{"s": [N, H], "e": [2, N, H]}`."""
        rng, rng_s, rng_e = jax.random.split(rng, 3)
        params = super().init_layer(rng, dims)
        if not self.segments:
            return params
        shape = (dims.num_heads, dims.head_dim)
        return params | {
            "s": self.init_std * jax.random.normal(rng_s, shape, jnp.float32),
            "e": self.init_std * jax.random.normal(rng_e, (2, *shape), jnp.float32),
        }

    def queries(
        self, params: Params, q: Float[Array, "B T N H"], query: Tokens
    ) -> Views:
        """Returns the views of Transformer-XL, and logits of either segment case."""
        views = super().queries(params, q, query)
        if not self.segments:
            return views
        with_s = q + params["s"].astype(q.dtype)[None, None]
        either = jnp.einsum(
            "btnh,enh->btne",
            with_s,
            params["e"].astype(q.dtype),
            preferred_element_type=jnp.float32,
        )
        content, place = views
        return content, Apart((place, either))

    def product(
        self, params: Params, q: Views, k: Views, query: Tokens, key: Tokens
    ) -> Logits:
        """Returns content, position and segment terms, unscaled."""
        if not self.segments:
            return super().product(params, q, k, query, key)
        content, (place, either) = q[0], q[-1].numbers
        logits = super().product(params, (content, place), k, query, key)
        same, different = jnp.moveaxis(jnp.swapaxes(either, 1, 2), -1, 0)[..., None]
        here, there = _segments(query), _segments(key)
        differ = (here[:, :, None] != there[:, None, :])[:, None]
        return logits + jnp.where(differ, different, same)


def _segments(where: Tokens) -> Array:
    if where.streams is None or _STREAM not in where.streams:
        raise ValueError(
            f"XLNet with segments needs Tokens.streams[{_STREAM!r}], got streams "
            f"{sorted(where.streams or {})}."
        )
    return where.streams[_STREAM]
