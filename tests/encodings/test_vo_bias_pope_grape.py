"""VO-RoPE, biases before RoPE, PoPE and GRAPE: formulas in numpy, and identities."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.linalg import expm

from ropejax import masks
from ropejax.attention import attend
from ropejax.encodings import (
    BiasedRotary,
    Dims,
    Encoding,
    GrapeA,
    GrapeAP,
    GrapeM,
    PoPE,
    Rotary,
    VORotary,
    compose,
)
from ropejax.encodings.alibi import alibi_slopes
from ropejax.encodings.angles import rotary_frequencies
from ropejax.encodings.grape import plane_rotation
from ropejax.positions import count_real
from ropejax.tokens import tokens
from tests.encodings.rotary_cases import logits, placed, random

LENGTH, DIMS = 7, Dims(4, 2, 8, 24, causal=True)
SEEN = np.tril(np.ones((LENGTH, LENGTH), bool))


@functools.partial(jax.jit, static_argnames=("encoding", "implementation"))
def attended(encoding, layer, x, q, k, v, where, implementation="dense"):
    params = encoding.prepare({}, layer, where, where, DIMS)
    features, _ = encoding.key_features(params, x, k, where)
    return attend(
        q,
        k,
        v,
        encoding=encoding,
        params=params,
        query=where.replace(features=encoding.query_features(params, x, q, where)),
        key=where.replace(features=features),
        mask=masks.Causal(),
        implementation=implementation,
        block_q=3,
        block_k=2,
    )


def inputs(length=LENGTH):
    x = random(2, length, 24)
    q, k, v = (random(2, length, n, 8, seed=n) for n in (4, 2, 2))
    return x, q, k, v


def softmax(x):
    x = np.where(np.tril(np.ones(x.shape[-2:], bool)), np.asarray(x, float), -np.inf)
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def moved(params, size=0.3):
    """Parameters off their starting values."""
    keys = iter(jax.random.split(jax.random.key(7), 9))
    return jax.tree.map(
        lambda p: p + size * jax.random.normal(next(keys), p.shape), params
    )


def rotation_matrix(angles):
    """A matrix that turns half-split pairs."""
    c, s = np.diag(np.cos(angles)), np.diag(np.sin(angles))
    return np.block([[c, -s], [s, c]])


class TestVO:
    def test_outputs_are_values_seen_from_the_query(self):
        x, q, k, v = inputs()
        out = attended(VORotary(), {}, x, q, k, v, tokens(LENGTH))
        weights = softmax(np.asarray(logits(Encoding(), q, k, tokens(LENGTH))) / 8**0.5)
        f = rotary_frequencies(8)
        turn = np.array(
            [
                [rotation_matrix((j - i) * f) for j in range(LENGTH)]
                for i in range(LENGTH)
            ]
        )
        v = np.repeat(np.asarray(v), 2, 2)
        expected = np.einsum("bnij,ijhg,bjng->binh", weights, turn, v)
        np.testing.assert_allclose(out, expected, atol=1e-5)

    def test_a_shift_of_positions_changes_nothing(self):
        x, q, k, v = inputs()
        both = compose(Rotary(), VORotary())
        here = attended(both, {}, x, q, k, v, tokens(LENGTH))
        far = placed(np.arange(LENGTH) + 100_003)
        there = attended(both, {}, x, q, k, v, far)
        np.testing.assert_allclose(here, there, atol=1e-5)
        assert both.shift_invariant


def test_biases_before_rope_start_as_rope_and_add_before_turning():
    x, q, k, v = inputs()
    biased, at = BiasedRotary(), tokens(LENGTH)
    layer = biased.init_layer(jax.random.key(0), DIMS)
    plain = attended(Rotary(), {}, x, q, k, v, at)
    np.testing.assert_allclose(
        attended(biased, layer, x, q, k, v, at), plain, atol=1e-6
    )
    layer = moved(layer)
    shifted = q + layer["query_bias"], k + layer["key_bias"]
    expected = attended(Rotary(), {}, x, *shifted, v, at)
    np.testing.assert_allclose(
        attended(biased, layer, x, q, k, v, at), expected, atol=1e-5
    )


class TestPoPE:
    def logits(self, pope, params, q, k, at):
        params = pope.prepare({}, params, at, at, DIMS)
        return np.asarray(logits(pope, q, k, at, params))

    @pytest.mark.parametrize("fraction", [1.0, 0.5])
    def test_logits_are_the_formula(self, fraction):
        _, q, k, _ = inputs()
        pope = PoPE(uniform_init=True, rotary_fraction=fraction)
        params = pope.init_layer(jax.random.key(3), DIMS)
        ours = self.logits(pope, params, q, k, tokens(LENGTH))
        width = int(8 * fraction)
        delta = np.asarray(params["delta"], float)
        assert delta.shape == (4, width)
        assert (-2 * np.pi <= delta).all()
        assert (delta <= 0).all()
        q, k = np.asarray(q, float), np.repeat(np.asarray(k, float), 2, 2)
        lag = np.arange(LENGTH) - np.arange(LENGTH)[:, None]
        f = 10_000.0 ** (-np.arange(width) / width)
        wave = np.cos(lag[..., None, None] * f + delta)
        soft = lambda y: np.log1p(np.exp(y[..., :width]))
        expected = np.einsum("binc,bjnc,ijnc->bnij", soft(q), soft(k), wave)
        expected += np.einsum("binc,bjnc->bnij", q[..., width:], k[..., width:])
        np.testing.assert_allclose(ours, expected, atol=1e-4)

    def test_delta_is_kept_in_range_and_starts_at_zero(self):
        _, q, k, _ = inputs()
        pope, at = PoPE(), tokens(LENGTH)
        start = pope.init_layer(jax.random.key(0), DIMS)
        assert not start["delta"].any()
        beyond = {"delta": start["delta"] + 1.0}
        np.testing.assert_array_equal(
            self.logits(pope, beyond, q, k, at), self.logits(pope, start, q, k, at)
        )

    def test_delta_is_learned_from_its_bounds_and_from_beyond_them(self):
        """A head of one channel has logits `cos(delta - 1)`, key before query."""
        pope, dims = PoPE(), Dims(4, 4, 1, 4)
        query, key = tokens(1, offset=1), tokens(1)
        one = jnp.full((1, 1, 4, 1), float(np.log(np.e - 1)))  # its softplus is 1

        def cosines(delta):
            params = pope.prepare({}, {"delta": delta}, query, key, dims)
            (q,), (k,) = pope.queries(params, one, query), pope.keys(params, one, key)
            return (q * k).sum(-1).reshape(4, 1)

        start = jnp.array([[0.0], [0.3], [-2 * np.pi], [-2 * np.pi - 0.3]])
        np.testing.assert_allclose(cosines(start), 4 * [[np.cos(1)]], atol=1e-5)
        slopes = jax.jit(lambda sign: jax.vjp(cosines, start)[1](sign)[0])
        up, down = (sign * np.ones((4, 1), np.float32) for sign in (1, -1))
        # Descent on the cosine lowers delta, which leads the last head further out.
        leads_in = np.array([[1], [1], [1], [0]])
        np.testing.assert_allclose(slopes(up), np.sin(1) * leads_in, atol=1e-5)
        leads_in = np.array([[1], [0], [1], [1]])
        np.testing.assert_allclose(slopes(down), -np.sin(1) * leads_in, atol=1e-5)

        target = np.cos(np.array([[-1.0], [-1.0], [-5.8], [-5.8]]) - 1)
        loss = lambda delta: ((cosines(delta) - target) ** 2).sum() / 2
        step = lambda _, delta: delta - 0.2 * jax.grad(loss)(delta)
        learned = jax.jit(lambda delta: jax.lax.fori_loop(0, 200, step, delta))(start)
        assert ((-2 * np.pi < learned) & (learned < 0)).all()
        np.testing.assert_allclose(np.cos(learned - 1), target, atol=1e-4)


def test_a_plane_rotation_is_the_exponential_of_its_generator():
    a, b, x = random(6), random(6, seed=1), random(4, 6, seed=2)
    generator = jnp.outer(a, b) - jnp.outer(b, a)
    expected = x @ expm(2.5 * generator).T
    np.testing.assert_allclose(plane_rotation(x, a, b, 2.5), expected, atol=1e-4)
    steps = jnp.arange(4.0)[:, None]
    turned = plane_rotation(x, a, b, steps)
    for n in range(4):
        np.testing.assert_allclose(turned[n], x[n] @ expm(n * generator).T, atol=1e-4)


@pytest.mark.parametrize("steps", [10**4, 131_071, -(2**20), 2**30, 2.0**20 + 0.5])
def test_a_plane_rotation_is_right_after_any_number_of_steps(steps):
    """A float32 product of steps and angle is off by 0.007 at 131071."""
    a, b, x = random(6), random(6, seed=1), random(6, seed=2)
    a64, b64, x64 = (np.asarray(v, np.float64) for v in (a, b, x))
    generator = np.outer(a64, b64) - np.outer(b64, a64)
    s = np.sqrt((a64 @ a64) * (b64 @ b64) - (a64 @ b64) ** 2)
    expected = x64 + np.sin(steps * s) / s * generator @ x64
    expected += (1 - np.cos(steps * s)) / s**2 * generator @ generator @ x64
    got = plane_rotation(x, a, b, steps)
    np.testing.assert_allclose(got, expected, atol=2e-6)
    # What is traced is off by the rounding of the angle only.
    traced = jax.jit(plane_rotation)(x, a, b, steps % 100)
    np.testing.assert_allclose(traced, plane_rotation(x, a, b, steps % 100), atol=3e-4)


@pytest.mark.parametrize("factor", [0.0, -2.0, 3.0])
def test_vectors_that_span_no_plane_are_refused(factor):
    a = random(6)
    with pytest.raises(ValueError, match="a and b must not be parallel, nor 0"):
        plane_rotation(random(6, seed=1), a, jnp.float32(factor) * a, 1)


def test_padding_in_keys_that_is_nan_leaves_gradients_of_gates_finite():
    """A gate is computed of keys before attention clears what padding holds."""
    x, q, k, v = inputs()
    valid = jnp.arange(LENGTH)[None] < LENGTH - 2
    where, grape = tokens(LENGTH, valid=valid), GrapeA(gate="both")
    layer = moved(grape.init_layer(jax.random.key(0), DIMS))
    nan = jnp.where(valid[..., None, None], 0.0, jnp.nan)

    @jax.jit
    def grads(q, k, v):
        def loss(layer):
            out = attended(grape, layer, x, q, k, v, where)
            return jnp.square(jnp.where(valid[..., None, None], out, 0.0)).sum()

        return jax.grad(loss)(layer)

    right, got = grads(q, k, v), grads(q, k + nan, v + nan)
    for name, values in right.items():
        assert np.abs(values).max() > 1e-4
        np.testing.assert_array_equal(got[name], values)


class TestGrapeM:
    @pytest.mark.parametrize("per_head", [False, True])
    def test_it_is_rope_at_summed_steps(self, per_head):
        x, q, k, v = inputs()
        grape = GrapeM(per_head=per_head)
        layer = moved(grape.init_layer(jax.random.key(0), DIMS))
        out = attended(grape, layer, x, q, k, v, tokens(LENGTH))
        step = np.log1p(
            np.exp(np.asarray(x @ layer["step_weight"]) + layer["step_bias"])
        )
        phase = np.cumsum(step, 1) - step
        frequencies = jnp.exp(layer["log_frequencies"])
        rope = Rotary(trainable="layer")
        own = {"log_frequencies": jnp.log(frequencies)}
        for head in range(4):
            at = placed(np.float32(phase[..., head // 2 if per_head else 0]))
            one = slice(head, head + 1), slice(head // 2, head // 2 + 1)
            parts = q[:, :, one[0]], k[:, :, one[1]], v[:, :, one[1]]
            expected = attended(rope, own, x, *parts, at)
            np.testing.assert_allclose(out[:, :, one[0]], expected, atol=1e-4)

    def test_equal_steps_of_one_are_rope(self):
        x, q, k, v = inputs()
        grape = GrapeM(initial_step=1.0, trainable="none")
        layer = grape.init_layer(jax.random.key(0), DIMS)
        ours = attended(grape, layer, x, q, k, v, tokens(LENGTH))
        rope = attended(Rotary(), {}, x, q, k, v, tokens(LENGTH))
        np.testing.assert_allclose(ours, rope, atol=1e-5)

    def test_the_state_goes_on_where_it_stopped(self):
        x, _, k, _ = inputs()
        grape = GrapeM()
        layer = moved(grape.init_layer(jax.random.key(0), DIMS))
        whole, _ = grape.key_features(layer, x, k, tokens(LENGTH))
        first, state = grape.key_features(layer, x[:, :3], k[:, :3], tokens(3))
        at = tokens(LENGTH - 3, offset=3)
        rest, _ = grape.key_features(layer, x[:, 3:], k[:, 3:], at, state)
        queries = grape.query_features(layer, x[:, 3:], k[:, 3:], at, state)
        for one, two, all_of_them in zip(first, rest, whole, strict=True):
            joined = jnp.concatenate([one, two], 1)
            np.testing.assert_allclose(joined, all_of_them, atol=1e-5)
        np.testing.assert_array_equal(queries, rest)

    def test_padding_takes_no_step(self):
        x, _, k, _ = inputs()
        grape = GrapeM(initial_step=1.0)
        layer = grape.init_layer(jax.random.key(0), DIMS)
        valid = jnp.array([[True, True, False, False, True, True, True]])
        where = tokens(LENGTH, valid=valid, positions=count_real(valid))
        phase, _ = grape.key_features(layer, x, k, where)
        np.testing.assert_allclose(phase[0][0, :, 0], [0, 1, 2, 2, 2, 3, 4], atol=1e-5)


@pytest.mark.parametrize("gate", ["key", "query", "both"])
def test_additive_grape_is_alibi_with_gates(gate):
    x, q, k, v = inputs()
    grape = GrapeA(gate=gate)
    layer = moved(grape.init_layer(jax.random.key(0), DIMS))
    out = attended(grape, layer, x, q, k, v, tokens(LENGTH))
    soft = lambda y: np.log1p(np.exp(np.asarray(y, float)))
    q_, k_ = np.asarray(q, float), np.repeat(np.asarray(k, float), 2, 2)
    gates = 0.0
    for name, side, to in (("key", k_, "bnj"), ("query", q_, "bni")):
        if f"{name}_gate" in layer:
            u = np.asarray(layer[f"{name}_gate"], float)
            u = u / np.linalg.norm(u, axis=-1, keepdims=True)
            own = soft(np.einsum("blnh,nh->bnl", side, u) / 8**0.5)
            gates = gates + (own[:, :, None] if to == "bnj" else own[..., None])
    assert np.ndim(gates) == 4
    slope = np.array(alibi_slopes(4)) * soft(layer["strength"])
    lag = np.maximum(np.arange(LENGTH)[:, None] - np.arange(LENGTH), 0)
    product = np.einsum("binh,bjnh->bnij", q_, k_) / 8**0.5
    weights = softmax(product - slope[:, None, None] * gates * lag)
    expected = np.einsum("bnij,bjnh->binh", weights, np.repeat(v, 2, 2))
    np.testing.assert_allclose(out, expected, atol=1e-5)


@pytest.mark.parametrize("implementation", ["dense", "blockwise"])
def test_path_integral_grape_sums_gates_between_key_and_query(implementation):
    x, q, k, v = inputs()
    grape = GrapeAP(width=6)
    layer = grape.init_layer(jax.random.key(0), DIMS)
    out = attended(grape, layer, x, q, k, v, tokens(LENGTH), implementation)
    p = np.einsum("bld,dnp->blnp", np.asarray(x, float), np.asarray(layer["path"]))
    p = p / np.sqrt((p**2).mean(-1, keepdims=True))
    back = np.stack([rotation_matrix(-t * np.ones(3)) for t in range(LENGTH)])
    turned = np.einsum("lpr,blnr->blnp", back, p)
    gate = np.einsum("binp,btnp->bnit", p, turned) / 6
    gate = -np.log1p(np.exp(-gate)) * np.array(alibi_slopes(4))[:, None, None]
    bias = np.zeros_like(gate)
    for i in range(LENGTH):
        for j in range(i + 1):
            bias[:, :, i, j] = gate[:, :, i, j + 1 : i + 1].sum(-1)
    q_, k_ = np.asarray(q, float), np.repeat(np.asarray(k, float), 2, 2)
    product = np.einsum("binh,bjnh->bnij", q_, k_) / 8**0.5
    expected = np.einsum("bnij,bjnh->binh", softmax(product + bias), np.repeat(v, 2, 2))
    np.testing.assert_allclose(out, expected, atol=1e-5)


@pytest.mark.parametrize(
    "build",
    [
        lambda: PoPE(max_wavelength=0.0),
        lambda: PoPE(rotary_fraction=0.0),
        lambda: PoPE(rotary_fraction=0.1).check(DIMS),
        lambda: GrapeM(initial_step=0.0),
        lambda: GrapeA(gate="value"),
        lambda: GrapeAP(width=3).check(DIMS),
    ],
)
def test_settings_out_of_range_are_refused(build):
    with pytest.raises(ValueError, match=r"must|leaves"):
        build()
