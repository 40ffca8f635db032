"""Texts that are drawn: as often as the model says, and the same for the same key."""

import dataclasses
import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.encodings import Dims, Forgetting, Rotary
from ropejax.masks import Causal
from ropejax.nn import (
    BlockSettings,
    LayerKind,
    Sampling,
    TransformerSpec,
    greedy,
    sample,
)
from ropejax.positions.base import Placement

SYMBOLS, PROMPT, TOKENS = 6, 3, 7


def model_of(encoding=Rotary(), seed=0):  # noqa: B008
    spec = TransformerSpec(
        SYMBOLS,
        SYMBOLS,
        Dims(2, 2, 4, 8, num_layers=1, causal=True),
        BlockSettings(mlp_dim=8, dropout=0.0),
        (LayerKind(encoding, Causal()),),
    )
    params = spec.init(jax.random.key(seed))
    # Large enough that no two symbols are nearly as likely.
    return spec.bind(jax.tree.map(lambda x: 3 * x, params))


def prompts_of(rows, seed=1):
    tokens = jax.random.randint(jax.random.key(seed), (rows, TOKENS), 0, SYMBOLS)
    return jnp.where(jnp.arange(TOKENS) < PROMPT, tokens, 0)


def draw(model, tokens, rng=0, **given):
    given = {"max_prompt": PROMPT, **given}
    return sample(model, tokens, Placement(), PROMPT, 5, jax.random.key(rng), **given)


def kept_in_plain_python(logits, sampling):
    """Probabilities of one row: sorted, cut, and divided by their sum."""
    weights = [math.exp(logit / sampling.temperature) for logit in logits]
    order = sorted(range(len(weights)), key=lambda at: -weights[at])
    order = order[: sampling.top_k]
    total, kept = sum(weights[at] for at in order), []
    for at in order:
        kept.append(at)
        if sum(weights[one] for one in kept) >= sampling.top_p * total:
            break
    total = sum(weights[at] for at in kept)
    return [weights[at] / total if at in kept else 0.0 for at in range(len(weights))]


@pytest.mark.fast
@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(),
        Sampling(temperature=0.5),
        Sampling(temperature=2.0, top_k=3),
        Sampling(top_p=0.7),
        Sampling(temperature=1.5, top_k=4, top_p=0.6),
        Sampling(top_k=99, top_p=1e-6),
    ],
)
def test_what_is_left_and_how_likely_is_that_of_plain_python(sampling):
    logits = np.random.default_rng(0).normal(0, 2, (20, 7))
    chances = jax.nn.softmax(sampling.logits(jnp.asarray(logits)), axis=-1)
    want = [kept_in_plain_python(row, sampling) for row in logits.tolist()]
    np.testing.assert_allclose(chances, want, rtol=1e-4, atol=1e-6)
    # As cold as can be, the likeliest symbol is left: nothing becomes infinite.
    for temperature in (1e-37, 1e-60):
        cold = dataclasses.replace(sampling, temperature=temperature)
        chances = jax.nn.softmax(cold.logits(jnp.asarray(logits)), axis=-1)
        np.testing.assert_array_equal(chances, np.eye(7)[logits.argmax(-1)])


@pytest.mark.parametrize("encoding", [Rotary(), Forgetting()])
def test_the_likeliest_alone_is_greedy_decoding(encoding):
    model, tokens = model_of(encoding), prompts_of(5)
    want = greedy(
        *(model, tokens, Placement(), PROMPT, 5),
        max_prompt=PROMPT,
        answer_tokens=tuple(range(SYMBOLS)),
    )
    assert len(np.unique(want, axis=0)) > 1
    for sampling in (Sampling(top_k=1), Sampling(temperature=1e-3)):
        np.testing.assert_array_equal(draw(model, tokens, sampling=sampling), want)


def test_symbols_are_drawn_as_often_as_the_model_says():
    """The first two symbols of 4,000 rows with one prompt; within four deviations."""
    model, rows = model_of(), 4000
    tokens = jnp.repeat(prompts_of(1), rows, axis=0)
    sampling = Sampling(temperature=1.3, top_k=4)
    drawn = np.asarray(draw(model, tokens, sampling=sampling))
    forward = jax.jit(model)
    chances_after = lambda row: np.asarray(
        jax.nn.softmax(sampling.logits(forward(row[None], Placement())[0]))
    )
    first = chances_after(tokens[0])[PROMPT - 1]
    for symbol in range(SYMBOLS):
        of_first = drawn[:, 0] == symbol
        spread = math.sqrt(first[symbol] * (1 - first[symbol]) / rows)
        assert abs(of_first.mean() - first[symbol]) <= 4 * spread + 1e-12
        if first[symbol] < 0.1:
            continue
        then = chances_after(tokens[0].at[PROMPT].set(symbol))[PROMPT]
        shares = np.bincount(drawn[of_first, 1], minlength=SYMBOLS) / of_first.sum()
        spread = np.sqrt(then * (1 - then) / of_first.sum())
        assert np.all(np.abs(shares - then) <= 4 * spread + 1e-12)


def test_a_row_is_drawn_by_its_key_number_and_prompt_alone():
    model, tokens = model_of(), prompts_of(4)
    drawn = np.asarray(draw(model, tokens))
    np.testing.assert_array_equal(draw(model, tokens, use_cache=False), drawn)
    np.testing.assert_array_equal(jax.jit(partial(draw, model))(tokens), drawn)
    others = tokens.at[1:].set(prompts_of(4, seed=7)[1:])
    np.testing.assert_array_equal(draw(model, others)[0], drawn[0])
    np.testing.assert_array_equal(draw(model, tokens[:2]), drawn[:2])
    longer = draw(model, jnp.pad(tokens, ((0, 0), (0, 2))), max_prompt=PROMPT + 1)
    np.testing.assert_array_equal(longer[:, :5], drawn)
    alike = jnp.repeat(tokens[:1], 8, axis=0)
    hot = Sampling(temperature=3.0)
    assert len(np.unique(draw(model, alike, sampling=hot), axis=0)) > 1
    assert not np.array_equal(draw(model, tokens, rng=1), drawn)


def test_texts_end_at_their_end_symbol_and_lost_models_answer_nothing():
    model, tokens = model_of(), prompts_of(200)
    end = 2
    drawn = np.asarray(draw(model, tokens, end_symbol=end))
    free = np.asarray(draw(model, tokens))
    assert (drawn == end).any()
    for row, text in zip(drawn.tolist(), free.tolist(), strict=True):
        stop = text.index(end) + 1 if end in text else len(text)
        assert row == text[:stop] + [0] * (len(text) - stop)
    lost = draw(model_of(seed=0), tokens, sampling=Sampling(temperature=1e-39))
    assert set(np.unique(lost)) <= {-1, *range(SYMBOLS)}
    params = model.spec.init(jax.random.key(0))
    nothing = model.spec.bind(jax.tree.map(lambda x: jnp.nan * x, params))
    assert (np.asarray(draw(nothing, tokens)) == -1).all()


@pytest.mark.fast
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": 0.0}, "temperature must be positive and finite, got 0.0; for"),
        ({"temperature": math.inf}, "temperature must be positive and finite"),
        ({"temperature": math.nan}, "temperature"),
        ({"top_k": 0}, "top_k must be at least 1, got 0"),
        ({"top_k": 2.5}, "top_k must be"),
        ({"top_p": 0.0}, r"top_p must lie in \(0, 1\], got 0.0"),
        ({"top_p": 1.5}, r"top_p must lie in \(0, 1\]"),
    ],
)
def test_numbers_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Sampling(**settings)


@pytest.mark.fast
def test_a_seed_in_the_place_of_a_key_is_refused():
    with pytest.raises(ValueError, match="rng must be one PRNG key"):
        sample(None, prompts_of(1), Placement(), PROMPT, 5, 0, max_prompt=PROMPT)
