"""States that travel from nearer to farther keys, forward and backward."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax import masks
from ropejax.attention import attend
from ropejax.encodings import Encoding
from ropejax.tokens import tokens
from tests.attention import cases


@dataclasses.dataclass(frozen=True)
class Gates(Encoding):
    """Logits fall with the sum of gates between query and key; learned everywhere.

    The state starts from the query and a parameter, so that a gradient that does not
    reach the start of the walk is a wrong one.
    """

    causal_only: ClassVar[bool] = True
    has_carry: ClassVar[bool] = True

    def init_carry(self, params, q, query):
        return jnp.swapaxes(q[0].mean(-1), 1, 2) * params["start"][None, :, None]

    def carry(self, params, state, logits, q, k, query, key, visible, scale):
        gates = jnp.where(visible, jax.nn.sigmoid(logits), 0.0)
        passed = jax.lax.cumsum(gates, axis=3, reverse=True) + state[..., None]
        slope = params["slope"][None, :, None, None]
        return state + gates.sum(-1), logits - slope * passed


@dataclasses.dataclass(frozen=True)
class Turning(Encoding):
    """Each key passed turns the query a little towards itself: a state of vectors."""

    causal_only: ClassVar[bool] = True
    has_carry: ClassVar[bool] = True

    def init_carry(self, params, q, query):
        return jnp.swapaxes(q[0], 1, 2)

    def carry(self, params, state, logits, q, k, query, key, visible, scale):
        groups = state.shape[1] // k[0].shape[2]
        keys = jnp.repeat(jnp.swapaxes(k[0], 1, 2), groups, axis=1)
        seen = jnp.broadcast_to(visible, logits.shape)
        columns = [None] * keys.shape[2]
        for s in reversed(range(keys.shape[2])):
            columns[s] = jnp.einsum("bnth,bnh->bnt", state, keys[:, :, s]) * scale
            turn = params["turn"][None, :, None, None] * keys[:, :, s, None]
            state = jnp.where(seen[..., s, None], 0.9 * state + turn, state)
        return state, jnp.stack(columns, -1)


PARAMS = {
    Gates: {"start": jnp.arange(1.0, 5.0), "slope": jnp.array([0.5, 0.1, 0.0, -0.2])},
    Turning: {"turn": jnp.array([0.5, 0.1, 0.0, -0.2])},
}


@pytest.mark.parametrize(
    ("method", "name"),
    [(Gates, "causal"), (Gates, "segments"), (Gates, "window"), (Turning, "causal")],
)
def test_carry_equals_dense(method, name):
    length = 14
    mask = masks.Causal() if name != "window" else masks.Window(6)
    segments = jnp.arange(length)[None] // 5 if name == "segments" else None
    rng = np.random.default_rng(0)
    q = cases.normal(rng, 2, length, 4, 8)
    k, v = (cases.normal(rng, 2, length, 2, 8) for _ in "kv")
    cotangent = cases.normal(rng, 2, length, 4, 8)
    where = tokens(length, segments=segments)

    def run(arrays, **settings):
        return attend(
            arrays["q"],
            arrays["k"],
            arrays["v"],
            encoding=method(),
            params=arrays["params"],
            query=where,
            key=where,
            mask=mask,
            return_lse=True,
            **settings,
        )

    def gradients(**settings):
        function = cases.value_and_grads(lambda a: run(a, **settings), cotangent)
        return function({"q": q, "k": k, "v": v, "params": PARAMS[method]})

    got = gradients(implementation="blockwise", block_q=5, block_k=4)
    cases.assert_same(got, gradients(implementation="dense"))
