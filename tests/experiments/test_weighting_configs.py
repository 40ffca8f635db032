"""What replaces the softmax, normalizes queries and keys, or scales rows, by config."""

import pytest

from configs import base
from experiments import command
from experiments.building import trained_length
from experiments.building.build import build
from experiments.building.weighting import CATALOGUES
from experiments.running import workdir
from ropejax.attention import Entmax, Softmax
from ropejax.nn.output_gates import SigmoidGate, Ungated
from ropejax.nn.query_key_norm import HeadRMSNorm, LearnedCosine, Unnormalized
from ropejax.nn.row_scales import AdaptiveScale, SSMax, Unscaled
from ropejax.nn.token_shifts import ShortConvolution, Unshifted

pytestmark = pytest.mark.fast


def config_with(**changes):
    config = base.get_config()
    named = {name.replace("__", "."): value for name, value in changes.items()}
    small = {"train.max_length": 6, "eval.lengths": "12", "model.num_layers": 1}
    config.update_from_flattened_dict(small | named)
    return config


def settings_of(**changes):
    return build(config_with(**changes)).recipe.model.settings


def test_by_default_nothing_is_replaced():
    settings = settings_of()
    found = (settings.normalizer, settings.qk_norm, settings.row_scale)
    assert found == (Softmax(), Unnormalized(), Unscaled())
    assert (settings.token_shift, settings.output_gate) == (Unshifted(), Ungated())


@pytest.mark.parametrize(
    ("field", "name"),
    [(field, n) for field, names in CATALOGUES.items() for n in names],
)
def test_every_entry_of_a_catalogue_reaches_the_model(field, name, capsys):
    settings = settings_of(**{f"model__{field}": name, "model__causal": True})
    assert type(getattr(settings, field)) is CATALOGUES[field][name]
    command.print_catalogues()
    line = f"  {name:<28} {CATALOGUES[field][name].summary}\n"
    assert CATALOGUES[field][name].summary
    assert line in capsys.readouterr().out


def test_options_are_settings_of_the_method():
    settings = settings_of(
        model__normalizer="entmax",
        model__normalizer_options="alpha=2",
        model__qk_norm="rms",
        model__qk_norm_options="epsilon=1e-5",
        model__row_scale="adaptive",
        model__row_scale_options="bound=3",
        model__token_shift="convolution",
        model__token_shift_options="width=3, residual=False, activation=silu",
        model__output_gate="sigmoid",
        model__output_gate_options="norm=True, initial_bias=2",
        model__attention_dropout=0.2,
        model__causal=True,
    )
    assert settings.attention_dropout == 0.2
    found = (settings.normalizer, settings.qk_norm, settings.row_scale)
    assert found == (Entmax(2.0), HeadRMSNorm(1e-5), AdaptiveScale(bound=3.0))
    assert settings.token_shift == ShortConvolution(3, False, "silu")
    assert settings.output_gate == SigmoidGate(norm=True, initial_bias=2)


def test_the_trained_length_is_that_of_the_run():
    """What the model reads: 6 symbols and their 6 placeholders."""
    config = config_with(model__qk_norm="learned_cosine", model__row_scale="ssmax")
    recipe = build(config).recipe
    tokens = recipe.task.num_tokens(6)
    settings = recipe.model.settings
    assert settings.qk_norm == LearnedCosine(train_length=tokens)
    assert settings.row_scale == SSMax(train_length=tokens)
    notes = "\n".join(trained_length.notes(config, recipe.task, recipe.model))
    assert "train_length of LearnedCosine is that of this run" in notes
    assert "train_length of SSMax is that of this run" in notes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model__normalizer": "entmx"}, "Did you mean 'entmax'"),
        ({"model__qk_norm": "cosin"}, "model.qk_norm='cosin' is unknown. Did you mean"),
        ({"model__row_scale": "ssmx"}, "Did you mean 'ssmax'"),
        (
            {"model__normalizer": "entmax", "model__normalizer_options": "alhpa=2"},
            "model.normalizer_options: Entmax has no setting 'alhpa'. Did you mean",
        ),
        (
            {"model__normalizer": "entmax", "model__normalizer_options": "alpha=1"},
            "model.normalizer_options: alpha must be above 1",
        ),
        (
            {"model__token_shift": "kv"},
            "the token shift KVShift looks at tokens before",
        ),
        (
            {"model__kind": "encoder_decoder", "model__token_shift": "kv"},
            "use it in a decoder",
        ),
        (
            {
                "model__causal": True,
                "model__token_shift": "convolution",
                "model__token_shift_options": "width=1",
            },
            "model.token_shift_options: width must be at least 2",
        ),
        ({"model__output_gate": "sigmod"}, "Did you mean 'sigmoid'"),
        (
            {"model__qk_norm_options": "epsilon=1"},
            "model.qk_norm_options: Unnormalized has no setting 'epsilon'",
        ),
        (
            {"model__normalizer": "stick_breaking"},
            "StickBreaking is defined for keys up to the query only",
        ),
        (
            {"model__kind": "encoder_decoder", "model__normalizer": "selective"},
            "use it in a decoder",
        ),
    ],
)
def test_slips_are_refused_with_a_remedy(changes, message):
    with pytest.raises(ValueError, match=".") as caught:
        build(config_with(**changes))
    assert message in str(caught.value)


def test_recurrent_models_have_no_attention_to_weigh():
    recurrent = {"model__kind": "lstm", "encoding__name": "none"}
    with pytest.raises(ValueError, match="these would change nothing") as caught:
        build(config_with(**recurrent, model__row_scale="ssmax"))
    assert "model.row_scale='ssmax'" in str(caught.value)


def test_runs_of_earlier_versions_keep_their_names(tmp_path):
    config = workdir.plain(base.get_config())
    older = workdir.plain(base.get_config())
    for field in CATALOGUES:
        del older["model"][field], older["model"][f"{field}_options"]
    del older["model"]["attention_dropout"]
    assert workdir.config_hash(older) == workdir.config_hash(config)
    workdir.write_config(tmp_path, older)
    assert workdir.read_config(tmp_path) == config
    config["model"]["normalizer"] = "entmax"
    assert workdir.config_hash(older) != workdir.config_hash(config)
