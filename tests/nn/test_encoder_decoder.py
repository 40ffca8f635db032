"""Encoder-decoders: against numpy, and decoding with a cache against full passes."""

import dataclasses
from functools import partial

import jax
import numpy as np
import pytest

from ropejax.encodings import ALiBi, Dims, Encoding, Forgetting, Rotary, Sinusoidal
from ropejax.nn import BlockSettings
from ropejax.nn.decoder_greedy import can_cache, decode_batch
from ropejax.nn.encoder_decoder import EncoderDecoderSpec
from ropejax.positions import Consecutive, Randomized
from ropejax.tasks import Autoregressive
from ropejax.tasks.reverse_string import ReverseString
from ropejax.training.applying import apply_and_read, apply_model
from ropejax.training.losses import batch_sums
from tests.nn.test_decoder import LENGTH, drawn, large, written_out

TASK = Autoregressive(ReverseString(vocab_size=5))


def encoder_decoder(encoding, cross=Encoding(), **changes):  # noqa: B008
    settings = BlockSettings(mlp_dim=16, pre_norm=True, dropout=0.5)
    spec = EncoderDecoderSpec(
        num_symbols=TASK.num_symbols,
        num_outputs=TASK.output_vocab,
        separator=TASK.placeholder,
        dims=Dims(2, 1, 4, 8, num_layers=2, causal=True),
        settings=settings,
        encoding=encoding,
        cross=cross,
    )
    return dataclasses.replace(spec, **changes)


@pytest.mark.parametrize(
    ("encoding", "cross", "positions", "lengths"),
    [
        (Rotary(), Encoding(), Consecutive(), [3] * 6),
        (
            ALiBi(),
            Rotary(),
            Randomized(32, per_layer=True, per_sequence=True),
            [1, 4, 3, 2, 4, 4],
        ),
    ],
)
def test_greedy_decoding_equals_full_passes(encoding, cross, positions, lengths, rng):
    spec = encoder_decoder(encoding, cross)
    model = spec.bind(large(spec.init(rng)))
    batch, placement = drawn(TASK, lengths, positions)
    alike = len(set(lengths)) == 1
    decode = partial(decode_batch, max_length=LENGTH, same_length=alike)
    got = jax.jit(decode, static_argnums=1)(model, TASK, batch, placement)
    np.testing.assert_array_equal(got, written_out(model, TASK, batch, placement))
    assert len(np.unique(np.asarray(got), axis=0)) > 1
    assert can_cache(model, placement, batch.lengths)


def in_numpy(params, prompt, answer):
    """Logits at each symbol of the decoder's part, without positions, in float64."""
    params = jax.tree.map(lambda a: np.asarray(a, np.float64), params)

    def norm(p, x):
        x = x - x.mean(-1, keepdims=True)
        return (
            p["scale"] * x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) + p["bias"]
        )

    def attention(p, x, y, causal):
        q = np.einsum("td,dnh->nth", x, p["query"]["kernel"])
        k, v = (
            np.einsum("sd,dh->sh", y, p[name]["kernel"][:, 0])
            for name in ("key", "value")
        )
        logits = q @ k.T / np.sqrt(k.shape[-1])
        if causal:
            logits[:, ~np.tri(len(x), dtype=bool)] = -np.inf
        weights = np.exp(logits - logits.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        return np.einsum("nth,nhd->td", weights @ v, p["out"]["kernel"])

    def mlp(p, x):
        hidden = np.maximum(x @ p["mlp_in"]["kernel"] + p["mlp_in"]["bias"], 0)
        return hidden @ p["mlp_out"]["kernel"] + p["mlp_out"]["bias"]

    width = params["embedding"].shape[1]
    x = params["embedding"][prompt] * np.sqrt(width)
    y = params["embedding"][answer] * np.sqrt(width)
    layer = lambda part, at: jax.tree.map(lambda a: a[at], params[part])
    for at in range(2):
        p = layer("encoder", at)
        h = norm(p["attention_norm"], x)
        x = x + attention(p["attention"], h, h, causal=False)
        x = x + mlp(p, norm(p["mlp_norm"], x))
    x = norm(params["encoder_norm"], x)
    for at in range(2):
        p = layer("decoder", at)
        h = norm(p["attention_norm"], y)
        y = y + attention(p["attention"], h, h, causal=True)
        y = y + attention(p["cross"], norm(p["cross_norm"], y), x, causal=False)
        y = y + mlp(p, norm(p["mlp_norm"], y))
    y = norm(params["final_norm"], y)
    return y @ params["readout"]["kernel"] + params["readout"]["bias"]


def test_logits_are_those_of_an_encoder_and_a_decoder_in_numpy(rng):
    """Each row in numpy without padding, the prompt and the answer as two sequences."""
    spec = encoder_decoder(Encoding())
    params = large(spec.init(rng))
    batch, placement = drawn(TASK, [4, 2, 3], Consecutive())
    logits = jax.jit(apply_model, static_argnums=0)(spec, params, batch, placement)
    for row, length in enumerate([4, 2, 3]):
        tokens = batch.tokens[row, : 2 * length].tolist()
        assert tokens[length] == TASK.placeholder
        expected = in_numpy(params, tokens[:length], tokens[length:])
        got = logits[row, length : 2 * length]
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_padding_changes_nothing_and_every_parameter_learns(rng):
    spec = encoder_decoder(Rotary(), ALiBi())
    params = large(spec.init(rng))
    results = []
    for max_length in (3, 5):
        batch, placement = drawn(TASK, [3, 2], Consecutive(), max_length=max_length)
        loss = lambda params, batch=batch, placement=placement: (
            batch_sums(apply_and_read(spec, params, batch, placement), batch).loss
        )
        results.append(jax.jit(jax.value_and_grad(loss))(params))
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-5)
    jax.tree.map(
        partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-4),
        results[0][1],
        results[1][1],
    )
    assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(results[0][1]))


@pytest.mark.fast
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"encoding": Forgetting()}, "bidirectional encoding"),
        ({"cross": Sinusoidal()}, "enters with embeddings"),
        ({"separator": 6}, "below 6, got 6"),
        ({"dims": Dims(2, 1, 4, 8)}, "dims.causal must be True"),
    ],
)
def test_specs_that_do_not_fit_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        encoder_decoder(**{"encoding": Rotary()} | change)
