"""Language models of Hugging Face in float64 numpy, from their papers and modules.

Nothing of the library is used: arrays go in under the names of the checkpoint.
"""

import math

import numpy as np

from tests.nn.hf_checkpoints import size_of, sizes_of

_PLACES = {
    "gpt_neox": ("gpt_neox.embed_in", "gpt_neox.layers", "gpt_neox.final_layer_norm"),
    "phi": ("model.embed_tokens", "model.layers", "model.final_layernorm"),
    "gpt2": ("transformer.wte", "transformer.h", "transformer.ln_f"),
    "bloom": ("transformer.word_embeddings", "transformer.h", "transformer.ln_f"),
    "falcon": ("transformer.word_embeddings", "transformer.h", "transformer.ln_f"),
    "mpt": ("transformer.wte", "transformer.blocks", "transformer.norm_f"),
    "opt": (
        *("model.decoder.embed_tokens", "model.decoder.layers"),
        "model.decoder.final_layer_norm",
    ),
}
_NORMS = {
    "gpt2": ("ln_1", "ln_2"),
    "mpt": ("norm_1", "norm_2"),
    "opt": ("self_attn_layer_norm", "final_layer_norm"),
    "gemma2": ("input_layernorm", "pre_feedforward_layernorm"),
    "gemma3_text": ("input_layernorm", "pre_feedforward_layernorm"),
    "phi": ("input_layernorm", "input_layernorm"),
    "falcon": ("input_layernorm", "input_layernorm"),
}
_QKV = {
    "gpt2": "attn.c_attn",
    "mpt": "attn.Wqkv",
    "phi3": "self_attn.qkv_proj",
    "falcon": "self_attention.query_key_value",
    "bloom": "self_attention.query_key_value",
    "gpt_neox": "attention.query_key_value",
}
_OUT = {
    "gpt2": "attn.c_proj",
    "mpt": "attn.out_proj",
    "phi": "self_attn.dense",
    "opt": "self_attn.out_proj",
    "falcon": "self_attention.dense",
    "bloom": "self_attention.dense",
    "gpt_neox": "attention.dense",
}
_MLP = {
    "gpt2": ("mlp.c_fc", "mlp.c_proj"),
    "mpt": ("ffn.up_proj", "ffn.down_proj"),
    "opt": ("fc1", "fc2"),
    "phi": ("mlp.fc1", "mlp.fc2"),
    "falcon": ("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
    "bloom": ("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
    "gpt_neox": ("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
}
_GEMMAS = ("gemma", "gemma2", "gemma3_text")
_OLMOS = ("olmo2", "olmo3")


def logits(config, tensors, tokens):
    """Logits `[B, L, V]` of the model of a config, in the plainest form."""
    return _Model(config, tensors).logits(tokens)


class _Model:
    def __init__(self, config, tensors):
        self.config, self.kind = config, config["model_type"]
        self.weights = {n: np.asarray(a, np.float64) for n, a in tensors.items()}
        self.sizes = sizes_of(config)
        self.layers = size_of(config, "num_hidden_layers", "n_layer", "n_layers")
        self.heads = self.sizes["Q"] // self.sizes["H"]

    def logits(self, tokens):
        embedding, layers, final = _PLACES.get(
            self.kind, ("model.embed_tokens", "model.layers", "model.norm")
        )
        weights, length = self.weights, tokens.shape[1]
        x = weights[f"{embedding}.weight"][tokens]
        if self.kind in _GEMMAS:
            x = x * math.sqrt(self.sizes["D"])
        x = x * self.config.get("embedding_multiplier", 1)
        if self.kind == "gpt2":
            x = x + weights["transformer.wpe.weight"][:length]
        if self.kind == "opt":
            x = x + weights["model.decoder.embed_positions.weight"][2 : length + 2]
        if self.kind == "bloom":
            x = self.normed(x, "transformer.word_embeddings_layernorm")
        for at in range(self.layers):
            x = self.layer(at, x, f"{layers}.{at}")
        x = self.normed(x, final)
        readout = {"gpt_neox": "embed_out"}.get(self.kind, "lm_head")
        readout = readout if f"{readout}.weight" in weights else embedding
        out = x @ weights[f"{readout}.weight"].T + weights.get(f"{readout}.bias", 0.0)
        out = out / self.config.get("logits_scaling", 1)
        cap = self.config.get("final_logit_softcapping")
        return cap * np.tanh(out / cap) if cap else out

    def layer(self, at, x, name):
        first, second = _NORMS.get(
            self.kind, ("input_layernorm", "post_attention_layernorm")
        )
        if self.kind in _OLMOS:
            out = self.attended(at, x, name)
            x = x + self.normed(out, f"{name}.post_attention_layernorm")
            out = self.mlp(x, name)
            return x + self.normed(out, f"{name}.post_feedforward_layernorm")
        out = self.attended(at, self.normed(x, f"{name}.{first}"), name)
        if self.kind in ("gemma2", "gemma3_text"):
            x = x + self.normed(out, f"{name}.post_attention_layernorm")
            out = self.mlp(self.normed(x, f"{name}.{second}"), name)
            return x + self.normed(out, f"{name}.post_feedforward_layernorm")
        beside = self.kind in ("phi", "falcon") or self.config.get(
            "use_parallel_residual"
        )
        factor = self.config.get("residual_multiplier", 1)
        out = factor * out
        read = x if beside else x + out
        mlp = self.mlp(self.normed(read, f"{name}.{second}"), name)
        return x + out + factor * mlp

    def normed(self, x, name):
        config, weights = self.config, self.weights
        if "rms_norm_eps" in config:
            rms = np.sqrt((x**2).mean(-1, keepdims=True) + config["rms_norm_eps"])
            shift = 1.0 if self.kind in _GEMMAS else 0.0
            return x / rms * (weights[f"{name}.weight"] + shift)
        eps = size_of(config, "layer_norm_eps", "layer_norm_epsilon", default=1e-5)
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x**2).mean(-1, keepdims=True) + eps)
        return x * weights.get(f"{name}.weight", 1) + weights.get(f"{name}.bias", 0)

    def projected(self, x, name):
        weight = self.weights[f"{name}.weight"]
        weight = weight if self.kind == "gpt2" else weight.T
        return x @ weight + self.weights.get(f"{name}.bias", 0.0)

    def three(self, x, name):
        """Queries, keys and values, `[B, L, heads, H]` each."""
        size = self.sizes["H"]
        split = lambda array: array.reshape(*x.shape[:2], -1, size)
        if self.kind not in _QKV:
            return [
                split(self.projected(x, f"{name}.self_attn.{one}_proj"))
                for one in "qkv"
            ]
        made = self.projected(x, f"{name}.{_QKV[self.kind]}")
        if self.kind in ("bloom", "gpt_neox"):
            made = made.reshape(*x.shape[:2], self.heads, 3, size)
            return [made[..., which, :] for which in range(3)]
        ends = np.cumsum([self.sizes["Q"], self.sizes["K"]])
        return [split(part) for part in np.split(made, ends, -1)]

    def attended(self, at, x, name):
        """Heads side by side, one query and one head after the other, projected."""
        config, size = self.config, self.sizes["H"]
        q, k, v = self.three(x, name)
        if self.kind in ("qwen3", "gemma3_text"):
            q = self.normed(q, f"{name}.self_attn.q_norm")
            k = self.normed(k, f"{name}.self_attn.k_norm")
        if self.kind in _OLMOS:
            joint = lambda array, one: self.normed(
                array.reshape(*x.shape[:2], -1), f"{name}.self_attn.{one}_norm"
            ).reshape(array.shape)
            q, k = joint(q, "q"), joint(k, "k")
        q, k = self.turned(at, q), self.turned(at, k)
        scale = config.get("query_pre_attn_scalar", size) ** -0.5
        scale = config.get("attention_multiplier", scale)
        cap, slopes = config.get("attn_logit_softcapping"), self.slopes()
        out = np.zeros_like(q)
        for i in range(x.shape[1]):
            first = max(0, i + 1 - self.window(at))
            for head in range(self.heads):
                group = head // (self.heads // k.shape[2])
                keys, values = k[:, first : i + 1, group], v[:, first : i + 1, group]
                score = np.einsum("bh,bsh->bs", q[:, i, head], keys) * scale
                score = score + slopes[head] * np.arange(first, i + 1)
                score = cap * np.tanh(score / cap) if cap else score
                share = np.exp(score - score.max(-1, keepdims=True))
                share /= share.sum(-1, keepdims=True)
                out[:, i, head] = np.einsum("bs,bsh->bh", share, values)
        out = out.reshape(*x.shape[:2], -1)
        return self.projected(out, f"{name}.{_OUT.get(self.kind, 'self_attn.o_proj')}")

    def mlp(self, x, name):
        if self.kind in _MLP:
            first, last = (f"{name}.{one}" for one in _MLP[self.kind])
            return self.projected(self.activated(self.projected(x, first)), last)
        if self.kind == "phi3":
            both = self.projected(x, f"{name}.mlp.gate_up_proj")
            gate, up = np.split(both, 2, -1)
        else:
            gate = self.projected(x, f"{name}.mlp.gate_proj")
            up = self.projected(x, f"{name}.mlp.up_proj")
        return self.projected(self.activated(gate) * up, f"{name}.mlp.down_proj")

    def activated(self, x):
        if self.kind == "opt":
            return np.maximum(x, 0)
        if self.kind in ("gpt_neox", "mpt", "falcon"):
            return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2
        if self.kind in (*_GEMMAS, "gpt2", "bloom", "phi"):
            return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
        return x / (1 + np.exp(-x))

    def turned(self, at, x):
        """RoPE of pairs (c, c + R) of the first channels of each head."""
        config, size = self.config, self.sizes["H"]
        if self.kind in ("gpt2", "opt", "bloom", "mpt"):
            return x
        if self.kind == "smollm3" and (at + 1) % 4 == 0:
            return x
        part = size_of(config, "rotary_pct", "partial_rotary_factor")
        part = part or {"stablelm": 0.25}.get(self.kind, 1.0)
        base = size_of(config, "rope_theta", "rotary_emb_base")
        if self.kind == "gemma3_text" and self.slides(at):
            base = config["rope_local_base_freq"]
        half = int(size * part) // 2
        speeds, factor = base ** (-np.arange(half) / half), 1.0
        if config.get("rope_scaling"):  # LongRoPE's
            trained = config["original_max_position_embeddings"]
            which = "long_factor" if x.shape[1] > trained else "short_factor"
            speeds = speeds / np.array(config["rope_scaling"][which])
            scale = config["max_position_embeddings"] / trained
            factor = math.sqrt(1 + math.log(scale) / math.log(trained))
        turns = np.arange(x.shape[1])[:, None] * speeds
        first, second, still = np.split(x, [half, 2 * half], -1)
        pairs = (first + 1j * second) * np.exp(1j * turns)[:, None] * factor
        return np.concatenate([pairs.real, pairs.imag, still], -1)

    def slopes(self):
        """ALiBi's, of three heads; what is added is the slope times the key's place."""
        if self.kind == "bloom":
            return [2**-4, 2**-8, 2**-2]
        if self.kind == "mpt":  # of an exponent of six: two of four heads, then others
            return [2**-3, 2**-6, 2**-1.5]
        return [0.0] * self.heads

    def slides(self, at):
        if "layer_types" in self.config:
            return self.config["layer_types"][at] == "sliding_attention"
        if self.kind in ("mistral", "phi3"):
            return True
        if self.kind in ("gemma2", "gemma3_text"):
            return (at + 1) % 2 != 0
        windows = self.config.get("use_sliding_window")
        return windows and at >= self.config["max_window_layers"]

    def window(self, at):
        """Keys that a query of a layer sees at most, its own among them."""
        width = self.config.get("sliding_window")
        return width if width and self.slides(at) else 10**6
