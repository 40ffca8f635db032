"""`check_positions` lets schemes through that keep their promises, and names faults."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

from ropejax.positions import POSITIONS
from ropejax.positions.base import Placement, PositionScheme
from ropejax.testing import check_positions


@pytest.mark.parametrize("name", ["consecutive", "randomized", "shifted", "cape"])
def test_schemes_of_the_catalogue_pass(name):
    check_positions(POSITIONS[name]())


def test_draws_a_layer_of_distances_pass():
    randomized = POSITIONS["randomized"]
    check_positions(randomized(max_position=64, per_layer=True, distances=True))


@dataclasses.dataclass(frozen=True)
class Scattered(PositionScheme):
    """A shift by row, as a user would write it."""

    title = "Scattered"
    summary = "a shift by row"
    random = True
    fault: str = ""

    @property
    def rows_differ(self):
        return self.fault != "rows"

    def position_bound(self, num_tokens):
        return num_tokens + (9 if self.fault != "bound" else 1)

    def __call__(self, rng, lengths, *, num_tokens, num_layers=1, tokens=None):
        rows = jnp.arange(len(lengths))
        keys = jax.vmap(lambda row: jax.random.fold_in(rng, row))(rows)
        shift = jax.vmap(lambda key: jax.random.randint(key, (), 0, 9))(keys)
        if self.fault == "others":
            shift = shift + lengths.sum() % 2
        if self.fault == "padding":
            shift = jnp.full_like(shift, num_tokens % 7)
        positions = jnp.arange(num_tokens)[None] + shift[:, None]
        if self.fault == "axes":
            return Placement(positions[:, None])
        if self.fault == "distances":
            return Placement(distances=positions)
        return Placement(positions)


def test_a_scheme_of_ones_own_passes():
    check_positions(Scattered())


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("rows", "positions of two rows of one length differ, but rows_differ is Fal"),
        ("bound", r"positions of \d+ tokens leave 0 \.\. 13 - 1"),
        ("others", "positions of a row of 12 tokens change with the lengths of"),
        ("padding", r"positions of a row of \d+ tokens change with the padding"),
        ("axes", r"positions are \(4, 1, 12\), and must be \[B or 1, P\]: 12"),
        ("distances", "distances must start at 0 and never decrease"),
    ],
)
def test_what_is_broken_is_named(fault, message):
    with pytest.raises(AssertionError, match=message):
        check_positions(Scattered(fault))
