"""Promises of the encoding contract, each with what it says when it is broken."""

import dataclasses
import functools
import typing
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from ropejax.encodings.base import Dims, Encoding
from ropejax.masks import Lambda
from ropejax.testing.described import check_described
from ropejax.testing.running import DIMS, Inputs, compiled, example, run
from ropejax.tokens import Tokens, tokens

_SINK_AND_NEAR = Lambda(1, 2)
_IN_BLOCKS = {"implementation": "blockwise", "block_q": 2, "block_k": 1}
_LENGTH = 8
_SHORT = 5


def check_encoding(
    encoding: Encoding, *, dims: Dims = DIMS, tolerance: float = 2e-5
) -> None:
    """Raises AssertionError, naming the promise, unless an encoding keeps its word.

    Under a causal mask: compiled and uncompiled results agree, and mapped ones with
    batched ones; gradients are finite, and exactly zero towards later tokens; results
    in bfloat16 are near those in float32; decoding with cached keys, features made with
    a state and keys stored in another order gives the rows of the whole; keys in blocks
    give what all at once do, if there is a carry also where the mask hides some in
    between; padding on either side, and what it holds, changes nothing; rows with
    positions of their own are independent; positions shifted by up to 2^20 change
    nothing, or something, as declared; a table of distances means the differences it
    says. Positions are on as many axes as `num_axes` says.

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
    check_described(encoding, "title", "summary")
    if "\n" in encoding.summary:
        raise AssertionError(f"The summary of {encoding!r} is longer than a line.")


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
        for candidate in dict.fromkeys(candidates):
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
        program = compiled(self._value_and_grads)
        ones = jnp.ones_like(self.inputs["q"])
        base, grads = program(self.inputs, self._placed(at), ones)
        self._finite(base, grads, "")
        self._causal(program, at, ones)
        self._rows(program, at, ones, base)
        self._padding(program, at, ones, base)
        self._shifted(program, at, ones, base)
        self._decoded(program, at, ones)
        self._in_blocks(at, base)
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
            positions=self._on_axes(at),
            valid=jnp.ones(at.shape, bool) if valid is None else valid,
            consecutive_index=True,
        )

    def _on_axes(self, at):
        """Returns positions `[B, L]` on all axes, of which no two are alike."""
        axes = self.encoding.num_axes
        if axes == 1:
            return at
        places = jnp.arange(at.shape[1])
        return jnp.stack([at + places * axis % 3 for axis in range(axes)], axis=-1)

    def _in_order(self, apart: int = 1) -> Tokens:
        """Returns the tokens of one row, as a user has them."""
        if apart == self.encoding.num_axes == 1:
            return tokens(_LENGTH)
        at = apart * jnp.arange(_LENGTH)[None]
        if self.encoding.by_distance and self.encoding.num_axes == 1:
            return tokens(_LENGTH, distances=at)
        return tokens(_LENGTH, positions=self._on_axes(at))

    def _causal(self, program, at, ones) -> None:
        cotangent = ones.at[:, _SHORT:].set(0.0)
        _, grads = program(self.inputs, self._placed(at), cotangent)
        for name in ("x", "q", "k", "v"):
            if jnp.any(grads[name][:, _SHORT:] != 0):
                self._fail(
                    f"outputs depend on {name} of later tokens under a causal mask"
                )

    def _rows(self, program, at, ones, base) -> None:
        wide = self._room(2 * _LENGTH) // _LENGTH * at
        both, _ = program(self.inputs, self._placed(wide, index=at), ones)
        mixed = at.at[1:].set(wide[1:])
        out, _ = program(self.inputs, self._placed(mixed, index=at), ones)
        alone = jnp.concatenate([base[:1], both[1:]])
        self._same(out, alone, "a row depends on the positions of another")

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
        self._finite(out, grads, f" at positions shifted by {far}")
        if self.encoding.shift_invariant:
            self._same(out, base, f"positions shifted by {far} change results", 1e-4)
            return
        change = jnp.abs(out - base).max()
        spread, shift = self._room(7 * _LENGTH + 5) // _LENGTH * at, 5
        one, _ = program(self.inputs, self._placed(spread, index=at), ones)
        other, _ = program(self.inputs, self._placed(spread + shift, index=at), ones)
        if jnp.maximum(change, jnp.abs(one - other).max()) < self.tolerance:
            self._fail("shifted positions change nothing: it is shift_invariant")

    def _decoded(self, program, at, ones) -> None:
        """Checks later queries against keys of a cache, with a table of distances."""
        apart = self._room(3 * _LENGTH) // _LENGTH
        out, _ = program(self.inputs, self._placed(apart * at, index=at), ones)
        where = self._in_order(apart)
        given = "positions" if where.distances is None else "distances"
        order = jnp.roll(jnp.arange(_LENGTH)[::-1], 3)
        decode = compiled(
            lambda inputs: self.attention(inputs, where, past=_SHORT, order=order)
        )
        self._same(
            decode(self.inputs),
            out[:, _SHORT:],
            "decoding differs from the whole (later queries, features with a state, "
            f"keys in another order, {given} {apart} apart)",
        )

    def _in_blocks(self, at, base) -> None:
        """Checks blocks of queries and keys, nearest first."""
        encoding = self.encoding
        by_pair = ("product", "bias", "carry", "logits", "mix")
        if encoding.needs_whole_rows or not any(
            getattr(encoding, f"has_{hook}") for hook in by_pair
        ):
            return
        attended = lambda inputs, **settings: compiled(
            functools.partial(self.attention, where=self._in_order(), **settings)
        )(inputs)
        self._same(
            attended(self.inputs, **_IN_BLOCKS),
            base,
            "keys in blocks differ from all at once (mix of heads, needs_whole_rows)",
        )
        if not encoding.has_carry:
            return
        self._same(
            attended(self.inputs, mask=_SINK_AND_NEAR, **_IN_BLOCKS),
            attended(self.inputs, mask=_SINK_AND_NEAR),
            "keys in blocks differ from all at once, where a mask hides keys in "
            f"between (carry, and carry_skips_hidden: {encoding.carry_skips_hidden})",
        )

    def _eager(self, base) -> None:
        out = self.attention(self.inputs, self._in_order())
        self._same(out, base, "tokens in order, not compiled, differ from positions")

    def _mapped_in_half(self, base) -> None:
        """Checks rows under vmap, in bfloat16: what goes wrong there goes wrong far."""
        names = ("x", "q", "k", "v")
        half = {name: self.inputs[name].astype(jnp.bfloat16)[:, None] for name in names}
        where = self._in_order()
        mapped = jax.vmap(lambda row: self.attention(self.inputs | row, where))
        out = compiled(mapped)(half)[:, 0]
        if out.dtype != jnp.bfloat16:
            self._fail(f"outputs of bfloat16 inputs are {out.dtype}")
        self._same(out, base, "bfloat16 rows under vmap are far from the batch", 0.05)

    def _finite(self, out, grads, where: str) -> None:
        named = {"outputs": out} | {f"gradients of {n}": grads[n] for n in grads}
        for name, tree in named.items():
            if not all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(tree)):
                self._fail(f"{name} are not all finite{where}")

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
