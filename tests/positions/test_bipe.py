"""BiPE: two positions of a token, by a loop over its row, and what encodings read."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.encodings import Dims, Learned, Rotary, Sinusoidal, compose
from ropejax.positions import BiPE, Placement, bilevel_positions
from ropejax.testing import check_positions, run
from ropejax.testing.running import example
from ropejax.tokens import tokens

STOP, BREAK = 7, 9
SCHEME = BiPE(separators=(STOP, BREAK))
ROWS = np.array(
    [
        [1, 2, STOP, 3, STOP, STOP, 4, 5, BREAK, 6, 1, 2],
        [STOP, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, BREAK],
        [1, 2, STOP, 3, 4, STOP, STOP, BREAK, STOP, STOP, STOP, STOP],
    ],
    np.int32,
)
LENGTHS = np.array([12, 12, 5])


def by_loop(row, length):
    """A separator is the last of its segment; padding is at 0."""
    within, number, place, segment = [], [], 0, 0
    for symbol in row[:length]:
        within.append(place)
        number.append(segment)
        place += 1
        if symbol in (STOP, BREAK):
            place, segment = 0, segment + 1
    padding = [0] * (len(row) - length)
    return within + padding, number + padding


@functools.partial(jax.jit, static_argnums=0)
def place(scheme, symbols, lengths):
    return scheme(
        jax.random.key(0), lengths, num_tokens=symbols.shape[1], tokens=symbols
    )


@functools.partial(jax.jit, static_argnums=0)
def attended(encoding, inputs, where):
    return run(encoding, inputs, where, implementation="dense")


def test_places_begin_anew_behind_separators_which_are_counted():
    placed = place(SCHEME, ROWS, LENGTHS)
    for row, length, within, number in zip(
        ROWS, LENGTHS, placed.streams["within"], placed.positions, strict=True
    ):
        wanted = by_loop(row, length)
        np.testing.assert_array_equal(within, wanted[0])
        np.testing.assert_array_equal(number, wanted[1])
    # The authors' example, 869 and 13 as in their code, and no padding.
    both = bilevel_positions(np.array([[5, 869, 6, 13, 13, 8]]), (869, 13))
    assert both.within.tolist() == [[0, 1, 0, 1, 0, 0]]
    assert both.segment.tolist() == [[0, 0, 1, 1, 2, 3]]


def test_the_contract_of_schemes_is_kept():
    check_positions(SCHEME, tokens=ROWS[[0, 1, 0, 2]])
    # A batch of one length says so once, whatever its symbols are.
    one, each = (
        place(SCHEME, ROWS[:2], LENGTHS[:1]),
        place(SCHEME, ROWS[:2], LENGTHS[:2]),
    )
    jax.tree.map(np.testing.assert_array_equal, one, each)
    assert SCHEME.position_bound(50) == 50
    assert SCHEME.stream_bound("within", 50) == 50
    assert SCHEME.stream_bound("digit", 50) is None
    short = BiPE(max_segment=8)
    assert [short.stream_bound("within", n) for n in (5, 50)] == [5, 8]


@pytest.mark.parametrize("absolute", [Learned, Sinusoidal])
def test_places_go_into_embeddings_and_segments_into_rotations(absolute):
    """As written by hand: embeddings at one kind of position, RoPE at the other."""
    placed = place(SCHEME, ROWS[:2], LENGTHS[:2])
    within = placed.streams["within"]
    encoding = compose(within=absolute(stream="within"), segment=Rotary())
    inputs = example(encoding, length=12)
    got = attended(encoding, inputs, placed.tokens(12))
    plain = absolute()
    shared = inputs["shared"]["within"]
    x = plain.embed(shared, inputs["x"], tokens(12, positions=within))
    by_hand = inputs | {"x": x, "shared": {}, "layer": {}}
    at_segments = Placement(placed.positions).tokens(12)
    wanted = attended(Rotary(), by_hand, at_segments)
    np.testing.assert_allclose(got, wanted, atol=1e-5)


def test_more_segments_need_no_more_places():
    """What is learned of a text of two sentences serves one of forty."""
    sentence = np.array([1, 2, 3, STOP], np.int32)
    long = np.tile(sentence, 40)[None]
    placed = place(BiPE((STOP,), max_segment=4), long, np.array([160]))
    assert placed.streams["within"].max() == 3
    assert placed.positions.max() == 39
    table = Learned(max_position=4, stream="within")
    shared = table.init_shared(jax.random.key(0), Dims(1, 1, 2, 2))
    x = table.embed(shared, jnp.zeros((1, 160, 2)), placed.tokens(160))
    np.testing.assert_array_equal(x[0], np.tile(shared["table"], (40, 1)))


@pytest.mark.fast
def test_what_does_not_fit_is_refused():
    for settings, message in (
        ({"separators": ()}, "separators is empty"),
        ({"max_segment": 0}, "max_segment must be at least 1, got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            BiPE(**settings)
    lengths = jnp.array([12])
    with pytest.raises(ValueError, match="pass tokens"):
        SCHEME(jax.random.key(0), lengths, num_tokens=12)
    scheme = BiPE((STOP, BREAK), max_segment=10)
    with pytest.raises(ValueError, match="a segment has 11 tokens, .*max_segment=10"):
        scheme(jax.random.key(0), lengths, num_tokens=12, tokens=jnp.array(ROWS[1:2]))
