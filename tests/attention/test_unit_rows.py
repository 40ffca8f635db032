"""Exponentials over the root of the sum of their squares (Su 9105)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax import masks
from ropejax.attention import UnitRows, attend
from ropejax.encodings import ALiBi
from ropejax.tokens import tokens
from tests.attention import cases
from tests.attention.test_normalizers import logits_of, weights_of

pytestmark = pytest.mark.fast


@pytest.mark.parametrize("scale", [2.0, 60.0])
def test_squares_of_weights_sum_to_one(scale):
    """Logits of hundreds too, whose exponentials float32 cannot hold."""
    logits = logits_of(0, scale=scale)
    exponentials = np.exp(logits - logits.max(-1, keepdims=True))
    wanted = exponentials / np.sqrt((exponentials**2).sum(-1, keepdims=True))
    got = weights_of(UnitRows(), logits, None)
    np.testing.assert_allclose(got, wanted, atol=1e-5)
    np.testing.assert_allclose((got**2).sum(-1), 1, atol=1e-5)


def test_equal_keys_are_counted():
    """A softmax gives 1 whatever their number, and so would any bias in it."""
    got = weights_of(UnitRows(), np.zeros((1, 9, 9)), masks.Causal())
    np.testing.assert_allclose(got.sum(-1)[0], np.sqrt(np.arange(1, 10)), rtol=1e-6)


def test_a_row_that_sees_nothing_is_zero_and_has_no_gradient():
    mask = masks.Causal() & ~masks.Prefix(3)
    logits = jnp.asarray(logits_of(1), jnp.float32)
    got, gradient = jax.value_and_grad(
        lambda logits: weights_of(UnitRows(), logits, mask)[:, :3].sum()
    )(logits)
    assert float(got) == 0
    np.testing.assert_array_equal(gradient, 0)


def test_two_passes_over_blocks_are_the_same():
    """The form with memory linear in length that the docstring gives, and gradients."""
    rng = np.random.default_rng(0)
    arrays = {name: cases.normal(rng, 1, 9, 2, 8) for name in "qkv"}
    cotangent = cases.normal(rng, 1, 9, 2, 8)

    def run(arrays, **settings):
        return attend(
            *(arrays[name] for name in "qkv"),
            encoding=ALiBi(),
            query=tokens(9),
            key=tokens(9),
            mask=masks.Causal(),
            **settings,
        )

    def in_blocks(arrays):
        settings = {"implementation": "blockwise", "block_q": 4, "block_k": 4}
        out, lse = run(arrays, return_lse=True, **settings)
        two = jnp.full((1, 1, 1), 2.0)
        _, twice = run(arrays, return_lse=True, row_scale=two, **settings)
        return out * jnp.exp(lse - twice / 2).swapaxes(1, 2)[..., None]

    whole = cases.value_and_grads(
        lambda arrays: run(arrays, normalizer=UnitRows()), cotangent
    )
    cases.assert_same(
        cases.value_and_grads(in_blocks, cotangent)(arrays), whole(arrays)
    )


def test_blocks_are_refused_by_name():
    q = jnp.ones((1, 4, 2, 8))
    where = tokens(4)
    with pytest.raises(ValueError, match="UnitRows needs whole rows"):
        attend(
            *(q, q, q),
            encoding=ALiBi(),
            query=where,
            key=where,
            normalizer=UnitRows(),
            implementation="blockwise",
        )
