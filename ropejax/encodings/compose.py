"""Several encodings as one: RoPE with a bias, ReRoPE with log-n scaling, and so on."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax

from ropejax.encodings.base import Apart, Dims, Encoding, Views
from ropejax.encodings.heads import dot_product, weighted_sum
from ropejax.encodings.hook_shapes import checked
from ropejax.tokens import Tokens
from ropejax.typing import Logits, Params, Rng


@dataclasses.dataclass(frozen=True)
class Compose(Encoding):
    """Encodings put together, each under a name; made by `compose`.

    Token hooks run in order (embeddings, queries, keys, values), outputs in reverse;
    biases are summed, logits folded in order. What a part makes of queries beside them
    (`Apart`) is its own: later parts may rescale it, and do not turn it. At most one
    part may have a product of its own, at most one a carry, at most one a mix.
    Parameters and features are dicts by part name, so parts of a model can be switched
    at test time.

    A part that sets queries against vectors of its own sees them turned, if a rotation
    comes before it, and so by their absolute position. CoPE and Transformer-XL go
    before RoPE, to see them as they were; of Shaw, DeBERTa and PaTH, whose product runs
    last, the order does not change that.

    Attributes:
        parts: pairs of a name and an encoding.

    Raises:
        ValueError: if there is no part, a name repeats, or two parts claim one hook.
    """

    parts: tuple[tuple[str, Encoding], ...] = ()

    def __post_init__(self):
        super().__post_init__()
        names = [name for name, _ in self.parts]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"parts need different names, and one at least: {names}.")
        self._owner("product")
        self._owner("mix")
        self._owner("carry")

    @property
    def title(self) -> str:
        """The parts' titles."""
        return " + ".join(part.title for _, part in self.parts)

    @property
    def summary(self) -> str:
        """The parts' summaries."""
        return "; ".join(part.summary for _, part in self.parts if part.summary)

    @property
    def reference(self) -> str:
        """The parts' references."""
        return "; ".join(part.reference for _, part in self.parts if part.reference)

    @property
    def causal_only(self) -> bool:
        """True if any part is."""
        return any(part.causal_only for _, part in self.parts)

    @property
    def shift_invariant(self) -> bool:
        """True if all parts are, and none sees queries that another has turned."""
        parts = list(self._flat())
        turned = [at for at, part in enumerate(parts) if part.places_queries]
        for at, part in enumerate(parts):
            # What has no view of its own sees, in its product, what all parts made.
            last = type(part).queries is Encoding.queries
            if part.sees_turns and any(last or other < at for other in turned):
                return False
        return all(part.shift_invariant for part in parts)

    @property
    def sees_turns(self) -> bool:
        """True if any part does."""
        return any(part.sees_turns for _, part in self.parts)

    @property
    def places_queries(self) -> bool:
        """True if any part does."""
        return any(part.places_queries for _, part in self.parts)

    @property
    def length_dependent(self) -> bool:
        """True if any part is."""
        return any(part.length_dependent for _, part in self.parts)

    @property
    def by_distance(self) -> bool:
        """True if all parts are (those that use no positions say so)."""
        return all(part.by_distance for _, part in self.parts)

    @property
    def has_carry(self) -> bool:
        """True if one part has."""
        return self._owner("carry") is not None

    @property
    def carry_skips_hidden(self) -> bool:
        """That of the part which has a carry."""
        owner = self._owner("carry")
        return owner is not None and dict(self.parts)[owner].carry_skips_hidden

    @property
    def needs_whole_rows(self) -> bool:
        """True if any part does."""
        return any(part.needs_whole_rows for _, part in self.parts)

    @property
    def mixes_heads(self) -> bool:
        """True if any part does."""
        return any(part.mixes_heads for _, part in self.parts)

    @property
    def num_axes(self) -> int:
        """The most of any part's."""
        return max(part.num_axes for _, part in self.parts)

    @property
    def has_product(self) -> bool:
        """True if one part has a product of its own."""
        return self._owner("product") is not None

    @property
    def has_mix(self) -> bool:
        """True if one part has a mix of its own."""
        return self._owner("mix") is not None

    @property
    def has_embed(self) -> bool:
        """True if any part has."""
        return any(part.has_embed for _, part in self.parts)

    @property
    def has_features(self) -> bool:
        """True if any part has."""
        return any(part.has_features for _, part in self.parts)

    @property
    def has_bias(self) -> bool:
        """True if any part has."""
        return any(part.has_bias for _, part in self.parts)

    @property
    def has_logits(self) -> bool:
        """True if any part has."""
        return any(part.has_logits for _, part in self.parts)

    @property
    def has_narrow_bias(self) -> bool:
        """True if one part alone has a bias, and that is narrow."""
        biased = self._biased()
        return len(biased) == 1 and biased[0][1].has_narrow_bias

    @property
    def position_limit(self) -> int | None:
        """The lowest of the parts' limits."""
        limits = [part.position_limit for _, part in self.parts]
        return min((n for n in limits if n is not None), default=None)

    @property
    def stream_limits(self) -> tuple[tuple[str, int], ...]:
        """The parts' limits, one after the other."""
        return tuple(limit for _, part in self.parts for limit in part.stream_limits)

    def check(self, dims: Dims) -> None:
        """Raises ValueError if a part cannot serve a model of these sizes."""
        for _, part in self.parts:
            part.check(dims)

    def init_shared(self, rng: Rng, dims: Dims) -> Params:
        """Returns the parts' shared parameters by name."""
        return {
            name: part.init_shared(one, dims) for name, part, one in self._keyed(rng)
        }

    def init_layer(self, rng: Rng, dims: Dims) -> Params:
        """Returns the parts' layer parameters by name."""
        return {
            name: part.init_layer(one, dims) for name, part, one in self._keyed(rng)
        }

    def prepare(
        self, shared: Params, layer: Params, query: Tokens, key: Tokens, dims: Dims
    ) -> Params:
        """Returns what the parts prepared, by name."""
        return {
            name: part.prepare(
                shared.get(name, {}), layer.get(name, {}), query, key, dims
            )
            for name, part in self.parts
        }

    def embed(self, shared, x, where):
        """Embeds by each part in turn."""
        for name, part in self.parts:
            x = part.embed(shared.get(name, {}), x, where)
        return x

    def query_features(self, params, x, q, query, state=None) -> dict[str, Any]:
        """Returns the parts' features by name."""
        return {
            name: part.query_features(
                params[name], x, q, query, None if state is None else state[name]
            )
            for name, part in self.parts
        }

    def key_features(self, params, x, k, key, state=None):
        """Returns the parts' features and states by name."""
        each = {
            name: part.key_features(
                params[name], x, k, key, None if state is None else state[name]
            )
            for name, part in self.parts
        }
        return (
            {name: features for name, (features, _) in each.items()},
            {name: after for name, (_, after) in each.items()},
        )

    def queries(self, params, q, query) -> Views:
        """Returns views of the queries: each part works on those of the one before."""
        return self._views("queries", params, q, query)

    def keys(self, params, k, key) -> Views:
        """Returns views of the keys: each part works on those of the one before."""
        return self._views("keys", params, k, key)

    def rescaled(self, params, numbers, query):
        """Returns what another method made of queries, times the parts' factors."""
        for name, part, (own,) in self._with(query):
            numbers = part.rescaled(params[name], numbers, own)
        return numbers

    def values(self, params, v, key):
        """Returns the values after each part in turn."""
        for name, part, (own,) in self._with(key):
            v = part.values(params[name], v, own)
        return v

    def outputs(self, params, out, query):
        """Returns the outputs after each part, the last one first."""
        for name, part, (own,) in reversed(list(self._with(query))):
            out = part.outputs(params[name], out, own)
        return out

    def product(self, params, q, k, query, key) -> Logits:
        """Returns the product of the part that has one."""
        owner = self._owner("product")
        if owner is None:
            return dot_product(q[0], k[0])
        part, query, key = self._one(owner, query, key)
        q, k = _views_of(owner, q), _views_of(owner, k)
        return part.product(params[owner], q, k, query, key)

    def bias(self, params, query, key, scale):
        """Returns the sum of the parts' biases."""
        total = None
        for name, part, own in self._with(query, key):
            bias = part.bias(params[name], *own, scale)
            if bias is not None:
                sizes = (None, None, query.length, key.length)
                checked(part, "bias", bias, sizes, ones=True)
                total = bias if total is None else total + bias
        return total

    def factored_size(self, length: int) -> float | None:
        """Returns that of the one part that has a bias; None if there are more."""
        biased = self._biased()
        return biased[0][1].factored_size(length) if len(biased) == 1 else None

    def factored_bias(self, params, query, key):
        """Returns that of the one part that has a bias."""
        ((name, part),) = self._biased()
        return part.factored_bias(params[name], _own(query, name), _own(key, name))

    def narrow_bias(self, params):
        """Returns that of the one part that has a bias."""
        ((name, part),) = self._biased()
        return part.narrow_bias(params[name])

    def init_carry(self, params, q, query):
        """Returns the state of the part with a carry."""
        owner = self._owner("carry")
        if owner is None:
            return None
        part, query = self._one(owner, query)
        return part.init_carry(params[owner], _views_of(owner, q), query)

    def carry(self, params, state, logits, q, k, query, key, visible, scale):
        """Carries by the part that has one."""
        owner = self._owner("carry")
        part, query, key = self._one(owner, query, key)
        q, k = _views_of(owner, q), _views_of(owner, k)
        return part.carry(
            params[owner], state, logits, q, k, query, key, visible, scale
        )

    def logits(self, params, logits, query, key) -> Logits:
        """Returns the logits after each part in turn."""
        for name, part, own in self._with(query, key):
            logits = part.logits(params[name], logits, *own)
        return logits

    def mix(self, params, weights, v, query, key):
        """Mixes by the part that has a mix of its own."""
        owner = self._owner("mix")
        if owner is None:
            return weighted_sum(weights, v)
        part, query, key = self._one(owner, query, key)
        return part.mix(params[owner], weights, v, query, key)

    def _views(self, hook: str, params: Params, x, side: Tokens) -> Views:
        """The views that all parts have made, and what each has made beside them."""
        views, beside = (x,), {}
        for name, part, (own,) in self._with(side):
            if hook == "queries":
                beside = part.rescaled(params[name], beside, own)
            made = [getattr(part, hook)(params[name], view, own) for view in views]
            if made[0][0].shape[-1] != views[0].shape[-1]:
                self._check_last(name)
            views = tuple(
                view for some in made for view in some if not isinstance(view, Apart)
            )
            if isinstance(made[0][-1], Apart):
                beside = beside | {name: made[0][-1]}
        return (*views, Apart(beside)) if beside else views

    def _check_last(self, wide: str) -> None:
        """Raises ValueError if parts after one that made views wider turn them."""
        names = [name for name, _ in self.parts]
        others = [name for name in names[names.index(wide) + 1 :] if self._turns(name)]
        if others:
            raise ValueError(
                f"{wide} makes views of queries and keys of another width than heads, "
                f"which {' and '.join(others)} cannot turn; put them before {wide}, or "
                "leave one of them out."
            )

    def _flat(self) -> Iterator[Encoding]:
        """The parts, those of compositions among them in their place."""
        for _, part in self.parts:
            yield from part._flat() if isinstance(part, Compose) else [part]

    def _turns(self, name: str) -> bool:
        """Returns True if a part does more to queries than to multiply them."""
        part = dict(self.parts)[name]
        if isinstance(part, Compose):
            return any(part._turns(inner) for inner, _ in part.parts)
        kind = type(part)
        factors = kind.rescaled is not Encoding.rescaled
        return kind.queries is not Encoding.queries and not factors

    def _biased(self) -> list[tuple[str, Encoding]]:
        return [named for named in self.parts if named[1].has_bias]

    def _keyed(self, rng: Rng) -> Iterator[tuple[str, Encoding, Rng]]:
        rngs = jax.random.split(rng, len(self.parts))
        for (name, part), one in zip(self.parts, rngs, strict=True):
            yield name, part, one

    def _with(self, *sides: Tokens) -> Iterator[tuple[str, Encoding, tuple]]:
        """Each part, with tokens that hold its own features."""
        for name, part in self.parts:
            yield name, part, tuple(_own(side, name) for side in sides)

    def _one(self, name: str, *sides: Tokens) -> tuple:
        return dict(self.parts)[name], *(_own(side, name) for side in sides)

    def _owner(self, hook: str) -> str | None:
        """The name of the part that has this hook, None if there is none."""
        owners = [name for name, part in self.parts if getattr(part, f"has_{hook}")]
        if len(owners) > 1:
            raise ValueError(
                f"{' and '.join(owners)} each have a {hook} of their own, and only one "
                "part may; leave one of them out."
            )
        return owners[0] if owners else None


def compose(*parts: Encoding, **named: Encoding) -> Encoding:
    """Returns encodings put together in the given order.

    `compose(Rotary(), ALiBi())` names parts by their classes; give names where a class
    occurs twice, or where parameters should keep theirs: `compose(rope=Rotary(), ...)`.

    Args:
        *parts: encodings, named by their class in lower case.
        **named: encodings by name, after those.

    Returns:
        A `Compose`.

    Raises:
        ValueError: if there is no part, a name repeats, or two parts claim one hook.
    """
    unnamed = [(type(part).__name__.lower(), part) for part in parts]
    return Compose((*unnamed, *named.items()))


def _views_of(name: str, views: Views) -> Views:
    """What all parts made of queries or keys, and what that one did beside them."""
    if not isinstance(views[-1], Apart):
        return views
    *common, beside = views
    own = beside.numbers.get(name)
    return tuple(common) if own is None else (*common, own)


def _own(side: Tokens, name: str) -> Tokens:
    if side.features is None:
        return side
    return side.replace(features=side.features[name])
