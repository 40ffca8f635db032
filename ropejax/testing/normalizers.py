"""Checks that hold a normalizer to what engines rely on."""

import functools

import jax
import jax.numpy as jnp

from ropejax.attention.normalizers import Normalizer
from ropejax.encodings.base import Encoding
from ropejax.masks import Causal, Lambda
from ropejax.testing.described import check_described
from ropejax.testing.running import DIMS, compiled, example, run
from ropejax.tokens import Tokens, tokens

_LENGTH, _SHORT = 8, 5
_BLOCKS = {"implementation": "blockwise", "block_q": 2, "block_k": 3}


def check_normalizer(normalizer: Normalizer, *, tolerance: float = 2e-5) -> None:
    """Raises AssertionError if a normalizer breaks a promise; the message says which.

    Checked are, under masks of the past with and without gaps: it is described, frozen
    and hashable; what a mask or padding hides changes nothing; where keys are stored
    changes nothing; blocks of keys give what whole rows do, unless `blockwise` is
    False; and outputs and gradients, also of its parameters, are finite.

    Args:
        normalizer: an instance.
        tolerance: of float32 results, relative to the largest output.
    """
    name = repr(normalizer)
    check_described(normalizer, "summary")
    inputs = example(Encoding(), length=_LENGTH)
    inputs["normalizer"] = normalizer.init_layer(DIMS.num_heads)
    normalizer.check(inputs["normalizer"], DIMS.num_heads)

    def attended(inputs, where, **settings):
        settings = {"implementation": "dense"} | settings
        params = inputs["normalizer"] or None
        return run(
            Encoding(),
            inputs,
            where,
            normalizer=normalizer,
            normalizer_params=params,
            **settings,
        )

    where = tokens(_LENGTH)
    for mask in (Causal(), Lambda(1, 2)):
        program = functools.partial(attended, mask=mask)
        whole = compiled(program)(inputs, where)
        same = functools.partial(_same, name, tolerance, whole)
        order = jnp.roll(jnp.arange(_LENGTH)[::-1], 3)
        stored = compiled(functools.partial(program, order=order))
        same(stored(inputs, where), "keys stored in another order change results")
        if normalizer.blockwise:
            blocks = compiled(functools.partial(program, **_BLOCKS))
            same(blocks(inputs, where), "keys in blocks differ from whole rows")
    _check_padding(normalizer, attended, inputs, where, tolerance)
    _check_gradients(name, attended, inputs, where)


def _check_padding(normalizer, attended, inputs, where: Tokens, tolerance) -> None:
    """Checks rows that end early against the same ones without their padding."""
    valid = where.index < _SHORT
    padded = compiled(attended)(inputs, where.replace(valid=valid))[:, :_SHORT]
    short = inputs | {name: inputs[name][:, :_SHORT] for name in ("x", "q", "k", "v")}
    alone = compiled(attended)(short, tokens(_SHORT))
    _same(repr(normalizer), tolerance, alone, padded, "padding changes results")


def _check_gradients(name, attended, inputs, where: Tokens) -> None:
    value_and_grad = compiled(
        jax.value_and_grad(lambda inputs: (attended(inputs, where) ** 2).sum())
    )
    for leaf in jax.tree.leaves(value_and_grad(inputs)):
        if not jnp.isfinite(leaf).all():
            raise AssertionError(f"{name}: outputs or gradients are not all finite.")


def _same(name, tolerance, wanted, got, promise: str) -> None:
    allowed = tolerance * max(1.0, float(jnp.abs(wanted).max()))
    off = float(jnp.abs(got - wanted).max())
    if not off <= allowed:
        raise AssertionError(
            f"{name}: {promise}, by {off:.2g}; {allowed:.2g} is allowed."
        )
