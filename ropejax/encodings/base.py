"""The contract of an encoding: hooks that do nothing unless a method needs them.

An encoding is a frozen, hashable dataclass of settings: no arrays, no randomness, no
state. Its parameters are made by `init_shared` and `init_layer` and passed in, so the
same object serves training, another test-time setting (`dataclasses.replace`), and any
number of models. The transformer and the attention engines call every hook, always, at
fixed places, and know no method by name:

    prepare          once a layer      work on weights alone; what depends on all tokens
    embed            once a model      absolute encodings add here
    query_features,  once a token      content-dependent methods: gates, projections
      key_features
    queries, keys    once a token      rotations; several views where methods need them
      rescaled                         a factor on what other methods made of queries
    values, outputs  once a token      rotations of values and outputs
    product          once a block      queries against keys, before the scale
    bias             once a block      added after the scale, in nats
      factored_bias, narrow_bias       the same in a form that some engines are fast at
    carry            once a block      what depends on the tokens between query and key
    logits           once a block      the last word on logits, before the mask
    mix              once a block      weights against values, linear, head by head

    logits = fold(carried(scale * product + bias)), then the mask, then the softmax

A method that belongs inside the scale multiplies its bias by `scale`. Per-head
constants are arrays with an axis of N heads. Masks and counts go by `Tokens.index`;
what an encoding sees is `Tokens.positions`, or `relative_positions(query, key)`.

Engines that work in blocks call the hooks of a block once for each, and add up the
gradients of `params`; so whatever is not linear in a gradient (a projection of it, a
clipping) belongs in `prepare`, which is called once.
"""

import dataclasses
from typing import Any, ClassVar, NamedTuple

from jaxtyping import Array, Bool, Float

from ropejax.encodings.bias_forms import FactoredBias, NarrowBias
from ropejax.encodings.heads import dot_product, weighted_sum
from ropejax.encodings.hook_shapes import check_views, checked
from ropejax.settings import Settings, check_finite, make_tuples
from ropejax.tokens import Tokens
from ropejax.typing import Logits, Params, Rng

Views = tuple[Any, ...]


class Apart(NamedTuple):
    """What a method makes of queries or keys beside them: the last of its views.

    Other parts of a composition work on queries and keys; a rotation of anything else,
    such as CoPE's products of queries and vectors, would be nonsense.

    Attributes:
        numbers: a pytree of arrays `[B, L, N, ...]`.
    """

    numbers: Any


class Dims(NamedTuple):
    """The sizes of the model that an encoding serves, for `init_shared`, `init_layer`.

    Attributes:
        num_heads: query heads, N.
        num_kv_heads: key/value heads, K.
        head_dim: width of a head, H.
        embed_dim: width of the model, D.
        num_layers: number of layers.
        causal: True if no query ever attends to a later key.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    embed_dim: int
    num_layers: int = 1
    causal: bool = False


@dataclasses.dataclass(frozen=True)
class Encoding(Settings):
    """A position encoding with every hook at rest: no position information at all.

    Class attributes state what a method promises; the conformance tests hold it to
    them. In all hooks, `params` is what `prepare` returned; `query` and `key` say where
    queries and keys are, of a whole side or of a block, with the features of each.

    Attributes:
        title: the method's usual name.
        summary: one line for lists.
        reference: paper and arXiv id.
        causal_only: True if the method is undefined for keys after the query.
        shift_invariant: True if shifting all positions by one constant changes nothing.
        sees_turns: True if more than products of queries and keys change when both are
            turned before it: it sets them against vectors of its own, or works on their
            channels. Then what turns them by their position shows it that.
        length_dependent: True if an output may change when later tokens are appended
            even under a causal mask.
        by_distance: True if positions enter through differences only, so that a table
            of distances may stand in for them.
        has_carry: True if a logit depends on the tokens between query and key.
        carry_skips_hidden: True if keys that the mask hides leave the state of a carry
            as it is, so that an engine may skip blocks of them.
        needs_whole_rows: True if a logit depends on others of its row, so that no
            engine can work on blocks of keys.
        mixes_heads: True if a head's logits depend on another's, so that heads cannot
            be computed apart.
        num_axes: how many numbers a position is; 1 for positions `[B, L]`, A for
            `[B, L, A]`.
    """

    title: ClassVar[str] = "No encoding"
    summary: ClassVar[str] = "no position information"
    reference: ClassVar[str] = ""
    causal_only: ClassVar[bool] = False
    shift_invariant: ClassVar[bool] = True
    sees_turns: ClassVar[bool] = False
    length_dependent: ClassVar[bool] = False
    by_distance: ClassVar[bool] = True
    has_carry: ClassVar[bool] = False
    carry_skips_hidden: ClassVar[bool] = False
    needs_whole_rows: ClassVar[bool] = False
    mixes_heads: ClassVar[bool] = False
    num_axes: ClassVar[int] = 1

    def __post_init__(self):
        make_tuples(self)
        check_finite(self)

    @property
    def places_queries(self) -> bool:
        """True if what it makes of queries and keys depends on where they are."""
        return type(self).queries is not Encoding.queries

    @property
    def has_product(self) -> bool:
        """True if logits are more than one dot product of the first views."""
        return type(self).product is not Encoding.product

    @property
    def has_mix(self) -> bool:
        """True if outputs are more than weights against values."""
        return type(self).mix is not Encoding.mix

    @property
    def has_embed(self) -> bool:
        """True if it changes embeddings."""
        return type(self).embed is not Encoding.embed

    @property
    def has_features(self) -> bool:
        """True if it computes features from hidden states."""
        return (
            type(self).query_features is not Encoding.query_features
            or type(self).key_features is not Encoding.key_features
        )

    @property
    def has_bias(self) -> bool:
        """True if anything is added to the scaled logits."""
        return type(self).bias is not Encoding.bias

    @property
    def has_logits(self) -> bool:
        """True if the scaled and biased logits are changed once more."""
        return type(self).logits is not Encoding.logits

    @property
    def has_narrow_bias(self) -> bool:
        """True if the bias is a function of head and offset; see `narrow_bias`."""
        return type(self).narrow_bias is not Encoding.narrow_bias

    @property
    def position_limit(self) -> int | None:
        """Positions must be below this number; None if there is no limit."""
        return None

    @property
    def stream_limits(self) -> tuple[tuple[str, int], ...]:
        """Names of streams, and what their ids must be below; () if there is none."""
        return ()

    def check(self, dims: Dims) -> None:
        """Raises ValueError if the method cannot serve a model of these sizes.

        Args:
            dims: sizes of the model.
        """

    def init_shared(self, rng: Rng, dims: Dims) -> Params:
        """Returns parameters that all layers share (a pytree, `{}` for none).

        Args:
            rng: PRNG key of the initial values.
            dims: sizes of the model.
        """
        return {}

    def init_layer(self, rng: Rng, dims: Dims) -> Params:
        """Returns one layer's own parameters (a pytree, `{}` for none).

        Args:
            rng: PRNG key of the initial values; another one for each layer.
            dims: sizes of the model.
        """
        return {}

    def prepare(
        self, shared: Params, layer: Params, query: Tokens, key: Tokens, dims: Dims
    ) -> Params:
        """Returns what the other hooks receive as `params`, once a layer.

        Work on weights alone belongs here, and constants of each head (as arrays with
        an axis of N, so that heads can be sharded), and what depends on the whole
        length.

        Args:
            shared: what `init_shared` returned, or became by training.
            layer: what `init_layer` returned, likewise.
            query: where the queries are, all of them; features do not matter.
            key: where the keys are, all of them.
            dims: sizes of the model.

        Returns:
            A pytree of arrays, for `attend(..., params=...)` and all hooks but `embed`.
        """
        return {**shared, **layer}

    def embed(
        self, shared: Params, x: Float[Array, "B L D"], where: Tokens
    ) -> Float[Array, "B L D"]:
        """Returns token embeddings with positions in them.

        Args:
            shared: what `init_shared` returned.
            x: embeddings, `[B, L, D]`.
            where: where the tokens are.

        Returns:
            Embeddings `[B, L, D]`; x itself where `has_embed` is False.
        """
        return x

    def query_features(
        self,
        params: Params,
        x: Float[Array, "B T D"],
        q: Float[Array, "B T N H"],
        query: Tokens,
        state: Any = None,
    ) -> Any:
        """Returns a pytree of per-token features `[B, T, ...]` of the queries.

        They go to `attend` as `query.replace(features=...)`.

        Args:
            params: what `prepare` returned.
            x: what q was projected from, `[B, T, D]`.
            q: queries, `[B, T, N, H]`.
            query: where they are.
            state: what `key_features` returned for the tokens before these, None at
                the start of a sequence.

        Returns:
            The features; None where a method has none.
        """
        return None

    def key_features(
        self,
        params: Params,
        x: Float[Array, "B S D"],
        k: Float[Array, "B S K H"],
        key: Tokens,
        state: Any = None,
    ) -> tuple[Any, Any]:
        """Returns features `[B, S, ...]` of the keys, and the state after them.

        The features go to `attend` as `key.replace(features=...)`. The state is what
        decoding needs of all tokens so far, to go on with later ones.

        Args:
            params: what `prepare` returned.
            x: what k was projected from, `[B, S, D]`.
            k: keys, `[B, S, K, H]`.
            key: where they are.
            state: what this returned for the tokens before these, None at the start of
                a sequence.

        Returns:
            Features and state; None for either that a method has not.
        """
        return None, None

    def queries(
        self, params: Params, q: Float[Array, "B T N H"], query: Tokens
    ) -> Views:
        """Returns the views of the queries that `product` works on.

        All are queries, turned in one way or another, but for an `Apart` at the end.
        """
        return (q,)

    def keys(self, params: Params, k: Float[Array, "B S K H"], key: Tokens) -> Views:
        """Returns the views of the keys that `product` works on, as `queries` does."""
        return (k,)

    def rescaled(self, params: Params, numbers: Any, query: Tokens) -> Any:
        """Returns what another method made of queries, times this one's factors.

        Args:
            params: what `prepare` returned.
            numbers: a pytree of arrays `[B, T, N, ...]`, linear in the queries.
            query: where these are.

        Returns:
            The same unless `queries` does nothing but to multiply each query by a
            number, which then multiplies these.
        """
        return numbers

    def values(
        self, params: Params, v: Float[Array, "B S K H"], key: Tokens
    ) -> Float[Array, "B S K H"]:
        """Returns the values as they are mixed."""
        return v

    def outputs(
        self, params: Params, out: Float[Array, "B T N H"], query: Tokens
    ) -> Float[Array, "B T N H"]:
        """Returns the outputs after mixing."""
        return out

    def product(
        self, params: Params, q: Views, k: Views, query: Tokens, key: Tokens
    ) -> Logits:
        """Returns queries against keys `[B, N, T, S]`, unscaled."""
        return dot_product(q[0], k[0])

    def bias(
        self, params: Params, query: Tokens, key: Tokens, scale: float | Array
    ) -> Float[Array, "#B #N T S"] | None:
        """Returns what is added to the scaled logits, or None."""
        return None

    def factored_size(self, length: int) -> float | None:
        """Returns how large `factored_bias` can get over so many positions in a row.

        Known without parameters, so that an engine can tell beforehand how exact sums
        with it will be; None if the bias does not factor, or has no such bound.
        """
        return None

    def factored_bias(self, params: Params, query: Tokens, key: Tokens) -> FactoredBias:
        """Returns the bias of keys up to the query, at consecutive positions, factored.

        Called only where `factored_size` is a number. A shift of all positions must not
        matter.
        """
        raise NotImplementedError(f"{self.title} has no factored bias.")

    def narrow_bias(self, params: Params) -> NarrowBias:
        """Returns the bias as a function of head and offset.

        Called only if `has_narrow_bias`.
        """
        raise NotImplementedError(f"{self.title} has no narrow bias.")

    def init_carry(self, params: Params, q: Views, query: Tokens) -> Any:
        """Returns the state of each query before it has met its nearest key."""
        return None

    def carry(
        self,
        params: Params,
        state: Any,
        logits: Logits,
        q: Views,
        k: Views,
        query: Tokens,
        key: Tokens,
        visible: Bool[Array, "#B #N T S"],
        scale: float | Array,
    ) -> tuple[Any, Logits]:
        """Walks one block of keys, nearest first, and returns state and new logits.

        Called only if `has_carry`. Blocks come in order of decreasing key index, so the
        state holds what lies between a query and the block; within a block `attend`
        has keys by rising index. Blocks without a visible pair are left out if nothing
        beyond them is visible, if they start after the last query, and everywhere if
        `carry_skips_hidden`.
        """
        return state, logits

    def logits(
        self, params: Params, logits: Logits, query: Tokens, key: Tokens
    ) -> Logits:
        """Returns the logits as the softmax sees them."""
        return logits

    def mix(
        self,
        params: Params,
        weights: Float[Array, "B N T S"],
        v: Float[Array, "B S K H"],
        query: Tokens,
        key: Tokens,
    ) -> Float[Array, "B T N H"]:
        """Returns weights against values; linear in the weights, head by head.

        What queries of head n are given is a sum over weights of head n alone: blocks
        of keys are weighted anew, each head by its own sum, once further ones are met.
        """
        return weighted_sum(weights, v)

    def score(
        self,
        params: Params,
        state: Any,
        q: Views,
        k: Views,
        query: Tokens,
        key: Tokens,
        visible: Bool[Array, "#B #N T S"],
        scale: float | Array,
    ) -> tuple[Any, Logits]:
        """Returns carry state and logits of one block: the hooks in their order.

        This is the one place where the order is written down; engines call it, methods
        do not override it.
        """
        check_views(self, queries=q, keys=k)
        sizes = (q[0].shape[0], q[0].shape[2], query.length, key.length)
        product = self.product(params, q, k, query, key)
        logits = checked(self, "product", product, sizes) * scale
        bias = self.bias(params, query, key, scale)
        if bias is not None:
            logits = logits + checked(self, "bias", bias, sizes, ones=True)
        if self.has_carry:
            state, logits = self.carry(
                params, state, logits, q, k, query, key, visible, scale
            )
            checked(self, "carry", logits, sizes)
        logits = self.logits(params, logits, query, key)
        return state, checked(self, "logits", logits, sizes)
