"""Encodings, tasks and position schemes of the user's own are named by their import."""

import re

import jax
import jax.numpy as jnp
import pytest

from configs import base
from experiments.building.build import build
from experiments.building.methods import make_encoding
from experiments.evaluation_sets.content import task_text
from experiments.running.labels import run_id, run_labels
from ropejax.masks import Causal, Global, Window

OWN = '''
import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from ropejax.attention import Softmax
from ropejax.encodings import Rotary
from ropejax.masks import Causal, Full, Mask, Window
from ropejax.nn import LayerKind
from ropejax.nn.output_gates import SigmoidGate
from ropejax.nn.patterns import Alike
from ropejax.nn.query_key_norm import KeyNorm
from ropejax.nn.row_scales import SSMax
from ropejax.nn.token_shifts import KVShift
from ropejax.positions.base import Placement, PositionScheme
from ropejax.tasks import EvenPairs
from ropejax.training import Curriculum


@dataclasses.dataclass(frozen=True)
class Turned(Rotary):
    """RoPE with a setting more."""

    title: ClassVar[str] = "Turned RoPE"
    turns: int = 1


@dataclasses.dataclass(frozen=True)
class Doubled(PositionScheme):
    """Every second position."""

    step: int = 2

    def position_bound(self, num_tokens):
        return self.step * num_tokens

    def __call__(self, rng, lengths, *, num_tokens, num_layers=1, tokens=None):
        return Placement(self.step * jnp.arange(num_tokens, dtype=jnp.int32)[None])


class Pairs(EvenPairs):
    """A task under another name."""


class Plain(Softmax):
    """A softmax under another name."""


class OwnNorm(KeyNorm):
    """A norm under another name."""


class OwnScale(SSMax):
    """A factor under another name."""


class OwnShift(KVShift):
    """A shift under another name."""


class OwnGate(SigmoidGate):
    """A gate under another name."""


@dataclasses.dataclass(frozen=True)
class Near(Alike):
    """Layers that see a window: how to train with a mask of one's own."""

    width: int = 4
    more: Mask = Full()

    def __call__(self, encoding, num_layers, *, causal):
        mask = Causal() & Window(self.width - 1)
        return (LayerKind(encoding, mask if self.more == Full() else mask & self.more),)


@dataclasses.dataclass(frozen=True)
class Even(Mask):
    """Every second key, or every so many-th one."""

    step: int = 2

    @classmethod
    def third(cls) -> "Even":
        return cls(3)

    def pairs(self, i, j):
        return (j % self.step == 0) | (i < 0)


@dataclasses.dataclass(frozen=True)
class Odd(Curriculum):
    """Odd lengths."""

    def __call__(self, rng, step):
        return 2 * jax.random.randint(rng, (), 0, (self.max_length + 1) // 2) + 1


def function():
    """No class."""
'''


@pytest.fixture(autouse=True)
def own(tmp_path, monkeypatch):
    (tmp_path / "own_methods.py").write_text(OWN)
    (tmp_path / "own_broken.py").write_text("import not_there_at_all\n")
    monkeypatch.syspath_prepend(tmp_path)


def config_of(**names):
    config = base.get_config()
    config.positions.name, config.positions.options = "consecutive", ""
    for field, value in names.items():
        config.update_from_flattened_dict({field.replace("__", "."): value})
    return config


def test_all_three_are_built_and_named_in_results():
    config = config_of(
        encoding__name="own_methods.Turned",
        encoding__options="turns=3",
        positions__name="own_methods.Doubled",
        positions__options="step=5",
        task__name="own_methods.Pairs",
    )
    experiment = build(config)
    encoding = experiment.recipe.model.pattern[0].encoding
    assert type(encoding).__name__ == "Turned"
    assert encoding.turns == 3
    placed = experiment.recipe.positions(
        jax.random.key(0), jnp.array([4]), num_tokens=4
    )
    assert placed.positions.tolist() == [[0, 5, 10, 15]]
    labels = run_labels(config.to_dict(), experiment)
    assert labels["encoding"] == "own_methods.Turned(turns=3)"
    assert labels["encoding_title"] == "Turned RoPE(turns=3)"
    assert labels["positions_title"] == "own_methods.Doubled(step=5)"
    assert "own_methods.Turned" in run_id(config.to_dict())
    assert task_text(experiment.recipe.task) == "own_methods.Pairs"


def test_what_a_model_is_made_of_and_its_lengths_are_named_so_too():
    experiment = build(
        config_of(
            model__normalizer="own_methods.Plain",
            model__qk_norm="own_methods.OwnNorm",
            model__row_scale="own_methods.OwnScale",
            model__token_shift="own_methods.OwnShift",
            model__output_gate="own_methods.OwnGate",
            model__causal=True,
            model__pattern="own_methods.Near",
            model__pattern_options="width=3",
            train__curriculum="own_methods.Odd",
            train__max_length=5,
        )
    )
    spec = experiment.recipe.model
    weighting = spec.settings
    made = weighting.normalizer, weighting.qk_norm, weighting.row_scale
    made += weighting.token_shift, weighting.output_gate
    names = ["Plain", "OwnNorm", "OwnScale", "OwnShift", "OwnGate"]
    assert [type(one).__name__ for one in made] == names
    assert spec.pattern[0].mask == Causal() & Window(2)
    rngs = jax.random.split(jax.random.key(0), 50)
    lengths = jax.vmap(experiment.recipe.curriculum, (0, None))(rngs, 0)
    assert set(lengths.tolist()) == {1, 3, 5}
    with pytest.raises(ValueError, match=r"derives from .*\.Normalizer"):
        build(config_of(model__normalizer="own_methods.OwnNorm"))


def test_masks_are_named_so_too_also_in_settings_of_a_pattern():
    mask = lambda **fields: build(config_of(**fields)).recipe.model.pattern[0].mask
    made = mask(model__mask="own_methods.Even(step=3) | Window(1)")
    assert repr(made.parts[0]) == "Even(step=3)"
    assert mask(model__mask="own_methods.Even.third()") == made.parts[0]
    narrowed = mask(
        model__causal=True,
        model__pattern="own_methods.Near",
        model__pattern_options="more=own_methods.Even() | Global(1), width=3",
    )
    assert narrowed.parts[:2] == (Causal(), Window(2))
    assert narrowed.parts[2].parts[1] == Global(1)
    with pytest.raises(ValueError, match="Even has no constructor 'fourth'.*third"):
        mask(model__mask="own_methods.Even.fourth()")
    with pytest.raises(ValueError, match="must be an object of class Mask"):
        mask(model__mask="own_methods.Turned()")
    with pytest.raises(ValueError, match=r"pattern_options: more must .* got 'Windw'"):
        mask(
            model__causal=True,
            model__pattern="own_methods.Near",
            model__pattern_options="more=Windw",
        )


def test_compositions_take_them_too():
    config = config_of(
        encoding__name="compose",
        encoding__options="rope=own_methods.Turned(turns=2), scale=LogScale(count=all)",
    )
    assert "turns=2" in repr(make_encoding(config))


@pytest.mark.fast
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("own_methods.Turnd", "Did you mean 'Turned'"),
        ("own_methods.Doubled", "derives from ropejax.encodings.base.Encoding"),
        ("own_methods.function", "is no class that derives"),
        ("own_method.Turned", "there is no module 'own_method'"),
        ("own_methods.inner.Turned", "there is no module 'own_methods.inner'"),
        (".Turned", "is no path of an import"),
        ("own_methods.Turned(turns=2)", "give its settings as encoding.options"),
        ("turnd", "by its import: my_module.MyClass"),
    ],
)
def test_what_cannot_be_imported_is_refused(name, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        make_encoding(config_of(encoding__name=name))


@pytest.mark.fast
def test_what_a_module_fails_to_import_is_told_as_it_is():
    with pytest.raises(ModuleNotFoundError, match="not_there_at_all"):
        make_encoding(config_of(encoding__name="own_broken.Turned"))
