"""Padding before or between tokens changes no logit, or is refused (fault B07)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.encodings import (
    Dims,
    DynamicNTKRoPE,
    Encoding,
    Forgetting,
    Learned,
    LogScale,
    Rotary,
    compose,
)
from ropejax.masks import Causal, Chunked, Lambda, Window
from ropejax.nn import BlockSettings, EncoderDecoderSpec, LayerKind, TransformerSpec
from ropejax.nn.recurrent import CELLS, LayeredSpec, Mamba, RecurrentSpec
from ropejax.positions import (
    Abacus,
    Consecutive,
    Placement,
    Randomized,
    place_real,
)
from tests.nn.test_transformer import random_params

DIMS = Dims(2, 2, 4, 8, num_layers=2, causal=True)
SETTINGS = BlockSettings(mlp_dim=16, dropout=0.0)
HOLES = [
    ([[False, False, True, True, True]], True),
    ([[True, False, True, False, True]], False),
]


@pytest.mark.parametrize(("valid", "left_padded"), HOLES, ids=["left", "between"])
def test_randomized_positions_and_abacus_ids_follow_the_tokens(rng, valid, left_padded):
    """Padding is a digit, and so is most of the row; each layer has its own draw."""
    encoding = compose(Rotary(), Learned(64, stream="digit", init_std=1.0))
    spec = TransformerSpec(5, 3, DIMS, SETTINGS, (LayerKind(encoding, Causal()),))
    model = spec.bind(random_params(spec, rng))
    scheme = Abacus(digits=(0, 1), base=Randomized(64, per_layer=True), max_offset=20)
    row, valid = jnp.array([[1, 0, 4]]), jnp.array(valid)
    padded = jnp.zeros((1, 5), int).at[valid].set(row[0])
    place = lambda valid, tokens: place_real(
        scheme, rng, valid, num_layers=2, tokens=tokens
    )
    behind = jnp.arange(5)[None] < 3
    alone = model(
        jnp.pad(row, ((0, 0), (0, 2))),
        place(behind, jnp.pad(row, ((0, 0), (0, 2)))),
        valid=behind,
    )
    where = place(valid, padded)
    logits = model(padded, where, valid=valid, left_padded=left_padded)
    np.testing.assert_allclose(logits[valid], alone[behind], atol=1e-5)
    unlike = scheme(rng, jnp.array([3]), num_tokens=5, num_layers=2, tokens=padded)
    with pytest.raises(ValueError, match="place_real"):
        model(padded, unlike, valid=valid, left_padded=left_padded)


@pytest.mark.parametrize(
    ("encoding", "mask"),
    [
        (Rotary(), Causal() & Window(1, 0)),
        (Encoding(), Causal() & Chunked(2)),
        (Rotary(), Lambda(1, 1)),
        (compose(Rotary(), LogScale(train_length=2)), Causal()),
        (DynamicNTKRoPE(train_length=2), Causal()),
        (Forgetting(), Causal()),
    ],
    ids=["window", "chunks", "sinks", "log n", "dynamic NTK", "FoX"],
)
def test_masks_and_lengths_go_by_real_tokens(rng, encoding, mask):
    """As for generation where prompts of unlike lengths are followed by answers."""
    spec = TransformerSpec(5, 3, DIMS, SETTINGS, (LayerKind(encoding, mask),))
    model = spec.bind(random_params(spec, rng))
    valid = jnp.array([[True, True, False, True, True]])
    row = jnp.array([[1, 2, 4, 3]])
    padded = jnp.zeros((1, 5), int).at[valid].set(row[0])
    alone = model(row, Placement())

    def read(valid):
        where = place_real(Consecutive(), rng, valid)
        return model(padded, where, valid=valid)

    for logits in (read(valid), jax.jit(read)(valid)):
        np.testing.assert_allclose(logits[valid], alone[0], atol=1e-5)


@pytest.mark.parametrize("valid", [valid for valid, _ in HOLES])
def test_models_that_count_places_refuse_it(rng, valid):
    tokens, valid = jnp.array([[1, 0, 2, 1, 0]]), jnp.array(valid)
    models = [
        EncoderDecoderSpec(3, 2, 2, DIMS, SETTINGS, Encoding(), Encoding()),
        RecurrentSpec(3, 2, CELLS["rnn"](), units=2),
        LayeredSpec(3, 2, DIMS, SETTINGS, Mamba()),
    ]
    for spec in models:
        shapes = jax.eval_shape(spec.init, rng)
        params = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), shapes)
        with pytest.raises(ValueError, match="put all padding behind the tokens"):
            spec.bind(params)(tokens, Placement(), valid=valid)
