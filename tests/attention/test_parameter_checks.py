"""Parameters that did not come from `prepare` are refused by name, before anything."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from flax.core import FrozenDict

from ropejax import masks
from ropejax.attention import attend
from ropejax.attention.axes import features_of
from ropejax.encodings import ENCODINGS, ALiBi, Encoding, Rotary, Shaw, TransformerXL
from ropejax.encodings.deberta import DeBERTa
from ropejax.tokens import tokens
from tests.attention.cases import DIMS

LENGTH = 3
WHERE = tokens(LENGTH)


def given(encoding, params, where=WHERE, dims=DIMS):
    """Attends with given parameters, which are looked at before features are."""
    x = jnp.zeros((2, where.length, dims.num_heads, dims.head_dim))
    k = x[:, :, : dims.num_kv_heads]
    settings = {"encoding": encoding, "params": params, "query": where, "key": where}
    call = lambda x, k: attend(x, k, k, **settings, mask=masks.Causal())
    return jax.eval_shape(call, x, k)


def initial(encoding, dims=DIMS):
    rng = jax.random.key(0)
    make = lambda rng: (encoding.init_shared(rng, dims), encoding.init_layer(rng, dims))
    shapes = jax.eval_shape(make, rng)
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)


def prepared(encoding, where=WHERE, dims=DIMS):
    return encoding.prepare(*initial(encoding, dims), where, where, dims)


def features(encoding, where):
    return features_of(encoding, where, where, DIMS)


STRUCTURES = {
    name: jax.tree.structure(prepared(kind())) for name, kind in ENCODINGS.items()
}


def as_variables(params):
    """What `nnx.state` of a module with these parameters gives."""
    return nnx.State(jax.tree.map(nnx.Param, params))


# All but those that make no parameters and look at none.
WITH_SAY = [
    name
    for name, kind in ENCODINGS.items()
    if kind.prepare is not Encoding.prepare or jax.tree.leaves(initial(kind()))
]


@pytest.mark.fast
@pytest.mark.parametrize("name", WITH_SAY)
def test_parameters_that_are_not_prepared_are_refused_for_every_encoding(name):
    encoding = ENCODINGS[name]()
    shared, layer = initial(encoding)
    wrong = [{"of_another": jnp.zeros(DIMS.num_heads)}, 3.0, {**shared, **layer}]
    wrong += [{}, layer, shared]
    refused = 0
    for params in wrong:
        if jax.tree.structure(params) == STRUCTURES[name]:
            continue  # what prepare returns as well, as far as can be seen
        with pytest.raises(ValueError, match=r"params=encoding\.prepare\("):
            given(encoding, params)
        refused += 1
    assert refused >= 2
    if initial(encoding) != ({}, {}):
        with pytest.raises(ValueError, match=r"params=encoding\.prepare\("):
            given(encoding, None)


@pytest.mark.fast
@pytest.mark.parametrize("name", ENCODINGS)
def test_what_prepare_returns_is_taken_for_every_encoding(name):
    encoding = ENCODINGS[name]()
    valid = jnp.array([[True] * LENGTH, [True, True, False]])
    for where in (WHERE, tokens(LENGTH, valid=valid)):
        params = prepared(encoding, where)
        if jax.tree.leaves(features(encoding, where)):
            with pytest.raises(ValueError, match=r"_features\(params, x, "):
                given(encoding, params, where)
        else:
            assert given(encoding, params, where).shape == (2, LENGTH, 4, 16)


@pytest.mark.parametrize("name", WITH_SAY)
@pytest.mark.parametrize("kind", [dict, FrozenDict, nnx.State, as_variables])
def test_parameters_may_be_kept_in_numpy_and_in_other_mappings(name, kind):
    encoding = ENCODINGS[name]()
    make = lambda rng: (encoding.init_shared(rng, DIMS), encoding.init_layer(rng, DIMS))
    params = encoding.prepare(*make(jax.random.key(0)), WHERE, WHERE, DIMS)
    if not isinstance(params, dict) or jax.tree.leaves(features(encoding, WHERE)):
        pytest.skip("prepare returns no dict, or hidden states are needed")
    q = jax.random.normal(jax.random.key(1), (1, LENGTH, 4, DIMS.head_dim))
    k = q[:, :, : DIMS.num_kv_heads]
    settings = {"encoding": encoding, "query": WHERE, "key": WHERE}
    settings |= {"mask": masks.Causal(), "implementation": "dense"}
    kept = kind(jax.tree.map(np.asarray, params))
    found = jax.jit(lambda q: attend(q, k, k, **settings, params=kept))(q)
    wanted = jax.jit(lambda q, p: attend(q, k, k, **settings, params=p))(q, params)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.fast
@pytest.mark.parametrize("name", ENCODINGS)
def test_hooks_before_attention_read_parameters_of_numpy_in_a_traced_function(name):
    """As loaded from a file: embeddings, features, and what prepare makes of tables."""
    encoding = ENCODINGS[name]()
    make = lambda rng: (encoding.init_shared(rng, DIMS), encoding.init_layer(rng, DIMS))
    shared, layer = (
        jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), one)
        for one in jax.eval_shape(make, jax.random.key(0))
    )
    axes = encoding.num_axes
    places = jnp.zeros((1, LENGTH, axes), jnp.int32) if axes > 1 else None
    where = tokens(LENGTH, positions=places)

    def hooks(x, q, k):
        x = encoding.embed(shared, x, where)
        params = encoding.prepare(shared, layer, where, where, DIMS)
        asked = encoding.query_features(params, x, q, where)
        return x, asked, encoding.key_features(params, x, k, where)

    x = jnp.zeros((1, LENGTH, DIMS.embed_dim))
    heads = (DIMS.num_heads, DIMS.num_kv_heads)
    q, k = (jnp.zeros((1, LENGTH, n, DIMS.head_dim)) for n in heads)
    for run in (hooks, jax.vmap(lambda *one: hooks(*(part[None] for part in one)))):
        assert jax.eval_shape(run, x, q, k)[0].shape[-2:] == x.shape[-2:]


@pytest.mark.fast
def test_parameters_of_other_sizes_are_refused():
    """Five vectors under a setting of nine would be read past their end."""
    with pytest.raises(ValueError, match=r"expected .*\[9, 16\].*got .*\[5, 16\]"):
        given(Shaw(clip=4), prepared(Shaw(clip=2)))
    with pytest.raises(ValueError, match=r"expected .*\[4\].*got .*\[8\]"):
        given(ALiBi(), prepared(ALiBi(), dims=DIMS._replace(num_heads=8)))


@pytest.mark.fast
def test_the_models_width_may_be_any():
    """Queries and keys do not tell it."""
    encoding = TransformerXL()
    for width in (24, 80):
        dims = DIMS._replace(embed_dim=width)
        assert given(encoding, prepared(encoding, dims=dims)).shape[-1] == 16


@pytest.mark.fast
def test_one_without_parameters_says_what_it_was_given():
    with pytest.raises(ValueError, match=r"RoPE.*expected \{\}, got \{'slopes': \[4\]"):
        given(Rotary(), {"slopes": jnp.zeros(4)})


@pytest.mark.fast
def test_a_method_that_makes_no_parameters_may_be_given_some():
    """As an author's does while it is tried out: nothing is known of them."""
    assert given(Encoding(), {"mine": jnp.zeros(3)}).shape == (2, LENGTH, 4, 16)


@pytest.mark.fast
def test_projections_that_are_shared_with_the_model_are_left_to_prepare():
    encoding = DeBERTa(share_projections=True)
    shared, layer = initial(DeBERTa())
    params = encoding.prepare(shared, layer, WHERE, WHERE, DIMS)
    assert given(encoding, params).shape == (2, LENGTH, 4, 16)


def test_what_a_method_of_ones_own_wants_besides_is_no_error_of_the_check():
    class OfTheModel(Encoding):
        def prepare(self, shared, layer, query, key, dims):
            return {"table": shared["of the model"]}

        def bias(self, params, query, key, scale):
            return params["table"][None]

    q = jnp.ones((1, 3, 2, 4))
    where = tokens(3)
    params = {"table": jnp.zeros((2, 3, 3))}
    out = attend(q, q, q, encoding=OfTheModel(), params=params, query=where, key=where)
    np.testing.assert_allclose(out, 1.0)


@pytest.mark.parametrize(
    "name", [name for name, kind in ENCODINGS.items() if kind().has_features]
)
def test_features_are_told_for_rows_that_differ(name):
    """Whether they are given is checked, and they are cut over devices, then too."""
    rows = jnp.arange(2 * LENGTH).reshape(2, LENGTH)
    made = features(ENCODINGS[name](), WHERE.replace(index=rows, positions=rows))
    assert all(x.shape[0] in {1, 2} for x in jax.tree.leaves(made))
