"""Checks that hold a token shift to what a model relies on."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ropejax.nn.token_shifts import Projections, Unshifted
from ropejax.testing.described import check_described
from ropejax.testing.running import DIMS, compiled
from ropejax.tokens import Tokens, tokens

_LENGTH, _FIRST = 8, 3
_CHUNKS = ((0, 3), (3, 4), (4, 8))
_ORDER = np.array([5, 2, 7, 0, 3, 6, 1, 4])
_GAPS = np.array([0, 2, 3, 5, 6, 8, 9, 11])  # places of tokens among padding


def check_token_shift(shift: Unshifted, *, tolerance: float = 2e-5) -> None:
    """Raises AssertionError if a token shift breaks a promise; the message says which.

    Checked are: it is described, frozen and hashable; later tokens change nothing, nor
    earlier ones unless it `looks_back`; where tokens are stored, padding between them,
    and other segments of a packed row change nothing; chunks that hand on the state, of
    one token too, give what the whole row does; dtypes stay; and gradients are finite.

    Args:
        shift: an instance.
        tolerance: of float32 results, relative to the largest one.
    """
    name = repr(shift)
    check_described(shift, "summary")
    given = _example(shift)

    def shifted(given, where: Tokens, state: Any = None):
        return shift.shifted(given["params"], given["x"], given["made"], where, state)

    def moved(change: Callable) -> dict[str, Any]:
        """The same parameters, and tokens that are changed in some way."""
        kept = {"x": given["x"], "made": given["made"]}
        return given | jax.tree.map(change, kept)

    at_once = lambda given: shifted(given, tokens(_LENGTH))[0]
    run = compiled(at_once)
    whole = run(given)
    first, last = (
        lambda tree, part=part: jax.tree.map(lambda x: x[:, part], tree)
        for part in (slice(_FIRST), slice(_FIRST, None))
    )
    later = run(moved(lambda x: x.at[:, _FIRST:].add(1.0)))
    _same(name, tolerance, first(whole), first(later), "later tokens change earlier")
    if not shift.looks_back:
        other = run(moved(lambda x: x.at[:, :_FIRST].add(1.0)))
        message = "earlier tokens count, so looks_back must be True: they change later"
        _same(name, tolerance, last(whole), last(other), message)
    found = compiled(lambda given: [one(shifted, given) for one in _PROMISES.values()])
    for promise, got in zip(_PROMISES, found(given), strict=True):
        _same(name, tolerance, whole, got, promise)
    _check_dtypes(name, run(moved(lambda x: x.astype(jnp.bfloat16))))
    _check_gradients(name, at_once, given)


def _in_another_order(shifted, given):
    out, _ = shifted(_taken(given, _ORDER), tokens(_LENGTH).permuted(_ORDER))
    return jax.tree.map(lambda x: x[:, np.argsort(_ORDER)], out)


def _among_padding(shifted, given):
    size = _GAPS[-1] + 1
    valid = np.isin(np.arange(size), _GAPS)[None]
    spread = lambda x: (
        jnp.full((x.shape[0], size, *x.shape[2:]), 1e3).at[:, _GAPS].set(x)
    )
    kept = jax.tree.map(spread, {"x": given["x"], "made": given["made"]})
    where = tokens(size, valid=jnp.asarray(valid), positions=jnp.arange(size)[None])
    return jax.tree.map(lambda x: x[:, _GAPS], shifted(given | kept, where)[0])


def _behind_another_segment(shifted, given):
    both = np.concatenate([np.arange(_LENGTH)[::-1], np.arange(_LENGTH)])
    segments = jnp.repeat(jnp.arange(2), _LENGTH)[None]
    out, _ = shifted(_taken(given, both), tokens(2 * _LENGTH, segments=segments))
    return jax.tree.map(lambda x: x[:, _LENGTH:], out)


def _in_chunks(shifted, given):
    state, parts = None, []
    for start, end in _CHUNKS:
        where = tokens(end - start, offset=start)
        out, state = shifted(_taken(given, np.arange(start, end)), where, state)
        parts.append(out)
    return jax.tree.map(lambda *x: jnp.concatenate(x, axis=1), *parts)


_PROMISES = {
    "tokens stored in another order change results": _in_another_order,
    "padding between tokens changes results": _among_padding,
    "another segment of a packed row changes results": _behind_another_segment,
    "chunks that hand on the state differ from the whole row": _in_chunks,
}


def _taken(given, places):
    kept = {"x": given["x"], "made": given["made"]}
    return given | jax.tree.map(lambda x: x[:, places], kept)


def _example(shift: Unshifted) -> dict[str, Any]:
    numbers = np.random.default_rng(0)

    def normal(*shape):
        return jnp.asarray(numbers.normal(size=shape), jnp.float32)

    n, k, h = DIMS.num_heads, DIMS.num_kv_heads, DIMS.head_dim
    made = Projections(*(normal(2, _LENGTH, heads, h) for heads in (n, k, k)))
    params = compiled(functools.partial(shift.init_layer, dims=DIMS))(jax.random.key(0))
    params = jax.tree.map(lambda leaf: leaf + 0.3 * normal(*leaf.shape), params)
    return {"x": normal(2, _LENGTH, DIMS.embed_dim), "made": made, "params": params}


def _check_dtypes(name: str, narrow: Projections) -> None:
    for part, x in narrow._asdict().items():
        if x.dtype != jnp.bfloat16:
            raise AssertionError(f"{name}: {part} of bfloat16 comes back as {x.dtype}.")


def _check_gradients(name: str, at_once, given) -> None:
    total = lambda given: sum((x**2).sum() for x in at_once(given))
    for leaf in jax.tree.leaves(compiled(jax.grad(total))(given)):
        if not jnp.isfinite(leaf).all():
            raise AssertionError(f"{name}: gradients are not all finite.")


def _same(name, tolerance, wanted: Projections, got: Projections, promise: str) -> None:
    for part, x in wanted._asdict().items():
        allowed = tolerance * max(1.0, float(jnp.abs(x).max()))
        off = float(jnp.abs(getattr(got, part) - x).max())
        if not off <= allowed:
            raise AssertionError(
                f"{name}: {promise}, of {part} by {off:.2g}; {allowed:.2g} is allowed."
            )
