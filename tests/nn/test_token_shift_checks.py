"""The checks of token shifts pass what the library has, and name what is wrong."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

from ropejax import testing
from ropejax.nn.token_shifts import (
    TOKEN_SHIFTS,
    KVShift,
    Projections,
    ShortConvolution,
    Unshifted,
)

SHIFTS = [shift() for shift in TOKEN_SHIFTS.values()]
SILU = ShortConvolution(3, residual=False, activation="silu")


@pytest.mark.parametrize("shift", [*SHIFTS, SILU], ids=lambda s: type(s).__name__)
def test_the_librarys_own_keep_their_promises(shift):
    testing.check_token_shift(shift)


def rolled(made, by):
    """Each projection with that of a neighbour in the array."""
    return Projections(*(x + jnp.roll(x, by, axis=1) for x in made))


@dataclasses.dataclass(frozen=True)
class ByPlace(KVShift):
    """Neighbours in the array, whatever their order."""

    def shifted(self, params, x, made, where, state=None):
        """Mixes neighbours."""
        first = jnp.arange(where.length) == 0
        before = rolled(made, 1)
        return Projections(
            *(
                jnp.where(first[None, :, None, None], one, two)
                for one, two in zip(made, before, strict=True)
            )
        ), None


@dataclasses.dataclass(frozen=True)
class Forgetful(KVShift):
    """Takes no state."""

    def shifted(self, params, x, made, where, state=None):
        """Begins anew in each chunk."""
        return super().shifted(params, x, made, where)


@dataclasses.dataclass(frozen=True)
class AcrossSegments(KVShift):
    """Knows no segments."""

    def shifted(self, params, x, made, where, state=None):
        """Leaves them out."""
        return super().shifted(params, x, made, where.replace(segments=None), state)


@dataclasses.dataclass(frozen=True)
class Foresight(Unshifted):
    """Sees what comes."""

    def shifted(self, params, x, made, where, state=None):
        """Takes in the mean of all real tokens of the segment."""
        valid = (
            jnp.ones((1, where.length), bool) if where.valid is None else where.valid
        )
        same = valid[:, None, :]
        if where.segments is not None:
            same = same & (where.segments[:, None] == where.segments[:, :, None])
        share = jax.tree.map(
            lambda x: jnp.einsum("bts,bsnh->btnh", same.astype(x.dtype), x), made
        )
        return jax.tree.map(jnp.add, made, share), None


@dataclasses.dataclass(frozen=True)
class Undeclared(KVShift):
    """Looks back without saying so."""

    looks_back = False


@pytest.mark.parametrize(
    ("shift", "message"),
    [
        (ByPlace(), "stored in another order change"),
        (Forgetful(), "chunks that hand on the state differ"),
        (AcrossSegments(), "another segment of a packed row changes"),
        (Foresight(), "later tokens change earlier"),
        (Undeclared(), "looks_back must be True"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_breaks_a_promise_is_named(shift, message):
    with pytest.raises(AssertionError, match=message):
        testing.check_token_shift(shift)
