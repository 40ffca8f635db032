"""The selective scan: a diagonal linear recurrence whose gates read the token."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ropejax.nn.recurrent.chunks import over_chunks


def selective_scan(
    x: Float[Array, "B L E"],
    step: Float[Array, "B L E"],
    rates: Float[Array, "E S"],
    write: Float[Array, "B L S"],
    read: Float[Array, "B L S"],
    *,
    negative: bool = False,
) -> Float[Array, "B L E"]:
    """Returns what is read of the states of all channels at each token.

    `h_t = a_t h_{t-1} + step_t x_t write_t`, out `h_t . read_t`, from `h_0 = 0`, one h
    of S numbers a channel, with `a_t = exp(-step_t rates)`, in (0, 1); with `negative`,
    `a_t = 2 exp(-step_t rates) - 1`, in (-1, 1), so that a large step turns the sign.

    Args:
        x: what is written, channel by channel.
        step: how long a token lasts (Delta in the paper), positive.
        rates: how fast each number of the state fades (-A in the paper), positive.
        write: where it is written (B in the paper).
        read: where it is read (C in the paper).
        negative: whether a may be negative.

    Returns:
        Outputs `[B, L, E]`, float32, as is all of the computation.

    References:
        Gu and Dao 2023, arXiv 2312.00752, algorithm 2 and section 3.6; negative: Sarrof
        et al. 2024, arXiv 2405.17394, and Grazzi et al. 2024, arXiv 2411.12537, and
        their code, adankow/unlocking_state_tracking@ef8aaa3, `mamba_mod.py`.
    """
    parts = tuple(x.astype(jnp.float32) for x in (x, step, write, read))
    rates = rates.astype(jnp.float32)

    def one(state, token):
        x, step, write, read = token
        kept = jnp.exp(-step[..., None] * rates)
        if negative:
            kept = 2 * kept - 1
        state = kept * state + (step * x)[..., None] * write[:, None, :]
        return state, jnp.einsum("bes,bs->be", state, read, precision="highest")

    state = jnp.zeros((x.shape[0], *rates.shape), jnp.float32)
    return over_chunks(
        lambda state, chunk: jax.lax.scan(one, state, chunk), state, parts
    )
