"""Checks that hold a position encoding to the contract, for its author's own tests.

`check_encoding(MyEncoding())` runs attention under an encoding in every way that the
library will: compiled, mapped, in half precision, with padding, decoding from a cache,
with keys stored in any order. It says which promise is broken. It knows no method by
name, so an encoding that passes works with everything else.
"""

import dataclasses
import functools
import typing
from collections.abc import Iterator
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from ropejax import masks
from ropejax.attention import attend
from ropejax.encodings.base import Dims, Encoding
from ropejax.tokens import Tokens, tokens
from ropejax.typing import Array, Float

DIMS = Dims(
    num_heads=4, num_kv_heads=2, head_dim=8, embed_dim=16, num_layers=2, causal=True
)
"""The sizes that checks use: small, and with grouped heads."""

Inputs = dict[str, Any]
"""What `example` makes: arrays by name, parameters among them."""

CAUSAL = masks.Causal()

_LENGTH = 8
_SHORT = 5


def example(
    encoding: Encoding,
    seed: int = 0,
    *,
    dims: Dims = DIMS,
    length: int = _LENGTH,
    batch: int = 2,
) -> Inputs:
    """Returns random inputs and parameters of one attention under an encoding.

    Parameters are moved off their initial values, as training would, so that what
    starts at zero counts.

    Args:
        encoding: the encoding.
        seed: of all that is random.
        dims: sizes of the model.
        length: number of tokens, L.
        batch: number of rows, B.

    Returns:
        "x" `[B, L, D]`, the layer's input; "q", "k", "v" `[B, L, N or K, H]`, added to
        projections of x by "wq", "wk", "wv"; and "shared" and "layer", the parameters.
    """
    rng = np.random.default_rng(seed)

    def normal(*shape):
        return jnp.asarray(rng.normal(size=shape), jnp.float32)

    inputs = {"x": normal(batch, length, dims.embed_dim)}
    heads = {"q": dims.num_heads, "k": dims.num_kv_heads, "v": dims.num_kv_heads}
    for name, count in heads.items():
        inputs[name] = normal(batch, length, count, dims.head_dim)
        weights = normal(dims.embed_dim, count, dims.head_dim)
        inputs["w" + name] = weights * dims.embed_dim**-0.5

    def init(rng):
        rng_shared, rng_layer = jax.random.split(rng)
        return {
            "shared": encoding.init_shared(rng_shared, dims),
            "layer": encoding.init_layer(rng_layer, dims),
        }

    params = _compiled(init)(jax.random.key(seed))
    return inputs | jax.tree.map(lambda leaf: leaf + 0.3 * normal(*leaf.shape), params)


def run(
    encoding: Encoding,
    inputs: Inputs,
    where: Tokens,
    *,
    dims: Dims = DIMS,
    mask: Any = CAUSAL,
    past: int = 0,
    order: Array | None = None,
    **settings,
) -> Float[Array, "B T N H"]:
    """Returns the outputs of one attention, all hooks called as a model calls them.

    Args:
        encoding: the encoding.
        inputs: what `example` made.
        where: where the tokens are.
        dims: sizes of the model.
        mask: a mask of (query, key), or None.
        past: number of tokens that are cached already: features are made in two parts,
            and queries are those of the second only.
        order: storage order of the keys, `[L]`; as they come if None.
        **settings: passed on to `attend`.
    """
    x = encoding.embed(inputs["shared"], inputs["x"], where)
    q, k, v = (
        inputs[name]
        + jnp.einsum("bld,dnh->blnh", x, inputs["w" + name].astype(x.dtype))
        for name in "qkv"
    )
    query = where.block(past, where.length - past) if past else where
    key = where if order is None else where.permuted(order)
    params = encoding.prepare(inputs["shared"], inputs["layer"], query, key, dims)
    query_features, key_features = _features(encoding, params, x, q, k, where, past)
    where = where.replace(features=key_features)
    if order is not None:
        where = where.permuted(order)
        k, v = (jnp.take(part, order, axis=1) for part in (k, v))
    return attend(
        q[:, past:],
        k,
        v,
        encoding=encoding,
        params=params,
        query=query.replace(features=query_features),
        key=where,
        mask=mask,
        **settings,
    )


def check_encoding(
    encoding: Encoding, *, dims: Dims = DIMS, tolerance: float = 2e-5
) -> None:
    """Raises AssertionError, naming the promise, unless an encoding keeps its word.

    Under a causal mask: compiled and uncompiled results agree, and mapped ones with
    batched ones; gradients are finite, and exactly zero towards later tokens; results
    in bfloat16 are near those in float32; decoding with cached keys, features made with
    a state and keys stored in another order gives the rows of the whole; padding on
    either side, and what it holds, changes nothing; rows with positions of their own
    are independent; positions shifted by up to 2^20 change nothing, or something, as
    declared; a table of distances means the differences it says.

    Args:
        encoding: an instance.
        dims: sizes of the model to check it in.
        tolerance: of float32 results, relative to the largest output.
    """
    check_description(encoding)
    encoding.check(dims)
    inputs = example(encoding, dims=dims)
    attention = functools.partial(run, encoding, dims=dims, implementation="dense")
    _Checks(encoding, inputs, attention, tolerance).all()


def check_description(encoding: Encoding) -> None:
    """Raises AssertionError unless an encoding is described, frozen and hashable."""
    kind = type(encoding).__name__
    for name in ("title", "summary"):
        if not getattr(encoding, name):
            raise AssertionError(f"{kind} has no {name}.")
    if type(encoding) is not Encoding and not encoding.reference:
        raise AssertionError(f"{kind} has no reference.")
    if "\n" in encoding.summary:
        raise AssertionError(f"The summary of {kind} is longer than a line.")
    same = dataclasses.replace(encoding)
    if encoding != same or hash(encoding) != hash(same):
        raise AssertionError(f"Equal settings of {kind} do not compare or hash equal.")
    try:
        encoding.title = "changed"
    except dataclasses.FrozenInstanceError:
        return
    raise AssertionError(f"{kind} is not a frozen dataclass.")


def variants(encoding: Encoding) -> Iterator[Encoding]:
    """Yields the encoding with one setting changed, for those with an obvious other."""
    hints = typing.get_type_hints(type(encoding))
    for field in dataclasses.fields(encoding):
        value = getattr(encoding, field.name)
        others = typing.get_args(hints.get(field.name))
        if isinstance(value, bool):
            candidates = [not value]
        elif isinstance(value, int):
            candidates = [2 * value, value + 1, max(value // 2, 1)]
        elif isinstance(value, float):
            candidates = [2 * value, 0.5 * value, value + 0.25]
        elif isinstance(value, str):
            candidates = [other for other in others if isinstance(other, str)]
        else:
            continue
        for candidate in candidates:
            if candidate == value:
                continue
            try:
                yield dataclasses.replace(encoding, **{field.name: candidate})
            except ValueError:
                continue


@dataclasses.dataclass(frozen=True)
class _Checks:
    """The checks of `check_encoding`, which share compiled programs."""

    encoding: Encoding
    inputs: Inputs
    attention: Any
    tolerance: float

    def all(self) -> None:
        batch, length = self.inputs["x"].shape[:2]
        at = jnp.broadcast_to(jnp.arange(length), (batch, length))
        program = _compiled(self._value_and_grads)
        ones = jnp.ones_like(self.inputs["q"])
        base, grads = program(self.inputs, self._placed(at), ones)
        chex.assert_tree_all_finite((base, grads))
        self._causal(program, at, ones)
        self._rows(program, at, ones, base)
        self._padding(program, at, ones, base)
        self._shifted(program, at, ones, base)
        self._decoded(program, at, ones)
        self._eager(base)
        self._mapped_in_half(base)

    def _value_and_grads(self, inputs, where, cotangent):
        def loss(inputs):
            out = self.attention(inputs, where)
            return (out * cotangent).sum(), out

        (_, out), grads = jax.value_and_grad(loss, has_aux=True)(inputs)
        return out, grads

    def _placed(self, at, valid=None, index=None) -> Tokens:
        """Returns tokens with positions, index and validity of each row."""
        return Tokens(
            index=at if index is None else index,
            positions=at,
            valid=jnp.ones(at.shape, bool) if valid is None else valid,
            consecutive_index=True,
        )

    def _causal(self, program, at, ones) -> None:
        cotangent = ones.at[:, _SHORT:].set(0.0)
        _, grads = program(self.inputs, self._placed(at), cotangent)
        for name in ("x", "q", "k", "v"):
            if jnp.any(grads[name][:, _SHORT:] != 0):
                self._fail(
                    f"outputs depend on {name} of later tokens under a causal mask"
                )

    def _rows(self, program, at, ones, base) -> None:
        moved = at.at[1].add(self._room(3))
        out, _ = program(self.inputs, self._placed(moved, index=at), ones)
        self._same(out[:1], base[:1], "a row depends on the positions of another")

    def _padding(self, program, at, ones, base) -> None:
        length = at.shape[1]
        pad = length - _SHORT
        valid = at < _SHORT
        out, _ = program(self.inputs, self._placed(at, valid), ones)
        right = out[:, :_SHORT]
        if not self.encoding.length_dependent:
            self._same(right, base[:, :_SHORT], "padding on the right changes results")
        rolled = self.inputs | {
            name: jnp.roll(self.inputs[name], pad, axis=1)
            for name in ("x", "q", "k", "v")
        }
        index = at - pad
        where = self._placed(jnp.maximum(index, 0), index >= 0, index)
        out, grads = program(rolled, where, ones * (index >= 0)[..., None, None])
        self._same(out[:, pad:], right, "padding on the left changes results")
        for name in ("x", "k", "v"):
            if jnp.any(grads[name][:, :pad] != 0):
                self._fail(f"results depend on {name} of padding")

    def _shifted(self, program, at, ones, base) -> None:
        far = self._room(2**20 - at.shape[1])
        out, grads = program(self.inputs, self._placed(at + far, index=at), ones)
        chex.assert_tree_all_finite((out, grads))
        if self.encoding.shift_invariant:
            self._same(out, base, f"positions shifted by {far} change results", 1e-4)
            return
        spread, shift = self._room(7 * _LENGTH + 5) // _LENGTH * at, 5
        one, _ = program(self.inputs, self._placed(spread, index=at), ones)
        other, _ = program(self.inputs, self._placed(spread + shift, index=at), ones)
        if jnp.abs(one - other).max() < self.tolerance:
            self._fail("shifted positions change nothing: it is shift_invariant")

    def _decoded(self, program, at, ones) -> None:
        """Checks later queries against keys of a cache, with a table of distances."""
        apart, length = self._room(3 * _LENGTH) // _LENGTH, at.shape[1]
        out, _ = program(self.inputs, self._placed(apart * at, index=at), ones)
        given = {"positions": apart * at[:1]}
        if self.encoding.by_distance:
            given = {"distances": apart * at[:1]}
        where = tokens(length, **given)
        order = jnp.roll(jnp.arange(length)[::-1], 3)
        if self.encoding.has_carry:
            order = None
        decode = _compiled(
            lambda inputs: self.attention(inputs, where, past=_SHORT, order=order)
        )
        self._same(
            decode(self.inputs),
            out[:, _SHORT:],
            "decoding (later queries, features with a state, keys in another order "
            f"unless carried, {next(iter(given))} {apart} apart) differs from the whole",
        )

    def _eager(self, base) -> None:
        out = self.attention(self.inputs, tokens(base.shape[1]))
        self._same(out, base, "tokens in order, not compiled, differ from positions")

    def _mapped_in_half(self, base) -> None:
        """Checks rows under vmap, in bfloat16: what goes wrong there goes wrong far."""
        names = ("x", "q", "k", "v")
        half = {name: self.inputs[name].astype(jnp.bfloat16)[:, None] for name in names}
        where = tokens(base.shape[1])
        mapped = jax.vmap(lambda row: self.attention(self.inputs | row, where))
        out = _compiled(mapped)(half)[:, 0]
        if out.dtype != jnp.bfloat16:
            self._fail(f"outputs of bfloat16 inputs are {out.dtype}")
        self._same(out, base, "bfloat16 rows under vmap are far from the batch", 0.05)

    def _room(self, wanted: int) -> int:
        """Returns how far positions may be shifted, at most as wanted."""
        limit = self.encoding.position_limit
        return wanted if limit is None else min(wanted, limit - _LENGTH)

    def _same(self, got, wanted, promise: str, tolerance: float | None = None) -> None:
        got, wanted = (part.astype(jnp.float32) for part in (got, wanted))
        allowed = self.tolerance if tolerance is None else tolerance
        allowed = allowed * max(1.0, float(jnp.abs(wanted).max()))
        off = float(jnp.abs(got - wanted).max())
        if not off <= allowed:
            self._fail(f"{promise}, by {off:.2g} where {allowed:.2g} is allowed")

    def _fail(self, why: str) -> None:
        raise AssertionError(f"{self.encoding!r}: {why}.")


def _compiled(function):
    """Returns the function compiled, with little time spent on making it fast."""
    if jax.default_backend() != "cpu":
        return jax.jit(function)
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 0})


def _features(encoding, params, x, q, k, where: Tokens, past: int):
    """Returns features of the queries and of all keys, made in two parts if cached."""
    if not past:
        key_features, _ = encoding.key_features(params, x, k, where)
        return encoding.query_features(params, x, q, where), key_features
    rest = where.length - past
    before, after = where.block(0, past), where.block(past, rest)
    first, state = encoding.key_features(params, x[:, :past], k[:, :past], before)
    second, _ = encoding.key_features(params, x[:, past:], k[:, past:], after, state)
    both = jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=1), first, second)
    return encoding.query_features(params, x[:, past:], q[:, past:], after, state), both
