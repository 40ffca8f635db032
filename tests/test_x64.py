"""With `jax_enable_x64`: everything runs, and types are those without it.

What a computation makes for itself (starts of loops, ones, identity matrices, random
draws) takes JAX's default type if it names none, float64 then; a loop whose carry
starts so does not compile, and results have other types than are promised. Most tests
look at shapes and types, which needs no compilation.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax import testing
from ropejax.attention import SequenceParallel, attend
from ropejax.encodings import ENCODINGS, Rotary
from ropejax.masks import Causal
from ropejax.nn import NORMALIZERS, decode_batch
from ropejax.positions import POSITIONS, Consecutive
from ropejax.tasks import ALL_TASKS, Autoregressive, ReverseString
from ropejax.tokens import tokens
from ropejax.training import CURRICULA, init_state
from ropejax.training.step import train_steps
from tests.nn.test_decoder import decoder
from tests.training.tiny import tiny_recipe

LENGTH = 6
ENGINES = {
    "dense": {"implementation": "dense"},
    "blockwise": {"implementation": "blockwise", "block_q": 3, "block_k": 2},
}
KEY = jax.eval_shape(lambda: jax.random.key(0))


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield


def types_of(tree):
    return {x.dtype for x in jax.tree.leaves(tree)}


def value_and_grads(encoding, engine, **settings):
    """A function of `testing.example` inputs: outputs and gradients of all of them."""

    def loss(inputs):
        out = testing.run(
            encoding, inputs, tokens(LENGTH), **ENGINES[engine], **settings
        )
        weights = jnp.cos(jnp.arange(out.size, dtype=jnp.float32)).reshape(out.shape)
        return (out.astype(jnp.float32) * weights).sum(), out

    def run(inputs):
        (_, out), grads = jax.value_and_grad(loss, has_aux=True)(inputs)
        return out, grads

    return run


def shapes_of(encoding, dtype):
    """What `testing.example` makes, without its values; parameters as they start."""
    dims = testing.DIMS
    heads = {"q": dims.num_heads, "k": dims.num_kv_heads, "v": dims.num_kv_heads}
    shapes = {"x": (2, LENGTH, dims.embed_dim)}
    for name, count in heads.items():
        shapes[name] = (2, LENGTH, count, dims.head_dim)
        shapes["w" + name] = (dims.embed_dim, count, dims.head_dim)
    inputs = {name: jax.ShapeDtypeStruct(at, dtype) for name, at in shapes.items()}
    init = lambda rng: {
        "shared": encoding.init_shared(rng, dims),
        "layer": encoding.init_layer(rng, dims),
    }
    return inputs | jax.eval_shape(init, KEY)


@pytest.mark.fast
@pytest.mark.parametrize("name", ENCODINGS)
def test_every_encoding_keeps_types_in_every_engine_and_gradient(name, x64):
    encoding = ENCODINGS[name]()
    inputs = shapes_of(encoding, jnp.float32)
    assert types_of(inputs) == {jnp.dtype(jnp.float32)}  # parameters are, as they start
    for engine in ENGINES:
        out, grads = jax.eval_shape(value_and_grads(encoding, engine), inputs)
        assert out.dtype == jnp.float32
        assert types_of(grads) == {jnp.dtype(jnp.float32)}


@pytest.mark.fast
@pytest.mark.parametrize("name", ["rope", "alibi", "cope", "path", "grape_ap", "shaw"])
def test_float64_inputs_give_float64_outputs_whatever_the_parameters(name, x64):
    encoding = ENCODINGS[name]()
    inputs = shapes_of(encoding, jnp.float64)
    wide = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, jnp.float64), inputs)
    for engine in ENGINES:
        for given in (inputs, wide):
            out, grads = jax.eval_shape(value_and_grads(encoding, engine), given)
            assert out.dtype == jnp.float64
            assert types_of(grads) == types_of(given)


@pytest.mark.fast
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", NORMALIZERS)
def test_every_normalizer_keeps_types(name, engine, x64):
    normalizer = NORMALIZERS[name]()
    in_blocks = normalizer.blockwise or normalizer.has_threshold
    if engine == "blockwise" and not in_blocks:
        pytest.skip("needs whole rows")
    params = jax.eval_shape(lambda: normalizer.init_layer(4))
    assert types_of(params) <= {jnp.dtype(jnp.float32)}

    def loss(q, params, scale, rng):
        out = attend(
            *(q, q, q),
            encoding=Rotary(),
            query=tokens(LENGTH),
            key=tokens(LENGTH),
            mask=Causal(),
            normalizer=normalizer,
            normalizer_params=params,
            row_scale=scale,
            dropout_rate=0.1,
            rng=rng,
            return_lse=normalizer.has_lse,
            **ENGINES[engine],
        )
        out, lse = out if normalizer.has_lse else (out, None)
        return out.astype(jnp.float32).sum(), (out, lse)

    for dtype in (jnp.float32, jnp.bfloat16, jnp.float64):
        q = jax.ShapeDtypeStruct((1, LENGTH, 4, 8), dtype)
        scale = jax.ShapeDtypeStruct(
            (1, LENGTH, 4), jnp.promote_types(dtype, "float32")
        )
        run = jax.grad(loss, argnums=(0, 1), has_aux=True)
        grads, (out, lse) = jax.eval_shape(run, q, params, scale, KEY)
        assert out.dtype == grads[0].dtype == dtype
        assert types_of(lse) <= {jnp.dtype(jnp.float32)}


@pytest.mark.fast
@pytest.mark.parametrize("form", ["ring", "ulysses", "all_gather"])
def test_attention_over_devices_keeps_types(form, x64):
    mesh = jax.make_mesh((2,), ("s",), (jax.sharding.AxisType.Auto,))
    q = jax.ShapeDtypeStruct((1, LENGTH, 4, 8), jnp.float32)

    def loss(q):
        return attend(
            *(q, q, q),
            encoding=Rotary(),
            query=tokens(LENGTH),
            key=tokens(LENGTH),
            mask=Causal(),
            implementation=SequenceParallel(form, "s", mesh=mesh),
        ).sum()

    assert types_of(jax.eval_shape(jax.value_and_grad(loss), q)) == {q.dtype}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["rope", "alibi", "cope", "path"])
def test_numbers_are_those_without_x64(name, engine):
    encoding = ENCODINGS[name]()
    inputs = jax.device_get(testing.example(encoding, length=LENGTH, batch=1))
    run = value_and_grads(encoding, engine)
    right = jax.jit(run)(inputs)
    with jax.enable_x64(True):
        got = jax.jit(run)(inputs)
        assert types_of(got) == {jnp.dtype(jnp.float32)}
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(right), strict=True):
        scale = max(1.0, np.abs(b).max())
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-6 * scale)


def test_thresholds_are_those_without_x64():
    """Newton's method in blockwise entmax: a loop until the largest step is small."""
    q = np.random.default_rng(0).normal(size=(1, LENGTH, 2, 4)).astype(np.float32)
    at = tokens(LENGTH)
    run = lambda q: attend(
        *(q, q, q),
        encoding=Rotary(),
        query=at,
        key=at,
        normalizer=NORMALIZERS["entmax"](),
        **ENGINES["blockwise"],
    )
    right = jax.jit(run)(q)
    with jax.enable_x64(True):
        np.testing.assert_allclose(jax.jit(run)(q), right, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", sorted(set(POSITIONS) - {"consecutive"}))
def test_schemes_place_tokens_where_they_do_without_x64(name):
    """Random draws of another type are other draws: a seed must mean one placement."""
    more = {"shifted": {"max_random_offset": 50}}
    scheme = POSITIONS[name](**more.get(name, {}))
    lengths = np.array([3, 6], np.int32)
    symbols = np.array([[1, 10, 2, 0, 0, 0], [1, 2, 10, 3, 11, 4]], np.int32)

    @jax.jit
    def place(lengths, symbols):
        rng = jax.random.key(3)
        return scheme(rng, lengths, num_tokens=LENGTH, tokens=symbols)

    right = place(lengths, symbols)
    with jax.enable_x64(True):
        got = place(lengths, symbols)
    assert types_of(got) == types_of(right)
    assert types_of(got) <= {jnp.dtype(jnp.int32), jnp.dtype(jnp.float32)}
    jax.tree.map(np.testing.assert_array_equal, got, right)


@pytest.mark.parametrize("name", CURRICULA)
def test_curricula_draw_the_lengths_that_they_do_without_x64(name):
    curriculum = CURRICULA[name](max_length=40)
    draw = lambda: jax.vmap(curriculum)(
        jax.random.split(jax.random.key(0), 8), jnp.arange(8, dtype=jnp.int32)
    )
    right = draw()
    with jax.enable_x64(True):
        got = draw()
        assert got.dtype == jnp.int32
    np.testing.assert_array_equal(got, right)


@pytest.mark.fast
@pytest.mark.parametrize("name", ALL_TASKS)
def test_every_task_samples_int32(name, x64):
    task = ALL_TASKS[name]()
    lengths = jax.ShapeDtypeStruct((2,), jnp.int32)
    for most in range(6, 14):
        try:
            task.check_length(most)
        except ValueError:
            continue
        sample = functools.partial(task.sample, max_length=most)
        batch = jax.eval_shape(sample, KEY, lengths)
        assert types_of(batch) == {jnp.dtype(jnp.int32), jnp.dtype(bool)}
        return
    pytest.fail("no length has examples")


@pytest.mark.parametrize("name", ["even_pairs", "binary_addition"])
def test_tasks_draw_the_rows_that_they_do_without_x64(name):
    sample = functools.partial(ALL_TASKS[name]().sample, max_length=8)
    rng, lengths = jax.random.key(0), np.array([5, 8], np.int32)
    right = jax.jit(sample)(rng, lengths)
    with jax.enable_x64(True):
        jax.tree.map(
            np.testing.assert_array_equal, jax.jit(sample)(rng, lengths), right
        )


@pytest.mark.fast
@pytest.mark.parametrize("encoding", ["rope", "t5", "fire"])
def test_training_steps_keep_the_types_of_their_state(encoding, x64):
    recipe = tiny_recipe("binary_addition", encoding)
    state = jax.eval_shape(lambda: init_state(recipe, 0))
    assert types_of(state.params) == {jnp.dtype(jnp.float32)}
    steps = functools.partial(train_steps, recipe, capacity=2)
    after, _ = jax.eval_shape(steps, state, jax.ShapeDtypeStruct((), jnp.int32))
    assert after == state


@pytest.mark.fast
@pytest.mark.parametrize("name", ["rope", "fire", "cope", "path", "grape_ap"])
def test_greedy_decoding_runs(name, x64):
    task = Autoregressive(ReverseString(vocab_size=5))
    spec = decoder(task, ENCODINGS[name]())

    def decode(rng, lengths):
        batch = task.sample(rng, lengths, max_length=4)
        placement = Consecutive()(
            rng, batch.lengths, num_tokens=batch.tokens.shape[1], num_layers=2
        )
        return decode_batch(
            spec.bind(spec.init(rng)), task, batch, placement, max_length=4
        )

    answers = jax.eval_shape(decode, KEY, jax.ShapeDtypeStruct((2,), jnp.int32))
    assert answers.dtype == jnp.int32
