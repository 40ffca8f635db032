"""The platform's fused attention: its translation, and when it is chosen.

Run on the CPU: the translated call through `jax.nn`'s plain implementation, splash
attention in interpret mode, and the cuDNN call by lowering it for a GPU.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.cudnn import fused_attention_stablehlo
from jax.sharding import AbstractDevice, AbstractMesh, AxisType

from ropejax import masks
from ropejax.attention import Request, attend, capabilities, fused
from ropejax.encodings import ENCODINGS, ALiBi, Encoding, Rotary, compose
from ropejax.tokens import tokens
from tests.attention import cases
from tests.attention.test_engines import FIRST

ON_GPU = Request(Rotary(), masks.Causal(), platform="gpu", dtype="bfloat16")
SERVED = [
    name
    for name, encoding in ENCODINGS.items()
    if not capabilities.obstacle(
        "fused", dataclasses.replace(ON_GPU, encoding=encoding())
    )
]


def through_xla(run_of, arrays, kernel=None):
    """Returns what `fused` gives with a kernel that runs here."""
    encoding, where, mask, scale = run_of
    q, k, v = (arrays[name] for name in "qkv")
    params = encoding.prepare(arrays["shared"], arrays["layer"], where, where, DIMS)
    features, _ = encoding.key_features(params, arrays["x"], k, where)
    query = encoding.query_features(params, arrays["x"], q, where)
    query, key = where.replace(features=query), where.replace(features=features)
    call = fused.translated(
        q,
        k,
        v,
        encoding=encoding,
        params=params,
        query=query,
        key=key,
        mask=mask,
        scale=scale,
    )
    kernel = kernel or (lambda call: fused.by_jax_nn(call, "xla"))
    return encoding.outputs(params, fused.finished(call, kernel(call)), query)


DIMS = cases.DIMS


@pytest.mark.parametrize("name", [name for name in SERVED if name in FIRST])
def test_translation_equals_dense(name):
    encoding = ENCODINGS[name]()
    arrays = cases.case(encoding, 7).arrays
    every = [masks.Causal()]
    if name in {"none", "rope", "pope"}:
        every += [None, masks.Window(2), masks.Causal() & masks.Window(4, 2)]

    def both(arrays):
        return [
            (
                through_xla((encoding, tokens(7), mask, 0.3), arrays),
                cases.attention(
                    encoding,
                    mask=masks.Full() if mask is None else mask,
                    implementation="dense",
                    scale=0.3,
                )(arrays),
            )
            for mask in every
        ]

    for got, wanted in cases.jit(both)(arrays):
        cases.assert_close(got, wanted)


def test_all_that_is_one_dot_product_is_served():
    assert {"none", "rope", "yarn", "rope_2d", "pope", "vo_rope", "sinusoidal"} <= set(
        SERVED
    )
    assert "alibi" in SERVED
    not_served = {"rerope", "xpos", "shaw", "t5", "kerple", "cope", "dape", "path"}
    assert not set(SERVED) & not_served


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_and_gradients_of_a_factored_bias(side):
    left = side == "left"
    encoding = Rotary() if left else compose(rope=Rotary(), alibi=ALiBi())
    valid = np.arange(9)[None] >= np.array([[0], [5]])
    valid = jnp.asarray(valid if left else valid[:, ::-1])
    where = tokens(9, valid=valid, left_padded=left)
    case = cases.case(encoding, 9)
    run = (encoding, where, masks.Causal(), 0.25)
    got = cases.value_and_grads(lambda a: through_xla(run, a), case.cotangent)
    wanted = cases.value_and_grads(
        cases.attention(encoding, where, implementation="dense", scale=0.25),
        case.cotangent,
    )
    cases.assert_same(got(case.arrays), wanted(case.arrays))


def test_a_factored_bias_keeps_its_digits_in_bfloat16():
    length, slope = 8192, 0.7071067811865476
    where = tokens(length)
    encoding = ALiBi(slopes=(slope,))
    zeros = jnp.zeros((1, length, 1, 8), jnp.bfloat16)
    call = fused.translated(
        zeros,
        zeros,
        zeros,
        encoding=encoding,
        params=encoding.prepare({}, {}, where, where, cases.DIMS._replace(num_heads=1)),
        query=where,
        key=where,
        mask=masks.Causal(),
        scale=1 / 8,
    )
    assert call.q.dtype == call.k.dtype == jnp.bfloat16
    assert call.q.shape[-1] == 16
    last = np.asarray(call.q[0, -1, 0], np.float64)
    got = np.asarray(call.k[0, :, 0], np.float64) @ last / 8
    wanted = float(np.float32(slope)) * np.arange(length)
    assert np.abs(got - wanted).max() <= 2.0**-23 * wanted.max()
    summed = jnp.dot(
        call.k[0, :, 0], call.q[0, -1, 0], preferred_element_type="float32"
    )
    allowed = capabilities.FACTOR_ERROR * wanted.max()
    assert np.abs(np.asarray(summed, np.float64) / 8 - wanted).max() <= allowed


@pytest.mark.parametrize("name", ["causal", "window", "segments"])
def test_splash_attention_in_interpret_mode(name):
    length = 128
    segments = jnp.arange(length)[None] // 50 if name == "segments" else None
    mask = masks.Window(20, 3) if name == "window" else masks.Causal()
    where = tokens(length, segments=segments)
    arrays = cases.case(Rotary(), length, batch=1).arrays
    got = through_xla(
        (Rotary(), where, mask, 0.25),
        arrays,
        lambda call: fused.splash(call, interpret=True),
    )
    wanted = cases.attention(Rotary(), where, mask, implementation="dense")(arrays)
    cases.assert_close(got, wanted, 1e-5)


def test_cudnn_is_what_is_lowered_for_a_gpu(monkeypatch):
    monkeypatch.setattr(fused_attention_stablehlo, "check_cudnn_version", lambda: 91400)
    x = jax.ShapeDtypeStruct((2, 256, 4, 64), jnp.bfloat16)

    def run(q, k, v):
        where, encoding = tokens(256), compose(rope=Rotary(), alibi=ALiBi())
        params = encoding.prepare({}, {}, where, where, cases.DIMS)
        return fused.fused(
            q,
            k,
            v,
            encoding=encoding,
            params=params,
            query=where,
            key=where,
            mask=masks.Causal(),
            scale=1 / 8,
            platform="gpu",
        )

    device = AbstractDevice(device_kind="NVIDIA H200", num_cores=132, platform="gpu")
    mesh = AbstractMesh(
        (1,), ("x",), axis_types=(AxisType.Auto,), abstract_device=device
    )
    with jax.sharding.use_abstract_mesh(mesh):
        traced = jax.jit(jax.grad(lambda *x: run(*x).astype("float32").sum())).trace(
            x, x, x
        )
        text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert "__cudnn$fmhaSoftmax" in text
    assert "__cudnn$fmhaSoftmaxBackward" in text
    assert "2x256x4x72xbf16" in text
    assert "4x256x256" not in text


def test_splash_attention_lowers_for_a_tpu():
    """Grouped heads, a window and segments, forward and backward."""
    q = jax.ShapeDtypeStruct((2, 384, 4, 64), jnp.bfloat16)
    k = jax.ShapeDtypeStruct((2, 384, 2, 64), jnp.bfloat16)
    where = tokens(384, segments=jnp.zeros((1, 384), jnp.int32))

    def run(q, k, v):
        out = fused.fused(
            q,
            k,
            v,
            encoding=Rotary(),
            params=Rotary().prepare({}, {}, where, where, cases.DIMS),
            query=where,
            key=where,
            mask=masks.Window(20, 3),
            scale=1 / 8,
            platform="tpu",
        )
        return out.astype(jnp.float32).sum()

    device = AbstractDevice(device_kind="TPU v5 lite", num_cores=1, platform="tpu")
    kinds = (AxisType.Auto,)
    mesh = AbstractMesh((1,), ("x",), axis_types=kinds, abstract_device=device)
    with jax.sharding.use_abstract_mesh(mesh):
        traced = jax.jit(jax.grad(run, (0, 1, 2))).trace(q, k, k)
        text = traced.lower(lowering_platforms=("tpu",)).as_text()
    assert text.count("tpu_custom_call") == 3


def test_by_name_on_a_cpu_it_is_refused():
    x = jnp.ones((1, 4, 2, 8), jnp.bfloat16)
    where = tokens(4)
    for name in ("fused", "pallas"):
        with pytest.raises(ValueError, match="not cpu; use .*blockwise"):
            attend(
                x,
                x,
                x,
                encoding=Encoding(),
                query=where,
                key=where,
                implementation=name,
            )
