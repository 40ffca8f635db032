"""`model.mask`: masks by config, as text, beside what layers see by their pattern."""

import copy

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import base
from experiments import command
from experiments.building import options
from experiments.building.build import build
from experiments.building.tested_model import make_tested_model
from experiments.running import workdir
from experiments.study.sweep import group_of
from ropejax.masks import (
    MASKS,
    BigBird,
    Blocks,
    Causal,
    Dilated,
    Full,
    Global,
    Lambda,
    Longformer,
    Mask,
    PerHead,
    Prefix,
    Window,
)
from ropejax.nn.patterns import with_masks
from ropejax.positions.base import Placement
from tests.tasks.samples import UNOPTIMIZED

pytestmark = pytest.mark.fast

GAU = "block=GAU(head_dim=8)"


def config_with(mask="", **fields):
    config = base.get_config()
    small = {"train.max_length": 6, "eval.lengths": "12", "model.num_layers": 2}
    small |= {"model.embed_dim": 16, "model.num_heads": 4, "model.mask": mask}
    changes = {name.replace("__", "."): value for name, value in fields.items()}
    config.update_from_flattened_dict(small | changes)
    return config


def model_of(mask="", **fields):
    return build(config_with(mask, **fields)).recipe.model


@pytest.mark.parametrize(
    ("text", "mask"),
    [
        ("Lambda(4, 60)", Lambda(4, 60)),
        ("Lambda(window=60, sinks=4.0)", Lambda(4, 60)),
        ("Window.sliding(16) | Global(2)", Window(15, 0) | Global(2)),
        (
            "Window.symmetric(width=4) & Dilated(2, 3, None)",
            Window(2, 2) & Dilated(2, 3, None),
        ),
        ("Causal() & ~Window(0, 0)", Causal() & ~Window(0, 0)),
        ("~(Prefix(3) | Window(1, 1))", ~(Prefix(3) | Window(1, 1))),
        ("Blocks(~Window(1, 1) | Global(1), 4)", Blocks(~Window(1, 1) | Global(1), 4)),
        (
            "PerHead((Window(0), ~Prefix(2), Causal() & Prefix(9), Full()))",
            PerHead((Window(0), ~Prefix(2), Causal() & Prefix(9), Full())),
        ),
        ("Longformer(8, globals=2)", Longformer(8, globals=2)),
        ("BigBird(24, block=2)", BigBird(24, block=2)),
    ],
)
def test_text_is_a_mask(text, mask):
    assert options.parse_object(text, "model.mask", Mask, MASKS) == mask


def test_it_narrows_what_each_layer_sees():
    masks = lambda **fields: [kind.mask for kind in model_of(**fields).pattern]
    own = masks(model__pattern="hwfa", model__kind="decoder")
    assert own[1] == Causal()
    text = "Lambda(2, 3)"
    narrowed = masks(mask=text, model__pattern="hwfa", model__kind="decoder")
    assert narrowed == [mask & Lambda(2, 3) for mask in own]
    assert masks(mask=text, model__causal=True) == [Causal() & Lambda(2, 3)]
    assert masks(mask=text, model__kind_options=GAU) == [Lambda(2, 3)]


def tokens_of(length):
    return jnp.asarray(np.random.default_rng(0).integers(0, 2, (2, length)))


@pytest.mark.parametrize("fields", [{}, {"model__kind": "decoder"}])
def test_logits_are_those_of_a_model_that_was_given_the_mask(fields):
    """In Python the window stands in place of the causal mask that it is within."""
    plain = model_of(**fields)
    params, tokens = plain.init(jax.random.key(0)), tokens_of(14)
    given = with_masks(plain, lambda mask: Window.sliding(8))
    made = model_of("Window.sliding(8)", **fields)
    read = lambda params: [
        spec.bind(params)(tokens, Placement()) for spec in (made, given, plain)
    ]
    logits, wanted, others = jax.jit(read, compiler_options=UNOPTIMIZED)(params)
    np.testing.assert_allclose(logits, wanted, atol=1e-6)
    apart = jnp.abs(logits - others).max(axis=(0, 2)) > 1e-4
    # What a causal model's first tokens see is within the window.
    assert apart.tolist() == [not fields or at > 7 for at in range(14)]


@pytest.mark.parametrize("fields", [{}, {"model__kind_options": GAU}])
def test_a_decoder_sees_through_its_cache_what_a_whole_pass_sees(fields):
    spec = model_of("Lambda(2, 3)", model__kind="decoder", **fields)
    tokens = tokens_of(12)

    def read(params):
        model = spec.bind(params)
        first, memory = model.start(tokens[:, :4], Placement(), 4, capacity=12)

        def step(memory, at):
            logits, memory = model.step(memory, tokens[:, at], at)
            return memory, logits

        _, rest = jax.lax.scan(step, memory, jnp.arange(4, 12))
        return model(tokens, Placement())[:, 3:], jnp.stack([first, *rest], axis=1)

    params = spec.init(jax.random.key(0))
    whole, cached = jax.jit(read, compiler_options=UNOPTIMIZED)(params)
    np.testing.assert_allclose(cached, whole, atol=1e-5)


HIDES_NOTHING = r"hides nothing that the layers.*leave it empty"


@pytest.mark.parametrize(
    ("text", "fields", "message"),
    [
        ("Lamda(4, 60)", {}, "class='Lamda' is unknown. Did you mean 'Lambda'"),
        ("Rotary()", {}, "class='Rotary' is unknown"),
        ("Window.slidng(3)", {}, "no constructor 'slidng'. Did you mean 'sliding'"),
        ("Window.__init__(3)", {}, "no constructor '__init__'. It has sliding, sym"),
        ("Window.sliding(0)", {}, r"Window\(width=...\) must be an integer of at le"),
        ("Window.sliding(3, 4)", {}, "Window.sliding takes at most 1; write name=v"),
        ("Window.sliding(size=3)", {}, "no setting 'size'. .*Its settings: width"),
        ("Window.sliding('3')", {}, "Window.sliding.width must be a number, got '3'"),
        ("Lambda(4)", {}, "Lambda needs a value of window"),
        ("Lambda(4, 2.5)", {}, "Lambda.window must be an integer, got 2.5"),
        ("Lambda(4, True)", {}, "Lambda.window must be a number, got True"),
        ("Lambda(4, windw=3)", {}, "no setting 'windw'. Did you mean 'window'"),
        ("Lambda", {}, r"Mask .*got 'Lambda'. Write Lambda\(...\), with its settings"),
        ("~Causal", {}, r"beside &, | or ~ must be .*Mask .*Write Causal\(...\)"),
        ("Causal() & 3", {}, "beside &, | or ~ must be an object of class Mask .*, 3"),
        ("(Causal(), Window(3))", {}, "must be an object of class Mask"),
        ("Causal() and Window(3)", {}, "masks combine with &, | and ~"),
        ("Causal() - Window(3)", {}, "masks combine with &, | and ~"),
        ("Lambda(4, 60", {}, "cannot read 'Lambda"),
        (" ", {}, "cannot read ' '"),
        ("PerHead(Window(3))", {}, "PerHead.heads must be values in parentheses"),
        ("PerHead((Window(3), Full()))", {}, "is of 2 query heads, but there are 4"),
        ("Full()", {}, HIDES_NOTHING),
        ("Window(None, None)", {}, HIDES_NOTHING),
        ("Causal()", {"model__kind": "decoder"}, HIDES_NOTHING),
        ("Window(None)", {"model__kind": "decoder"}, HIDES_NOTHING),
        ("~Full()", {}, "6 symbols are 12 tokens, and in layers .* none of them sees"),
        ("~Window(11, 11)", {}, r"none of them sees any; change model.mask"),
        (
            "~Window(8)",
            {"model__kind": "decoder", "model__pattern": "hwfa"},
            "in layers with the mask And.* none of them sees any",
        ),
        ("BigBird(10)", {}, r"12 tokens: BigBird\(length=10\) is for sequences of"),
        ("BigBird(14)", {}, r"test .* 24 tokens: BigBird\(length=14\) is for"),
        ("Marked(prefix)", {}, r"Marked\('prefix'\) needs that stream"),
        (
            "Lambda(1, 3)",
            {"model__kind": "encoder_decoder"},
            r"model.mask='Lambda\(1, 3\)' is not for model.kind=encoder_decoder",
        ),
        (
            "Lambda(1, 3)",
            {"model__kind": "lstm", "encoding__name": "none"},
            r"change nothing: model.mask='Lambda\(1, 3\)'.*--config.model.mask=\"\"",
        ),
    ],
)
def test_what_is_no_mask_or_does_nothing_is_refused(text, fields, message):
    with pytest.raises(ValueError, match=message):
        build(config_with(text, **fields))


def test_at_test_the_mask_may_be_another_for_the_same_parameters():
    config = workdir.plain(config_with("Lambda(2, 3)", model__kind="decoder"))
    trained = build(config).recipe
    tested = make_tested_model(config, trained, {"model.mask": "Window.sliding(4)"})
    assert tested.model.pattern[0].mask == Causal() & Window(3)
    assert tested.label == "rope(mask='Window.sliding(4)')"
    without = make_tested_model(config, trained, {"model.mask": ""})
    assert without.model.pattern[0].mask == Causal()
    assert without.label == "rope(mask='')"
    same = make_tested_model(config, trained, {"model.mask": "Lambda(2,3)"})
    assert same.label is None
    with pytest.raises(ValueError, match=r"--config.model.mask: .*Did you mean 'Lam"):
        make_tested_model(config, trained, {"model.mask": "Lamda(3, 4)"})


def test_runs_have_names_and_programs_of_their_own_and_older_ones_keep_theirs():
    config, other = workdir.plain(config_with()), workdir.plain(config_with("Full()"))
    assert workdir.config_hash(config) != workdir.config_hash(other)
    assert group_of(config) != group_of(other)
    older = copy.deepcopy(config)
    del older["model"]["mask"]
    assert workdir.config_hash(older) == workdir.config_hash(config)
    assert workdir.completed(older) == config


def test_the_list_has_every_mask_with_its_settings(capsys):
    command.print_catalogues()
    shown = capsys.readouterr().out
    for name, cls in MASKS.items():
        assert f"  {name:<28} {cls.summary}\n" in shown
    for settings in (
        "sinks, window",
        "before, after=0; Window.sliding(width); Window.symmetric(width)",
        "length, block=64, random=3, neighbors=1, seed=0",
    ):
        assert f"  {'':<28}   {settings}\n" in shown
