"""Encodings put together: what parts get, what the whole promises, what is refused."""

import contextlib
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.encodings import (
    ENCODINGS,
    ALiBi,
    Compose,
    CoPE,
    Dims,
    Encoding,
    GrapeA,
    GrapeAP,
    GrapeM,
    Learned,
    LogScale,
    PoPE,
    ReRoPE,
    Rotary,
    Sandwich,
    Shaw,
    TransformerXL,
    VORotary,
    XLNet,
    XPos,
    compose,
)
from ropejax.testing.running import example, run
from ropejax.tokens import Tokens, tokens
from tests.encodings.rotary_cases import logits, random

DIMS = Dims(2, 2, 8, 16, causal=True)


def params_of(encoding, where, dims=DIMS):
    key = jax.random.key(0)
    shared, layer = encoding.init_shared(key, dims), encoding.init_layer(key, dims)
    return shared, layer, encoding.prepare(shared, layer, where, where, dims)


@pytest.mark.fast
def test_biases_are_summed_and_rotations_kept():
    q, k, at = random(1, 6, 2, 8), random(1, 6, 2, 8, seed=1), tokens(6)
    both = compose(rope=Rotary(), one=ALiBi(), two=ALiBi(slopes=(1.0, 2.0)))
    *_, params = params_of(both, at)
    bias = sum(part.bias(params[name], at, at, 1.0) for name, part in both.parts[1:])
    expected = logits(Rotary(), q, k, at) + bias
    np.testing.assert_allclose(logits(both, q, k, at, params), expected, atol=1e-5)


def test_order_of_rotation_and_log_scale_does_not_matter():
    q, k, at = random(1, 30, 2, 8), random(1, 30, 2, 8, seed=1), tokens(30)
    scale, rerope = LogScale(train_length=8), ReRoPE(window=4)
    first = logits(compose(scale=scale, rope=rerope), q, k, at)
    second = logits(compose(rope=rerope, scale=scale), q, k, at)
    np.testing.assert_allclose(first, second, atol=1e-5)
    factor = np.maximum(1, np.log(np.arange(1, 31)) / np.log(8))
    plain = logits(rerope, q, k, at)
    np.testing.assert_allclose(first, plain * factor[:, None], rtol=1e-4, atol=1e-5)


def contextual(encoding, part, before, q, k, at):
    """CoPE's logits after those of others, and the logits of both composed."""
    _, _, params = params_of(encoding, at)
    vectors = {"vectors": random(*params["cope"]["vectors"].shape, seed=2)}
    visible = jnp.tril(jnp.ones((1, 1, at.length, at.length), bool))
    views = part.queries(vectors, q, at)
    _, expected = part.carry(
        vectors, 0 * before[..., 0], before, views, (k,), at, at, visible, 1.0
    )
    params = params | {"cope": vectors}
    views = encoding.queries(params, q, at), encoding.keys(params, k, at)
    state = encoding.init_carry(params, views[0], at)
    _, got = encoding.score(params, state, *views, at, at, visible, 1.0)
    return got, expected


@pytest.mark.parametrize("rotary", [Rotary(), ReRoPE(window=2)], ids=str)
def test_products_of_queries_and_vectors_are_no_queries_that_others_turn(rotary):
    """As many vectors as a head has channels: nothing but the numbers would tell."""
    part, at = CoPE(num_positions=8), tokens(6)
    q, k = random(1, 6, 2, 8), random(1, 6, 2, 8, seed=1)
    before = logits(rotary, q, k, at)
    got, expected = contextual(compose(cope=part, rope=rotary), part, before, q, k, at)
    np.testing.assert_allclose(got, expected, atol=1e-5)
    first = rotary.queries({}, q, at)[0]
    got, _ = contextual(compose(rope=rotary, cope=part), part, before, q, k, at)
    _, expected = contextual(compose(cope=part), part, before, first, k, at)
    np.testing.assert_allclose(got, expected, atol=1e-5)


@pytest.mark.parametrize(
    "places", [tokens(6), tokens(6, positions=5 * jnp.arange(6)[None])]
)
@pytest.mark.parametrize("part", [TransformerXL(), XLNet()], ids=str)
def test_rotations_turn_the_content_term_alone_and_factors_multiply_all(part, places):
    """Whether the term of positions has a table (tokens in order) or sinusoids."""
    q, k = random(1, 6, 2, 8), random(1, 6, 2, 8, seed=1)
    rope, scale = Rotary(), LogScale(train_length=2)
    both, more = compose(xl=part, rope=rope), compose(xl=part, n=compose(scale, rope))
    *_, params = params_of(both, places)
    own = {name: x + 0.3 for name, x in params["xl"].items() if name in {"u", "v"}}
    params = params | {"xl": params["xl"] | own}
    content = q + own["u"]
    turned, alone = (logits(e, content, k, places) for e in (rope, Encoding()))
    expected = logits(part, q, k, places, params["xl"]) - alone + turned
    got = logits(both, q, k, places, params)
    np.testing.assert_allclose(got, expected, atol=1e-5)
    factor = np.maximum(1, np.log(np.arange(1, 7)) / np.log(2))[:, None]
    scaled = {"xl": params["xl"], "n": {"logscale": {}, "rotary": {}}}
    got = logits(more, q, k, places, scaled)
    np.testing.assert_allclose(got, expected * factor, rtol=1e-5, atol=2e-5)


def test_values_run_in_order_and_outputs_in_reverse():
    turn, at = VORotary(max_wavelength=100.0), tokens(5)

    @dataclasses.dataclass(frozen=True)
    class Stretched(Encoding):
        def values(self, params, v, key):
            return v * jnp.arange(1.0, 9.0)

        def outputs(self, params, out, query):
            return out / jnp.arange(1.0, 9.0)

    both = compose(turn=turn, stretch=Stretched())
    *_, params = params_of(both, at)
    v = random(1, 5, 2, 8)
    there = both.values(params, v, at)
    expected = Stretched().values({}, turn.values({}, v, at), at)
    np.testing.assert_allclose(there, expected, atol=1e-6)
    np.testing.assert_allclose(both.outputs(params, there, at), v, atol=1e-5)


def test_parameters_and_features_are_dicts_by_name():
    both = compose(steps=GrapeM(), gates=GrapeA(), table=Learned(max_position=9))
    at = tokens(9)
    shared, layer, params = params_of(both, at)
    assert set(shared) == set(layer) == set(params) == {"steps", "gates", "table"}
    assert set(layer["steps"]) == {"log_frequencies", "step_bias", "step_weight"}
    assert set(shared["table"]) == {"table"}
    x, q = random(1, 9, 16), random(1, 9, 2, 8)
    features, state = both.key_features(params, x, q, at)
    assert set(features) == set(state) == {"steps", "gates", "table"}
    alone, _ = both.parts[0][1].key_features(params["steps"], x, q, at)
    np.testing.assert_array_equal(features["steps"][0], alone[0])
    # Each part sees its own features, and the state goes back to the part it is of.
    later, _ = both.key_features(params, x, q, at, state)
    expected = features["steps"][0] + state["steps"][0][:, None]
    np.testing.assert_allclose(later["steps"][0], expected)
    own = both.keys(params, q, at.replace(features=features))[0]
    turned = both.parts[0][1].keys(params["steps"], q, at.replace(features=alone))[0]
    np.testing.assert_array_equal(own, turned)
    embedded = both.embed(shared, x, at)
    np.testing.assert_allclose(embedded, x + shared["table"]["table"], atol=1e-6)


def test_equal_parts_draw_different_parameters():
    twice = compose(a=Learned(max_position=4), b=Learned(max_position=4))
    shared = twice.init_shared(jax.random.key(0), DIMS)
    assert np.abs(shared["a"]["table"] - shared["b"]["table"]).max() > 0


@pytest.mark.fast
def test_promises_are_those_of_the_parts():
    plain = compose(Rotary(), ALiBi())
    assert (plain.causal_only, plain.shift_invariant) == (False, True)
    assert not plain.by_distance
    assert compose(ALiBi(), LogScale()).by_distance
    assert compose(Rotary(), XPos()).causal_only
    assert not compose(Rotary(), Learned()).shift_invariant
    assert compose(Rotary(), LogScale(count="all")).length_dependent
    assert compose(Rotary(), GrapeAP()).has_carry
    assert not plain.has_carry
    assert plain.position_limit is None
    assert compose(Rotary(), Learned(max_position=7)).position_limit == 7
    assert plain.title == "RoPE + ALiBi"
    assert "2108.12409" in plain.reference
    assert hash(plain) == hash(compose(Rotary(), ALiBi()))


def test_a_carry_is_carried():
    at = tokens(5)
    part, both = GrapeAP(), compose(rope=Rotary(), path=GrapeAP())
    _, layer, params = params_of(both, at)
    x, q = random(1, 5, 16), random(1, 5, 2, 8)

    def run(encoding, params):
        features, _ = encoding.key_features(params, x, q, at)
        query = at.replace(features=encoding.query_features(params, x, q, at))
        key = at.replace(features=features)
        views = encoding.queries(params, q, query), encoding.keys(params, q, key)
        visible = jnp.tril(jnp.ones((1, 1, 5, 5), bool))
        state = encoding.init_carry(params, views[0], query)
        return encoding.score(params, state, *views, query, key, visible, 1.0)

    (state, whole), (own_state, own) = run(both, params), run(part, params["path"])
    np.testing.assert_allclose(state, own_state, atol=1e-6)
    rope, none = (logits(e, q, q, at) for e in (Rotary(), Encoding()))
    np.testing.assert_allclose(whole - own, rope - none, atol=1e-5)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: compose(XPos(), ReRoPE()), "product"),
        (lambda: compose(a=GrapeAP(), b=GrapeAP()), "carry"),
        (lambda: compose(Rotary(), Rotary()), "different names"),
        (lambda: compose(), "one at least"),
        (lambda: Compose((("a", Rotary()), ("a", ALiBi()))), "different names"),
        (lambda: compose(Rotary(), ALiBi()).check(Dims(1, 1, 5, 5)), "head_dim=5"),
    ],
)
def test_what_cannot_be_put_together_is_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize(
    ("other", "first", "message"),
    [
        (CoPE(), True, "^pope makes views .* which other cannot turn; put them before"),
        (Rotary(), True, "other cannot turn"),
        (compose(CoPE(), LogScale()), True, "other cannot turn"),
        (ReRoPE(window=2), False, None),
        (CoPE(), False, None),
        (compose(ALiBi(), LogScale()), True, None),
    ],
)
def test_no_part_turns_what_pope_makes_of_queries(other, first, message):
    """It is as wide as two heads: RoPE would turn magnitudes, others have no room."""
    named = {"pope": PoPE(), "other": other}
    both = compose(**dict(list(named.items())[:: 1 if first else -1]))
    *_, params = params_of(both, tokens(4))
    q = random(1, 4, 2, 8)
    if message is None:
        assert both.queries(params, q, tokens(4))[0].shape == (1, 4, 2, 16)
        return
    with pytest.raises(ValueError, match=message):
        both.queries(params, q, tokens(4))


def test_plain_rope_claims_no_product():
    assert not compose(Rotary(), ALiBi()).has_product
    assert compose(Rotary(), XPos()).has_product
    nested = compose(inner=compose(XPos(), ALiBi()), rope=Rotary())
    assert nested.has_product
    assert not nested.has_mix
    assert not compose(a=nested, b=compose(c=ALiBi())).has_mix
    with pytest.raises(ValueError, match="product"):
        compose(inner=nested, other=ReRoPE())


def test_a_part_may_be_switched_at_test_time():
    at, q = tokens(12), random(1, 12, 2, 8)
    trained = compose(rope=Rotary(trainable="layer"), bias=ALiBi(learned=True))
    _, layer, _ = params_of(trained, at)
    tested = compose(rope=ReRoPE(trainable="layer", window=4), bias=ALiBi(learned=True))
    params = tested.prepare({}, layer, at, at, DIMS)
    changed = logits(tested, q, q, at, params)
    same = logits(trained, q, q, at, trained.prepare({}, layer, at, at, DIMS))
    lag = np.arange(12)[:, None] - np.arange(12)
    near = (lag >= 0) & (lag < 4)
    np.testing.assert_allclose(
        np.where(near, changed, 0), np.where(near, same, 0), atol=1e-5
    )
    assert np.abs(np.where(lag >= 4, changed - same, 0)).max() > 1e-2


SEEN = ("rope_bias", "pope", "shaw", "transformer_xl", "xlnet", "deberta", "cope")
SEEN += ("wall", "path")
"""Methods that set queries against vectors of their own, or work on their channels."""
SEEN_LATE = ("shaw", "deberta", "wall", "path")
"""Those that do so in their product, behind whatever turns queries."""


@pytest.mark.fast
@pytest.mark.parametrize("name", sorted(ENCODINGS))
def test_beside_rope_what_sees_turned_queries_is_not_shift_invariant(name):
    """As the test below measures it, for each method and order."""
    part = ENCODINGS[name]()
    assert part.sees_turns == (name in SEEN)
    for both, seen in (
        (lambda: compose(rope=Rotary(), x=part), SEEN),
        (lambda: compose(x=part, rope=Rotary()), SEEN_LATE),
        (lambda: compose(c=compose(bias=ALiBi(), x=part), rope=Rotary()), SEEN_LATE),
    ):
        with contextlib.suppress(ValueError):  # of two parts that claim one hook
            made = both()
            assert made.shift_invariant == (part.shift_invariant and name not in seen)
    assert compose(LogScale(), Shaw()).shift_invariant
    assert compose(CoPE(), Sandwich()).shift_invariant


@pytest.mark.parametrize(
    ("names", "holds"),
    [
        (("rope", "shaw"), False),
        (("cope", "rope"), True),
        *(
            pytest.param(names, holds, marks=pytest.mark.slow)
            for name in SEEN
            for names, holds in (
                (("rope", name), False),
                ((name, "rope"), name not in SEEN_LATE),
            )
            if names not in [("rope", "shaw"), ("cope", "rope")]
            and names not in [("rope_bias", "rope"), ("pope", "rope")]  # wider views
        ),
    ],
)
def test_shifting_all_positions_changes_nothing_where_it_is_said(names, holds):
    both = compose(**{name: ENCODINGS[name]() for name in names})
    assert both.shift_invariant == holds
    inputs = example(both)
    at = jnp.broadcast_to(jnp.arange(inputs["x"].shape[1]), inputs["x"].shape[:2])
    where = lambda shift: Tokens(
        index=at, positions=at + shift, valid=at >= 0, consecutive_index=True
    )
    attend = jax.jit(lambda where: run(both, inputs, where, implementation="dense"))
    base, moved = attend(where(0)), attend(where(1000))
    change = float(jnp.abs(moved - base).max() / jnp.abs(base).max())
    assert (change < 1e-4) == holds
