"""Looped layers: depth without parameters, and the input added on the way."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from ropejax.encodings import Dims, Rotary
from ropejax.nn import BlockSettings, LayerKind, TransformerSpec
from ropejax.nn.parameters import as_arrays
from ropejax.positions import Placement

SPEC = TransformerSpec(
    num_symbols=5,
    num_outputs=3,
    dims=Dims(2, 2, 4, 8, num_layers=2),
    settings=BlockSettings(mlp_dim=16, dropout=0.0),
    pattern=(LayerKind(Rotary()),),
)


def logits(spec, params, tokens):
    forward = lambda params: spec.bind(params)(tokens, Placement())
    return np.asarray(jax.jit(forward)(params))


@pytest.fixture(scope="module")
def case():
    params = SPEC.init(jax.random.key(0))
    tokens = jax.random.randint(jax.random.key(1), (3, 6), 0, 5)
    return params, tokens


def test_positions_of_another_number_of_layers_are_refused(case):
    params, tokens = case
    other = Placement(positions=jnp.zeros((3, 1, 6), jnp.int32), per_layer=True)
    with pytest.raises(ValueError, match="for 3 layers, but the model has 2; draw"):
        jax.eval_shape(lambda: SPEC.bind(params)(tokens, other))


def by_hand(spec, params, tokens, inject):
    """Layer after layer in a Python loop; `inject(loop, at)`: is x_0 added here?"""
    model = spec.bind(params)
    where = Placement().tokens(tokens.shape[1])
    graph, stacked = nnx.split(model.layers["kind_0"])
    shared = as_arrays(model.shared["kind_0"])
    start = x = model.embed_tokens(tokens, where)
    for loop in range(spec.loops):
        for at in range(spec.dims.num_layers):
            x = x + start if inject(loop, at) else x
            block = nnx.merge(graph, jax.tree.map(lambda a, at=at: a[at], stacked))
            x = block(x, where, shared=shared)
    return model.read_out(x)


@pytest.mark.parametrize(
    ("loops", "injection", "inject"),
    [
        (1, "none", lambda loop, at: False),
        (3, "none", lambda loop, at: False),
        (3, "loop", lambda loop, at: loop > 0 and at == 0),
        (1, "layer", lambda loop, at: at > 0),
        (2, "layer", lambda loop, at: (loop, at) != (0, 0)),
    ],
)
def test_loops_and_injection_are_what_they_say(case, loops, injection, inject):
    params, tokens = case
    spec = dataclasses.replace(SPEC, loops=loops, input_injection=injection)
    expected = by_hand(spec, params, tokens, inject)
    for scan in (True, False):
        found = logits(dataclasses.replace(spec, scan_layers=scan), params, tokens)
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_loops_equal_as_many_layers_with_the_same_parameters(case):
    params, tokens = case
    looped = dataclasses.replace(SPEC, loops=2)
    deep = dataclasses.replace(SPEC, dims=SPEC.dims._replace(num_layers=4))
    twice = params | {
        "layers": jax.tree.map(lambda a: jnp.concatenate([a, a]), params["layers"])
    }
    np.testing.assert_allclose(
        logits(looped, params, tokens), logits(deep, twice, tokens), atol=1e-5
    )
    once = logits(SPEC, params, tokens)
    assert np.abs(once - logits(looped, params, tokens)).max() > 1e-2


@pytest.mark.fast
def test_parameters_do_not_grow_with_loops():
    shapes = lambda spec: jax.eval_shape(spec.init, jax.random.key(0))
    looped = dataclasses.replace(SPEC, loops=7, input_injection="loop")
    assert shapes(looped) == shapes(SPEC)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loops": 0}, "loops must be at least 1, got 0"),
        ({"input_injection": "always"}, "one of none, loop, layer, got 'always'"),
        ({"input_injection": "loop"}, "adds nothing to a single loop"),
        (
            {"input_injection": "layer", "dims": SPEC.dims._replace(num_layers=1)},
            "adds nothing before the first layer, and there is no other",
        ),
    ],
)
def test_settings_without_meaning_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SPEC, **change)
