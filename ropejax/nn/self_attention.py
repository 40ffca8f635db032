"""What every self-attention layer does around `ropejax.attention.attend`."""

import math
from typing import Any, NamedTuple

import jax
from flax import nnx
from jaxtyping import Array, Float, Int

from ropejax.attention import SequenceParallel, attend, attention_weights
from ropejax.encodings import Dims, Encoding
from ropejax.nn.parameters import as_arrays, as_parameters
from ropejax.nn.weighting import Weighting
from ropejax.tokens import Tokens
from ropejax.typing import Params, Rng

_WEIGHTING = 2**20  # no number that encodings fold into their keys


class Projected(NamedTuple):
    """Hidden states as an attention engine takes them.

    Attributes:
        q: queries, `[B, L, N, H]`.
        k: keys, `[B, L, K, H]`.
        v: values, `[B, L, K, Hv]`.
        params: the encoding's, prepared.
        query: where the queries are, with the encoding's features.
        key: where the keys are, with the encoding's features.
        how: further arguments of `attend`, which say how they become weights.
    """

    q: Float[Array, "B L N H"]
    k: Float[Array, "B L K H"]
    v: Float[Array, "B L K Hv"]
    params: Params
    query: Tokens
    key: Tokens
    how: dict[str, Any]


class SelfAttention(nnx.Module):
    """Attention of a sequence to itself, whatever queries, keys and values are made of.

    `out = output(x, attend(*projected(x)))`; what derives from it says what the two
    are.

    Args:
        dims: the model's sizes.
        encoding: settings of the position encoding.
        weighting: how queries and keys become weights; by a softmax if None.
        rngs: keys for the initial parameters of encoding and weighting.
    """

    def __init__(
        self,
        dims: Dims,
        encoding: Encoding,
        *,
        weighting: Weighting | None = None,
        rngs: nnx.Rngs,
    ):
        self.dims = dims
        self.encoding = encoding
        rng = rngs.params()
        self.encoding_params = as_parameters(encoding.init_layer(rng, dims))
        # A key of its own, so that everything else starts alike however it is weighted.
        rng = jax.random.fold_in(rng, _WEIGHTING)
        self.weighting = Weighting() if weighting is None else weighting
        self.weighting_params = as_parameters(self.weighting.init_layer(rng, dims))

    def __call__(
        self,
        x: Float[Array, "B L D"],
        where: Tokens,
        *,
        shared: Params,
        mask=None,
        implementation: str | SequenceParallel = "auto",
        rng: Rng | None = None,
        first_row: int | Int[Array, ""] = 0,
    ) -> Float[Array, "B L D"]:
        """Attends within a sequence.

        Args:
            x: hidden states, `[B, L, D]`.
            where: where the tokens are.
            shared: the encoding's parameters that all layers share.
            mask: a mask of `ropejax.masks`, or None.
            implementation: which attention engine.
            rng: the layer's PRNG key for dropout; None at evaluation.
            first_row: row of the whole batch with which x starts.

        Returns:
            Hidden states `[B, L, D]`.
        """
        made = self.project(x, where, shared=shared, mask=mask)
        out = attend(
            made.q,
            made.k,
            made.v,
            encoding=self.encoding,
            params=made.params,
            query=made.query,
            key=made.key,
            mask=mask,
            implementation=implementation,
            **made.how,
            **self.weighting.dropping(rng, first_row),
        )
        return self.output(x, out)

    def weights(
        self, x: Float[Array, "B L D"], where: Tokens, *, shared: Params, mask=None
    ) -> Float[Array, "B N L L"]:
        """Returns the weights with which tokens attend to each other, `[B, N, L, L]`.

        Args:
            x: hidden states, `[B, L, D]`.
            where: where the tokens are.
            shared: the encoding's parameters that all layers share.
            mask: a mask of `ropejax.masks`, or None.
        """
        made = self.project(x, where, shared=shared, mask=mask)
        how = made.how
        if how["scale"] is None:
            how = how | {"scale": 1 / math.sqrt(self.dims.head_dim)}
        return attention_weights(
            made.q,
            made.k,
            encoding=self.encoding,
            params=made.params,
            query=made.query,
            key=made.key,
            mask=mask,
            **how,
        )[0]

    def project(
        self, x: Float[Array, "B L D"], where: Tokens, *, shared: Params, mask=None
    ) -> Projected:
        """Returns what an attention engine takes, of hidden states."""
        encoding = self.encoding
        own = as_arrays(self.encoding_params)
        params = encoding.prepare(shared, own, where, where, self.dims)
        q, k, v = self.projected(x)
        query = where.replace(features=encoding.query_features(params, x, q, where))
        features, _ = encoding.key_features(params, x, k, where)
        key = where.replace(features=features)
        how = self.how(x, where, where, mask)
        return Projected(q, k, v, params, query, key, how)

    def projected(
        self, x: Float[Array, "B L D"]
    ) -> tuple[
        Float[Array, "B L N H"], Float[Array, "B L K H"], Float[Array, "B L K Hv"]
    ]:
        """Returns queries, keys and values of the same tokens."""
        return self.queries(x), self.keys(x), self.values(x)

    def queries(self, x: Float[Array, "B T D"]) -> Float[Array, "B T N H"]:
        """Returns queries, normalized if they are to be, before the encoding."""
        raise NotImplementedError(f"{type(self).__name__} must define queries.")

    def keys(self, x: Float[Array, "B S D"]) -> Float[Array, "B S K H"]:
        """Returns keys, normalized if they are to be, before the encoding."""
        raise NotImplementedError(f"{type(self).__name__} must define keys.")

    def values(self, x: Float[Array, "B S D"]) -> Float[Array, "B S K Hv"]:
        """Returns values, before the encoding."""
        raise NotImplementedError(f"{type(self).__name__} must define values.")

    def output(
        self, x: Float[Array, "B T D"], attended: Float[Array, "B T N Hv"]
    ) -> Float[Array, "B T D"]:
        """Returns the layer's outputs.

        Args:
            x: hidden states of the queries, `[B, T, D]`.
            attended: what attention made of the values, `[B, T, N, Hv]`.
        """
        raise NotImplementedError(f"{type(self).__name__} must define output.")

    def how(
        self, x: Float[Array, "B T D"], query: Tokens, key: Tokens, mask
    ) -> dict[str, Any]:
        """Returns the arguments of `attend` that say how logits become weights.

        Args:
            x: hidden states of the queries, `[B, T, D]`.
            query: where they are.
            key: where the keys are.
            mask: a mask of `ropejax.masks`, or None.
        """
        own = as_arrays(self.weighting_params)
        return self.weighting.arguments(own, x, query, key, mask)
