"""Norms, MLPs, widths, biases and readouts of layers, by config."""

import copy

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import base
from experiments import command
from experiments.building.build import build
from experiments.building.model_parts import CATALOGUES
from experiments.running import workdir
from experiments.study.cost import _forward
from ropejax.nn import GatedMLP, LayerNorm, LinearReadout, RMSNorm, TiedReadout
from ropejax.nn.mlp import MLP
from ropejax.nn.parameters import named
from ropejax.positions.base import Placement
from tests.tasks.samples import UNOPTIMIZED

pytestmark = pytest.mark.fast

LLAMA = {
    "norm": "rms",
    "norm_options": "epsilon=1e-5",
    "mlp": "gated",
    "mlp_dim": 24,
    "activation": "silu",
    "head_dim": 6,
    "num_kv_heads": 2,
    "qkv_bias": True,
    "out_bias": True,
    "readout": "tied",
    "embedding_scale": 1.0,
    "pre_norm": True,
}
GEMMA_2 = {
    **LLAMA,
    "output_norm": True,
    "qk_norm": "joint_rms",
    "attention_scale": 0.3,
    "readout_options": "cap=5.0",
}
GRANITE = {**LLAMA, "residual_scale": 0.22, "readout_options": "divisor=8.0"}
NEOX = {"pre_norm": True, "parallel": True, "qkv_bias": True, "out_bias": True}


def config_with(**model):
    config = base.get_config()
    small = {"train.max_length": 6, "eval.lengths": "12", "model.num_layers": 1}
    small |= {"model.embed_dim": 16, "model.num_heads": 4, "task.name": "bucket_sort"}
    changes = {f"model.{name}": value for name, value in model.items()}
    config.update_from_flattened_dict(small | changes)
    return config


def model_of(**model):
    return build(config_with(**model)).recipe.model


def test_by_default_layers_are_what_they_were():
    model = model_of()
    settings = model.settings
    assert (settings.norm, settings.mlp) == (LayerNorm(1e-6), MLP())
    assert (settings.qkv_bias, settings.out_bias) == (False, False)
    assert (model.readout, model.embedding_scale) == (LinearReadout(), None)
    paths = named(jax.eval_shape(model.init, jax.random.key(0)))
    layer = {path.removeprefix("layers/kind_0/") for path in paths if "kind_0" in path}
    kernels = ("query", "key", "value", "out")
    assert layer == {
        *(f"attention/{name}/kernel" for name in kernels),
        *(
            f"mlp_{name}/{leaf}"
            for name in ("in", "out")
            for leaf in ("kernel", "bias")
        ),
        *(
            f"{norm}_norm/{leaf}"
            for norm in ("attention", "mlp")
            for leaf in ("scale", "bias")
        ),
    }


def test_a_layer_of_llama_by_config():
    model = model_of(**LLAMA)
    settings = model.settings
    assert (settings.norm, settings.mlp) == (RMSNorm(1e-5), GatedMLP())
    assert (model.readout, model.embedding_scale) == (TiedReadout(), 1.0)
    assert (model.dims.head_dim, settings.mlp_dim) == (6, 24)
    params = jax.eval_shape(model.init, jax.random.key(0))
    layer = params["layers"]["kind_0"]
    assert layer["attention"]["query"]["kernel"].shape == (1, 16, 4, 6)
    assert layer["attention"]["key"]["bias"].shape == (1, 2, 6)
    assert layer["attention"]["out"]["bias"].shape == (1, 16)
    assert layer["mlp_gate"]["kernel"].shape == (1, 16, 24)
    assert "bias" not in layer["mlp_gate"]
    assert "bias" not in layer["mlp_norm"]
    assert "readout" not in params


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("encoder_decoder", GEMMA_2),
        ("decoder", {**GEMMA_2, "embedding_norm": True}),
        ("decoder", {**GEMMA_2, "pre_norm": False}),
    ],
)
def test_every_parameter_of_such_layers_alters_the_logits(kind, changes):
    model = model_of(**changes, kind=kind)
    rng = np.random.default_rng(0)
    params = jax.tree.map(
        lambda leaf: jnp.asarray(rng.normal(size=leaf.shape), jnp.float32),
        jax.eval_shape(model.init, jax.random.key(0)),
    )
    separator = getattr(model, "separator", 0)
    tokens = jnp.asarray([[1, 3, 2, separator, 4, 1]])
    loss = lambda params: model.bind(params)(tokens, Placement())[..., 1].sum()
    step = jax.jit(jax.grad(loss), compiler_options=UNOPTIMIZED)
    gradients = named(step(params))
    # Keys' offsets shift all logits of a row alike, which a softmax does not notice.
    still = {path for path, leaf in gradients.items() if not (abs(leaf) > 1e-4).any()}
    assert not {path for path in still if "key/bias" not in path}


@pytest.mark.parametrize("kind", ["encoder", "decoder", "encoder_decoder"])
def test_factors_on_parts_and_logits_are_those_of_their_last_projections(kind):
    """With norms before parts, what a part returns is linear in what projects it."""
    model = model_of(**GRANITE, kind=kind)
    rng = np.random.default_rng(0)
    params = jax.tree.map(
        lambda leaf: jnp.asarray(rng.normal(size=leaf.shape), jnp.float32),
        jax.eval_shape(model.init, jax.random.key(0)),
    )
    last = ("attention/out/", "cross/out/", "mlp_out/")
    scaled = {
        path: 0.22 * leaf if any(name in path for name in last) else leaf
        for path, leaf in named(params).items()
    }
    scaled = jax.tree.unflatten(jax.tree.structure(params), scaled.values())
    plain = model_of(**LLAMA, kind=kind)
    tokens = jnp.asarray([[1, 3, 2, getattr(model, "separator", 0), 4, 1]])
    run = lambda model, params: jax.jit(
        lambda params: model.bind(params)(tokens, Placement()),
        compiler_options=UNOPTIMIZED,
    )(params)
    found, wanted = run(model, params), run(plain, scaled) / 8
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    assert np.abs(found - run(plain, params) / 8).max() > 0.1


@pytest.mark.parametrize(
    ("field", "name"), [(f, n) for f, names in CATALOGUES.items() for n in names]
)
def test_every_entry_of_a_catalogue_reaches_the_model(field, name, capsys):
    model = model_of(**{field: name})
    holder = model if field == "readout" else model.settings
    cls = CATALOGUES[field][name]
    assert type(getattr(holder, field)) is cls
    command.print_catalogues()
    assert f"  {name:<28} {cls.summary}\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"norm": "rsm"}, "model.norm='rsm' is unknown. Did you mean 'rms'"),
        ({"norm_options": "epsilon=0"}, "epsilon must be positive"),
        ({"norm_options": "epsilon=nan"}, "epsilon"),
        ({"mlp": "swiglu"}, "model.mlp='swiglu' is unknown"),
        ({"mlp_dim": 24, "mlp_factor": 2}, "both say how wide the MLP is"),
        ({"mlp_dim": 0}, "mlp_dim must be at least 1, got 0"),
        ({"head_dim": 0}, "head_dim must be at least 1, got 0"),
        ({"num_heads": 3}, "or set model.head_dim"),
        ({"readout_options": "scale=2"}, "LinearReadout has no setting 'scale'"),
        ({"embedding_scale": 0.0}, "model.embedding_scale must be positive"),
        ({"kind_options": "block=GAU()", "mlp": "gated"}, "model.mlp='gated' is of"),
        (
            {"kind_options": "block=GAU()", "qkv_bias": True},
            "model.qkv_bias=True is of",
        ),
        (
            {"kind_options": "block=GAU()", "head_dim": 8},
            "GAU has a head_dim of its own",
        ),
        ({"attention_scale": 0.0}, "attention_scale must be positive and finite"),
        (
            {"attention_scale": 0.5, "qk_norm": "cosine"},
            "attention_scale=0.5 and CosineNorm both say",
        ),
        ({"readout_options": "cap=-1"}, "cap must be positive"),
        ({"readout_options": "divisor=0"}, "divisor must be positive"),
        ({"residual_scale": 0.0}, "residual_scale must be positive"),
        ({"residual_scale": float("nan")}, "residual_scale"),
        ({"kind": "lstm", "residual_scale": 0.5}, "these would change nothing"),
        ({"kind": "encoder_decoder", "embedding_norm": True}, "model.embedding_norm"),
        ({"kind": "lstm", "output_norm": True}, "these would change nothing"),
        ({"parallel": True}, "model.parallel=True: attention and MLP read what enters"),
        ({"kind": "encoder_decoder", **NEOX}, "cross attention stands between"),
        ({"kind_options": "block=GAU()", **NEOX}, "model.parallel=True is of"),
        ({"kind": "lstm", "mlp": "gated"}, "these would change nothing"),
    ],
)
def test_slips_are_refused_with_a_remedy(changes, message):
    with pytest.raises(ValueError, match=".") as caught:
        build(config_with(**changes))
    assert message in str(caught.value)


def test_a_tied_readout_has_no_outputs_beyond_the_symbols():
    with pytest.raises(ValueError, match=r"num_outputs=5 are more than num_symbols=4"):
        TiedReadout().check(4, 5)


def test_runs_of_earlier_versions_keep_their_names(tmp_path):
    config = workdir.plain(base.get_config())
    older = copy.deepcopy(config)
    for field in (
        "parallel",
        "output_norm",
        "residual_scale",
        "attention_scale",
        "embedding_norm",
        "head_dim",
        "qkv_bias",
        "out_bias",
        "mlp_dim",
        "embedding_scale",
    ):
        del older["model"][field]
    for field in CATALOGUES:
        del older["model"][field], older["model"][f"{field}_options"]
    assert workdir.config_hash(older) == workdir.config_hash(config)
    workdir.write_config(tmp_path, older)
    assert workdir.read_config(tmp_path) == config


def test_the_cost_of_a_gate_is_a_third_matrix():
    """Of the same width, two instead of four thirds of attention's four projections."""
    flops = lambda **model: _forward(config_with(mlp_factor=2, **model), tokens=1)
    plain, gated = flops(), flops(mlp="gated")
    assert gated - plain == 2 * 16 * 32
    assert flops(head_dim=8) - plain == 8 * 16 * 16 + 4 * 16
