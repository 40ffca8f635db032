"""Abacus digits and coupled positions on the addition task, as decoders see it."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.encodings import Dims, Learned, Rotary, compose
from ropejax.masks import Causal
from ropejax.nn import BlockSettings, LayerKind, TransformerSpec
from ropejax.positions import Abacus, Coupled
from ropejax.tasks import Autoregressive
from ropejax.tasks.addition import Addition
from ropejax.tokens import tokens


def placed(task, scheme, length=3, rows=3):
    """A batch, and where its tokens are, answers unknown to the scheme."""
    rng = jax.random.key(0)
    sample = jax.jit(functools.partial(task.sample, max_length=length + 1))
    batch = sample(rng, jnp.full((rows,), length))
    hidden = task.placing_tokens(batch)
    assert hidden.shape == batch.tokens.shape
    placement = scheme(rng, batch.lengths, num_tokens=hidden.shape[1], tokens=hidden)
    again = scheme(rng, batch.lengths, num_tokens=hidden.shape[1], tokens=batch.tokens)
    jax.tree.map(np.testing.assert_array_equal, placement, again)
    return batch, placement


def test_abacus_counts_digits_of_operands_and_of_the_answer():
    task = Autoregressive(Addition())
    _, placement = placed(task, Abacus(max_offset=0))
    # d d d + d d d = d d d, the answer's fourth digit never being read; padding.
    expected = [1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 0, 0]
    assert placement.streams["digit"].tolist() == [expected] * 3


@pytest.mark.parametrize("order", ["answer", "reversed", "plain"])
def test_coupled_digits_of_equal_significance_share_a_position(order):
    task, least_first = Autoregressive(Addition(order=order)), order == "reversed"
    scheme = Coupled(
        64,
        random_start=False,
        operands_least_first=least_first,
        answer_least_first=order != "plain",
        last_unread=True,
    )
    batch, placement = placed(task, scheme)
    assert batch.tokens[0, [3, 7]].tolist() == list(scheme.separators)
    # Four columns, so that separators are at 1 + 4, and the lowest digits at 4.
    operand = [4, 3, 2] if least_first else [2, 3, 4]
    # Three of the answer's four digits are read.
    answer = [1, 2, 3] if order == "plain" else [4, 3, 2]
    expected = [*operand, 5, *operand, 5, *answer, 0, 0, 0]
    assert placement.positions.tolist() == [expected] * 3


def test_a_table_of_digits_is_added_by_the_stream_and_not_by_positions():
    encoding = Learned(max_position=8, stream="digit")
    shared = encoding.init_shared(jax.random.key(0), Dims(1, 1, 4, 4))
    where = tokens(3, streams={"digit": jnp.array([[5, 0, 1]])})
    got = encoding.embed(shared, jnp.ones((1, 3, 4)), where)
    wanted = 1 + np.asarray(shared["table"])[None, [5, 0, 1]]
    np.testing.assert_allclose(got, wanted, rtol=1e-6)
    assert encoding.position_limit is None
    beyond = tokens(1, streams={"digit": jnp.array([[8]])})
    assert np.isnan(jax.jit(encoding.embed)(shared, jnp.ones((1, 1, 4)), beyond)).all()
    with pytest.raises(ValueError, match="no stream 'digit'"):
        encoding.embed(shared, jnp.ones((1, 3, 4)), tokens(3))


def test_digits_reach_the_model_and_their_offset_is_all_that_moves_them():
    """Equal digits at other ids give other logits; the table is the only way in."""
    task = Autoregressive(Addition(base=2))
    encoding = compose(digits=Learned(64, stream="digit"), rope=Rotary())
    spec = TransformerSpec(
        task.num_symbols,
        task.output_vocab,
        Dims(2, 2, 4, 8, num_layers=1, causal=True),
        BlockSettings(mlp_dim=16, pre_norm=True, dropout=0.0),
        (LayerKind(encoding, Causal()),),
    )
    params = spec.init(jax.random.key(1))
    digits = (0, 1)
    batch, placement = placed(task, Abacus(digits, max_offset=0))
    shifted = dataclasses.replace(
        placement, streams={"digit": jnp.where(placement.streams["digit"] > 0, 9, 0)}
    )
    run = jax.jit(lambda params, placement: spec.bind(params)(batch.tokens, placement))
    one, other = run(params, placement), run(params, shifted)
    assert np.abs(one - other).max() > 1e-3
    flat = jax.tree.map(lambda leaf: leaf, params)
    table = flat["shared"]["kind_0"]["digits"]["table"]
    flat["shared"]["kind_0"]["digits"]["table"] = jnp.zeros_like(table)
    np.testing.assert_array_equal(run(flat, placement), run(flat, shifted))
