"""Language models of Hugging Face in float64 numpy, from their papers and modules.

Nothing of the library is used: arrays go in under the names of the checkpoint.
"""

import math

import numpy as np


def logits(config, tensors, tokens):
    """Logits `[B, L, V]` of the model of a config, in the plainest form."""
    weights = {name: np.asarray(array, np.float64) for name, array in tensors.items()}
    kind, eps = config["model_type"], config["rms_norm_eps"]
    width = config["hidden_size"]
    shift = 1.0 if kind == "gemma" else 0.0

    def normed(x, name):
        rms = np.sqrt((x**2).mean(-1, keepdims=True) + eps)
        return x / rms * (weights[f"{name}.weight"] + shift)

    def projected(x, name):
        return x @ weights[f"{name}.weight"].T + weights.get(f"{name}.bias", 0.0)

    x = weights["model.embed_tokens.weight"][tokens]
    if kind == "gemma":
        x = x * math.sqrt(width)
    for at in range(config["num_hidden_layers"]):
        name = f"model.layers.{at}"
        heads = _attention(
            config, at, normed(x, f"{name}.input_layernorm"), name, projected, normed
        )
        x = x + projected(heads, f"{name}.self_attn.o_proj")
        h = normed(x, f"{name}.post_attention_layernorm")
        gate = _activated(kind, projected(h, f"{name}.mlp.gate_proj"))
        up = projected(h, f"{name}.mlp.up_proj")
        x = x + projected(gate * up, f"{name}.mlp.down_proj")
    readout = "lm_head" if "lm_head.weight" in weights else "model.embed_tokens"
    return normed(x, "model.norm") @ weights[f"{readout}.weight"].T


def _attention(config, at, x, name, projected, normed):
    """Heads side by side, one query and one head after the other."""
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    size = config.get("head_dim", config["hidden_size"] // heads)
    q, k, v = (projected(x, f"{name}.self_attn.{one}_proj") for one in "qkv")
    split = lambda array: array.reshape(*array.shape[:2], -1, size)
    q, k, v = split(q), split(k), split(v)
    if config["model_type"] == "qwen3":
        q, k = (
            normed(array, f"{name}.self_attn.{one}_norm")
            for one, array in (("q", q), ("k", k))
        )
    if config["model_type"] != "smollm3" or (at + 1) % 4:
        q, k = (_turned(array, config["rope_theta"]) for array in (q, k))
    window = _window(config, at)
    out = np.zeros_like(q)
    for i in range(x.shape[1]):
        first = max(0, i + 1 - window)
        for head in range(heads):
            group = head // (heads // groups)
            keys, values = k[:, first : i + 1, group], v[:, first : i + 1, group]
            score = np.einsum("bh,bsh->bs", q[:, i, head], keys) / math.sqrt(size)
            share = np.exp(score - score.max(-1, keepdims=True))
            share /= share.sum(-1, keepdims=True)
            out[:, i, head] = np.einsum("bs,bsh->bh", share, values)
    return out.reshape(*x.shape[:2], -1)


def neox_logits(config, tensors, tokens):
    """Logits `[B, L, V]` of a GPT-NeoX, whose layers add both parts to their input."""
    weights = {name: np.asarray(array, np.float64) for name, array in tensors.items()}
    number = config["num_attention_heads"]
    size = config["hidden_size"] // number
    turned = int(size * config["rotary_pct"])

    def normed(x, name):
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x**2).mean(-1, keepdims=True) + config["layer_norm_eps"])
        return x * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def projected(x, name):
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def attended(x, name):
        heads = projected(x, f"{name}.query_key_value")
        heads = heads.reshape(*x.shape[:2], number, 3 * size)
        q, k, v = (heads[..., at * size : (at + 1) * size] for at in range(3))
        q, k = (
            np.concatenate(
                [
                    _turned(one[..., :turned], config["rotary_emb_base"]),
                    one[..., turned:],
                ],
                -1,
            )
            for one in (q, k)
        )
        out = np.zeros_like(q)
        for i in range(x.shape[1]):
            score = np.einsum("bnh,bsnh->bns", q[:, i], k[:, : i + 1]) / math.sqrt(size)
            share = np.exp(score - score.max(-1, keepdims=True))
            share /= share.sum(-1, keepdims=True)
            out[:, i] = np.einsum("bns,bsnh->bnh", share, v[:, : i + 1])
        return projected(out.reshape(x.shape), f"{name}.dense")

    x = weights["gpt_neox.embed_in.weight"][tokens]
    for at in range(config["num_hidden_layers"]):
        name = f"gpt_neox.layers.{at}"
        beside = attended(normed(x, f"{name}.input_layernorm"), f"{name}.attention")
        read = x if config["use_parallel_residual"] else x + beside
        h = projected(
            normed(read, f"{name}.post_attention_layernorm"),
            f"{name}.mlp.dense_h_to_4h",
        )
        h = h * (1 + np.vectorize(math.erf)(h / math.sqrt(2))) / 2
        x = x + beside + projected(h, f"{name}.mlp.dense_4h_to_h")
    x = normed(x, "gpt_neox.final_layer_norm")
    return x @ weights["embed_out.weight"].T


def _turned(x, base):
    """RoPE of pairs (c, c + H / 2) of each head, as complex numbers."""
    half = x.shape[-1] // 2
    turns = np.arange(x.shape[1])[:, None] * base ** (-np.arange(half) / half)
    pairs = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * turns)[:, None]
    return np.concatenate([pairs.real, pairs.imag], -1)


def _window(config, at):
    """Keys that a query of a layer sees at most, its own among them."""
    width = config.get("sliding_window") or math.inf
    if config["model_type"] == "mistral":
        slides = True
    else:
        slides = config.get("use_sliding_window") and at >= config["max_window_layers"]
    return int(width) if slides and width < math.inf else 10**6


def _activated(kind, x):
    if kind == "gemma":
        return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return x / (1 + np.exp(-x))
