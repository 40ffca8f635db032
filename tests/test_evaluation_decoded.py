"""Evaluation of models that read their answers back: what they decode is scored."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.encodings import Dims
from ropejax.evaluation import evaluate, evaluate_length
from ropejax.masks import Causal
from ropejax.nn import TransformerSpec
from ropejax.nn.decoder_greedy import decode_batch
from ropejax.positions import Consecutive, Randomized
from ropejax.tasks import Autoregressive
from ropejax.tasks.copy_string import CopyString
from ropejax.training import init_state
from tests.training.tiny import tiny_recipe

TASK = Autoregressive(CopyString(vocab_size=3))
SEPARATOR = TASK.placeholder


@dataclasses.dataclass(frozen=True)
class Copier:
    """Answers 1, and then copies the prompt if what it reads back began rightly."""

    dims = Dims(1, 1, 1, 1, num_layers=1, causal=True)

    def bind(self, params):
        return self

    def __call__(self, tokens, placement, **_):
        start = jnp.argmax(tokens == SEPARATOR, axis=1)[:, None]
        place = jnp.arange(tokens.shape[1])[None]
        wanted = jnp.take_along_axis(tokens, jnp.maximum(place - start, 0), axis=1)
        first = jnp.take_along_axis(tokens, start + 1, axis=1)
        copied = jnp.where(first == tokens[:, :1], wanted, 2)
        return jax.nn.one_hot(jnp.where(place == start, 1, copied), 3)


def test_what_is_scored_is_what_the_model_made_of_its_own_answers():
    """Right answers read back would hide that two rows in three go wrong at once."""
    scores = evaluate(
        Copier(), {}, TASK, Consecutive(), [2, 6], samples=300, draws=2, buckets=(7,)
    )
    rng = jax.random.key(1)
    for length, score in scores.items():
        data_rng = jax.random.split(jax.random.fold_in(rng, length))[0]
        batch = TASK.task.sample(data_rng, jnp.full((300,), length), max_length=7)
        strings = np.asarray(batch.tokens)[:, :length]
        begun = strings[:, :1] == 1
        right = np.where(begun, True, strings == 2)
        right[:, 0] = begun[:, 0]
        assert score.correct == right.sum()
        assert score.exact == right.all(axis=1).sum() == begun.sum()
        assert score.scored == 300 * length
        assert score.input_blind == pytest.approx(1 / 3, abs=0.06)


@pytest.fixture(scope="module")
def trained():
    """A Transformer with large random weights, whose answers differ."""
    recipe = tiny_recipe("stack_manipulation", dropout=0.0)
    task = Autoregressive(recipe.task)
    spec = dataclasses.replace(
        recipe.model,
        num_symbols=task.num_symbols,
        dims=recipe.model.dims._replace(causal=True),
        pattern=(recipe.model.pattern[0]._replace(mask=Causal()),),
        settings=dataclasses.replace(recipe.model.settings, pre_norm=True),
    )
    assert isinstance(spec, TransformerSpec)
    params = init_state(dataclasses.replace(recipe, model=spec, task=task), 0).params
    return spec, jax.tree.map(lambda leaf: 4 * leaf, params), task


def test_few_programs_serve_all_lengths_and_padding_changes_no_score(trained):
    spec, params, task = trained
    positions = Randomized(max_position=32)
    ask = lambda lengths, buckets: evaluate(
        spec, params, task, positions, lengths, samples=8, draws=2, buckets=buckets
    )
    before = evaluate_length._cache_size()
    scores = ask(range(1, 9), (4, 8))
    assert evaluate_length._cache_size() - before == 2
    alone = ask([3], (3,))[3]
    assert scores[3].loss == pytest.approx(alone.loss, rel=1e-5)
    assert scores[3]._replace(loss=0.0) == alone._replace(loss=0.0)
    assert sum(score.correct for score in scores.values()) > 0


def test_scores_are_those_of_rows_decoded_together(trained):
    spec, params, task = trained
    score = evaluate(
        spec, params, task, Consecutive(), [8], samples=8, draws=1, buckets=(8,)
    )[8]
    data_rng = jax.random.split(jax.random.fold_in(jax.random.key(1), 8))[0]
    batch = jax.jit(lambda rng: task.sample(rng, jnp.full((8,), 8), max_length=8))(
        data_rng
    )
    placement = Consecutive()(data_rng, batch.lengths, num_tokens=17)
    answers = jax.jit(
        lambda batch: decode_batch(
            spec.bind(params), task, batch, placement, max_length=8
        )
    )(batch)
    right = (answers == batch.targets) | ~batch.score_mask
    assert score.exact == int(right.all(axis=1).sum())
    assert score.correct == int((right & batch.score_mask).sum())
