"""ReRoPE and its kin: golden outputs, identities, and shifts of positions."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax import masks
from ropejax.attention import attend
from ropejax.encodings import (
    DualChunk,
    InverseLeakyReRoPE,
    LeakyReRoPE,
    LMInfinite,
    LogScale,
    ReRoPE,
    Rotary,
    SelfExtend,
    compose,
)
from ropejax.encodings.distance_maps import Chunked, Grouped, Leaky, Rectified
from ropejax.tokens import tokens
from tests.encodings.rotary_cases import (
    causal_attention,
    golden,
    logits,
    names,
    random,
    swapped,
)


def rerope(params):
    factor = params["scaling_factor"]
    if factor is None:
        return ReRoPE(window=params["window"]), params["training_length"]
    leaky = LeakyReRoPE(window=params["window"], factor=float(factor))
    return leaky, params["training_length"]


def self_extend(params):
    encoding = SelfExtend(
        window=params["neighbor_window"],
        group=params["group_size"],
        fractional="scale_base" in params,
    )
    return encoding, params.get("scale_base", -1)


def with_log_scale(encoding, train_length):
    if train_length <= 1:
        return encoding
    return compose(log_scale=LogScale(train_length=train_length), rope=encoding)


CASES = [(name, rerope) for name in names("rerope_", "leaky_")]
CASES += [(name, self_extend) for name in names("selfextend_")]


@pytest.mark.parametrize(("name", "build"), CASES, ids=[name for name, _ in CASES])
def test_outputs_and_logits_match_the_authors_code(name, build):
    arrays, params, tolerance = golden(name)
    encoding = with_log_scale(*build(params))
    np.testing.assert_allclose(
        causal_attention(encoding, arrays), arrays["out"], **tolerance
    )
    q, k = swapped(arrays["q"]), swapped(arrays["k"])
    ours = logits(encoding, q, k, tokens(q.shape[1]), scale=q.shape[-1] ** -0.5)
    seen = np.tril(np.ones(ours.shape[-2:], bool))
    np.testing.assert_allclose(
        np.where(seen, ours, 0), np.where(seen, arrays["logits"], 0), **tolerance
    )


@pytest.mark.parametrize("name", names("dca_"))
def test_dual_chunk_outputs_match_the_authors_code(name):
    arrays, params, tolerance = golden(name)
    factor_length = params["max_position_embeddings"] if params["mscale"] > 1 else None
    encoding = DualChunk(
        chunk_size=params["chunk_size"],
        local=params["local_window"],
        factor_length=factor_length,
    )
    assert encoding.length_dependent == (factor_length is not None)
    np.testing.assert_allclose(
        causal_attention(encoding, arrays), arrays["out"], **tolerance
    )


@pytest.mark.fast
@pytest.mark.parametrize(
    ("distance", "name"),
    [
        (Rectified(6), "rerope_w6_L17_H4"),
        (Leaky(6, factor=4.0), "leaky_rerope_w6_k4_L17_H4"),
        (Grouped(8, 4), "selfextend_g4_w8_L33_H4"),
        (Grouped(7, 3), "selfextend_g3_w7_L33_H6_gqa"),
        (Grouped(7, 3, fractional=True), "selfextend_new_g3_w7_L33_H6_fractional"),
        (Chunked(12, 4), "dca_c12_l4_L33_H4"),
        (Chunked(12, 2), "dca_c12_l2_L48_mscale"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_biases_get_the_same_distances(distance, name):
    expected = golden(name)[0]["rel_position"]
    at = tokens(len(expected))
    ours = -np.asarray(distance.relative(at, at))[0]
    seen = np.tril(np.ones(ours.shape, bool))
    np.testing.assert_allclose(ours[seen], expected[seen], atol=1e-6)


@pytest.mark.parametrize(
    ("distance", "query", "key", "right"),
    [
        (Grouped(16, 4), 2**28 + 102, 2**28 + 1, -37),
        (Grouped(10, 4, fractional=True), 2**28 + 102, 2**28 + 1, -32.5),
        (Chunked(12, 4), 2**28 + 2, 2**28 - 1, -3),
        (Chunked(12, 4), 2**28 + 30, 2**28 + 1, -11),
        (Leaky(6, factor=4.0), 2**28 + 16, 2**28, -8.5),
    ],
)
def test_distances_are_those_of_the_integers_at_any_position(
    distance, query, key, right
):
    at = (tokens(1, positions=np.array([[place]])) for place in (query, key))
    np.testing.assert_array_equal(distance.relative(*at), [[[right]]])


def test_maps_of_positions_refuse_tables_of_distances_and_others_take_them():
    at = tokens(4, distances=jnp.array([[0, 10, 11, 30]]))
    ours = Rectified(11).relative(at, at)[0]
    np.testing.assert_array_equal(ours[3], [-11, -11, -10, 0])
    with pytest.raises(ValueError, match="table of distances"):
        Grouped(8, 4).relative(at, at)


class TestIdentities:
    LENGTH = 24
    q, k = random(1, LENGTH, 2, 8), random(1, LENGTH, 2, 8, seed=1)

    def of(self, distance, q=None, k=None, where=None):
        where = tokens(self.LENGTH) if where is None else where
        q, k = (self.q if q is None else q), (self.k if k is None else k)
        return np.asarray(logits(Rotary(distance=distance), q, k, where))

    def seen(self, x):
        return np.where(np.tril(np.ones((self.LENGTH, self.LENGTH), bool)), x, 0)

    def test_leaky_by_one_is_rope(self):
        plain = np.asarray(logits(Rotary(), self.q, self.k, tokens(self.LENGTH)))
        leaky = self.of(Leaky(5, factor=1.0))
        np.testing.assert_allclose(self.seen(leaky), self.seen(plain), atol=1e-5)
        both_ways = self.of(Leaky(5, bidirectional=True, factor=1.0))
        np.testing.assert_allclose(both_ways, plain, atol=1e-5)

    def test_leaky_by_a_large_factor_is_rerope_and_infinity_is_refused(self):
        with pytest.raises(ValueError, match="factor must be finite"):
            Leaky(5, factor=np.inf)
        leaky = self.of(Leaky(5, bidirectional=True, factor=1e9))
        rectified = self.of(Rectified(5, bidirectional=True))
        np.testing.assert_allclose(leaky, rectified, atol=1e-5)

    def test_windows_beyond_the_sequence_are_rope(self):
        plain = np.asarray(logits(Rotary(), self.q, self.k, tokens(self.LENGTH)))
        for distance in (Rectified(24), Leaky(24), Grouped(24, 4), Chunked(48, 8)):
            ours = self.of(distance)
            np.testing.assert_allclose(self.seen(ours), self.seen(plain), atol=1e-5)

    def test_groups_of_one_are_rope(self):
        plain = np.asarray(logits(Rotary(), self.q, self.k, tokens(self.LENGTH)))
        ours = self.of(Grouped(5, 1))
        np.testing.assert_allclose(self.seen(ours), self.seen(plain), atol=1e-5)

    def test_bidirectional_maps_are_mirror_images(self):
        # Swapping queries and keys turns every distance around.
        for distance in (Rectified(5, True), Leaky(5, True, factor=3.0)):
            there = self.of(distance)
            back = self.of(distance, self.k, self.q)
            np.testing.assert_allclose(there, back.swapaxes(-1, -2), atol=1e-5)

    def test_named_methods_are_rope_with_a_map(self):
        at = tokens(self.LENGTH)
        pairs = (
            (ReRoPE(window=5), Rectified(5)),
            (LMInfinite(limit=5), Rectified(5)),
            (LeakyReRoPE(window=5, factor=4.0), Leaky(5, factor=4.0)),
            (InverseLeakyReRoPE(window=5), Leaky(5, factor=1 / 16)),
            (SelfExtend(window=8, group=4), Grouped(8, 4)),
        )
        for method, distance in pairs:
            ours = logits(method, self.q, self.k, at)
            np.testing.assert_array_equal(ours, self.of(distance))


@pytest.mark.parametrize(
    "encoding",
    [
        ReRoPE(window=5),
        LeakyReRoPE(window=5, factor=4.0),
        SelfExtend(window=8),
        DualChunk(),
    ],
    ids=lambda e: e.title,
)
def test_a_shift_of_positions_changes_what_it_should(encoding):
    q, k = random(1, 48, 1, 8), random(1, 48, 1, 8, seed=1)
    moved = tokens(48, positions=jnp.arange(48)[None] + 3)
    seen = np.tril(np.ones((48, 48), bool))
    here = np.where(seen, logits(encoding, q, k, tokens(48)), 0)
    there = np.where(seen, logits(encoding, q, k, moved), 0)
    if encoding.shift_invariant:
        np.testing.assert_allclose(here, there, atol=1e-5)
    else:
        assert np.abs(here - there).max() > 0.1


def test_distances_stay_exact_at_great_positions():
    """A float32 position over 3 would be off by 0.03 tokens at a million."""
    leaky = Rotary(distance=Leaky(5, factor=3.0))
    q, k = random(1, 9, 1, 8), random(1, 9, 1, 8, seed=1)
    far = tokens(9, positions=jnp.arange(9)[None] + 2**20)
    near = logits(leaky, q, k, tokens(9))
    np.testing.assert_allclose(logits(leaky, q, k, far), near, atol=1e-4)


def test_the_map_may_change_at_test_time_with_the_same_parameters():
    trained = Rotary(trainable="layer")
    q, k, v = (random(1, 24, 2, 8, seed=s) for s in range(3))
    at = tokens(24)
    frequencies = jnp.log(jnp.array([1.0, 0.3, 0.1, 0.03]))

    def run(encoding):
        return attend(
            q,
            k,
            v,
            encoding=encoding,
            params={"log_frequencies": frequencies},
            query=at,
            key=at,
            mask=masks.Causal(),
            implementation="dense",
        )

    plain = run(trained)
    tested = run(dataclasses.replace(trained, distance=Rectified(6)))
    np.testing.assert_allclose(plain[:, :6], tested[:, :6], atol=1e-6)
    assert np.abs(plain - tested).max() > 1e-2
    # And back: a window that nothing exceeds.
    same = run(dataclasses.replace(trained, distance=Rectified(24)))
    np.testing.assert_allclose(plain, same, atol=1e-6)


def test_a_block_computes_only_the_views_that_it_needs():
    """The product of a far block does not touch the near view, not even its NaN."""
    encoding = ReRoPE(window=4)
    query, key = tokens(4, offset=16), tokens(4)
    q, k = random(1, 4, 1, 8), random(1, 4, 1, 8, seed=1)
    far = encoding.queries({}, q, query)[1], encoding.keys({}, k, key)[1]
    q_views, k_views = (jnp.full_like(q, jnp.nan), far[0]), (jnp.nan * k, far[1])
    product = jax.jit(encoding.product)({}, q_views, k_views, query, key)
    expected = jnp.einsum("btnh,bsnh->bnts", *far)
    np.testing.assert_allclose(product, expected, atol=1e-5)


@pytest.mark.parametrize(
    "build",
    [
        lambda: ReRoPE(window=0),
        lambda: LeakyReRoPE(factor=0.0),
        lambda: InverseLeakyReRoPE(expansion=-1.0),
        lambda: SelfExtend(group=0),
        lambda: DualChunk(chunk_size=8, local=8),
        lambda: DualChunk(factor_length=0),
        lambda: LMInfinite(limit=0),
    ],
)
def test_settings_out_of_range_are_refused(build):
    with pytest.raises(ValueError, match="must"):
        build()


def test_only_bidirectional_maps_may_serve_encoders():
    assert ReRoPE().causal_only
    assert not ReRoPE(bidirectional=True).causal_only
    assert SelfExtend().causal_only
    assert not Rotary().causal_only
