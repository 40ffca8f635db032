"""Evaluation by length: few programs, right counts, and an honest blind baseline."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax import evaluation
from ropejax.evaluation import evaluate, evaluate_length
from ropejax.evaluation_parts import LOGITS_BYTES, rows_a_program
from ropejax.positions import Consecutive, Randomized
from ropejax.training import init_state
from ropejax.training.losses import batch_sums
from ropejax.training.step import apply_model
from tests.training.tiny import tiny_recipe


@pytest.fixture(scope="module")
def trained():
    """A model with random weights is as good as any other to count mistakes of."""
    recipe = tiny_recipe()
    return recipe, init_state(recipe, 0).params


def test_few_programs_serve_all_lengths_and_none_is_compiled_twice(trained):
    """Fault B18: lengths 1 to 64 in buckets of 16 take four programs, then none."""
    recipe, params = trained
    run = lambda: evaluate(
        recipe.model,
        params,
        recipe.task,
        Consecutive(),
        range(1, 65),
        samples=2,
        draws=1,
        buckets=(16, 32, 48, 64),
    )
    before = evaluate_length._cache_size()
    first = run()
    assert evaluate_length._cache_size() - before == 4
    assert run() == first
    assert evaluate_length._cache_size() - before == 4
    assert list(first) == list(range(1, 65))


def test_padded_evaluation_equals_each_length_alone(trained):
    recipe, params = trained
    ask = lambda buckets: evaluate(
        recipe.model,
        params,
        recipe.task,
        Randomized(max_position=32),
        [1, 2, 5],
        samples=8,
        draws=2,
        buckets=buckets,
    )
    padded, alone = ask((6,)), ask((1, 2, 5))
    for length, score in padded.items():
        exact = alone[length]
        assert score.loss == pytest.approx(exact.loss, rel=1e-5)
        assert score._replace(loss=0.0) == exact._replace(loss=0.0)


def test_results_do_not_depend_on_how_many_rows_a_program_takes(trained, monkeypatch):
    recipe, params = trained
    ask = lambda seed: evaluate(
        recipe.model,
        params,
        recipe.task,
        Randomized(max_position=32, per_sequence=True, per_layer=True),
        [4],
        samples=8,
        draws=2,
        seed=seed,
    )[4]
    whole = ask(3)
    monkeypatch.setattr(evaluation, "LOGITS_BYTES", 1)  # one row at a time
    evaluate_length.clear_cache()
    parts = ask(3)
    assert parts.loss == pytest.approx(whole.loss, rel=1e-5)
    assert parts._replace(loss=0.0) == whole._replace(loss=0.0)
    assert ask(4) != parts


def test_counts_equal_the_model_run_by_hand(trained):
    recipe, params = trained
    score = evaluate(
        recipe.model,
        params,
        recipe.task,
        Consecutive(),
        [5],
        samples=16,
        draws=1,
        seed=2,
    )[5]
    rng = jax.random.fold_in(jax.random.key(2), 5)
    data_rng, _ = jax.random.split(rng)
    batch = recipe.task.sample(data_rng, jnp.full((16,), 5), max_length=5)
    place = Consecutive()(rng, batch.lengths, num_tokens=10)
    sums = batch_sums(apply_model(recipe.model, params, batch, place), batch)
    counted = (score.outputs, score.correct, score.scored, score.exact, score.rows)
    assert counted == tuple(int(x) for x in sums[1:])
    assert score.accuracy == score.correct / score.scored


def test_blind_predictor_of_bucket_sort_is_the_quantile_one():
    """Sorted uniform symbols: each place is nearly always the symbol of its quantile.

    The exact accuracy at a place is the largest probability, over symbols, that the
    k-th smallest of n draws is that symbol: a sum of binomial probabilities.
    """
    recipe = tiny_recipe("bucket_sort", "none")
    params = init_state(recipe, 0).params
    length, vocab = 40, recipe.task.input_vocab

    def at_most(k, symbol):
        """P(k-th smallest <= symbol) = P(at least k of n draws are <= symbol)."""
        p = (symbol + 1) / vocab
        return sum(
            math.comb(length, hits) * p**hits * (1 - p) ** (length - hits)
            for hits in range(k, length + 1)
        )

    exact = np.mean(
        [
            max(at_most(k, s) - (at_most(k, s - 1) if s else 0.0) for s in range(vocab))
            for k in range(1, length + 1)
        ]
    )
    score = evaluate(
        recipe.model,
        params,
        recipe.task,
        Consecutive(),
        [length],
        samples=512,
        draws=1,
    )[length]
    assert exact == pytest.approx(0.78, abs=0.01)
    assert score.input_blind == pytest.approx(exact, abs=0.02)


def test_blind_predictor_of_coin_flips_is_chance_even_from_few_rows(trained):
    """Chosen on the rows that it is scored on, it would seem to beat chance."""
    recipe, params = trained
    scores = evaluate(
        recipe.model,
        params,
        recipe.task,
        Consecutive(),
        range(20, 41),
        samples=8,
        draws=2,
        buckets=(40,),
    )
    blind = sum(score.blind_correct for score in scores.values())
    scored = sum(score.scored for score in scores.values())
    # 8 rows give 5,000 symbols in pairs of halves; five deviations, each row of a
    # half counted as one draw.
    assert abs(blind / scored - 0.5) < 5 * 0.5 / np.sqrt(scored / 4)


@pytest.mark.fast
def test_rows_a_program_divide_the_rows_and_fit():
    for rows, tokens in ((64, 1000), (64, 41), (60, 300), (7, 2000)):
        part = rows_a_program(rows, tokens, 8, budget=LOGITS_BYTES)
        assert rows % part == 0
        assert part == 1 or part * 8 * tokens**2 * 4 <= LOGITS_BYTES


@pytest.mark.fast
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"samples": 10, "draws": 4}, "draws=4"),
        ({"lengths": [0, 5]}, "from 1 up"),
        ({"lengths": []}, "lengths"),
        ({"buckets": (4,)}, "no bucket"),
        ({"positions": Randomized(max_position=8)}, "max_position=8"),
    ],
)
def test_what_cannot_be_scored_is_refused_before_compiling(trained, change, message):
    recipe, params = trained
    settings = {"positions": Consecutive(), "lengths": [5]} | change
    with pytest.raises(ValueError, match=message):
        evaluate(recipe.model, params, recipe.task, **settings)
