"""Decoder-only models: teacher forcing as written out, and decoding with a cache."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.encodings import (
    FIRE,
    ALiBi,
    Dims,
    Encoding,
    Forgetting,
    Learned,
    LogScale,
    Rotary,
)
from ropejax.masks import Causal, Window
from ropejax.nn import BlockSettings, LayerKind, TransformerSpec
from ropejax.nn.decoder import tokens_at
from ropejax.nn.decoder_greedy import can_cache, decode_batch, greedy
from ropejax.positions import Abacus, Consecutive, Placement, Randomized
from ropejax.tasks import TASKS, Autoregressive
from ropejax.tasks.binary_addition import BinaryAddition
from ropejax.tasks.reverse_string import ReverseString
from ropejax.tasks.stack_manipulation import StackManipulation
from ropejax.training.applying import apply_and_read, apply_model
from ropejax.training.losses import batch_sums, token_losses

LENGTH = 4


def decoder(task, *encodings, **changes):
    """A causal model of two layers, dropout on in training."""
    kinds = tuple(LayerKind(encoding, Causal()) for encoding in encodings)
    return TransformerSpec(
        task.num_symbols,
        task.output_vocab,
        Dims(2, 1, 4, 8, num_layers=2, causal=True),
        BlockSettings(mlp_dim=16, pre_norm=True, dropout=0.5),
        kinds,
        **changes,
    )


def large(params):
    """Parameters four times as large, so that answers depend on what was read."""
    return jax.tree.map(lambda leaf: 4 * leaf, params)


def drawn(task, lengths, positions, seed=0, max_length=LENGTH):
    """A batch and its placement."""
    rng = jax.random.key(seed)
    sample = jax.jit(partial(task.sample, max_length=max_length))
    batch = sample(rng, jnp.asarray(lengths))
    placement = positions(
        rng,
        batch.lengths,
        num_tokens=batch.tokens.shape[1],
        num_layers=2,
        tokens=task.placing_tokens(batch),
    )
    return batch, placement


def written_out(model, task, batch, placement):
    """Greedy decoding in plain Python: a full pass for every symbol of every row."""
    tokens = np.array(task.placing_tokens(batch))
    answers = np.zeros_like(tokens)
    forward = jax.jit(lambda tokens, valid: model(tokens, placement, valid=valid))
    valid = np.arange(tokens.shape[1]) < np.asarray(batch.lengths)[:, None]
    starts = np.argmax(np.asarray(batch.target_mask), axis=1)
    counts = np.asarray(batch.target_mask).sum(axis=1)
    over = np.zeros(len(tokens), bool)
    for number in range(counts.max()):
        logits = np.asarray(forward(tokens, valid))
        for row, start in enumerate(starts):
            if over[row] or number >= counts[row]:
                continue
            symbol = int(logits[row, start + number].argmax())
            answers[row, start + number] = symbol
            over[row] = symbol == task.end_symbol
            if number + 1 < counts[row]:
                tokens[row, start + number + 1] = task.answer_tokens[symbol]
    return answers


REVERSE = ReverseString(vocab_size=5)
CASES = {
    "fire": (FIRE(), REVERSE, Consecutive()),
    "none": (Encoding(), REVERSE, Consecutive()),
    "learned": (Learned(16), StackManipulation(), Consecutive()),
    "state": (Forgetting(), REVERSE, Consecutive()),
    "length": (LogScale(count="all"), REVERSE, Consecutive()),
    "distances": (ALiBi(), REVERSE, Randomized(32, per_layer=True, distances=True)),
    "digits": (Rotary(), REVERSE, Abacus(tuple(range(5)), max_offset=3)),
}


@pytest.mark.parametrize("name", CASES)
def test_greedy_decoding_equals_full_passes(name, rng):
    encoding, task, positions = CASES[name]
    task = Autoregressive(task)
    spec = decoder(task, encoding)
    model = spec.bind(large(spec.init(rng)))
    batch, placement = drawn(task, [3] * 8, positions)
    decode = partial(decode_batch, max_length=LENGTH, same_length=True)
    got = jax.jit(decode, static_argnums=1)(model, task, batch, placement)
    np.testing.assert_array_equal(got, written_out(model, task, batch, placement))
    assert len(np.unique(np.asarray(got), axis=0)) > 1
    assert can_cache(model, placement, jnp.int32(1)) == (name != "length")
    assert can_cache(model, placement, batch.lengths) == (name not in STATEFUL)


STATEFUL = ("state", "length")


@pytest.mark.fast
def test_positions_that_numpy_holds_are_read_at_traced_places():
    """As a user has them who makes positions by hand and compiles the decoding."""
    positions = np.array([[5, 7, 9], [4, 6, 8]])
    read = jax.jit(
        lambda at: tokens_at({"positions": positions}, at, at >= 0).positions
    )
    assert read(jnp.array([[2]])).tolist() == [[9], [8]]  # one place for all rows
    assert read(jnp.array([[0], [1]])).tolist() == [[5], [6]]


def test_rows_of_any_lengths_under_windows_and_loops_are_decoded_together(rng):
    task = Autoregressive(REVERSE)
    full = decoder(task, Rotary(), loops=2, input_injection="layer")
    local = LayerKind(FIRE(), Window.sliding(3))
    spec = dataclasses.replace(full, pattern=(local, *full.pattern))
    model = spec.bind(large(spec.init(rng)))
    positions = Randomized(32, per_layer=True, per_sequence=True)
    batch, placement = drawn(task, [1, 4, 3, 2, 4, 4], positions)
    got = jax.jit(partial(decode_batch, max_length=LENGTH), static_argnums=1)(
        model, task, batch, placement
    )
    np.testing.assert_array_equal(got, written_out(model, task, batch, placement))
    assert can_cache(model, placement, batch.lengths)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("prompts", "max_prompt", "message"),
    [
        (12, 8, "prompts have 12 to 12 tokens, and must have 1 to max_prompt=8"),
        ([0, 3], 8, "prompts have 0 to 3 tokens"),
        (3, 12, "max_prompt=12 leaves no place for an answer in rows of 8 tokens"),
        (3, 8, "outputs=2 symbols are asked for, and rows of 8 tokens have room for 1"),
    ],
)
def test_prompts_that_do_not_fit_are_refused(prompts, max_prompt, message):
    """Their answers were said to be NaN."""
    tokens = jnp.zeros((2, 8), int)
    with pytest.raises(ValueError, match=message):
        greedy(
            *(None, tokens, Placement(), prompts, 2),
            max_prompt=max_prompt,
            answer_tokens=(0, 1),
        )


def test_teacher_forcing_is_a_shift_by_one(rng):
    """Against rows laid out in plain Python, and a loss in float64 numpy."""
    plain = BinaryAddition()
    task = Autoregressive(plain)
    spec = decoder(task, Rotary())
    params = large(spec.init(rng))
    batch, placement = drawn(task, [5, 3, 6], Consecutive(), max_length=6)
    own = jax.jit(partial(plain.sample, max_length=6))(rng, jnp.array([5, 3, 6]))
    rows, spans = [], []
    for row in range(3):
        inputs = [int(x) for x in own.tokens[row] if int(x) != plain.placeholder]
        count = int(own.target_mask[row].sum())
        start = int(own.lengths[row]) - count
        answer = [int(y) for y in own.targets[row, start : start + count]]
        read = [{0: 0, 1: 1, 2: 4}[y] for y in answer]  # 2 is plus, 3 the separator
        rows.append(inputs[:start] + [3] + read[:-1])
        spans.append((start, answer))
    for row, expected in enumerate(rows):
        assert batch.tokens[row, : len(expected)].tolist() == expected
    forward = jax.jit(apply_model, static_argnums=0)
    logits = forward(spec, params, batch, placement)
    total = 0.0
    for row, (start, answer) in enumerate(spans):
        for at, symbol in enumerate(answer):
            z = np.asarray(logits, np.float64)[row, start + at]
            total += np.log(np.exp(z - z.max()).sum()) + z.max() - z[symbol]
    told = token_losses(logits, batch.targets, batch.target_mask)
    loss = float(batch_sums(told, batch).loss)
    assert loss == pytest.approx(total, rel=1e-5)


def test_padding_changes_neither_loss_nor_answers(rng):
    task = Autoregressive(REVERSE)
    spec = decoder(task, Rotary())
    params = large(spec.init(rng))
    results = []
    for max_length in (3, 5):
        batch, placement = drawn(task, [3] * 4, Consecutive(), max_length=max_length)
        loss, answers = jax.jit(
            lambda batch, placement, max_length=max_length: (
                batch_sums(apply_and_read(spec, params, batch, placement), batch).loss,
                decode_batch(
                    spec.bind(params), task, batch, placement, max_length=max_length
                ),
            )
        )(batch, placement)
        results.append((loss, answers[:, :6]))
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-5)
    np.testing.assert_array_equal(results[0][1], results[1][1])


class Scripted:
    """A model that says a symbol of its script at each place, whatever it reads."""

    def __init__(self, script, num_outputs):
        self.script, self.num_outputs = script, num_outputs

    def __call__(self, tokens, placement, *, valid=None):
        logits = jax.nn.one_hot(jnp.asarray(self.script), self.num_outputs)
        return jnp.broadcast_to(logits, (*tokens.shape, self.num_outputs))


@pytest.mark.fast
def test_an_answer_ends_at_its_end_symbol_and_zeros_follow():
    task = Autoregressive(BinaryAddition())
    batch, placement = drawn(task, [3, 3], Consecutive(), max_length=3)
    model = Scripted([9, 9, 9, 1, 0, 2, 1], task.output_vocab)
    decode = jax.jit(partial(decode_batch, model, task, max_length=3))
    answers = decode(batch, placement)
    assert answers.tolist() == [[0, 0, 0, 1, 0, 2, 0]] * 2


@pytest.mark.fast
@pytest.mark.parametrize("name", TASKS)
def test_answers_are_read_as_the_inputs_they_stand_for(name):
    """Bits are bits in prompt and answer; an end symbol is neither plus nor pop."""
    task = Autoregressive(TASKS[name]())
    ends = name in ("stack_manipulation", "binary_addition", "binary_multiplication")
    assert (task.end_symbol is not None) == ends
    read_as = task.answer_tokens
    assert len(set(read_as)) == task.output_vocab
    assert task.task.placeholder not in read_as
    for symbol, token in enumerate(read_as):
        if symbol == task.end_symbol or symbol >= task.input_vocab:
            assert task.task.placeholder < token < task.num_symbols
        else:
            assert token == symbol
