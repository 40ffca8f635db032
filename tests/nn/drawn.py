"""Transformers drawn at random, with where their tokens are: all of them legal.

A seed is all that it takes to see a model again: `request(17)`.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ropejax import masks
from ropejax.encodings import Dims
from ropejax.nn import (
    MLPS,
    NORMALIZERS,
    NORMS,
    OUTPUT_GATES,
    QK_NORMS,
    READOUTS,
    ROW_SCALES,
    TOKEN_SHIFTS,
    BlockSettings,
    LayerKind,
    TransformerSpec,
)
from ropejax.positions import POSITIONS, Placement, PositionScheme
from ropejax.testing.checks import variants
from tests.attention import drawn as attention

SYMBOLS = 6
LONGEST = 9
"""Tokens of the longest rows that are drawn."""

_SETTINGS = {
    "shifted": {"max_random_offset": 20},
    "randomized": {"max_position": 40},
    "evenly_spaced": {"max_position": 40},
    "abacus": {"digits": (1, 2)},
}
"""Of position schemes whose own do not fit so few symbols and tokens."""

_PLAIN = 0.6
"""How often a model takes the plain one of methods of a kind."""


@dataclasses.dataclass(frozen=True)
class Request:
    """A model, and the scheme that says where its tokens are."""

    spec: TransformerSpec
    positions: PositionScheme


def request(seed: int) -> Request:
    """Returns the model of a seed; what is refused is drawn again."""
    rng = np.random.default_rng([seed, 7])
    while True:
        try:
            made = Request(_spec(rng), _positions(rng))
            _trace(made)
        except ValueError:
            continue
        return made


def parameters(of: Request, seed: int) -> Any:
    """Returns parameters moved off their start, so that all of them count."""
    rng = np.random.default_rng([seed, 8])
    moved = lambda x: (x + 0.2 * rng.normal(size=x.shape)).astype(x.dtype)
    return jax.tree.map(moved, jax.jit(of.spec.init)(jax.random.key(seed)))


def placed(of: Request, symbols, lengths) -> Placement:
    """Returns where the tokens of rows are."""
    return of.positions(
        jax.random.key(3),
        lengths,
        num_tokens=symbols.shape[1],
        num_layers=of.spec.dims.num_layers,
        tokens=symbols,
    )


def logits(of: Request, params, symbols, lengths, placement, **more):
    """Returns logits `[B, L, V]` of rows with padding behind."""
    valid = jnp.arange(symbols.shape[1])[None] < lengths[:, None]
    return of.spec.bind(params)(symbols, placement, valid=valid, **more)


def _trace(of: Request) -> None:
    """Raises ValueError where model and positions do not go together."""

    def run(lengths, symbols):
        params = of.spec.init(jax.random.key(0))
        placement = placed(of, symbols, lengths)
        return logits(of, params, symbols, lengths, placement)

    lengths = jax.ShapeDtypeStruct((2,), jnp.int32)
    jax.eval_shape(run, lengths, jax.ShapeDtypeStruct((2, LONGEST), jnp.int32))


def _one_of(rng, things):
    return things[int(rng.integers(len(things)))]


def _method(rng, catalogue):
    """One of a catalogue's methods, the first most often, or with other settings."""
    names = list(catalogue)
    made = catalogue[names[0] if rng.random() < _PLAIN else _one_of(rng, names)]()
    changed = list(variants(made))
    return _one_of(rng, changed) if changed and rng.random() < 0.3 else made


def _spec(rng) -> TransformerSpec:
    gated, causal = bool(rng.random() < 0.15), bool(rng.random() < 0.6)
    heads, kv_heads = _one_of(rng, [(2, 1), (2, 2), (4, 2), (3, 3)])
    if gated:
        heads = kv_heads = 1
    kinds, loops = int(rng.choice([1, 1, 2, 3])), int(rng.choice([1, 1, 2, 3]))
    dims = Dims(
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=int(rng.choice([4, 6, 8])),
        embed_dim=int(rng.choice([8, 12])),
        num_layers=kinds * int(rng.choice([1, 2])),
        causal=causal,
    )
    injections = ["none", "layer", *["loop"] * (loops > 1)]
    return TransformerSpec(
        SYMBOLS,
        int(rng.choice([3, SYMBOLS])),
        dims,
        _settings(rng, gated=gated, causal=causal),
        tuple(_kind(rng, heads, causal) for _ in range(kinds)),
        loops=loops,
        input_injection=_one_of(rng, injections),
        readout=_method(rng, READOUTS),
        embedding_scale=_one_of(rng, [None, 1.0, 2.5]),
    )


def _settings(rng, *, gated: bool, causal: bool) -> BlockSettings:
    sometimes = lambda: bool(rng.random() < 0.3)
    pre_norm = bool(rng.random() < 0.5)
    own = {}
    if not gated:
        own = {
            "output_gate": _method(rng, OUTPUT_GATES),
            "mlp": _method(rng, MLPS),
            "parallel": pre_norm and sometimes(),
            "qkv_bias": sometimes(),
            "out_bias": sometimes(),
        }
        if causal:
            own["token_shift"] = _method(rng, TOKEN_SHIFTS)
    return BlockSettings(
        mlp_dim=12,
        activation=_one_of(rng, [jax.nn.relu, jax.nn.silu, jnp.tanh]),
        pre_norm=pre_norm,
        dropout=0.3,
        normalizer=_method(rng, NORMALIZERS),
        qk_norm=_method(rng, QK_NORMS),
        row_scale=_method(rng, ROW_SCALES),
        attention_dropout=float(rng.choice([0.0, 0.2])),
        norm=_method(rng, NORMS),
        gated=gated,
        **own,
    )


def _kind(rng, heads: int, causal: bool) -> LayerKind:
    encoding = attention.encoding(rng)
    mask = attention.mask(rng, LONGEST, heads) if rng.random() < 0.4 else None
    if causal:
        mask = masks.Causal() if mask is None else masks.Causal() & mask
    return LayerKind(encoding, mask)


def _positions(rng) -> PositionScheme:
    name = "consecutive" if rng.random() < 0.2 else _one_of(rng, list(POSITIONS))
    made = POSITIONS[name](**_SETTINGS.get(name, {}))
    changed = list(variants(made))
    return _one_of(rng, changed) if changed and rng.random() < 0.7 else made
