"""A model written as a Hugging Face checkpoint is the model that is read from it."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.encodings import ALiBi, Dims, Rotary, compose
from ropejax.encodings.distance_maps import Rectified
from ropejax.encodings.interpolation import SuNTK
from ropejax.encodings.soft_cap import SoftCap
from ropejax.masks import Causal, Lambda, Window
from ropejax.nn import (
    BlockSettings,
    GatedMLP,
    LayerKind,
    LinearReadout,
    RMSNorm,
    TiedReadout,
    TransformerSpec,
)
from ropejax.nn.encoder_decoder import EncoderDecoderSpec
from ropejax.nn.from_hf import (
    decoder_from_hf,
    open_checkpoint,
    save_checkpoint,
    spec_from_hf,
    to_hf,
)
from ropejax.nn.patterns import with_encodings, with_masks
from ropejax.positions.base import Placement
from tests.nn.hf_checkpoints import CONFIGS, VOCAB, checkpoint_of, config_of
from tests.tasks.samples import UNOPTIMIZED

YARN = {"rope_type": "yarn", "factor": 4.0, "attention_factor": 1.2, "truncate": False}
LLAMA_3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_type": "llama3"}
VARIANTS = [
    *((model_type, {}) for model_type in CONFIGS),
    ("llama", {"rope_scaling": YARN}),
    ("llama", {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}),
    ("llama", {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}),
    (
        "llama",
        {
            "rope_scaling": {
                **{**LLAMA_3, "factor": 8.0},
                "original_max_position_embeddings": 16,
            }
        },
    ),
    ("mistral", {"sliding_window": None}),
    ("qwen3", {"use_sliding_window": True, "max_window_layers": 1}),
    ("gpt_neox", {"use_parallel_residual": False, "attention_bias": False}),
    ("mpt", {"attn_config": {"softmax_scale": 0.3}}),
    ("gpt2", {"scale_attn_weights": False, "n_inner": 20}),
]


@pytest.mark.parametrize(("model_type", "changes"), VARIANTS)
def test_a_checkpoint_that_was_read_is_written_again(model_type, changes):
    config = config_of(model_type, **changes)
    tensors = checkpoint_of(config)
    spec, params = decoder_from_hf(config, tensors)
    written, again = to_hf(spec, params, model_type=model_type)
    assert json.loads(json.dumps(written)) == written
    assert spec_from_hf(written) == spec
    assert again.keys() == tensors.keys()
    if model_type == "opt":  # rows of padding, which nothing here reads
        tensors["model.decoder.embed_positions.weight"][:2] = 0
    for name, array in again.items():
        # Of Gemma, gains are kept less one.
        size = 1e-6 if model_type.startswith("gemma") else 0
        np.testing.assert_allclose(array, tensors[name], rtol=0, atol=size)


def llama(**changes):
    """A model as one trains it here, on 16 symbols and a placeholder."""
    settings = {"norm": RMSNorm(1e-5), "mlp": GatedMLP(), "pre_norm": True}
    settings |= {"activation": jax.nn.silu, "dropout": 0.1, "remat": "full"}
    own = {key: changes.pop(key) for key in ("readout", "pattern") if key in changes}
    own |= {"embedding_scale": changes.pop("embedding_scale", 1.0)}
    spec = {
        "num_symbols": VOCAB + 1,
        "num_outputs": VOCAB,
        "dims": Dims(4, 2, 6, 16, 2, causal=True),
        "settings": BlockSettings(24, **{**settings, **changes}),
        "pattern": (LayerKind(Rotary(), Causal()),),
        "readout": TiedReadout(),
    }
    return TransformerSpec(**{**spec, **own})


def zeros(spec):
    return jax.tree.map(
        lambda leaf: np.zeros(leaf.shape, leaf.dtype),
        jax.eval_shape(spec.init, jax.random.key(0)),
    )


def test_a_model_that_was_trained_here_is_a_llama():
    spec = llama(qkv_bias=True, out_bias=True)
    params = spec.init(jax.random.key(0))
    config, tensors = to_hf(spec, params, outputs_only=True, max_length=64)
    assert config["model_type"] == "llama"
    assert config["vocab_size"] == VOCAB
    assert config["max_position_embeddings"] == 64
    assert "lm_head.weight" not in tensors
    other, others = decoder_from_hf(config, tensors)
    tokens = jnp.asarray([[1, 3, 2, 12, 4, 1]])
    run = lambda spec, params: jax.jit(
        lambda params: spec.bind(params)(tokens, Placement()),
        compiler_options=UNOPTIMIZED,
    )(params)
    np.testing.assert_allclose(run(other, others), run(spec, params), atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "model_type"),
    [
        ({"qkv_bias": True}, "qwen2"),
        ({"pattern": (LayerKind(Rotary(), Window.sliding(4)),)}, "mistral"),
        ({"norm": RMSNorm(1e-5), "activation": jax.nn.gelu}, "llama"),
    ],
)
def test_the_first_type_that_is_such_a_model_is_taken(changes, model_type):
    spec = dataclasses.replace(llama(**changes), num_symbols=VOCAB)
    config, _ = to_hf(spec, zeros(spec))
    assert config["model_type"] == model_type


LAYER = LayerKind(Rotary(), Causal())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "no 'llama', the type that is nearest to it: num_outputs is 13, and wo"),
        ({"pre_norm": False}, "pre_norm is False, and would be True"),
        ({"embedding_scale": None}, "embedding_scale is 4.0, and would be 1.0"),
        (
            {"readout": LinearReadout()},
            "LinearReadout(divisor=1.0, cap=None, bias=True), and",
        ),
        ({"pattern": (LAYER._replace(mask=Lambda(2, 4)),)}, "layers is"),
        ({"pattern": (LAYER._replace(encoding=ALiBi()),)}, "ALiBi is no entry"),
        ({"activation": jax.nn.elu}, "activation=elu has no name"),
    ],
)
def test_what_a_llama_is_not_is_said(changes, message):
    spec = llama(**changes)
    with pytest.raises(ValueError, match=".") as caught:
        to_hf(spec, zeros(spec), model_type="llama" if changes else None)
    assert message in str(caught.value)


def test_what_no_config_says_of_an_encoding_is_refused():
    config = config_of("llama")
    spec, params = decoder_from_hf(config, checkpoint_of(config))

    def refused(change, message):
        with pytest.raises(ValueError, match=message):
            to_hf(with_encodings(spec, change), params)

    turned = lambda **changes: lambda rope: dataclasses.replace(rope, **changes)
    refused(turned(distance=Rectified(4)), "distance=Rectified")
    refused(turned(frequencies=SuNTK(2.0), round_frequencies=False), "SuNTK")
    refused(turned(layout="interleaved"), "layout='interleaved'")
    refused(lambda rope: compose(rope=rope, cap=SoftCap(3.0)), "3.0")
    narrow = with_masks(spec, lambda mask: mask & Window(2))
    with pytest.raises(ValueError, match="Window"):
        to_hf(narrow, params)


def test_arguments_that_do_not_fit_are_refused():
    config = config_of("gpt2")
    spec, params = decoder_from_hf(config, checkpoint_of(config))
    with pytest.raises(ValueError, match="max_length=17, but the position encoding"):
        to_hf(spec, params, max_length=17, model_type="gpt2")
    with pytest.raises(ValueError, match="Did you mean 'gpt2'"):
        to_hf(spec, params, model_type="gpt-2")
    with pytest.raises(ValueError, match="not those of this model"):
        to_hf(spec, {**params, "embedding": params["embedding"][:3]})
    both = EncoderDecoderSpec(
        5, 5, 0, Dims(2, 2, 4, 8, 1, causal=True), BlockSettings(8), Rotary()
    )
    with pytest.raises(ValueError, match="got EncoderDecoderSpec"):
        to_hf(both, params)


def test_parameters_that_are_one_array_there_must_be_alike():
    """Attention and MLP of Phi read through one norm."""
    config = config_of("phi")
    spec, params = decoder_from_hf(config, checkpoint_of(config))
    layer = params["layers"]["kind_0"]
    layer["mlp_norm"]["scale"] = layer["mlp_norm"]["scale"] + 1
    with pytest.raises(ValueError, match="input_layernorm.weight with another"):
        to_hf(spec, params)


def test_a_folder_is_written_once_and_opened_again(tmp_path):
    pytest.importorskip("safetensors")
    config = config_of("gpt2")
    spec, params = decoder_from_hf(config, checkpoint_of(config))
    where = tmp_path / "models" / "own"
    save_checkpoint(where, *to_hf(spec, params))
    other, others = decoder_from_hf(*open_checkpoint(where))
    assert other == spec
    assert jax.tree.all(jax.tree.map(np.array_equal, params, others))
    with pytest.raises(ValueError, match=r"has a config.json already"):
        save_checkpoint(where, *to_hf(spec, params))
