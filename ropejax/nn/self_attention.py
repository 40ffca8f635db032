"""What every self-attention layer does around `ropejax.attention.attend`."""

import math
from typing import Any, NamedTuple

import jax
from flax import nnx
from jaxtyping import Array, Float, Int

from ropejax.attention import SequenceParallel, attend, attention_weights
from ropejax.encodings import Dims, Encoding
from ropejax.nn.output_gates import Ungated
from ropejax.nn.parameters import as_arrays, as_parameters
from ropejax.nn.token_shifts import Projections, Unshifted
from ropejax.nn.weighting import Weighting
from ropejax.tokens import Tokens
from ropejax.typing import Params, Rng

# Numbers that encodings fold into their keys are far below.
_WEIGHTING, _TOKEN_SHIFT, _OUTPUT_GATE = 2**20, 2**20 + 1, 2**20 + 2


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
        token_shift: what projections take from tokens before; nothing if None.
        output_gate: what `output` gates heads' outputs with; nothing if None.
        rngs: keys for the initial parameters of all of these.
    """

    def __init__(
        self,
        dims: Dims,
        encoding: Encoding,
        *,
        weighting: Weighting | None = None,
        token_shift: Unshifted | None = None,
        output_gate: Ungated | None = None,
        rngs: nnx.Rngs,
    ):
        self.dims = dims
        self.encoding = encoding
        rng = rngs.params()
        self.encoding_params = as_parameters(encoding.init_layer(rng, dims))

        def own(part, number: int) -> Params:
            # Of a key of its own, so that everything else starts alike with any of it.
            return as_parameters(part.init_layer(jax.random.fold_in(rng, number), dims))

        self.weighting = Weighting() if weighting is None else weighting
        self.weighting_params = own(self.weighting, _WEIGHTING)
        self.token_shift = Unshifted() if token_shift is None else token_shift
        self.token_shift_params = own(self.token_shift, _TOKEN_SHIFT)
        self.output_gate = Ungated() if output_gate is None else output_gate
        self.output_gate_params = own(self.output_gate, _OUTPUT_GATE)

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
        (q, k, v), _ = self.projected(x, where)
        query = where.replace(features=encoding.query_features(params, x, q, where))
        features, _ = encoding.key_features(params, x, k, where)
        key = where.replace(features=features)
        how = self.how(x, where, where, mask)
        return Projected(q, k, v, params, query, key, how)

    def projected(
        self, x: Float[Array, "B L D"], where: Tokens, state: Any = None
    ) -> tuple[Projections, Any]:
        """Returns queries, keys and values as the encoding and a cache get them.

        Args:
            x: hidden states, `[B, L, D]`.
            where: where the tokens are.
            state: what the call for the tokens before returned; None if there are none.

        Returns:
            The three, and the state of the token shift after these tokens.
        """
        own = as_arrays(self.token_shift_params)
        (q, k, v), state = self.token_shift.shifted(
            own, x, self.projections(x), where, state
        )
        own = as_arrays(self.weighting_params)
        q, k = self.weighting.queries(own, q), self.weighting.keys(own, k)
        return Projections(q, k, v), state

    def projections(self, x: Float[Array, "B L D"]) -> Projections:
        """Returns what queries, keys and values are made of, of each token alone."""
        raise NotImplementedError(f"{type(self).__name__} must define projections.")

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
