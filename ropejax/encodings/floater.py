"""FLOATER: positions as the path of a learned differential equation.

The next position's vector follows from this one's by one rule for all, so there are no
parameters a position, and the path goes on past the trained length.
"""

import dataclasses
import math
from typing import ClassVar

import jax
import jax.numpy as jnp

from ropejax.encodings.base import Dims, Encoding
from ropejax.encodings.choices import not_negative, positive
from ropejax.encodings.learned import check_positions, table_rows
from ropejax.tokens import Tokens
from ropejax.typing import Array, Float, Int, Params, Rng


@dataclasses.dataclass(frozen=True)
class Floater(Encoding):
    """Adds to each embedding the state of a learned dynamical system at its position.

    `x + p(m step)`, m the position, with
    `dp/dt = W_2 [relu(W_1 [p; t] + b_1); t] + b_2` from a learned p(0) on.

    It is solved by `substeps` steps of the classical Runge-Kutta method a position, one
    after the other, up to the greatest position of the batch: a pass has so many steps
    more, and so has each decoded token.

    Attributes:
        max_position: how far the path is known; positions lie below.
        step: time between two positions; published, 0.01.
        substeps: steps of the solver in it; published, 5, of which one is left here,
            since a step of 0.01 is small already.
        init_std: standard deviation of p(0) at the start.

    Raises:
        ValueError: if a setting is out of range, or positions are out of range or
            fractional.

    References:
        Liu et al. 2020, ICML, arXiv 2003.09229; code at
        xuanqing94/FLOATER, `flow_func_linear` and `FlowTransformerEncoder`, for the
        dynamics, the solver and its steps.

    Departures:
        The code adds such states, a path for each layer, to the projections of queries,
        keys and values of a model that has sinusoidal positions; this is such a path as
        an absolute encoding. The code was read, not the paper. Gradients are those of
        the solver's steps rather than of an adjoint equation, and every step is solved
        anew, where the code keeps a solution for 400 steps.
    """

    max_position: int = 2048
    step: float = 0.01
    substeps: int = 1
    init_std: float = 0.02

    title: ClassVar[str] = "FLOATER"
    summary: ClassVar[str] = "positions on the path of a learned differential equation"
    reference: ClassVar[str] = "Liu et al. 2020, arXiv 2003.09229"
    shift_invariant: ClassVar[bool] = False
    by_distance: ClassVar[bool] = False

    def __post_init__(self):
        super().__post_init__()
        positive(max_position=self.max_position, step=self.step, substeps=self.substeps)
        not_negative(init_std=self.init_std)

    @property
    def position_limit(self) -> int | None:
        """Positions must be below this: as far as the path is solved."""
        return self.max_position

    def init_shared(self, rng: Rng, dims: Dims) -> Params:
        """Returns `start [D]`, and `first`, `second` with kernel `[D + 1, D]` and bias.

        Kernels are normal with variance `2 / (2 D + 1)`, as published (Xavier), biases
        zero.
        """
        width = dims.embed_dim
        rngs = jax.random.split(rng, 3)

        def linear(rng: Rng) -> Params:
            normal = jax.random.normal(rng, (width + 1, width), jnp.float32)
            kernel = math.sqrt(2 / (2 * width + 1)) * normal
            return {"kernel": kernel, "bias": jnp.zeros(width, jnp.float32)}

        start = self.init_std * jax.random.normal(rngs[0], (width,), jnp.float32)
        return {"start": start, "first": linear(rngs[1]), "second": linear(rngs[2])}

    def path(
        self, shared: Params, last: int | Int[Array, ""] | None = None
    ) -> Float[Array, "M D"]:
        """Returns the states at all positions, `[max_position, D]`, float32.

        Args:
            shared: what `init_shared` returned.
            last: the position at which the path may end, where later ones stay; all
                positions if None.
        """
        last = self.max_position if last is None else last
        shared = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), shared)
        size = self.step / self.substeps

        def solved(state, number):
            for part in range(self.substeps):
                time = number * self.step + part * size
                state = _runge_kutta(shared, state, time, size)
            return state

        def onward(state, number):
            stay = lambda state, number: state
            state = jax.lax.cond(number < last, solved, stay, state, number)
            return state, state

        start, numbers = shared["start"], jnp.arange(self.max_position - 1)
        _, later = jax.lax.scan(onward, start, numbers)
        return jnp.concatenate([start[None], later])

    def embed(
        self, shared: Params, x: Float[Array, "B L D"], where: Tokens
    ) -> Float[Array, "B L D"]:
        """Returns x plus the states at its positions, in x's dtype."""
        check_positions(where, self.max_position)
        # Later positions, which nothing here looks up, are not solved.
        last = where.positions.max(initial=0)
        rows = table_rows(self.path(shared, last), where)
        return (x.astype(jnp.float32) + rows).astype(x.dtype)


def _runge_kutta(shared: Params, state, time, size: float) -> Float[Array, " D"]:
    """The state a classical step of fourth order later."""
    slope = lambda part, ahead: _slope(shared, state + ahead * part, time + ahead)
    first = _slope(shared, state, time)
    second = slope(first, size / 2)
    third = slope(second, size / 2)
    fourth = slope(third, size)
    return state + size / 6 * (first + 2 * second + 2 * third + fourth)


def _slope(shared: Params, state, time) -> Float[Array, " D"]:
    hidden = jax.nn.relu(_linear(shared["first"], state, time))
    return _linear(shared["second"], hidden, time)


def _linear(params: Params, x: Float[Array, " D"], time) -> Float[Array, " D"]:
    return jnp.append(x, time) @ params["kernel"] + params["bias"]
