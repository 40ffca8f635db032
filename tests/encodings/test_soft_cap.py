"""The soft cap against its formula, in whole rows and in blocks, alone and composed."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.attention import attend
from ropejax.encodings import DAPE, ALiBi, Dims, Encoding, Rotary, SoftCap, compose
from ropejax.masks import Causal
from ropejax.tokens import relative_positions, tokens
from tests.encodings.additive_cases import logits_of
from tests.encodings.rotary_cases import random

WHERE = tokens(7)
DIMS = Dims(2, 2, 8, 16, causal=True)


def prepared(encoding):
    both = (
        encoding.init_shared(jax.random.key(0), DIMS),
        encoding.init_layer(jax.random.key(1), DIMS),
    )
    return encoding.prepare(*both, WHERE, WHERE, DIMS)


def test_attention_under_a_cap_is_that_of_the_formula_in_every_engine():
    """Rotated, capped, masked, in float64 by hand; and gradients of blocks as whole."""
    encoding = compose(rope=Rotary(), cap=SoftCap(1.5))
    params = prepared(encoding)
    q, k, v = (3 * random(1, 7, 2, 8, seed=seed) for seed in range(3))

    def run(arrays, engine):
        out = attend(
            *arrays,
            encoding=encoding,
            params=params,
            query=WHERE,
            key=WHERE,
            mask=Causal(),
            implementation=engine,
            block_q=3,
            block_k=2,
        )
        return (out**2).sum(), out

    (whole, blocks) = (
        jax.jit(jax.value_and_grad(lambda x, e=e: run(x, e), has_aux=True))((q, k, v))
        for e in ("dense", "blockwise")
    )
    frequencies = 10_000.0 ** (-np.arange(4) / 4)
    turn = np.exp(1j * np.outer(np.arange(7), frequencies))[None, :, None]
    z = [(np.float64(x)[..., :4] + 1j * np.float64(x)[..., 4:]) * turn for x in (q, k)]
    dots = np.einsum("btnr,bsnr->bnts", z[0], z[1].conj()).real / np.sqrt(8)
    capped = 1.5 * np.tanh(dots / 1.5)
    assert np.abs(dots).max() > 5 * np.abs(capped).max()
    weights = np.exp(capped) * np.tri(7)
    weights /= weights.sum(-1, keepdims=True)
    wanted = np.einsum("bnts,bsnh->btnh", weights, np.float64(v))
    for (_, out), gradients in (whole, blocks):
        np.testing.assert_allclose(out, wanted, atol=2e-5)
        for got, right in zip(gradients, whole[1], strict=True):
            np.testing.assert_allclose(got, right, atol=2e-4)


def test_biases_are_capped_in_any_order_and_folds_in_theirs():
    q, k = random(1, 7, 2, 8), random(1, 7, 2, 8, seed=1)

    def of(**parts):
        def logits(q, k):
            params = {name: prepared(part) for name, part in parts.items()}
            return logits_of(compose(**parts), params, q, k, WHERE, WHERE, 1.0)

        return jax.jit(logits)(q, k)

    one, two = of(a=ALiBi(), cap=SoftCap(2.0)), of(cap=SoftCap(2.0), a=ALiBi())
    np.testing.assert_array_equal(one, two)
    np.testing.assert_allclose(one, 2 * np.tanh(of(a=ALiBi()) / 2), atol=1e-6)
    # DAPE adds in `logits`: a cap behind it holds, one before it does not.
    assert np.abs(of(dape=DAPE(ALiBi()), cap=SoftCap(2.0))).max() <= 2
    assert np.abs(of(cap=SoftCap(2.0), dape=DAPE(ALiBi()))).max() > 2


@dataclasses.dataclass(frozen=True)
class Past(Encoding):
    """Hides later keys by a bias, as some do in place of a mask."""

    title: ClassVar[str] = "Past"
    low: ClassVar[float] = -np.inf

    def bias(self, params, query, key, scale):
        return jnp.where(relative_positions(query, key)[:, None] > 0, self.low, 0.0)


class AsLow(Past):
    low = -1e30


@pytest.mark.parametrize("kind", [Past, AsLow])
def test_what_a_bias_has_hidden_stays_hidden(kind):
    encoding, cap = compose(past=kind(), cap=SoftCap(1.5)), SoftCap(1.5)
    arrays = tuple(random(1, 7, 2, 8, seed=seed) for seed in range(3))
    rest = {"query": WHERE, "key": WHERE, "implementation": "dense"}
    first = lambda out: out[:, :4].sum()

    @jax.jit
    def both(arrays):
        total = lambda arrays: first(
            attend(*arrays, encoding=encoding, params={"past": {}, "cap": {}}, **rest)
        )
        masked = attend(*arrays, encoding=cap, params={}, mask=Causal(), **rest)
        return total(arrays), first(masked), jax.grad(total)(arrays)

    hidden, masked, gradients = both(arrays)
    np.testing.assert_allclose(hidden, masked, rtol=1e-5)
    assert all(np.isfinite(part).all() for part in gradients)
    assert all(not part[:, 4:].any() for part in gradients[1:])


@pytest.mark.fast
def test_a_cap_is_positive():
    for cap in (0.0, -1.0):
        with pytest.raises(ValueError, match=f"cap must be positive, got {cap}"):
            SoftCap(cap)
    with pytest.raises(ValueError, match="cap"):
        SoftCap(float("inf"))
    for cap in (1e300, 1e38, 1e-300):  # infinity; zeros; NaN of a logit of zero
        with pytest.raises(ValueError, match="cap must be between 1e-30 and 1e.30"):
            SoftCap(cap)
