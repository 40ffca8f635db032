"""DeltaNet and Mamba: recurrences against float64 loops, chunks, Parity by hand, rows.

Formulas: Yang et al. 2024, arXiv 2406.06484 and 2412.06464; Gu and Dao 2023, arXiv
2312.00752; what their eigenvalues mean: Grazzi et al. 2024, arXiv 2411.12537.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.encodings import Dims
from ropejax.nn import BlockSettings
from ropejax.nn.norms import RMSNorm
from ropejax.nn.recurrent import (
    DeltaNet,
    LayeredSpec,
    Mamba,
    delta_rule,
    selective_scan,
)
from ropejax.positions.base import Placement

LENGTH = 37  # two chunks, and part of a third
DIMS = Dims(2, 2, 4, 8, num_layers=2, causal=True)
SETTINGS = BlockSettings(mlp_dim=16, dropout=0.0, pre_norm=True, norm=RMSNorm())
MIXERS = {
    "delta_net": DeltaNet(convolution=0),
    "gated_delta_net": DeltaNet(negative=True, gated=True, convolution=2),
    "mamba": Mamba(negative=True, state=3),
}


def memory_inputs(length=LENGTH, width=5, seed=0):
    """Queries, unit keys, values, strengths in (0, 2), log decays; float64."""
    draw = np.random.default_rng(seed)
    q, k = draw.normal(size=(2, 2, length, 3, width))
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    v = draw.normal(size=(2, length, 3, 4))
    beta = draw.uniform(0, 2, size=(2, length, 3))
    return q, k, v, beta, np.log(draw.uniform(0.5, 1, size=(2, length, 3)))


def memory_oracle(q, k, v, beta, log_decay):
    out = np.zeros(v.shape)
    for row, head in np.ndindex(q.shape[0], q.shape[2]):
        state = np.zeros((v.shape[-1], q.shape[-1]))
        for t in range(q.shape[1]):
            at = row, t, head
            turned = np.eye(q.shape[-1]) - beta[at] * np.outer(k[at], k[at])
            state = np.exp(log_decay[at]) * state @ turned
            state += beta[at] * np.outer(v[at], k[at])
            out[at] = state @ q[at]
    return out


def float32(arrays):
    return [jnp.asarray(x, jnp.float32) for x in arrays]


@pytest.mark.parametrize("decays", [True, False])
def test_both_forms_of_the_delta_rule_are_the_recurrence_and_so_are_gradients(decays):
    *parts, log_decay = memory_inputs()
    log_decay[:, 20] = -1e4  # lets go of all before it, and alters no later decay
    given = [*parts, log_decay] if decays else parts
    wanted = memory_oracle(*parts, log_decay if decays else 0 * log_decay)
    weights = jnp.cos(jnp.arange(wanted.size, dtype=jnp.float32)).reshape(wanted.shape)

    def loss(given, together):
        out = delta_rule(*given, together=together)
        return (out * weights).sum(), out

    grad = jax.jit(jax.grad(loss, has_aux=True), static_argnums=1)
    (one_by_one, out), (chunks, same) = (
        grad(float32(given), together) for together in (False, True)
    )
    np.testing.assert_allclose(out, wanted, atol=2e-5)
    np.testing.assert_allclose(same, wanted, atol=2e-5)
    for ours, reference in zip(chunks, one_by_one, strict=True):
        scale = np.abs(reference).max()
        assert 0 < scale < np.inf
        np.testing.assert_allclose(ours, reference, atol=2e-5 * scale)


@pytest.mark.fast
@pytest.mark.parametrize("together", [True, False])
def test_the_backward_pass_keeps_no_state_a_token(together):
    length, width = 256, 32
    given = jax.eval_shape(lambda: float32(memory_inputs(8, width)))
    given = [jax.ShapeDtypeStruct((2, length, *x.shape[2:]), x.dtype) for x in given]
    pull = lambda *given: jax.vjp(
        lambda *given: delta_rule(*given, together=together), *given
    )[1]
    kept = sum(x.size for x in jax.tree.leaves(jax.eval_shape(pull, *given)))
    inputs = sum(x.size for x in given)
    states = 2 * 3 * 4 * width  # rows, heads, values, keys
    assert kept <= 2 * inputs + states * length / 8


def scan_inputs(seed=1):
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(2, LENGTH, 3))
    step = draw.uniform(0.01, 2, size=(2, LENGTH, 3))
    write, read = draw.normal(size=(2, 2, LENGTH, 4))
    return x, step, draw.uniform(0.1, 3, size=(3, 4)), write, read


@pytest.mark.parametrize("negative", [True, False])
def test_the_selective_scan_is_the_recurrence_and_so_is_its_gradient(negative):
    x, step, rates, write, read = given = scan_inputs()

    def oracle(x, step, rates, write, read):
        h, out = np.zeros((2, 3, 4)), np.zeros(x.shape)
        for t in range(LENGTH):
            a = np.exp(-step[:, t, :, None] * rates)
            a = 2 * a - 1 if negative else a
            h = a * h + (step * x)[:, t, :, None] * write[:, t, None]
            out[:, t] = (h * read[:, t, None]).sum(-1)
        return out

    run = lambda given: selective_scan(*given, negative=negative)
    found = run(float32(given))
    np.testing.assert_allclose(found, oracle(*given), atol=2e-5)
    grads = jax.grad(lambda given: jnp.square(run(given)).sum())(float32(given))
    for at, grad in enumerate(grads):  # along one direction each, by differences
        way = np.random.default_rng(at).normal(size=given[at].shape)
        moved = [
            np.square(oracle(*given[:at], given[at] + e * way, *given[at + 1 :])).sum()
            for e in (1e-6, -1e-6)
        ]
        slope = (moved[0] - moved[1]) / 2e-6
        np.testing.assert_allclose((grad * way).sum(), slope, rtol=1e-3)


def bits_and_parities(length=500):
    bits = np.random.default_rng(2).integers(0, 2, size=(8, length))
    return bits, np.cumsum(bits, axis=1) % 2


def parity_by_delta_rule(bits, strength, together):
    """One key for all tokens; a 0 leaves the state alone, a 1 replaces `strength`."""
    ones = jnp.ones((*bits.shape, 1, 1))
    beta = strength * jnp.asarray(bits, jnp.float32)[..., None]
    return delta_rule(ones, ones, ones / 2, beta, together=together)[..., 0, 0]


def parity_by_scan(bits, negative):
    """A 1 lasts so long that nothing is kept, or all with the other sign; a 0 none."""
    ones = jnp.ones((*bits.shape, 1))
    step = 64 * jnp.asarray(bits, jnp.float32)[..., None]
    rates = jnp.ones((1, 1))
    return selective_scan(ones, step, rates, ones / 64, ones, negative=negative)[..., 0]


@pytest.mark.fast
def test_with_negative_eigenvalues_one_state_has_parity_exactly_at_any_length():
    bits, parities = bits_and_parities()
    for together in (False, True):
        found = parity_by_delta_rule(bits, 2.0, together)
        np.testing.assert_array_equal(found, parities)
    np.testing.assert_array_equal(parity_by_scan(bits, negative=True), parities)


@pytest.mark.fast
@pytest.mark.parametrize("eigenvalue", [0.0, 0.3, 0.9])
def test_without_them_ones_after_ones_are_told_apart_less_and_less(eigenvalue):
    """Why Parity cannot be had: a state meets them by steps of one sign, to a limit."""
    ones = np.ones((1, 40), int)
    found = parity_by_delta_rule(ones, 1 - eigenvalue, together=False)
    steps = np.diff(np.asarray(found[0], np.float64), prepend=0.0)
    assert (steps >= 0).all()
    np.testing.assert_allclose(steps[1:], eigenvalue * steps[:-1], atol=1e-6)
    other = parity_by_delta_rule(ones, 1 + eigenvalue, together=False)
    steps = np.diff(np.asarray(other[0], np.float64), prepend=0.0)
    np.testing.assert_allclose(steps[1:], -eigenvalue * steps[:-1], atol=1e-6)


TOKENS = np.random.default_rng(3).integers(0, 3, size=(2, 20))
SHORT = 13  # real tokens of the second row


def compiled(spec):
    """The model, compiled: a function of parameters, tokens, and what is no padding."""

    def run(params, tokens, valid=None):
        return spec.bind(params)(tokens, Placement(), valid=valid)

    return jax.jit(run)


@pytest.mark.parametrize("name", MIXERS)
def test_rows_depend_on_their_own_tokens_in_order(name, rng):
    """Padding is not seen, nor is a later token; bfloat16 is close."""
    spec = LayeredSpec(3, 2, DIMS, SETTINGS, MIXERS[name])
    params = spec.init(rng)
    run = compiled(spec)
    valid = np.arange(20) < np.array([[20], [SHORT]])
    whole = run(params, TOKENS, valid)
    assert whole.dtype == jnp.float32
    unlike = np.where(valid, TOKENS, 2 - TOKENS)
    np.testing.assert_array_equal(
        run(params, unlike, valid)[1, :SHORT], whole[1, :SHORT]
    )
    wide = np.pad(TOKENS[1:, :SHORT], ((0, 0), (0, 17)))  # two chunks rather than one
    padded = run(params, wide, np.arange(30)[None] < SHORT)
    np.testing.assert_allclose(whole[1:, :SHORT], padded[:, :SHORT], atol=1e-5)
    other = TOKENS.copy()
    other[:, 7] = (other[:, 7] + 1) % 3
    changed = np.abs(run(params, other, valid) - whole).max((0, 2))
    assert (changed[:7] == 0).all()
    assert (changed[7:] > 0).all()


def test_members_spelled_out_layers_and_layers_computed_again(rng):
    """Gradients are the same, of all parameters, with the same dropout."""
    mixer = DeltaNet(negative=True, gated=True)
    settings = dataclasses.replace(SETTINGS, dropout=0.5)
    plain = LayeredSpec(3, 2, DIMS, settings, mixer, scan_layers=False)
    again = dataclasses.replace(settings, remat="full")
    again = LayeredSpec(3, 2, DIMS, again, mixer)

    def grad(spec):
        loss = lambda params: jnp.square(
            spec.bind(params)(TOKENS[:, :17], Placement(), rng=rng)
        ).mean()
        return jax.grad(loss)

    members = jax.jit(jax.vmap(plain.init))(jax.random.split(rng, 2))
    together = jax.jit(jax.vmap(grad(again)))(members)
    second = jax.tree.map(lambda x: x[1], members)
    alone = jax.jit(grad(plain))(second)
    for ours, other in zip(*map(jax.tree.leaves, (together, alone)), strict=True):
        scale = np.abs(other).max()
        assert 0 < scale < np.inf
        np.testing.assert_allclose(ours[1], other, atol=1e-5 * scale)


def test_bfloat16_is_close(rng):
    spec = LayeredSpec(3, 2, DIMS, SETTINGS, DeltaNet(negative=True))
    params = spec.init(rng)
    half = dataclasses.replace(SETTINGS, dtype=jnp.dtype("bfloat16"))
    exact = compiled(spec)(params, TOKENS)
    near = compiled(dataclasses.replace(spec, settings=half))(params, TOKENS)
    assert near.dtype == jnp.float32
    assert jnp.sqrt(jnp.square(near - exact).mean()) < 0.1 * exact.std()


@pytest.mark.fast
def test_types_are_float32_under_x64(rng):
    with jax.enable_x64(True):
        for mixer in MIXERS.values():
            spec = LayeredSpec(3, 2, DIMS, SETTINGS, mixer)
            params = jax.eval_shape(spec.init, rng)
            assert {x.dtype for x in jax.tree.leaves(params)} == {jnp.dtype("float32")}
            run = lambda params, spec=spec: spec.bind(params)(TOKENS, Placement())
            assert jax.eval_shape(run, params).dtype == jnp.float32


@pytest.mark.fast
@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: DeltaNet(convolution=-1), "convolution must be at least 0"),
        (lambda: Mamba(state=0), "state must be positive"),
        (lambda: Mamba(expansion=1.5), "expansion"),
        (
            lambda: LayeredSpec(3, 2, DIMS._replace(head_dim=3), SETTINGS, DeltaNet()),
            "num_heads=2 must divide embed_dim=8",
        ),
        (
            lambda: LayeredSpec(3, 2, DIMS._replace(num_layers=0), SETTINGS, Mamba()),
            "num_layers must be positive",
        ),
    ],
)
def test_what_cannot_be_is_refused(make, match):
    with pytest.raises(ValueError, match=match):
        make()


@pytest.mark.fast
def test_packed_rows_and_symbols_that_are_none_are_refused(rng):
    spec = LayeredSpec(3, 2, DIMS, SETTINGS, Mamba())
    model = spec.bind(spec.init(rng))
    with pytest.raises(ValueError, match="unpack"):
        model(TOKENS, Placement(), segments=jnp.zeros_like(TOKENS))
    with pytest.raises(ValueError, match="symbols must lie in 0 .. 2"):
        model(jnp.full((1, 2), 3), Placement())
