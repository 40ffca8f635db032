"""Every encoding of the catalogue, with default settings, keeps the contract."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax import testing
from ropejax.encodings import ENCODINGS, Encoding
from ropejax.tokens import tokens

EVERY = pytest.mark.parametrize("name", ENCODINGS)


@EVERY
def test_encoding_keeps_the_contract(name):
    testing.check_encoding(ENCODINGS[name]())


@EVERY
def test_some_other_setting_makes_a_difference(name):
    """No two settings are mixed up, by a cache or by a setting without effect."""
    encoding = ENCODINGS[name]()
    others = list(itertools.islice(testing.variants(encoding), 8))
    if not others:
        pytest.skip("no setting has an obvious other value")
    assert len({encoding, *others}) > len(others)
    shapes = parameter_shapes(encoding)
    if any(parameter_shapes(other) != shapes for other in others):
        return
    if {field.name for field in dataclasses.fields(encoding)} <= OF_THE_START:
        same = [jax.tree.map(np.array_equal, start(encoding), start(o)) for o in others]
        assert not any(all(jax.tree.leaves(one)) for one in same)
        return
    inputs = testing.example(encoding)
    limit = encoding.position_limit or 2**20
    at = min(40, (limit - 1) // 8) * jnp.arange(8)[None]
    wanted = output(encoding, inputs, at)
    assert any((output(other, inputs, at) != wanted).any() for other in others)


OF_THE_START = {"init_std", "initial_bias"}
"""Settings that show in initial values alone."""


def start(encoding, rng=None):
    rng = jax.random.key(0) if rng is None else rng
    dims = testing.DIMS
    return encoding.init_shared(rng, dims), encoding.init_layer(rng, dims)


def parameter_shapes(encoding):
    return jax.eval_shape(lambda rng: start(encoding, rng), jax.random.key(0))


def output(encoding, inputs, at):
    run = jax.jit(lambda inputs: testing.run(encoding, inputs, tokens(8, positions=at)))
    return np.asarray(run(inputs))


@pytest.mark.fast
def test_a_negative_spread_at_the_start_is_refused():
    drawn = [
        kind
        for kind in ENCODINGS.values()
        if "init_std" in {field.name for field in dataclasses.fields(kind)}
    ]
    assert len(drawn) >= 9
    for kind in drawn:
        with pytest.raises(ValueError, match="init_std must be .*, got -0.02"):
            kind(init_std=-0.02)


@pytest.mark.fast
def test_catalogue_describes_every_encoding_once():
    for name, kind in ENCODINGS.items():
        testing.check_description(kind())
        assert kind().reference or kind is Encoding, name
        assert name == name.lower()
        assert name.replace("_", "").isalnum()
    described = [(kind.title, kind.summary) for kind in ENCODINGS.values()]
    assert len(set(described)) == len(described)
