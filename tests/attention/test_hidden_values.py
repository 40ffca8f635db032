"""What no query sees does not matter, whatever it is; what is no number is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax import masks
from ropejax.attention import attend
from ropejax.encodings import ALiBi, Rotary
from ropejax.positions import RandomFloats
from ropejax.tokens import tokens

FILLED = 5


def buffers(garbage):
    """Two queries after three keys, in buffers whose end holds something else."""
    q, k, v = jax.random.normal(jax.random.key(0), (3, 2, 8, 2, 4))
    k, v = (x.at[:, FILLED:].set(garbage) for x in (k, v))
    return q[:, 3:FILLED], k, v


def attended(arrays, **settings):
    query, key = tokens(2, offset=3), tokens(8)
    given = {"encoding": Rotary(), "query": query, "key": key, "mask": masks.Causal()}
    return attend(*arrays, **(given | settings))


HIDING = {
    "causal": masks.Causal(),
    "window": masks.Window(2, 0),
    "sinks": masks.Causal() & (masks.Window(1, 1) | masks.Global(1)),
    "per head": masks.PerHead((masks.Causal(), masks.Window(3, 0))),
    "strictly earlier keys": masks.Causal() & ~masks.Window(0, 0),
}


@pytest.mark.parametrize("mask", HIDING.values(), ids=HIDING)
@pytest.mark.parametrize("implementation", ["dense", "blockwise"])
def test_garbage_that_a_mask_hides_from_all_queries_changes_nothing(
    implementation, mask
):
    settings = {"implementation": implementation, "mask": mask, "block_k": 3}

    def loss(arrays):
        return (attended(arrays, **settings) ** 2).sum()

    run = jax.jit(jax.value_and_grad(loss))
    wanted, clean = run(buffers(0.0))
    for garbage in (jnp.nan, jnp.inf):
        got, grads = run(buffers(garbage))
        np.testing.assert_array_equal(got, wanted)
        for a, b in zip(grads, clean, strict=True):
            np.testing.assert_array_equal(a, b)


def test_rows_hide_their_own_keys():
    """Each row of a batch has its own number of tokens so far."""
    query = tokens(1).replace(
        index=jnp.array([[4], [2]]),
        positions=jnp.array([[4], [2]]),
        consecutive_index=False,
        consecutive_positions=False,
    )
    q, k, v = buffers(0.0)
    past = jnp.arange(8)[None, :, None, None] > jnp.array([4, 2])[:, None, None, None]
    wanted = attended((q[:, :1], k, v), query=query)
    dirty = (q[:, :1], jnp.where(past, jnp.nan, k), jnp.where(past, jnp.nan, v))
    np.testing.assert_array_equal(attended(dirty, query=query), wanted)
    assert np.isfinite(wanted).all()


@pytest.mark.fast
@pytest.mark.parametrize("implementation", ["dense", "blockwise"])
@pytest.mark.parametrize(
    ("mask", "hidden"),
    [(masks.Prefix(3), 5), (masks.Causal() & ~masks.Window(0, 0), 7)],
    ids=str,
)
def test_what_the_same_tokens_hide_from_each_other_may_be_anything(
    implementation, mask, hidden
):
    q, k, v = jax.random.normal(jax.random.key(1), (3, 1, 8, 2, 4))
    where = tokens(8)
    given = {"query": where, "key": where, "mask": mask}
    given["implementation"] = implementation
    dirty = (q, k.at[:, hidden].set(jnp.nan), v.at[:, hidden].set(jnp.nan))
    got = attended(dirty, **given)
    np.testing.assert_array_equal(got, attended((q, k, v), **given))


@pytest.mark.fast
@pytest.mark.parametrize("implementation", ["dense", "blockwise"])
def test_queries_at_padding_reach_no_gradient(implementation):
    q, k, v = jax.random.normal(jax.random.key(2), (3, 1, 8, 2, 4))
    valid = jnp.arange(8)[None] < FILLED
    where = tokens(8, valid=valid)

    @jax.jit
    @jax.grad
    def gradients(arrays):
        given = {"query": where, "key": where, "implementation": implementation}
        return (attended(arrays, **given)[:, :FILLED] ** 2).sum()

    clean = gradients((q, k, v))
    dirty = tuple(jnp.where(valid[..., None, None], x, jnp.nan) for x in (q, k, v))
    for a, b in zip(gradients(dirty), clean, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.fast
def test_one_and_the_same_tokens_cost_nothing():
    """A mask of order hides no token from itself: keys are used as they are."""
    x = jnp.zeros((1, 4, 2, 4))
    where = tokens(4)
    settings = {"encoding": Rotary(), "mask": masks.Causal(), "implementation": "dense"}
    run = lambda key: jax.make_jaxpr(
        lambda x: attend(x, x, x, query=where, key=key, **settings)
    )(x)
    count = lambda jaxpr: str(jaxpr).count("_where")
    assert count(run(where)) < count(run(tokens(4)))


@pytest.mark.fast
@pytest.mark.parametrize("scale", [float("nan"), np.inf, jnp.array(jnp.nan)])
def test_a_scale_that_is_no_number_is_refused(scale):
    with pytest.raises(ValueError, match=r"scale must be finite, got (nan|inf)"):
        attended(buffers(0.0), scale=scale)


@pytest.mark.fast
@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf])
def test_places_that_are_no_numbers_are_refused_by_name(bad):
    places = jnp.array([[0.0, 1.0, bad]])
    with pytest.raises(ValueError, match=r"positions must be finite, got (nan|inf)"):
        tokens(3, positions=places)
    with pytest.raises(ValueError, match=r"distances must be finite, got (nan|inf)"):
        tokens(3, distances=places)
    with pytest.raises(ValueError, match=r"digit must be finite, got (nan|inf)"):
        tokens(3, streams={"digit": places})
    x = jnp.zeros((1, 3, 2, 4))
    where = tokens(3).replace(positions=places, consecutive_positions=False)
    with pytest.raises(ValueError, match=r"positions of k's Tokens must be finite"):
        attend(x, x, x, encoding=ALiBi(), query=tokens(3), key=where)


@pytest.mark.fast
def test_a_traced_position_propagates():
    x = jnp.ones((1, 2, 2, 4))

    @jax.jit
    def run(places):
        where = tokens(2, positions=places)
        return attend(x, x, x, encoding=ALiBi(), query=where, key=where)

    assert np.isnan(run(jnp.array([[0.0, jnp.nan]]))).any()


@pytest.mark.fast
def test_an_endless_range_of_positions_is_refused():
    with pytest.raises(ValueError, match=r"max_position must be finite.*inf.*Random"):
        RandomFloats(max_position=float("inf"))
