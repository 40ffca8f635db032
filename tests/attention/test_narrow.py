"""The kernel for biases of head and offset, in interpret mode and lowered for a GPU."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractDevice, AbstractMesh, AxisType
from jax.sharding import PartitionSpec as P

from ropejax import masks
from ropejax.attention import narrow
from ropejax.encodings import ALiBi, Encoding, Kerple, Rotary, T5Bias, compose
from ropejax.tokens import tokens
from tests.attention import cases

LENGTH = 37
METHODS = {
    "alibi": (ALiBi(learned=True, two_sided=True), masks.Window(20, 5)),
    "t5": (T5Bias(num_buckets=8, max_distance=20), masks.Causal()),
    "rope and kerple": (compose(Rotary(), Kerple("power")), masks.Causal()),
}


def in_kernel(encoding, where, mask, **settings):
    def run(arrays):
        q, k, v, x = (arrays[name] for name in "qkvx")
        params = encoding.prepare(
            arrays["shared"], arrays["layer"], where, where, cases.DIMS
        )
        features, _ = encoding.key_features(params, x, k, where)
        return narrow.narrow(
            q,
            k,
            v,
            encoding=encoding,
            params=params,
            query=where.replace(features=encoding.query_features(params, x, q, where)),
            key=where.replace(features=features),
            mask=mask,
            scale=0.25,
            block=16,
            **settings,
        )

    return run


def both(encoding, where, mask, length=LENGTH):
    case = cases.case(encoding, length)
    got = in_kernel(encoding, where, mask, interpret=True)
    dense = cases.attention(
        encoding, where, masks.Full() if mask is None else mask, implementation="dense"
    )
    return [
        cases.value_and_grads(run, case.cotangent)(case.arrays) for run in (got, dense)
    ]


@pytest.mark.parametrize("name", METHODS)
def test_outputs_and_all_gradients_equal_dense(name):
    encoding, mask = METHODS[name]
    cases.assert_same(*both(encoding, tokens(LENGTH), mask))


def test_padding_segments_and_positions_by_value():
    rng = np.random.default_rng(0)
    valid = jnp.arange(LENGTH)[None] < jnp.array([[LENGTH], [LENGTH - 20]])
    where = tokens(
        LENGTH,
        positions=jnp.asarray(np.sort(rng.choice(90, (2, LENGTH)), axis=1)),
        segments=(jnp.arange(LENGTH) // 13)[None],
        valid=valid,
    )
    where = where.permuted(jnp.asarray(rng.permutation(LENGTH)))
    cases.assert_same(*both(ALiBi(), where, masks.Causal() & masks.Window(9)))


def test_rows_that_see_nothing_are_zero():
    where = tokens(LENGTH, valid=jnp.arange(LENGTH)[None] >= 4, left_padded=True)
    (_, out), grads = both(Encoding(), where, masks.Causal())[0]
    assert not np.asarray(out)[:, :4].any()
    assert all(np.isfinite(g).all() for g in jax.tree.leaves(grads))
    assert not np.asarray(grads["q"])[:, :4].any()


@pytest.mark.filterwarnings("ignore:The Pallas Triton backend:DeprecationWarning")
@pytest.mark.parametrize(("name", "devices"), [("rope and kerple", 2), ("t5", 1)])
@pytest.mark.fast
def test_forward_and_backward_lower_for_gpus(name, devices):
    encoding, mask = METHODS[name]
    arrays = jax.eval_shape(lambda: cases.case(encoding, 100).arrays)

    def low(x):
        dtype = jnp.bfloat16 if x.ndim == 4 else x.dtype
        return jax.ShapeDtypeStruct(x.shape, dtype)

    arrays = jax.tree.map(low, arrays)
    run = in_kernel(encoding, tokens(100), mask)
    device = AbstractDevice(device_kind="NVIDIA H200", num_cores=132, platform="gpu")
    kinds = (AxisType.Auto,)
    mesh = AbstractMesh((devices,), ("x",), axis_types=kinds, abstract_device=device)
    by_row = jax.tree.map(lambda x: P("x") if x.ndim > 2 else P(), arrays)
    with jax.sharding.use_abstract_mesh(mesh):
        if devices > 1:
            run = jax.shard_map(run, in_specs=(by_row,), out_specs=P("x"))
        grad = jax.grad(lambda arrays: run(arrays).astype(jnp.float32).sum())
        traced = jax.jit(grad).trace(arrays)
        text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert text.count("__gpu$xla.gpu.triton") == 3


def test_a_block_that_triton_cannot_multiply_is_refused():
    x, where = jnp.ones((1, 8, 1, 4)), tokens(8)
    for block in (8, 48):
        with pytest.raises(ValueError, match=f"power of two.*{block}"):
            narrow.narrow(
                x,
                x,
                x,
                encoding=Encoding(),
                params={},
                query=where,
                key=where,
                scale=1.0,
                block=block,
            )
