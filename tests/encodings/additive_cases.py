"""Golden numbers of absolute, relative, additive and content-dependent encodings."""

import json
import pathlib

import jax.numpy as jnp
import numpy as np

from ropejax.encodings import Dims

_FOLDER = pathlib.Path(__file__).parents[1] / "golden"
_INDEX = json.loads((_FOLDER / "additive.json").read_text())


def names(prefix: str) -> list[str]:
    """Returns the golden cases whose names start so."""
    return [name for name in _INDEX if name.startswith(prefix)]


def load(name: str) -> dict[str, np.ndarray]:
    """Returns the arrays of one golden case."""
    with np.load(_FOLDER / f"{name}.npz") as arrays:
        return dict(arrays)


def params_of(name: str) -> dict:
    """Returns the settings that the source ran with."""
    return _INDEX[name]["params"]


def assert_golden(name: str, got, wanted) -> None:
    """Compares within the case's own tolerance."""
    np.testing.assert_allclose(got, wanted, **_INDEX[name]["tolerance"])


def by_token(x: np.ndarray):
    """Returns `[B, heads, L, H]` as `[B, L, heads, H]`."""
    return jnp.asarray(np.swapaxes(x, 1, 2))


def causal(query, key):
    return key.index[:, None, None, :] <= query.index[:, None, :, None]


def dims(num_heads: int, head_dim: int, *, is_causal: bool = False) -> Dims:
    width = num_heads * head_dim
    return Dims(num_heads, num_heads, head_dim, width, causal=is_causal)


def logits_of(encoding, params, q, k, query, key, scale, visible=None):
    """Returns the logits of one block, before the mask."""
    if visible is None:
        visible = jnp.ones((1, 1, query.length, key.length), bool)
    views = encoding.queries(params, q, query), encoding.keys(params, k, key)
    state = encoding.init_carry(params, views[0], query)
    return encoding.score(params, state, *views, query, key, visible, scale)[1]
