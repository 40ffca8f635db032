"""A model that is called without jit is compiled once, and gives what it gives with."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.encodings import Dims, Rotary
from ropejax.masks import Causal
from ropejax.nn import BlockSettings, LayerKind, TransformerSpec
from ropejax.positions import Placement, Randomized

SPEC = TransformerSpec(
    num_symbols=5,
    num_outputs=3,
    dims=Dims(2, 2, 4, 8, 2, causal=True),
    settings=BlockSettings(mlp_dim=8, dropout=0.5),
    pattern=(LayerKind(Rotary(), Causal()),),
)
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
