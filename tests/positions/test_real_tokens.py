"""Rows whose padding stands anywhere are placed as they are without it (fault B07)."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.positions import (
    Consecutive,
    Placement,
    Randomized,
    Shifted,
    count_real,
    left_padded,
    place_real,
)
from tests.positions.test_schemes import LENGTHS, SCHEMES, additions, whole_batch

LEFT = np.asarray(left_padded(LENGTHS, 16))
SPREAD = np.random.default_rng(0).permuted(LEFT, axis=1)
RIGHT = LEFT[:, ::-1]


def arrays_of(placement):
    """Positions and streams `[B, P, ...]`, layers apart."""
    found = list((placement.streams or {}).values())
    if placement.positions is not None:
        layers = placement.positions if placement.per_layer else [placement.positions]
        found += list(layers)
    return [np.broadcast_to(a, (len(LENGTHS), *a.shape[1:])) for a in found]


@functools.cache
def placed(scheme):
    place = functools.partial(place_real, scheme, jax.random.key(7), num_layers=2)
    return jax.jit(lambda valid, tokens: place(valid, tokens=tokens))


@pytest.mark.parametrize("valid", [LEFT, SPREAD], ids=["left", "anywhere"])
@pytest.mark.parametrize(
    "name",
    [
        *("shifted_at_random", "randomized_per_sequence", "equal_mean_beta"),
        *("random_floats", "pose", "abacus_randomized", "coupled", "coupled_levels"),
        "cape",
    ],
)
def test_a_real_token_is_placed_as_without_padding(name, valid):
    """Schemes that read symbols too: numbers are told from padding that looks alike."""
    tokens = additions(LENGTHS, 16)
    moved = np.full_like(tokens, tokens[0, 0])
    moved[valid] = tokens[RIGHT]
    scheme = SCHEMES[name]
    wanted, found = whole_batch(scheme), placed(scheme)(valid, moved)
    assert found.by_place
    for there, here in zip(arrays_of(wanted), arrays_of(found), strict=True):
        np.testing.assert_array_equal(here[valid], there[RIGHT])


def test_distances_go_by_order_and_each_layer_has_its_own():
    scheme, valid = Randomized(64, per_layer=True), jnp.asarray(LEFT)
    place = lambda scheme: place_real(scheme, jax.random.key(7), valid, num_layers=2)
    wanted = scheme(jax.random.key(7), LENGTHS, num_tokens=16, num_layers=2)
    for there, here in zip(arrays_of(wanted), arrays_of(place(scheme)), strict=True):
        np.testing.assert_array_equal(here[LEFT], there[RIGHT])
    table = place(Randomized(64, distances=True))
    assert table.positions is None
    where = table.tokens(16, valid=valid, left_padded=True)
    np.testing.assert_array_equal(
        where.index[LEFT], np.tile(np.arange(16), (4, 1))[RIGHT]
    )


@pytest.mark.fast
def test_consecutive_rows_with_holes_count_what_is_there():
    valid = jnp.array([[True, False, True, False, True]])
    placement = place_real(Consecutive(), jax.random.key(0), valid)
    assert placement.tokens(5, valid=valid).positions.tolist() == [[0, 0, 1, 1, 2]]


@pytest.mark.fast
@pytest.mark.parametrize(
    "known",
    [
        {"valid": jnp.array([[False, True, True]]), "left_padded": True},
        {"valid": jnp.array([[False, True, True]])},
        {"valid": jnp.array([[True, False, True]])},
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_placement_in_order_of_tokens_is_not_taken_for_one_of_places(known, stream):
    """Two tokens would share a position, and the first ones would be nowhere."""
    ids = jnp.array([[5, 7, 9]])
    placement = Placement(streams={"digit": ids}) if stream else Placement(ids)
    with pytest.raises(ValueError, match=r"place_real\(scheme, rng, valid\)"):
        placement.tokens(3, **known)
    placement.tokens(3, valid=jnp.array([[True, True, False]]))
    with pytest.raises(ValueError, match="valid must be"):
        placement.tokens(3, valid=jnp.array([True, True, False]))


@pytest.mark.fast
def test_that_padding_is_declared_is_enough_where_it_is_traced():
    placement = Shifted(3)(None, jnp.array([2]), num_tokens=3)
    ask = lambda valid: placement.tokens(3, valid=valid, left_padded=True).positions
    with pytest.raises(ValueError, match="place_real"):
        jax.jit(ask)(jnp.array([[False, True, True]]))


@pytest.mark.fast
def test_rows_keep_how_they_are_placed():
    valid = jnp.array([[False, True], [True, True]])
    placement = Placement(count_real(valid), by_place=True)
    assert placement.rows(0, 1, of=2).by_place
    assert placement.with_rows(2, 1).by_place


@pytest.mark.fast
@pytest.mark.parametrize("valid", [jnp.ones((1, 3)), jnp.ones(3, bool)])
def test_what_is_no_validity_of_rows_is_refused(valid):
    with pytest.raises(ValueError, match="valid must be boolean"):
        place_real(Consecutive(), jax.random.key(0), valid)
