"""Analysis of a model: entropies, distances, reach and shifts, against plain facts."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.analysis import (
    attention_entropy,
    attention_statistics,
    fraction_unseen,
    mean_distance,
    met_positions,
    offset_similarity,
    receptive_field,
    trace_layers,
    training_positions,
)
from ropejax.analysis.passes import embed
from ropejax.attention import SquaredReLU, attention_weights, dense
from ropejax.encodings import ENCODINGS, Dims, Encoding
from ropejax.masks import Causal, Window
from ropejax.nn import BlockSettings, LayerKind, TransformerSpec
from ropejax.positions import Consecutive, Randomized
from ropejax.positions.base import Placement
from ropejax.tasks import Batch, ParityCheck, ReverseString
from ropejax.tokens import tokens as make_tokens
from ropejax.training import Recipe, Uniform, adam, init_state
from ropejax.training.step import draw_batch, step_lengths

TOKENS = np.array([[0, 1, 1, 2, 2, 2, 0], [1, 0, 2, 2, 0, 0, 0]])
LENGTHS = np.array([6, 4])
VALID = np.arange(7) < LENGTHS[:, None]


def spec(encoding="rope", *, mask=None, layers=2, **changes):
    settings = BlockSettings(mlp_dim=8, pre_norm=True)
    kinds = changes.pop("pattern", (LayerKind(ENCODINGS[encoding](), mask),))
    dims = Dims(2, 2, 4, 8, layers, causal=isinstance(mask, Causal))
    return TransformerSpec(3, 2, dims, settings, kinds, **changes)


def batch():
    empty = np.zeros_like(VALID)
    return Batch(TOKENS, TOKENS, empty, empty, LENGTHS)


@pytest.mark.fast
def test_entropy_of_uniform_attention_is_log_n_and_of_one_key_is_zero():
    weights = np.zeros((3, 8))
    weights[0], weights[1, :5], weights[2, 3] = 1 / 8, 1 / 5, 1
    found = attention_entropy(jnp.asarray(weights, jnp.float32))
    np.testing.assert_allclose(found, [np.log(8), np.log(5), 0], atol=1e-6)


@pytest.mark.fast
def test_mean_distance_is_counted_in_tokens_not_in_positions(rng):
    weights = jax.random.dirichlet(rng, jnp.ones(5), (1, 2, 5))
    where = make_tokens(5, positions=jnp.array([[0, 90, 91, 400, 1000]]))
    wanted = [
        [sum(weights[0, n, t, s] * abs(s - t) for s in range(5)) for t in range(5)]
        for n in range(2)
    ]
    np.testing.assert_allclose(
        mean_distance(weights, where, where)[0], wanted, atol=1e-5
    )


@partial(jax.jit, static_argnums=0)
def traced(model, params):
    bound, placement = model.bind(params), Placement()
    x = embed(bound, TOKENS, placement, valid=VALID)
    return trace_layers(bound, x, placement, valid=VALID, look=lambda w, *_: w)


@partial(jax.jit, static_argnums=0)
def jitted_logits(model, params):
    return model.bind(params)(TOKENS, Placement(), valid=VALID)


def test_a_pass_that_looks_gives_the_models_own_logits_in_every_form(rng):
    kinds = (LayerKind(ENCODINGS["alibi"]()), LayerKind(Encoding(), Window(2, 0)))
    looped = {"loops": 2, "input_injection": "loop"}
    for model in (
        spec("shaw", layers=2),
        spec(layers=4, pattern=kinds, **looped),
        spec(layers=4, pattern=kinds, scan_layers=False),
    ):
        params = model.init(rng)
        bound = model.bind(params)
        found = traced(model, params)
        applied = model.dims.num_layers * model.loops
        assert found.hidden.shape == (applied + 1, 2, 7, 8)
        assert found.looked.shape == (applied, 2, 2, 7, 7)
        wanted = jitted_logits(model, params)
        np.testing.assert_allclose(bound.read_out(found.hidden[-1]), wanted, atol=1e-5)
        # Layers are in the order in which they were applied: every second one is
        # masked to a window here.
        if len(model.pattern) == 2:
            outside = np.abs(np.subtract.outer(np.arange(7), np.arange(7))) > 2
            assert (np.asarray(found.looked)[1::2][..., outside] == 0).all()
            assert (np.asarray(found.looked)[0::2, :, :, 5, 0] > 0).all()


def test_weights_are_those_that_dense_attention_mixes_values_with(rng):
    q, k = jax.random.normal(rng, (2, 1, 5, 2, 4))
    v = jnp.eye(5)[None, :, None].repeat(2, 2)  # values that show the weights
    where = make_tokens(5)
    given = {
        "encoding": Encoding(),
        "params": {},
        "query": where,
        "key": where,
        "mask": Causal(),
        "scale": 0.5,
    }
    weights, _ = attention_weights(q, k, **given)
    out = dense(q, k, v, **given)
    np.testing.assert_allclose(jnp.swapaxes(out, 1, 2), weights, atol=1e-6)
    logits = np.einsum("tnh,snh->nts", q[0], k[0]) * 0.5
    logits = np.where(np.tri(5, dtype=bool), logits, -np.inf)
    wanted = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    np.testing.assert_allclose(weights[0], wanted, atol=1e-5)


def test_a_model_that_attends_to_all_alike_has_all_of_the_largest_entropy(rng):
    model = spec("none", mask=Causal())
    params = jax.tree.map(np.array, model.init(rng))
    attention = params["layers"]["kind_0"]["attention"]
    attention["query"]["kernel"][:] = 0  # all logits are equal
    found = attention_statistics(model, params, batch(), Placement())
    real = [n for length in LENGTHS for n in range(1, length + 1)]
    assert found.entropy.shape == (2, 2)
    np.testing.assert_allclose(found.entropy, np.mean(np.log(real)), atol=1e-5)
    np.testing.assert_allclose(found.largest, np.mean(np.log(real)), atol=1e-5)
    np.testing.assert_allclose(found.of_largest, 1, atol=1e-5)
    # A query that sees n keys, itself the nearest, is (n - 1) / 2 from them on average.
    wanted = np.mean([(n - 1) / 2 for n in real])
    np.testing.assert_allclose(found.distance, wanted, atol=1e-5)
    np.testing.assert_allclose(found.of_uniform, wanted, atol=1e-5)


def test_weights_that_do_not_sum_to_one_count_as_shares_and_none_at_all_not(rng):
    """Gated units under a squared ReLU: rows of equal weights, and rows of zeros."""
    model = spec("none", mask=Causal())
    settings = {"gated": True, "normalizer": SquaredReLU(length=1.0)}
    settings = dataclasses.replace(model.settings, **settings)
    model = dataclasses.replace(model, settings=settings)
    params = jax.tree.map(np.array, model.init(rng))
    attention = params["layers"]["kind_0"]["attention"]
    attention["base"]["kernel"][:] = 0  # queries and keys are their offsets
    attention["query_offset"][:] = 3
    attention["key_offset"][:] = 1
    attention["key_offset"][1, 1] = -1  # of one head, below zero
    found = attention_statistics(model, params, batch(), Placement())
    real = [n for length in LENGTHS for n in range(1, length + 1)]
    nowhere = np.array([[False, False], [False, True]])
    np.testing.assert_array_equal(np.isnan(found.entropy), nowhere)
    np.testing.assert_array_equal(np.isnan(found.distance), nowhere)
    np.testing.assert_allclose(
        found.entropy[~nowhere], np.mean(np.log(real)), atol=1e-5
    )
    np.testing.assert_allclose(found.of_largest[~nowhere], 1, atol=1e-5)
    wanted = np.mean([(n - 1) / 2 for n in real])
    np.testing.assert_allclose(found.distance[~nowhere], wanted, atol=1e-5)


jitted_field = jax.jit(receptive_field, static_argnums=0)


@pytest.mark.parametrize(("layers", "back", "ahead"), [(1, 2, 0), (3, 1, 0), (2, 1, 2)])
def test_a_model_of_windows_sees_exactly_its_layers_times_the_window(
    layers, back, ahead, rng
):
    model = spec(mask=Window(back, ahead), layers=layers)
    tokens = jax.random.randint(rng, (2, 12), 0, 3)
    queries = jnp.array([2, 6, 9])
    norms = jitted_field(model, model.init(rng), tokens, Placement(), queries)
    for at, query in enumerate(queries):
        first, last = query - layers * back, query + layers * ahead
        seen = (np.arange(12) >= first) & (np.arange(12) <= last)
        np.testing.assert_array_equal(np.asarray(norms[:, at] > 0), [seen, seen])


def test_the_receptive_field_is_the_norm_of_the_jacobian(rng):
    model = spec()
    params = model.init(rng)
    norms = jitted_field(
        model, params, TOKENS, Placement(), jnp.array([3, 5]), valid=VALID
    )
    bound = model.bind(params)

    def logits(x):
        hidden = trace_layers(bound, x, Placement(), valid=VALID).hidden[-1]
        return bound.read_out(hidden)[0, 5]

    x = embed(bound, TOKENS, Placement(), valid=VALID)
    jacobian = jax.jit(jax.jacobian(logits))(x)
    assert (np.asarray(jacobian[:, 1]) == 0).all()  # rows do not see each other
    wanted = np.sqrt((np.asarray(jacobian[:, 0]) ** 2).sum((0, 2)))
    np.testing.assert_allclose(norms[0, 1], wanted, rtol=1e-4, atol=1e-6)
    assert (norms[1, 0, 4:] == 0).all()  # padding


def test_hidden_states_are_the_same_at_shifted_positions_where_the_encoding_says_so(
    rng,
):
    offsets = jnp.array([0, 3, 100])
    for encoding, same in (("rope", True), ("t5", True), ("sinusoidal", False)):
        model = spec(encoding)
        found = jax.jit(offset_similarity, static_argnums=0)(
            model, model.init(rng), TOKENS, Placement(), offsets, valid=VALID
        )
        assert found.shape == (3, 3)
        np.testing.assert_allclose(found[0], 1, atol=1e-5)
        if same:
            np.testing.assert_allclose(found, 1, atol=1e-4)
        else:
            assert (found[1:] < 0.99).all()


def recipe(scheme, **changes):
    task = ParityCheck()
    return Recipe(
        model=spec(),
        task=task,
        positions=scheme,
        optimizer=adam(1e-3),
        curriculum=Uniform(5),
        buckets=(3, 5),
        batch_size=4,
        **changes,
    )


def test_training_positions_are_those_that_the_run_drew(rng):
    made = recipe(Randomized(max_position=40, per_layer=True))
    state = init_state(made, 3)
    seen = training_positions(made, state, steps=2, sampled=2, rows=4)
    positions, distances = [], []
    for step in (0, 1):
        at = state._replace(step=jnp.int32(step))
        lengths = step_lengths(made, at)
        drawn, placement, _ = draw_batch(made, at, lengths, 5)
        for layer in np.asarray(placement.positions):
            row = layer[0, : drawn.lengths[0]]
            positions += list(row)
            distances += [abs(a - b) for i, a in enumerate(row) for b in row[: i + 1]]
    for found, wanted in ((seen.positions, positions), (seen.distances, distances)):
        values, counts = np.unique(wanted, return_counts=True)
        np.testing.assert_array_equal(found.values, values)
        np.testing.assert_array_equal(found.counts, counts)


def test_consecutive_positions_past_the_training_lengths_were_never_seen(rng):
    made = recipe(Consecutive(), length_per_row=True)
    state = init_state(made, 0)
    seen = training_positions(made, state, steps=60, sampled=60, rows=4)
    assert list(seen.positions.values) == list(range(6))  # 5 symbols, one placeholder
    met = met_positions(Consecutive(), made.task, 9, rng)
    assert list(met.positions.values) == list(range(10))
    assert fraction_unseen(seen.positions, met.positions) == pytest.approx(0.4)
    # Of 55 pairs of 10 tokens, those 6 to 9 apart: 4 + 3 + 2 + 1.
    assert fraction_unseen(seen.distances, met.distances) == pytest.approx(10 / 55)


def test_schemes_that_draw_distances_are_judged_by_these(rng):
    scheme = Randomized(max_position=16, distances=True)
    met = met_positions(scheme, ReverseString(), 4, rng, num_layers=2)
    assert met.positions is None
    assert met.distances.values[0] == 0
    assert met.distances.values[-1] < 16


def test_looking_at_no_step_is_refused():
    made = recipe(Consecutive())
    with pytest.raises(ValueError, match="sampled=0"):
        training_positions(made, None, steps=3, sampled=0)
