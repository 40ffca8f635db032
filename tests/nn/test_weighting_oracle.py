"""Every way of weighing queries and keys, against attention written out in numpy.

One layer without positions, in float64.
"""

import jax
import numpy as np
import pytest
from flax import nnx

from ropejax.encodings import Dims, Encoding
from ropejax.masks import Causal
from ropejax.nn import (
    NORMALIZERS,
    QK_NORMS,
    ROW_SCALES,
    MultiHeadAttention,
    Weighting,
)
from ropejax.tokens import tokens as tokens_of
from tests.nn.moved_parameters import moved

DIMS = Dims(2, 2, 4, 8, 2, causal=True)


def softmax(rows, visible):
    weights = np.where(visible, np.exp(rows - rows.max()), 0)
    return weights / weights.sum(-1, keepdims=True)


def normalized_in_numpy(name, logits, visible, params):
    """Weights `[B, N, T, S]` of causal logits."""
    counts = visible.sum(-1)[:, None]
    if name == "softmax":
        return softmax(logits, visible)
    if name == "sink":
        some = np.where(visible, np.exp(logits), 0)
        sink = np.exp(params["sink"])[:, None, None]
        return some / (sink + some.sum(-1, keepdims=True))
    if name == "sigmoid":
        return np.where(visible, 1 / (1 + counts * np.exp(-logits)), 0)
    if name == "stick_breaking":
        share = np.where(visible, 1 / (1 + np.exp(-logits)), 0)
        weights = np.zeros_like(share)
        for j in range(share.shape[-1]):
            weights[..., j] = share[..., j] * np.prod(1 - share[..., j + 1 :], -1)
        return weights
    if name == "selective":
        chosen = np.where(visible, np.maximum(logits[:, :1], 0), 0)
        chosen[..., 0] = 0
        chosen *= 1 - np.eye(len(visible))
        forgotten = np.cumsum(chosen, axis=-2) - chosen
        return softmax(logits - forgotten, visible)
    if name == "unit_rows":
        some = np.where(visible, np.exp(logits), 0)
        return some / np.sqrt((some**2).sum(-1, keepdims=True))
    if name == "relu_squared":
        return np.where(visible, np.maximum(logits, 0) ** 2 / counts, 0)
    if name == "entmax":
        halves = np.where(visible, logits / 2, -np.inf)
        low, high = (halves.max(-1, keepdims=True) - end for end in (1, 0))
        for _ in range(60):
            middle = (low + high) / 2
            total = (np.maximum(halves - middle, 0) ** 2).sum(-1, keepdims=True)
            low = np.where(total >= 1, middle, low)
            high = np.where(total >= 1, high, middle)
        return np.maximum(halves - low, 0) ** 2
    assert name == "adaptive_temperature"
    p = softmax(logits, visible)
    entropy = -(p * np.log(np.where(p > 0, p, 1))).sum(-1, keepdims=True)
    sharp = np.polyval([-0.037, 0.481, -2.3, 4.917, -1.791], entropy)
    sharp = np.where(entropy > 0.5, np.maximum(sharp, 1), 1)
    return softmax(sharp * logits, visible)


def attention_in_numpy(params, x, normalizer="softmax", qk_norm="none", scaling="none"):
    """A causal layer's weights and output without positions."""
    params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    own, x = params.get("weighting_params", {}), np.asarray(x, np.float64)
    q, k, v = (
        np.einsum("bld,dnh->bnlh", x, params[name]["kernel"])
        for name in ("query", "key", "value")
    )
    visible = np.tri(x.shape[1], dtype=bool)
    n = visible.sum(-1)[:, None]
    length = lambda a: np.sqrt((a * a).sum(-1, keepdims=True))
    scale = 1.0 if qk_norm in {"key", "query", "cosine"} else 0.5
    if qk_norm in {"query", "cosine", "learned_cosine"}:
        q = q / length(q)
    if qk_norm in {"key", "cosine", "learned_cosine"}:
        k = k / length(k)
    if qk_norm == "learned_cosine":
        scale = own["qk_norm"]["scale"][:, None, None]
    if qk_norm in {"rms", "joint_rms"}:  # of each head, or of all of them together
        axes = (1, 3) if qk_norm == "joint_rms" else 3
        mean = lambda a: np.sqrt((a * a).mean(axes, keepdims=True) + 1e-6)
        gains = (own["qk_norm"][f"{side}_gain"] for side in ("query", "key"))
        gains = (gain.reshape(-1, 1, gain.shape[-1]) for gain in gains)
        q, k = (a / mean(a) * gain for a, gain in zip((q, k), gains, strict=True))
    logits = scale * np.einsum("bnth,bnsh->bnts", q, k)
    if qk_norm == "cosine":
        logits = logits * 4 * np.log(np.maximum(n, 2))
    if scaling == "head":
        logits = logits * own["row_scale"]["s"][:, None, None]
    if scaling == "ssmax":
        logits = logits * own["row_scale"]["s"][:, None, None] * np.log(n)
    if scaling == "adaptive":
        made = {name: x @ p["kernel"] for name, p in own["row_scale"].items()}
        beta, gamma = np.log1p(np.exp(made["beta"])), 2 * np.tanh(made["gamma"])
        factor = 1 + beta * np.log(n + 1) ** gamma
        logits = logits * factor.swapaxes(1, 2)[..., None]
    weights = normalized_in_numpy(normalizer, logits, visible, own.get("normalizer"))
    out = np.einsum("bnts,bnsh->btnh", weights, v)
    return weights, np.einsum("btnh,nhd->btd", out, params["out"]["kernel"])


CASES = [
    *((name, "none", "none") for name in NORMALIZERS),
    *(("softmax", name, "none") for name in QK_NORMS if name != "none"),
    *(("softmax", "none", name) for name in ROW_SCALES if name != "none"),
    ("entmax", "cosine", "adaptive"),
]


@pytest.mark.fast
@pytest.mark.parametrize(("normalizer", "qk_norm", "scaling"), CASES)
def test_a_layer_equals_attention_written_out_in_numpy(
    rng, normalizer, qk_norm, scaling
):
    how = Weighting(
        NORMALIZERS[normalizer](), QK_NORMS[qk_norm](), ROW_SCALES[scaling]()
    )
    module = MultiHeadAttention(DIMS, Encoding(), weighting=how, rngs=nnx.Rngs(rng))
    graph, params = nnx.split(module)
    params = moved(nnx.to_pure_dict(params), rng)
    x = 2 * jax.random.normal(rng, (2, 6, 8))
    where = tokens_of(6)

    @jax.jit
    def run(params):
        module = nnx.merge(graph, params)
        given = {"shared": {}, "mask": Causal()}
        return module.weights(x, where, **given), module(x, where, **given)

    expected = attention_in_numpy(params, x, normalizer, qk_norm, scaling)
    for got, wanted in zip(run(params), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=2e-5)
