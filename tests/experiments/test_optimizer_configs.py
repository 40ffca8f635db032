"""From `optim` of a config to an optimizer: by name, by import, and what is refused."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import base
from experiments.building.build import build
from experiments.building.optimizers import make_optimizer
from experiments.running.labels import run_id
from experiments.running.workdir import completed, plain
from ropejax.training import OPTIMIZERS

pytestmark = pytest.mark.fast

OWN = '''
import optax


def halved(learning_rate, decay: float = 0.9, turns: int = 1, weight_decay=0.5):
    """Half of the learning rate, downhill."""
    return optax.sgd(lambda step: learning_rate(step) / 2, momentum=decay)


def nothing(learning_rate):
    return None


number = 3
'''


def config_of(**fields):
    config = base.get_config()
    config.update({"train": {"steps": 4, "max_length": 6}, "eval": {"lengths": "1:6"}})
    config.optim.update(fields)
    return config


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own_optimizers.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)


def first_step(config):
    """What three parameters are changed by under a gradient of one."""
    optimizer = make_optimizer(config)
    params = {"layer": {"bias": jnp.zeros(3)}}
    gradient = jax.tree.map(jnp.ones_like, params)
    updates, _ = optimizer.update(gradient, optimizer.init(params), params)
    return np.asarray(updates["layer"]["bias"])


@pytest.mark.parametrize(
    ("fields", "step"),
    [
        ({}, -1e-3),  # Adam's first step is the sign
        ({"name": "sgd", "learning_rate": 0.5, "max_grad_norm": 0.0}, -0.5),
        ({"name": "sgd", "max_grad_norm": 1.5}, -1e-3 * 1.5 / 3**0.5),
        ({"name": "sgd", "options": "nesterov=True"}, -1.9e-3 / 3**0.5),
        ({"name": "lion", "warmup_steps": 2}, 0.0),
        ({"name": "lion", "options": "b1=0.5"}, -1e-3),
        ({"name": "optax.sgd", "max_grad_norm": 0.0}, -1e-3),
        ({"name": "own_optimizers.halved", "max_grad_norm": 0.0}, -5e-4),
    ],
)
def test_schedule_and_clipping_stand_around_all(own, fields, step):
    np.testing.assert_allclose(first_step(config_of(**fields)), step, rtol=1e-5)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"name": "lio"},
            "optim.name='lio' is unknown. Did you mean 'lion'? Known: ada",
        ),
        (
            {"name": "lio"},
            "or one of your own, a function of a learning rate, by its im",
        ),
        (
            {"name": "adamw"},
            "is unknown. Did you mean 'adam' (Adam; AdamW under weight_decay",
        ),
        (
            {"name": "lion(b1=0.8)"},
            "name alone, lion; give its settings as optim.option",
        ),
        (
            {"name": "optax.sgd(momentum=0.8)"},
            "name alone, optax.sgd; give its settings",
        ),
        (
            {"name": "sgd", "options": "momentm=0.5"},
            "'momentm'. Did you mean 'momentum'",
        ),
        (
            {"name": "sgd", "options": "momentum=True"},
            "momentum must be a number, got Tr",
        ),
        (
            {"name": "sgd", "options": "momentum=1.0"},
            "momentum must be in [0, 1), got 1.",
        ),
        ({"options": "b1=0.8"}, "optim.options: b1 is set as optim.b1"),
        (
            {"name": "lion", "options": "learning_rate=1"},
            "is set as optim.learning_rate",
        ),
        # What would do nothing.
        (
            {"name": "sgd", "b1": 0.8},
            "optim.b1=0.8 does nothing with optim.name=sgd; set",
        ),
        (
            {"name": "lion", "b2": 0.98},
            "optim.b2=0.98 does nothing with optim.name=lion",
        ),
        (
            {"name": "adafactor", "eps": 1e-6},
            "optim.eps=1e-06 does nothing with optim.na",
        ),
        (
            {"name": "optax.radam", "eps": 1e-6},
            "optim.eps=1e-06 does nothing with optim",
        ),
        (
            {"name": "optax.radam", "weight_decay": 0.1},
            "optim.weight_decay=0.1 does noth",
        ),
        # One's own.
        ({"name": "optax.rada"}, "rada is not there. Did you mean 'radam'"),
        ({"name": "optaxx.radam"}, "there is no module 'optaxx'"),
        ({"name": "own_optimizers.number"}, "number is no function."),
        (
            {"name": "own_optimizers.nothing"},
            "nothing must return an optax.GradientTran",
        ),
        (
            {"name": "optax.radam", "options": "b3=1"},
            "no setting 'b3'. Did you mean 'b2'",
        ),
        ({"name": "optax.radam", "options": "b1=x"}, "b1 must be a number, got 'x'"),
        (
            {"name": "own_optimizers.halved", "options": "turns=1.5"},
            "optim.options: turns must be an integer, got 1.5",
        ),
        (
            {"name": "optax.adamw", "options": "mask=3"},
            "mask is given to optax.adamw already",
        ),
        (
            {"name": "own_optimizers.halved", "options": "weight_decay=0.1"},
            "weight_decay is set as optim.weight_decay",
        ),
        ({"name": "optax.lbfgs"}, "optim.name=optax.lbfgs cannot take a step from"),
        (
            {"name": "optax.contrib.schedule_free_sgd"},
            "is schedule-free: it wants an av",
        ),
    ],
)
def test_names_options_and_numbers_that_cannot_be_are_refused(own, fields, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        build(config_of(**fields))


def test_every_optimizer_takes_the_numbers_that_it_heeds():
    given = {"weight_decay": 0.1, "b1": 0.8, "b2": 0.9, "eps": 1e-6}
    for name, cls in OPTIMIZERS.items():
        heeded = {field: given[field] for field in cls.heeds}
        assert cls.summary
        make_optimizer(config_of(name=name, **heeded))


def test_a_run_from_before_the_fields_keeps_its_name_and_another_has_its_own():
    config = plain(config_of())
    old = {**config, "optim": dict(config["optim"])}
    for field in ("name", "options"):
        del old["optim"][field]
    assert completed(old) == config
    names = {run_id(one) for one in (config, old, completed(old))}
    others = [config_of(name="sgd"), config_of(name="sgd", options="momentum=0.5")]
    assert len(names) == 1
    assert len(names | {run_id(plain(one)) for one in others}) == 3
