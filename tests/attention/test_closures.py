"""Masks and methods that compute with traced values which nobody passed to them."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.attention import SequenceParallel, attend
from ropejax.encodings import ALiBi, Encoding
from ropejax.tokens import tokens
from tests.attention import cases, on_mesh

LENGTH = 8
ALIBI = ALiBi()


def window(width):
    """A causal mask of so many keys, made of a number that may be traced."""

    def mask(query, key):
        apart = query.index[:, None, :, None] - key.index[:, None, None, :]
        return jnp.where(apart % 2 == 0, apart >= 0, (apart >= 0) & (apart < width))

    return mask


def attention(q, mask, encoding=ALIBI, **settings):
    where = tokens(LENGTH)
    return attend(
        q,
        q[:, :, :2],
        jnp.sin(q[:, :, :2]),
        encoding=encoding,
        query=where,
        key=where,
        mask=mask,
        **settings,
    )


def queries():
    return cases.normal(np.random.default_rng(0), 2, LENGTH, 4, 4)


BLOCKS = {"block_q": 4, "block_k": 2}


@pytest.mark.fast
@pytest.mark.parametrize("engine", ["dense", "blockwise", "ring"])
def test_a_mask_that_reads_an_array_of_numpy_is_told_what_to_do(engine):
    """Such an array has no entries at traced indices; that of jax.numpy has."""
    shown = np.tril(np.ones((LENGTH, LENGTH), bool))
    mesh = on_mesh.mesh_of(sequence=4)
    how = SequenceParallel(engine, mesh=mesh) if engine == "ring" else engine

    def shape(array):
        def mask(query, key):
            return array[query.index[:, :, None], key.index[:, None, :]][:, None]

        run = lambda q: attention(q, mask, implementation=how, **BLOCKS)
        return jax.eval_shape(jax.grad(lambda q: run(q).sum()), queries()).shape

    with pytest.raises(ValueError, match=r"traced here.*jnp\.asarray\(array\)"):
        shape(shown)
    assert shape(jnp.asarray(shown)) == (2, LENGTH, 4, 4)


def test_widths_of_each_layer_and_row_are_traced():
    widths = jnp.array([[1.5, 3.5], [6.5, 2.5]])  # [layer, row]

    def results(**settings):
        def layer(q, width):
            one = lambda q, width: attention(q[None], window(width), **settings)[0]
            return jax.vmap(one)(q, width), None

        def loss(q, widths):
            return (jax.lax.scan(layer, q, widths)[0] ** 2).sum()

        return cases.jit(jax.value_and_grad(loss, (0, 1)))(queries(), widths)

    got = results(implementation="blockwise", **BLOCKS)
    cases.assert_close(got, results(implementation="dense"), 1e-5)
    assert not np.any(got[1][1])


def test_a_traced_width_goes_around_a_ring():
    def results(how):
        def loss(q, width):
            out = attention(q, window(width), implementation=how, **BLOCKS)
            return (out**2).sum()

        return cases.jit(jax.value_and_grad(loss))(queries(), jnp.int32(3))

    with jax.set_mesh(on_mesh.mesh_of(sequence=2)):
        got = results(SequenceParallel("ring"))
    cases.assert_close(got, results("dense"), 1e-5)


def test_a_method_that_closes_over_what_it_learns_is_told_of_parameters():
    def loss(slope):
        @dataclasses.dataclass(frozen=True)
        class Slope(Encoding):
            def bias(self, params, query, key, scale):
                apart = query.index[:, None, :, None] - key.index[:, None, None, :]
                return -slope * apart.astype(jnp.float32)

        settings = {"implementation": "blockwise", **BLOCKS}
        return attention(queries(), None, Slope(), **settings).sum()

    with pytest.raises(ValueError, match=r"closes over.*make it a parameter"):
        jax.grad(loss)(0.5)
