"""FoPE against its listing, wave by wave in float64, and against RoPE."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.encodings import Dims, FoPE, Rotary
from ropejax.tokens import tokens

DIMS = Dims(num_heads=4, num_kv_heads=2, head_dim=12, embed_dim=6)
AT = np.array([[-3.0, 0.0, 1.5, 40.0]])


def random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def views(encoding, layer):
    """Queries and keys as one program makes them."""
    q, k = random(1, 4, 4, 12), random(1, 4, 2, 12, seed=1)
    where = tokens(4, positions=jnp.asarray(AT, jnp.float32))

    @jax.jit
    def run(layer, q, k):
        params = encoding.prepare({}, layer, where, where, DIMS)
        return (
            encoding.queries(params, q, where)[0],
            encoding.keys(params, k, where)[0],
        )

    return q, k, *run(layer, jnp.float32(q), jnp.float32(k))


def listed(x, at, cos, sin):
    """One head of 8 turning channels, interleaved, and 4 others."""
    out = x.copy()
    for pair in range(4):
        a, b = x[2 * pair], x[2 * pair + 1]
        c, s = (cos[pair], sin[pair]) if pair < len(cos) else (1.0, 0.0)
        out[2 * pair : 2 * pair + 2] = a * c - b * s, a * s + b * c
    return out


@pytest.mark.parametrize(("form", "turning"), [("paper", 2), ("plain", 3)])
def test_cosines_and_sines_are_mixtures_of_those_that_turn_in_training(form, turning):
    # Of the frequencies 1, 0.3, 0.09, 0.027 the last turns in 233 tokens.
    encoding = FoPE(
        max_wavelength=0.3**-4,
        rotary_fraction=8 / 12,
        layout="interleaved",
        train_length=100,
        form=form,
        learned=True,
    )
    assert encoding.waves(12).tolist() == pytest.approx([1, 0.3, 0.09])
    layer = encoding.init_layer(jax.random.key(0), DIMS)
    assert {part.shape for part in layer.values()} == {(3, turning, 2)}
    q, k, got_q, got_k = views(encoding, layer)
    coefs = {name: np.asarray(part, np.float64) for name, part in layer.items()}
    sums = np.abs(coefs["cos"].sum(0) - 1)
    assert (sums.max() < 1e-6) == (form == "paper")
    for at in range(4):
        angles = AT[0, at] * 0.3 ** np.arange(3)
        for head in range(4):
            cos = np.cos(angles) @ coefs["cos"][:, :, head // 2]
            sin = np.sin(angles) @ coefs["sin"][:, :, head // 2]
            wanted = listed(q[0, at, head], at, cos, sin)
            np.testing.assert_allclose(got_q[0, at, head], wanted, atol=2e-5)
            if head % 2 == 0:
                wanted = listed(k[0, at, head // 2], at, cos, sin)
                np.testing.assert_allclose(got_k[0, at, head // 2], wanted, atol=2e-5)


def test_without_noise_it_is_rope_on_the_waves_that_turn():
    still = {"max_wavelength": 100.0, "train_length": 10**4, "gain": 0.0}
    encoding = FoPE(form="plain", **still)
    q, k, got_q, got_k = views(encoding, encoding.init_layer(jax.random.key(0), DIMS))
    _, _, right_q, right_k = views(Rotary(max_wavelength=100.0), {})
    np.testing.assert_allclose(got_q, right_q, atol=1e-5)
    np.testing.assert_allclose(got_k, right_k, atol=1e-5)
    assert np.abs(got_q - q).max() > 0.1
    # At most half of the pairs turn in the paper's form: every second wave of six.
    layer = FoPE(**still).init_layer(jax.random.key(0), DIMS)
    np.testing.assert_array_equal(layer["cos"][..., 0], np.eye(6)[:, ::2])


def test_coefficients_are_fixed_unless_they_are_learned():
    x, where = jnp.float32(random(1, 4, 4, 12)), tokens(4)
    layer = FoPE().init_layer(jax.random.key(0), DIMS)
    wide = DIMS._replace(num_kv_heads=900)
    drawn, still = (
        FoPE(gain=gain, form="plain").init_layer(jax.random.key(0), wide)["sin"]
        for gain in (0.3, 0.0)
    )
    waves, pairs, _ = drawn.shape
    expected = 0.3 * np.sqrt(2 / ((waves + 900) * pairs))  # Xavier's, as in the listing
    np.testing.assert_allclose((drawn - still).std(), expected, rtol=0.1)

    @jax.jit
    def gradients(layer):
        def total(layer, encoding):
            params = encoding.prepare({}, layer, where, where, DIMS)
            return encoding.queries(params, x, where)[0].sum()

        return [
            jax.grad(total)(layer, FoPE(learned=learned)) for learned in (False, True)
        ]

    fixed, learned = gradients(layer)
    assert not any(part.any() for part in fixed.values())
    assert all(np.abs(part).max() > 1e-3 for part in learned.values())


@pytest.mark.fast
def test_settings_out_of_range_are_refused():
    for settings, message in (
        ({"form": "listing"}, "form must be one of"),
        ({"gain": -0.1}, "gain must be at least 0, got -0.1"),
        ({"trainable": "layer"}, "set learned=True to train the mixture"),
    ):
        with pytest.raises(ValueError, match=message):
            FoPE(**settings)
    with pytest.raises(ValueError, match="no frequency completes .*train_length=6"):
        FoPE(train_length=6).check(DIMS)
