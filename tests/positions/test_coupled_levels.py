"""Coupled positions on two levels (arXiv:2410.15787), alone and in a decoder."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from ropejax.encodings import AxialRotary, Dims, Learned, Rotary, compose
from ropejax.masks import Causal
from ropejax.nn import BlockSettings, LayerKind, TransformerSpec
from ropejax.positions import Abacus, CoupledLevels
from ropejax.tasks import Autoregressive
from ropejax.tasks.addition import Addition
from ropejax.tokens import tokens
from tests.tasks.samples import UNOPTIMIZED

STEP, PLUS, EQUALS, PLACEHOLDER = 10, 11, 12, 13
SYMBOLS = {">": STEP, "+": PLUS, "=": EQUALS, "_": PLACEHOLDER}


def batch(*texts):
    """Rows of the same shape for every test here: one program places them all."""
    tokens = np.zeros((6, 28), np.int32)
    for row, text in zip(tokens, texts, strict=False):
        row[: len(text)] = [SYMBOLS[c] if c in SYMBOLS else int(c) for c in text]
    lengths = np.zeros(6, np.int32)
    lengths[: len(texts)] = [len(text) for text in texts]
    return tokens, lengths


@functools.partial(jax.jit, static_argnums=0)
def place(scheme, tokens, lengths, seed=0):
    return scheme(
        jax.random.key(seed), lengths, num_tokens=tokens.shape[1], tokens=tokens
    )


# 57 + 48 + 96 as the authors write and place it: printed by the two methods of
# HanseulJo/position-coupling at 83e4d5e (src/data/addition.py), zeros before numbers.
MOST_FIRST, LEAST_FIRST = [4, 3, 2], [2, 3, 4]
GOLDEN = {
    (False, True): "057+048+096=000>750>501>102",
    (False, False): "057+048+096=000>057>105>201",
    (True, True): "750+840+690=000>750>501>102",
    (True, False): "750+840+690=000>057>105>201",
}


@pytest.mark.parametrize(("operands_least_first", "answer_least_first"), GOLDEN)
def test_ids_are_those_of_the_authors_code(operands_least_first, answer_least_first):
    text = GOLDEN[operands_least_first, answer_least_first]
    scheme = CoupledLevels(
        random_start=False,
        operands_least_first=operands_least_first,
        answer_least_first=answer_least_first,
    )
    # Whole, and as a decoder has it, without the last symbol.
    placement = place(scheme, *batch(text, text[:-1]))
    operand = LEAST_FIRST if operands_least_first else MOST_FIRST
    answer = LEAST_FIRST if answer_least_first else MOST_FIRST
    digit = [*operand, 1, *operand, 1, *operand, *[1, *answer] * 4]
    number = [1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3]
    if operands_least_first:
        number = [1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]
    number += [step for step in (1, 2, 3, 4) for _ in range(4)]
    for name, wanted in (("digit", digit), ("operand", number)):
        got = np.asarray(placement.streams[name])
        np.testing.assert_array_equal(got[0], [*wanted, 0])
        np.testing.assert_array_equal(got[1], [*wanted[:-1], 0, 0])
        np.testing.assert_array_equal(got[2:], 0)
    axes = np.stack([placement.streams["digit"], placement.streams["operand"]], -1)
    np.testing.assert_array_equal(placement.positions, axes)


def by_rule(text, *, least_first):
    """Ids of both levels, start 1, for numbers of any width: the rule, in words."""
    left, answer = text.split("=")
    operands, sums = left.split("+"), answer.split(">")
    digit, operand = [], []
    for number, digits in enumerate(operands):
        places = range(2, 2 + len(digits))
        ids = list(places if least_first else reversed(places))
        digit += [1, *ids] if least_first else [*ids, 1]
        operand += [number + 1] * (len(digits) + 1)
    digit = digit[1:] if least_first else digit[:-1]
    operand = operand[1:] if least_first else operand[:-1]
    for number, digits in enumerate(sums):
        digit += [1, *range(2, 2 + len(digits))]
        operand += [number + 1] * (len(digits) + 1)
    return digit, operand


@pytest.mark.parametrize("least_first", [False, True])
def test_numbers_of_any_count_and_width_follow_the_rule(least_first):
    texts = ("5+5=00>50>01", "1+234+56=000>100>532>192", "9+9+9+9=00>90>81>72>63", "7=")
    scheme = CoupledLevels(random_start=False, operands_least_first=least_first)
    placement = place(scheme, *batch(*texts))
    for row, text in enumerate(texts):
        wanted = by_rule(text, least_first=least_first)
        for name, ids in zip(("digit", "operand"), wanted, strict=True):
            got = np.asarray(placement.streams[name])[row, : len(text)]
            np.testing.assert_array_equal(got, ids[: len(text)], err_msg=text)


def test_placeholders_are_the_answer_with_or_without_equals():
    scheme = CoupledLevels(placeholder=PLACEHOLDER, random_start=False)
    placement = place(scheme, *batch("65+4=________", "65+4________"))
    digit, operand = (np.asarray(placement.streams[n]) for n in ("digit", "operand"))
    wanted = [3, 2, 1, 2, 1, 2, 3, 1, 2, 3, 1, 2, 3]
    np.testing.assert_array_equal(digit[0, :13], wanted)
    np.testing.assert_array_equal(digit[1, :12], np.delete(wanted, 4))
    wanted = [1, 1, 1, 2, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    np.testing.assert_array_equal(operand[0, :13], wanted)
    np.testing.assert_array_equal(operand[1, :12], np.delete(wanted, 4))


def test_a_single_sum_has_the_id_of_the_last_running_sum():
    scheme = CoupledLevels(random_start=False, running_sums=False)
    placement = place(scheme, *batch("12+34+5=150"))
    digit, operand = (np.asarray(placement.streams[n]) for n in ("digit", "operand"))
    np.testing.assert_array_equal(digit[0, :11], [3, 2, 1, 3, 2, 1, 2, 1, 2, 3, 4])
    np.testing.assert_array_equal(operand[0, :11], [1, 1, 1, 2, 2, 2, 3, 4, 4, 4, 4])


def test_starts_are_independent_and_uniform_over_what_fits():
    tokens, lengths = (np.repeat(x[:1], 3000, axis=0) for x in batch("12+34=00>21>64"))
    # Two digits and two operands: starts 1 .. 4 and 1 .. 3.
    placement = place(CoupledLevels(max_digits=6, max_operands=5), tokens, lengths)
    digit, operand = (np.asarray(placement.streams[n]) for n in ("digit", "operand"))
    assert (digit[:, :14].max(), operand[:, :14].max()) == (6, 5)
    counts = np.zeros((4, 3))
    np.add.at(counts, (digit[:, 2] - 1, operand[:, 0] - 1), 1)
    assert np.abs(counts - 250).max() < 4.5 * np.sqrt(250 * 11 / 12)


def test_ordinary_positions_may_be_those_of_another_scheme():
    base = Abacus(digits=(EQUALS,), max_offset=0)
    scheme = CoupledLevels(random_start=False, base=base)
    placement = place(scheme, *batch("5+5=00>50>01"))
    assert placement.positions is None  # consecutive ones
    assert sorted(placement.streams) == ["digit", "operand"]
    np.testing.assert_array_equal(placement.streams["digit"][0, :4], [2, 1, 2, 1])
    assert scheme.position_bound(28) == base.position_bound(28)
    assert CoupledLevels(max_digits=9).position_bound(28) == 33
    assert [scheme.stream_bound(n, 28) for n in ("digit", "operand", "other")] == [
        65,
        33,
        None,
    ]


def test_what_does_not_fit_is_refused_or_leaves_the_table():
    tokens, lengths = batch("1234+1=0000>4321>5321")
    eager = functools.partial(
        place.__wrapped__, tokens=jnp.asarray(tokens), lengths=jnp.asarray(lengths)
    )
    with pytest.raises(ValueError, match=r"has 4 digits.*max_digits above that, got 4"):
        eager(CoupledLevels(max_digits=4))
    with pytest.raises(ValueError, match=r"has 2 operands.*got 2; raise max_operands"):
        eager(CoupledLevels(max_operands=2))
    # Traced symbols cannot be refused: their ids are past the table, not clamped.
    placement = place(CoupledLevels(max_digits=4), tokens, lengths)
    assert placement.streams["digit"].max() > 4
    tokens, lengths = map(jnp.asarray, batch("1+1+1=3000"))
    with pytest.raises(ValueError, match="row 0 adds 3 numbers and has 4 places"):
        place.__wrapped__(CoupledLevels(), tokens, lengths)
    with pytest.raises(ValueError, match="pass tokens"):
        CoupledLevels()(jax.random.key(0), jnp.array([2]), num_tokens=2)
    for settings, message in (
        ({"separators": ()}, "separators is empty"),
        ({"max_operands": 0}, "max_operands must be at least 1"),
        (
            {"running_sums": False, "answer_least_first": False},
            "least significant digit first only",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            CoupledLevels(**settings)


def test_two_axes_turn_one_half_of_a_head_each():
    """A rotation by both ids is RoPE by each, as multi-axis encodings deal them out."""
    placement = place(CoupledLevels(), *batch("57+48=000>750>501"))
    q = jnp.ones((6, 28, 1, 8))
    turned = lambda rope, q, ids: rope.queries({}, q, tokens(28, positions=ids))[0]
    halves = [
        turned(Rotary(layout="interleaved"), q[..., :4], placement.streams[name])
        for name in ("digit", "operand")
    ]
    both = turned(AxialRotary(layout="interleaved"), q, placement.positions)
    np.testing.assert_allclose(both, np.concatenate(halves, -1), atol=1e-6)


def test_a_decoder_learns_running_sums_at_their_ids():
    """Ids are known before the answer is, and a few steps make the loss smaller."""
    task = Autoregressive(Addition(operands=3, order="answer", running_sums=True))
    encoding = compose(
        digit=Learned(16, stream="digit", init_std=0.1),
        operand=Learned(8, stream="operand", init_std=0.1),
    )
    spec = TransformerSpec(
        task.num_symbols,
        task.output_vocab,
        Dims(2, 2, 8, 16, num_layers=1, causal=True),
        BlockSettings(mlp_dim=16, pre_norm=True, dropout=0.0),
        (LayerKind(encoding, Causal()),),
    )
    scheme, optimizer = CoupledLevels(max_digits=8, max_operands=6), optax.adam(0.03)

    @functools.partial(jax.jit, compiler_options=UNOPTIMIZED)
    def start(rng):
        rows, starts = jax.random.split(rng)
        batch = task.sample(rows, jnp.full((64,), 2), max_length=2)
        placed = [
            scheme(starts, batch.lengths, num_tokens=t.shape[1], tokens=t)
            for t in (task.placing_tokens(batch), batch.tokens)
        ]
        params = spec.init(rng)
        return batch, placed, (params, optimizer.init(params))

    def loss(params, batch, placement):
        logits = spec.bind(params)(batch.tokens, placement)
        each = optax.softmax_cross_entropy_with_integer_labels(logits, batch.targets)
        return each.mean(where=batch.target_mask)

    @functools.partial(jax.jit, compiler_options=UNOPTIMIZED)
    def step(state, batch, placement):
        params, moments = state
        value, grads = jax.value_and_grad(loss)(params, batch, placement)
        updates, moments = optimizer.update(grads, moments)
        return (optax.apply_updates(params, updates), moments), value

    batch, (placement, known), state = start(jax.random.key(0))
    jax.tree.map(np.testing.assert_array_equal, placement, known)
    losses = []
    for _ in range(30):
        state, value = step(state, batch, placement)
        losses.append(value)
    assert np.isfinite(losses).all()
    assert losses[-1] < losses[0] - 0.5
