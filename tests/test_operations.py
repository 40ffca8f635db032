"""Counts of operations against sums by hand."""

import jax
import jax.numpy as jnp
import pytest

from ropejax.encodings import Dims, Rotary
from ropejax.nn import BlockSettings, LayerKind, TransformerSpec
from ropejax.operations import count_operations
from ropejax.positions import Placement

pytestmark = pytest.mark.fast


def shape(*sizes):
    return jax.ShapeDtypeStruct(sizes, jnp.float32)


def test_products_and_batches_of_them():
    x, y = shape(7, 3, 4), shape(7, 4, 5)
    assert count_operations(jnp.matmul, x, y).products == 2 * 7 * 3 * 4 * 5
    assert count_operations(lambda x: x @ x.T, shape(6, 2)).products == 2 * 6 * 6 * 2


def test_gradients_cost_twice_the_forward_pass():
    def loss(a, b, x):
        return ((x @ a) @ b).sum()

    sizes = (shape(8, 8), shape(8, 8), shape(16, 8))
    forward = count_operations(loss, *sizes)
    both = count_operations(jax.grad(loss, argnums=(0, 1, 2)), *sizes)
    # The last product's value is not needed for its gradient: 1 + 4 of 6 products.
    assert forward.products == 2 * 2 * 16 * 8 * 8
    assert both.products in (5 / 2 * forward.products, 3 * forward.products)


def test_loops_count_each_round_and_branches_the_costliest():
    step = lambda c, _: (jnp.tanh(c @ c), None)
    found = count_operations(
        lambda x: jax.lax.scan(step, x, None, length=9)[0], shape(4, 4)
    )
    assert found.products == 9 * 2 * 4**3
    assert found.elementwise == 9 * 16
    found = count_operations(
        lambda at, x: jax.lax.cond(at > 0, lambda x: x @ x @ x, lambda x: x, x),
        0,
        shape(4, 4),
    )
    assert found.products == 2 * 2 * 4**3


def test_loops_of_unknown_length_are_told():
    grow = lambda x: jax.lax.while_loop(lambda x: x.sum() < 9, lambda x: x @ x + 1, x)
    assert count_operations(grow, shape(4, 4)).unbounded_loops == 1


def test_rematerialization_counts_what_is_computed_again():
    def loss(x, w):
        return jax.checkpoint(lambda x: jnp.sin(x @ w) @ w)(x).sum()

    plain = count_operations(
        jax.grad(lambda x, w: (jnp.sin(x @ w) @ w).sum()), shape(8, 8), shape(8, 8)
    )
    again = count_operations(jax.grad(loss), shape(8, 8), shape(8, 8))
    assert again.products > plain.products


def test_a_transformer_costs_what_the_textbook_says():
    """24 B L D^2 (1 + L / 6D) a layer and the readout, with an MLP of 4 D."""
    layers, heads, width, batch, length, vocabulary = 3, 4, 32, 2, 24, 16
    spec = TransformerSpec(
        vocabulary,
        vocabulary,
        Dims(heads, heads, width // heads, width, layers),
        BlockSettings(mlp_dim=4 * width, dropout=0.0),
        (LayerKind(Rotary()),),
    )
    params = jax.eval_shape(spec.init, jax.random.key(0))
    tokens = jax.ShapeDtypeStruct((batch, length), jnp.int32)
    found = count_operations(
        lambda params, tokens: spec.bind(params)(tokens, Placement()), params, tokens
    )
    rows = batch * length
    wanted = layers * 24 * rows * width**2 * (1 + length / (6 * width))
    wanted += 2 * 2 * rows * width * vocabulary  # looked up by a product, and read out
    assert found.products == pytest.approx(wanted)
    assert found.unbounded_loops == 0
