"""Evaluation by length: few programs, right counts, and an honest blind baseline."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax import evaluation
from ropejax.encodings import Dims, Learned, Rotary, Sinusoidal
from ropejax.evaluation import evaluate, evaluate_length
from ropejax.evaluation_members import evaluate_members
from ropejax.evaluation_parts import LOGITS_BYTES, rows_a_program
from ropejax.masks import Causal
from ropejax.nn import BlockSettings, LayerKind, TransformerSpec
from ropejax.nn.recurrent import LSTM, DeltaNet, LayeredSpec, Mamba, RecurrentSpec
from ropejax.positions import Abacus, Consecutive, EqualMean, Randomized, Shifted
from ropejax.positions.base import Placement
from ropejax.tasks import Batch, BucketSort
from ropejax.training import init_state
from ropejax.training.applying import apply_and_read
from ropejax.training.losses import Sums, batch_sums
from tests.training.tiny import tiny_recipe

BITS = Abacus(digits=(0, 1), max_offset=0)


@pytest.fixture(scope="module")
def trained():
    """A model with random weights is as good as any other to count mistakes of."""
    recipe = tiny_recipe()
    return recipe, init_state(recipe, 0).params


def test_few_programs_serve_all_lengths_and_none_is_compiled_twice(trained):
    """Fault B18: lengths 1 to 64 in buckets of 16 take four programs, then none."""
    recipe, params = trained
    seen = []
    run = lambda: evaluate(
        recipe.model,
        params,
        recipe.task,
        Consecutive(),
        range(1, 65),
        samples=2,
        draws=1,
        buckets=(16, 32, 48, 64),
        on_length=lambda score: seen.append(score.length),
        on_bucket=lambda bucket: seen.append(f"to {bucket}"),
    )
    before = evaluate_length._cache_size()
    first = run()
    assert seen[:2] == ["to 16", 1]  # said before the program is compiled
    assert seen[16:19] == [16, "to 32", 17]
    assert seen[-17::16] == ["to 64", 64]
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
    told = apply_and_read(recipe.model, params, batch, place)
    sums = batch_sums(told, batch)
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


def test_counts_of_a_length_are_exact_beyond_what_a_float32_counts(
    trained, monkeypatch
):
    """97 rows, counted one by one, of 2^24 + 1 symbols in all; all but 97 are right."""
    rows, symbols = 97, (2**24 + 1) // 97
    a_row = Sums(*map(jnp.float32, (0.5, symbols, symbols - 1, symbols, 0, 1)))
    monkeypatch.setattr(evaluation, "batch_sums", lambda told, batch: a_row)
    monkeypatch.setattr(evaluation, "LOGITS_BYTES", 1)  # one row at a time
    evaluate_length.clear_cache()
    recipe, params = trained
    what = recipe.model, params, recipe.task, Consecutive(), [2]
    (score,) = evaluate(*what, samples=rows, draws=1).values()
    assert rows * symbols == 2**24 + 1
    assert (score.scored, score.outputs) == (2**24 + 1, 2**24 + 1)
    assert (score.correct, score.rows) == (2**24 + 1 - rows, rows)
    assert score.loss == rows / 2
    evaluate_length.clear_cache()


@pytest.mark.fast
@pytest.mark.parametrize("cell", [DeltaNet(), Mamba(), LSTM()])
def test_models_without_attention_are_scored_many_long_rows_at_once(cell):
    """Logits of 8 heads over 2,000 tokens would leave room for less than one row."""
    dims, length, rows = Dims(8, 8, 8, 64, 2, causal=True), 2000, 8
    model = TransformerSpec(
        3, 2, dims, BlockSettings(256), (LayerKind(Rotary(), Causal()),)
    )
    linear = RecurrentSpec(3, 2, cell, units=64)
    if not isinstance(cell, LSTM):
        linear = LayeredSpec(3, 2, dims, BlockSettings(256), cell)
    symbols = jnp.zeros((rows, length), jnp.int32)
    seen = symbols == 0
    batch = Batch(symbols, symbols, seen, seen, jnp.full(rows, length))

    def parts(spec):
        reader = evaluation._Reader(spec, None, None)
        count = lambda reader, some, where: some.tokens[0, 0]
        where = {"num_outputs": 2, "budget": LOGITS_BYTES}
        return reader.in_parts(count, batch, Placement(), **where).shape

    assert (parts(model), parts(linear)) == ((8,), (1,))


@pytest.mark.fast
def test_rows_a_program_divide_the_rows_and_fit():
    for rows, tokens in ((64, 1000), (64, 41), (60, 300), (7, 2000)):
        part = rows_a_program(rows, 8 * tokens**2, budget=LOGITS_BYTES)
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
        ({"positions": Abacus(digits=(0, 1))}, r"its digit \(RoPE\)"),
        ({"task": BucketSort()}, "num_symbols=3 must be at least 6 for Bucket Sort"),
        # Numbers that are not whole, and what is no list of them.
        ({"lengths": [2.5]}, "each of lengths must be a whole number, got 2.5"),
        ({"lengths": [True]}, "each of lengths must be a whole number, got True"),
        ({"lengths": np.array([5.0])}, "each of lengths must be a whole number"),
        ({"lengths": 3}, r"lengths must be .*one by one, such as \[3\] .*got 3"),
        ({"lengths": "12"}, "lengths must be whole numbers one by one.*got '12'"),
        ({"buckets": (5.5,)}, "each of buckets must be a whole number, got 5.5"),
        ({"samples": 4.0, "draws": 1}, "samples must be a whole number, got 4.0"),
        ({"draws": True}, "draws must be a whole number, got True"),
        ({"seed": 1.5}, "seed must be a whole number, got 1.5"),
        ({"seed": -1}, "seed must be in 0"),
    ],
)
def test_what_cannot_be_scored_is_refused_before_compiling(trained, change, message):
    recipe, params = trained
    settings = {"positions": Consecutive(), "lengths": [5], "task": recipe.task}
    with pytest.raises(ValueError, match=message):
        evaluate(recipe.model, params, **(settings | change))
    members = jax.tree.map(lambda x: x[None], params)
    with pytest.raises(ValueError, match=message):
        evaluate_members(recipe.model, members, **(settings | change))


@pytest.mark.fast
@pytest.mark.parametrize(
    ("encoding", "positions", "message"),
    [
        (Learned(16), Randomized(2048), "positions up to 2047, .* below 16 only"),
        (Learned(16), Shifted(10), "shifted positions up to 19, .* below 16 only"),
        (Learned(9), Consecutive(), "5 symbols are 10 tokens, .* below 9 only; train"),
        (Learned(16), EqualMean(), "positions without bound, .* below 16 only"),
        (Learned(9, stream="digit"), BITS, "digits up to 10, but a"),
        (Sinusoidal(), Randomized(64, per_layer=True), "no layer reads positions"),
    ],
)
def test_positions_past_a_table_or_unread_are_refused(
    trained, encoding, positions, message
):
    """Their logits would be NaN, whose accuracy is a number all the same."""
    recipe, params = trained
    model = dataclasses.replace(recipe.model, pattern=(LayerKind(encoding),))
    with pytest.raises(ValueError, match=message):
        evaluate(model, params, recipe.task, positions, [5])


def test_lengths_may_be_integers_of_any_kind(trained):
    recipe, params = trained
    ask = lambda lengths, **given: evaluate(
        recipe.model, params, recipe.task, Consecutive(), lengths, **given
    )
    plain = ask([3, 5], samples=2, draws=1, seed=7, buckets=(5,))
    numpy = ask(
        np.array([5, 3], np.uint8),
        samples=np.int64(2),
        draws=np.int32(1),
        seed=np.int64(7),
        buckets=np.array([5]),
    )
    assert numpy == plain
    assert all(type(length) is int for length in numpy)
