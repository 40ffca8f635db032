"""Position encodings inside Flax's own attention modules, through `attention_fn`.

    nnx.MultiHeadAttention(..., attention_fn=as_attention_fn(Rotary()))

serves `flax.nnx` and `flax.linen` alike. Flax passes no positions to an attention
function, so they are closed over, or taken to be consecutive.
"""

import dataclasses
from collections.abc import Callable
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from ropejax.attention.api import attend, dims_of
from ropejax.attention.checks import check_no_parameters
from ropejax.attention.visibility import visible_pairs
from ropejax.concrete import known_values
from ropejax.encodings.base import Encoding
from ropejax.encodings.compose import compose
from ropejax.masks import Causal, Mask
from ropejax.tokens import Tokens, tokens
from ropejax.typing import Params


@dataclasses.dataclass(frozen=True)
class GivenBias(Encoding):
    """A bias array that is given as the parameter `bias`, for whole matrices only.

    Attributes:
        shape: that of the array, `[B or 1, N or 1, T, S]`.
    """

    title: ClassVar[str] = "given bias"
    summary: ClassVar[str] = "a bias array passed in"

    shape: tuple[int, ...]

    def init_layer(self, rng, dims):
        """Returns a bias of zeros, in the place of the one to be given."""
        return {"bias": jnp.zeros(self.shape, jnp.float32)}

    def bias(self, params, query, key, scale):
        """Returns the array."""
        return params["bias"].astype(jnp.float32)


def as_attention_fn(
    encoding: Encoding,
    *,
    params: Params = None,
    where: Tokens | None = None,
    mask=None,
) -> Callable[..., jax.Array]:
    """Returns an attention function for Flax's `MultiHeadAttention` modules.

    Args:
        encoding: settings of the position encoding; one that changes embeddings, or
            whose features read hidden states, cannot serve, since Flax does not pass
            them.
        params: what its `prepare` returned; None for an encoding without parameters of
            its own.
        where: where the tokens are; consecutive if None.
        mask: a mask of `ropejax.masks` besides the one that Flax passes.

    Returns:
        A function of query, key and value, `[*B, length, heads, width]`, with every
        keyword that either module passes. It names each of them: Linen drops those that
        an attention function does not name, the mask among them.

    Raises:
        ValueError: for an encoding that cannot serve; when called, for one whose
            parameters were not given, for one that is undefined for later keys if a
            query is known to see one, and if queries and keys differ in number and
            `where` is None, as in Flax's decoding: positions are then unknown.

    Departures:
        The softmax is computed in float32 whatever `force_fp32_for_softmax` says, and
        one dropout mask is drawn for all batch rows and heads only if asked for by
        `broadcast_dropout`, which ropejax does not offer: it draws each its own.
    """
    if encoding.has_embed:
        raise ValueError(
            f"{encoding.title} changes embeddings, which an attention function never "
            "sees; call its embed(...) on them, and give Flax no attention_fn."
        )
    if encoding.has_features:
        raise ValueError(
            f"{encoding.title} computes features from hidden states, which Flax does "
            "not pass to an attention function; use ropejax.nn.MultiHeadAttention."
        )

    def attention_fn(
        query,
        key,
        value,
        bias=None,
        mask=None,
        *,
        dropout_rng=None,
        dropout_rate=0.0,
        broadcast_dropout=True,
        deterministic=False,
        dtype=None,
        precision=None,
        module=None,
        force_fp32_for_softmax=False,
        einsum_dot_general=None,
        qk_attn_weights_einsum=None,
        attn_weights_value_einsum=None,
        promote_dtype=None,
        is_causal=False,
    ):
        length, width = query.shape[-3], key.shape[-3]
        if where is None and length != width:
            raise ValueError(
                f"{length} queries and {width} keys: Flax passes no positions, so give "
                "them as `where`, or decode with ropejax's own attention."
            )
        place = tokens(length) if where is None else where
        if dtype is not None:
            query, key, value = (x.astype(dtype) for x in (query, key, value))
        batch = query.shape[:-3]
        flat = lambda x: x.reshape((-1, *x.shape[-3:]))
        spread = lambda x: flat(
            jnp.broadcast_to(x, (*batch, *x.shape[-3:])) if x.ndim > 3 else x
        )
        chosen, prepared = encoding, params
        if prepared is None:
            check_no_parameters(encoding, dims_of(flat(query), flat(key)))
            dims = dims_of(flat(query), flat(key))
            prepared = encoding.prepare({}, {}, place, place, dims)
        if bias is not None:
            bias = spread(bias)
            chosen = compose(encoding=encoding, given=GivenBias(bias.shape))
            prepared = {"encoding": prepared, "given": {"bias": bias}}
        seen = _joined(outer_mask, None if mask is None else spread(mask), is_causal)
        if encoding.causal_only:
            _check_no_later_key(encoding, seen, place)
        out = attend(
            flat(query),
            flat(key),
            flat(value),
            encoding=chosen,
            params=prepared,
            query=place,
            key=place,
            mask=seen,
            dropout_rate=0.0 if deterministic else dropout_rate,
            rng=dropout_rng,
            implementation="dense",
        )
        return out.reshape((*batch, *out.shape[-3:]))

    outer_mask = mask
    return attention_fn


def _joined(rule, array, is_causal: bool):
    """One mask of a rule, an array `[B or 1, N or 1, T, S]` and causality.

    Without an array it is a mask of `ropejax.masks`, of which more is known.
    """
    if array is None and (rule is None or isinstance(rule, Mask)):
        if not is_causal:
            return rule
        return Causal() if rule is None else rule & Causal()

    def mask(query: Tokens, key: Tokens):
        visible = visible_pairs(query, key, rule)
        if array is not None:
            visible &= array.astype(bool)
        if is_causal:
            order = key.index[:, None, None, :] <= query.index[:, None, :, None]
            visible &= order
        return visible

    return mask


def _check_no_later_key(encoding: Encoding, mask, place: Tokens) -> None:
    """Raises ValueError if an array is known to show a later key; `attend` does others.

    Nothing is known of a traced array.
    """
    if mask is None or isinstance(mask, Mask):
        return
    visible = mask(place, place)
    later = place.index[:, None, None, :] > place.index[:, None, :, None]
    seen = known_values(visible & later)
    if seen is not None and seen.any():
        _, _, t, s = np.argwhere(seen)[0]
        raise ValueError(
            f"{encoding.title} is undefined for keys after the query, and the mask "
            f"shows key {s} to query {t}; pass a causal one, or "
            "as_attention_fn(encoding, mask=Causal())."
        )
