"""A model that is called without jit is compiled once, and gives what it gives with."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.analysis import trace_layers
from ropejax.encodings import Dims, Rotary
from ropejax.masks import Causal
from ropejax.nn import BlockSettings, EncoderDecoderSpec, LayerKind, TransformerSpec
from ropejax.nn.recurrent import RNN, DeltaNet, LayeredSpec, RecurrentSpec
from ropejax.positions import Placement, Randomized

SPEC = TransformerSpec(
    num_symbols=5,
    num_outputs=3,
    dims=Dims(2, 2, 4, 8, 2, causal=True),
    settings=BlockSettings(mlp_dim=8, dropout=0.5),
    pattern=(LayerKind(Rotary(), Causal()),),
)
OTHERS = {
    "encoder-decoder": EncoderDecoderSpec(5, 3, 0, SPEC.dims, SPEC.settings, Rotary()),
    "recurrent": RecurrentSpec(5, 3, RNN(), units=4),
    "layered": LayeredSpec(5, 3, SPEC.dims, SPEC.settings, DeltaNet()),
}
TOKENS = jnp.array([[1, 2, 3, 4, 0, 0], [4, 3, 2, 1, 0, 1]])


@pytest.fixture
def compilations():
    """The programs that are compiled from here on, one entry each."""
    seen = []

    def listen(event, duration, **_):
        if event.endswith("backend_compile_duration"):
            seen.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield seen
    jax.monitoring.unregister_event_duration_listener(listen)


def placed(seed):
    scheme, key = Randomized(max_position=64), jax.random.key(seed)
    return scheme(key, jnp.array([6, 6]), num_tokens=6, num_layers=2)


def test_calls_compile_once_and_agree_with_compiled_ones(compilations):
    params, others = (SPEC.init(jax.random.key(seed)) for seed in (0, 1))
    valid = jnp.array([[True] * 4 + [False] * 2, [True] * 6])
    run = lambda params, placement, rng: SPEC.bind(params)(
        TOKENS, placement, valid=valid, rng=rng
    )
    for rng in (None, jax.random.key(7)):
        run(params, placed(1), rng)
        before = len(compilations)
        found = run(others, placed(2), rng)
        assert len(compilations) == before
        wanted = jax.jit(run)(others, placed(2), rng)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", OTHERS)
def test_other_models_compile_once_too(name, compilations):
    spec = OTHERS[name]
    run = lambda seed: spec.bind(spec.init(jax.random.key(seed)))(TOKENS, placed(seed))
    run(0)
    before = len(compilations)
    found = run(1)
    assert len(compilations) == before
    np.testing.assert_allclose(found, jax.jit(run)(1), rtol=1e-5, atol=1e-6)


def test_looking_into_layers_compiles_once(compilations):
    head = 0

    def run(seed, look=None):
        model = SPEC.bind(SPEC.init(jax.random.key(seed)))
        x = model.embed_tokens(TOKENS, placed(seed).tokens(6))
        return trace_layers(model, x, placed(seed), look=look)

    def one_head(weights, visible, where):
        return weights[:, head]

    run(0)
    before = len(compilations)
    found = run(1)
    assert len(compilations) == before
    wanted = jax.jit(run)(1)
    np.testing.assert_allclose(found.hidden, wanted.hidden, rtol=1e-5, atol=1e-6)
    # What a function looks at may change from call to call.
    both = run(1, lambda weights, visible, where: weights).looked
    for head in range(2):
        np.testing.assert_array_equal(run(1, one_head).looked, both[:, :, head])


def test_an_encoder_decoder_decodes_symbols_by_one_program(compilations):
    spec = OTHERS["encoder-decoder"]
    model, placement = spec.bind(spec.init(jax.random.key(0))), placed(1)
    rows = jnp.array([[1, 2, 0, 3, 4, 1], [4, 3, 0, 1, 1, 2]])
    wanted = model(rows, placement)
    logits, memory = model.start(rows[:, :3], placement, 3, capacity=np.int64(6))
    np.testing.assert_allclose(logits, wanted[:, 2], rtol=1e-4, atol=1e-5)
    for place in range(3, 6):
        before = len(compilations)
        logits, memory = model.step(memory, rows[:, place], place)
        np.testing.assert_allclose(logits, wanted[:, place], rtol=1e-4, atol=1e-5)
    assert len(compilations) == before
    with pytest.raises(ValueError, match="the separator and 3 symbols, all that"):
        model.step(memory, rows[:, 5], 5)
    with pytest.raises(ValueError, match="7 tokens cannot be read where 6 are placed"):
        model.step(memory, rows[:, 5], 6)
    with pytest.raises(ValueError, match="7 tokens cannot be read where 6 are placed"):
        model.start(rows[:, :3], placement, 3, capacity=7)
    with pytest.raises(ValueError, match="counted from 0, got -1"):
        model.step(memory, rows[:, 5], -1)


def test_steps_of_decoding_compile_once_and_agree_with_the_pass(compilations):
    model = SPEC.bind(SPEC.init(jax.random.key(0)))
    placement = placed(1)
    wanted = model(TOKENS, placement)
    logits, memory = model.start(TOKENS[:, :2], placement, 2, capacity=6)
    np.testing.assert_allclose(logits, wanted[:, 1], rtol=1e-4, atol=1e-5)
    for place in range(2, 6):
        before = len(compilations)
        logits, memory = model.step(memory, TOKENS[:, place], place)
        np.testing.assert_allclose(logits, wanted[:, place], rtol=1e-4, atol=1e-5)
    assert len(compilations) == before
    with pytest.raises(ValueError, match="7 tokens cannot be read into .*capacity=6"):
        model.step(memory._replace(placement=Placement()), TOKENS[:, 0], 6)


def test_what_is_known_is_still_refused():
    model = SPEC.bind(SPEC.init(jax.random.key(0)))
    with pytest.raises(ValueError, match=r"symbols must lie in 0 \.\. 4"):
        model(TOKENS + 3, placed(0))
    placement = Placement(jnp.arange(6)[None])
    with pytest.raises(ValueError, match="padding stands before or between"):
        model(TOKENS, placement, valid=jnp.array([[False] + [True] * 5] * 2))
