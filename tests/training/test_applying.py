"""Logits read out in stretches of tokens give the loss and gradient of all at once."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.encodings import Dims, Rotary
from ropejax.masks import Causal
from ropejax.nn import BlockSettings, LayerKind, TransformerSpec
from ropejax.nn.readout import TiedReadout
from ropejax.positions import Consecutive
from ropejax.sharding import Sharding, make_mesh
from ropejax.tasks import NextSymbol
from ropejax.training import applying
from ropejax.training.applying import apply_and_read, apply_model
from ropejax.training.losses import batch_sums, token_losses

ROWS, TOKENS = 3, 13


def spec_of(symbols, **changes):
    spec = TransformerSpec(
        symbols,
        symbols,
        Dims(2, 2, 4, 8, num_layers=1, causal=True),
        BlockSettings(mlp_dim=8, dropout=0.0),
        (LayerKind(Rotary(), Causal()),),
    )
    return dataclasses.replace(spec, **changes)


def batch_of(task, rows=ROWS, tokens=TOKENS):
    lengths = jnp.arange(tokens - rows + 1, tokens + 1)  # so that some have padding
    batch = task.sample(jax.random.key(1), lengths, max_length=tokens)
    scheme = Consecutive()
    placement = scheme(jax.random.key(2), batch.lengths, num_tokens=tokens)
    return batch, placement


@pytest.mark.parametrize("readout", [{}, {"readout": TiedReadout()}])
def test_stretches_give_losses_answers_and_gradients_of_all_at_once(
    readout, monkeypatch
):
    task = NextSymbol()
    spec = spec_of(task.num_symbols, **readout)
    params = spec.init(jax.random.key(0))
    batch, placement = batch_of(task)

    def loss(params):
        told = apply_and_read(spec, params, batch, placement)
        return batch_sums(told, batch).loss, told

    logits = jax.jit(lambda params: apply_model(spec, params, batch, placement))(params)
    whole = token_losses(logits, batch.targets, batch.target_mask)
    # A function of its own each time, or it would not be traced anew.
    found = lambda: jax.jit(jax.value_and_grad(lambda p: loss(p), has_aux=True))(params)
    (_, same), grads = found()
    np.testing.assert_allclose(same.loss, whole.loss, rtol=1e-6)
    # 5 tokens at once, the third stretch filled up; and one at a time.
    for tokens in (5, 0.5):
        monkeypatch.setattr(
            applying, "LOGITS_BYTES", int(4 * ROWS * spec.num_outputs * tokens)
        )
        (_, told), of_parts = found()
        np.testing.assert_allclose(told.loss, whole.loss, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(told.answers, whole.answers)
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
            of_parts,
            grads,
        )


def test_a_step_of_many_symbols_never_holds_their_logits(monkeypatch):
    """4 MiB of logits: at most 256 KiB at a time, forward and backward."""
    task = NextSymbol()
    spec = spec_of(2**13)
    params = jax.eval_shape(spec.init, jax.random.key(0))
    batch, placement = batch_of(task, rows=1, tokens=128)

    def loss(params):
        told = apply_and_read(spec, params, batch, placement)
        return batch_sums(told, batch).loss

    def temporary():
        compiled = jax.jit(jax.grad(lambda params: loss(params))).lower(params)
        return compiled.compile().memory_analysis().temp_size_in_bytes

    whole = temporary()
    monkeypatch.setattr(applying, "LOGITS_BYTES", 2**18)
    assert whole > 2**23 > 2**21 > temporary()


@pytest.mark.parametrize("axis", ["data", "sequence"])
def test_on_a_mesh_stretches_are_of_each_device_and_rows_that_are_cut_whole(
    axis, monkeypatch
):
    task = NextSymbol()
    spec = spec_of(task.num_symbols)
    sharding = Sharding(make_mesh({axis: 2}, devices=jax.devices()[:2]))
    batch, placement = batch_of(task, rows=4, tokens=16)
    size = 4 * 2 * 4 * spec.num_outputs  # four tokens of the two rows of a device
    monkeypatch.setattr(applying, "LOGITS_BYTES", size)
    parts = applying._parts(batch.tokens.shape, spec.num_outputs, sharding)
    assert parts == {"data": 4, "sequence": 1}[axis]
    assert applying.learns_at_once(sharding)  # and a plan counts so
    params = spec.init(jax.random.key(0))
    logits = apply_model(spec, params, batch, placement)
    whole = token_losses(logits, batch.targets, batch.target_mask)

    @jax.jit
    def spread(params, batch, placement):
        some, where = sharding.ordered(sharding.batch(batch), placement)
        model = sharding.model(spec)
        return apply_and_read(model, params, some, where, sharding=sharding)

    told = spread(params, batch, placement)
    np.testing.assert_allclose(told.loss, whole.loss, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(told.answers, whole.answers)
