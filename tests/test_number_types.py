"""Positions and order in any type of number: as in int32, or refused by name.

Distances to earlier tokens are negative, and windows and distances exceed what 8 bits
hold, so whatever is computed from unsigned or narrow integers goes wrong silently. JAX
cuts integers of 64 bits to 32 on the way in, and bfloat16 has no 257.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax import masks, testing
from ropejax.attention import attend
from ropejax.attention.visibility import visible_pairs
from ropejax.encodings import (
    ALiBi,
    DualChunk,
    LeakyReRoPE,
    Learned,
    ReRoPE,
    Rotary,
    SelfExtend,
    Sinusoidal,
    T5Bias,
)
from ropejax.encodings.angles import rotation_angles
from ropejax.number_types import widened
from ropejax.positions import Shifted, streaming_positions
from ropejax.positions.base import Placement
from ropejax.tokens import Tokens, relative_positions, signed_offsets, tokens

AT = [[0, 3, 5, 40, 100, 127]]
BACK = [[-40, -37, -35, 0, 60, 87]]  # from the fourth of them
APART = [[-40, -5, -3, 0, 3, 5]]  # AT as a table of distances, for the fourth token
NARROW = ("int8", "uint8", "int16", "uint16", "uint32")
WIDE = ("int64", "uint64")  # on the host only


def given(dtype, values=AT):
    """The same numbers on the host and, if JAX has the type, on the device."""
    host = np.array(values, dtype)
    return [host] if dtype in WIDE else [host, jnp.asarray(host)]


@pytest.mark.parametrize("dtype", NARROW + WIDE)
def test_integers_of_every_type_become_int32_and_keep_their_differences(dtype):
    for array in given(dtype):
        side = tokens(6, positions=array, segments=array, streams={"digit": array})
        moved = tokens(6).replace(index=array, positions=array)
        table = tokens(6, distances=array)
        arrays = (side.positions, side.segments, side.streams["digit"])
        arrays += (moved.index, moved.positions, table.distances)
        for made in (*arrays, Placement(positions=array).positions):
            assert made.dtype == jnp.int32
            np.testing.assert_array_equal(made, AT)
        np.testing.assert_array_equal(relative_positions(side, side)[0, 3], BACK[0])
        np.testing.assert_array_equal(relative_positions(table, table)[0, 3], APART[0])
        mirrored = signed_offsets(array)
        np.testing.assert_array_equal(mirrored[0, :6], -mirrored[0, :4:-1])


@pytest.mark.parametrize("dtype", NARROW)
def test_traced_integers_become_int32_and_known_ones_stay_known(dtype):
    far = jax.jit(lambda at: relative_positions(*[tokens(6, positions=at)] * 2))
    np.testing.assert_array_equal(far(np.array(AT, dtype))[0, 3], BACK[0])
    for array in given(dtype):
        held = []
        make = lambda array, held: held.append(tokens(6, positions=array))
        jax.jit(functools.partial(make, array, held))()
        np.testing.assert_array_equal(np.asarray(held[0].positions), AT)


@pytest.mark.parametrize(
    "encoding",
    [
        ReRoPE(window=4, bidirectional=True),
        LeakyReRoPE(window=4, bidirectional=True),
        SelfExtend(window=1024, group=8),
        DualChunk(chunk_size=110, local=10),
        Rotary(),
        ALiBi(),
        T5Bias(),
        Sinusoidal(),
        Learned(max_position=300, extension=0.4),
    ],
    ids=lambda encoding: type(encoding).__name__,
)
def test_encodings_see_the_same_positions_and_distances_in_every_type(encoding):
    """Windows of 512 wrap in uint8, chunks overflow int8, minus 3 is 253 in uint8."""
    inputs = testing.example(encoding, length=6)
    mask = masks.Causal() if encoding.causal_only else None
    run = jax.jit(functools.partial(testing.run, encoding, mask=mask))
    name = "distances" if encoding.by_distance else "positions"
    right = run(inputs, tokens(6, **{name: jnp.array(AT)}))
    for dtype in NARROW + WIDE:
        for array in given(dtype):
            got = run(inputs, tokens(6, **{name: array}))
            np.testing.assert_array_equal(got, right)
    if name == "distances":
        return
    assert (np.asarray(run(inputs, tokens(6))) != right).any()
    traced = jax.jit(
        lambda at: testing.run(encoding, inputs, tokens(6, positions=at), mask=mask)
    )
    np.testing.assert_allclose(traced(np.array(AT, np.uint8)), right, atol=1e-6)


@pytest.mark.parametrize(
    "mask",
    [
        masks.Causal(),
        masks.Window(50),
        masks.Window(300) & ~masks.Window(4),
        masks.Dilated(60, 2),
        masks.Chunked(100),
    ],
    ids=repr,
)
def test_masks_see_the_same_order_in_every_type(mask):
    order = lambda array: tokens(6).replace(index=array, consecutive_index=False)
    right = visible_pairs(order(jnp.array(AT)), order(jnp.array(AT)), mask)
    for dtype in NARROW + WIDE:
        for array in given(dtype):
            got = visible_pairs(order(array), order(array), mask)
            np.testing.assert_array_equal(got, right)


def test_streaming_positions_of_unsigned_indices():
    query, key = (np.arange(9)[None],) * 2
    right = streaming_positions(query, key, num_sinks=1, window=3)
    small = (x.astype(np.uint8) for x in (query, key))
    for a, b in zip(
        streaming_positions(*small, num_sinks=1, window=3), right, strict=True
    ):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([[2**32 + 5, 2**31, 2**40 + 3]], "4294967301"),
        (np.array([[3_000_000_000, 0, 1]], np.uint32), "3000000000"),
        ([[0, -(2**31) - 1, 0]], "-2147483649"),
        (np.array([[2**64 - 1, 0, 1]], np.uint64), "18446744073709551615"),
    ],
)
def test_known_integers_beyond_32_bits_are_refused_by_name(values, told):
    """JAX makes [5, -2147483648, 3] of the first ones; jax-ml/jax issue 18385."""
    values = np.asarray(values)
    match = rf"must fit int32, .* got {told}; subtract a constant"
    for name in ("positions", "segments", "distances"):
        with pytest.raises(ValueError, match=f"{name} {match}"):
            tokens(3, **{name: values})
    with pytest.raises(ValueError, match=f"digit {match}"):
        tokens(3, streams={"digit": values})
    with pytest.raises(ValueError, match=f"index {match}"):
        tokens(3).replace(index=values)
    with pytest.raises(ValueError, match=f"positions {match}"):
        Placement(positions=values)  # else cut where a compiled function takes it
    with pytest.raises(ValueError, match=f"positions {match}"):
        rotation_angles(values, np.ones(1))


@pytest.mark.parametrize("x64", [False, True])
def test_the_ends_of_int32_are_kept(x64):
    ends = np.array([[-(2**31), 2**31 - 1]])
    with jax.enable_x64(x64):
        made = tokens(2, positions=ends).positions
        assert made.dtype == np.int32
        np.testing.assert_array_equal(made, ends)
        with pytest.raises(ValueError, match="got 2147483648"):
            tokens(2, positions=ends + [[0, 1]])


def test_offsets_whose_tokens_leave_int32_are_refused():
    last = 2**31 - 1
    np.testing.assert_array_equal(tokens(2, offset=last - 1).index, [[last - 1, last]])
    for offset in (last, np.int64(2**40), -(2**31) - 1, jnp.int32(last)):
        with pytest.raises(ValueError, match="beyond int32"):
            tokens(2, offset=offset)
    with pytest.raises(ValueError, match="offset must be an integer"):
        tokens(2, offset=1.5)
    later = jax.jit(lambda n: tokens(2, offset=n).index)(np.uint8(254))
    np.testing.assert_array_equal(later, [[254, 255]])
    with pytest.raises(ValueError, match="int32"):
        Shifted(offset=last).check(2)


@pytest.mark.parametrize(("dtype", "limit"), [(jnp.bfloat16, 256), (jnp.float16, 2048)])
def test_positions_in_half_precision_are_refused_known_or_traced(dtype, limit):
    """bfloat16(257) is 256: huggingface/candle pull request 3520."""
    at = jnp.array([[limit, limit + 1]], dtype)
    assert at[0, 0] == at[0, 1]
    told = f"cannot tell integers above {limit} apart"
    for name in ("positions", "distances", "segments"):
        with pytest.raises(ValueError, match=f"{name} must be int32 .* {told}"):
            tokens(2, **{name: at})
        with pytest.raises(ValueError, match=told):
            jax.eval_shape(lambda at, name=name: tokens(2, **{name: at}), at)
    with pytest.raises(ValueError, match=told):
        tokens(2).replace(positions=at)
    with pytest.raises(ValueError, match=told):
        rotation_angles(at, np.ones(1))


def test_floats_of_64_bits_become_float32():
    side = tokens(2, positions=np.array([[0.5, 2.25]]))
    assert side.positions.dtype == np.float32
    np.testing.assert_array_equal(relative_positions(side, side)[0, 1], [-1.75, 0])


def test_trees_of_other_things_than_numbers_pass_through():
    """JAX rebuilds Tokens with whatever a function returns for each leaf."""
    side = tokens(2, positions=jnp.array([[0.5, 2.0]]), streams={"d": jnp.ones((1, 2))})
    spec = jax.sharding.PartitionSpec()
    assert jax.tree.map(lambda _: spec, side).positions is spec
    assert jax.tree.map(lambda x: None, side).index is None
    finite = jax.tree.map(jnp.isfinite, side)
    assert finite.index.dtype == bool
    grads = jax.grad(lambda t: t.positions.sum(), allow_int=True)(side)
    assert grads.index.dtype == jax.dtypes.float0
    np.testing.assert_array_equal(grads.positions, [[1.0, 1.0]])
    assert isinstance(jax.eval_shape(lambda: side).index, jax.ShapeDtypeStruct)
    assert widened("x", None) is None
    assert isinstance(side, Tokens)


FLAGS = [
    np.array([[True, False, True]]),
    jnp.array([[True, False, True]]),
    np.array([[1j, 0, 1]]),
]


@pytest.mark.parametrize("array", FLAGS, ids=lambda array: str(array.dtype))
def test_positions_that_are_no_numbers_are_refused(array):
    """`valid` given as positions put tokens at 0 and 1 only."""
    told = "must be integers or floating-point numbers, got (bool|complex)"
    for name in ("positions", "distances"):
        with pytest.raises(ValueError, match=f"{name} {told}"):
            tokens(3, **{name: array})
        with pytest.raises(ValueError, match=f"{name} {told}"):
            jax.eval_shape(lambda x, name=name: tokens(3, **{name: x}), array)
    with pytest.raises(ValueError, match=f"digit {told}"):
        tokens(3, streams={"digit": array})
    with pytest.raises(ValueError, match=f"positions {told}"):
        rotation_angles(array, np.ones(1))
    x, known = jnp.ones((1, 3, 1, 2)), tokens(3)
    for name in ("digit", "positions"):
        given = {"streams": {name: array}} if name == "digit" else {name: array}
        side = known.replace(**given)
        with pytest.raises(ValueError, match=f"{name} of k's Tokens {told}"):
            attend(x, x, x, encoding=Rotary(), query=known, key=side)
    with pytest.raises(ValueError, match=f"positions {told}"):
        Rotary().queries({}, x, known.replace(positions=array))


@pytest.mark.parametrize("far", [3e9, 2.0**31, -(2.0**31) - 256])
def test_fractional_positions_beyond_32_bits_are_refused_or_nan(far):
    """Counted in int32, all of them would be its last number: one position for all."""
    array = jnp.array([[far, 1.5]])
    told = r"must be within \+-2\^31, got .*; subtract a constant"
    for name in ("positions", "distances"):
        with pytest.raises(ValueError, match=f"{name} {told}"):
            tokens(2, **{name: array})
    with pytest.raises(ValueError, match=f"positions {told}"):
        rotation_angles(array, np.ones(1))
    side, x = tokens(2).replace(positions=array), jnp.ones((1, 2, 1, 2))
    with pytest.raises(ValueError, match=f"positions of q's Tokens {told}"):
        attend(x, x, x, encoding=Rotary(), query=side, key=side)
    for turned in (Rotary().queries({}, x, side)[0], jax.jit(_turned)(x, array)):
        assert np.isnan(turned[0, 0]).all()
        assert np.isfinite(turned[0, 1]).all()


def _turned(x, positions):
    return Rotary().queries({}, x, tokens(2, positions=positions))[0]


def test_the_ends_of_what_can_be_counted_are_kept_as_fractions():
    ends = np.array([[-(2.0**31), 2.0**31 - 128]])
    angles = rotation_angles(jnp.asarray(ends, jnp.float32), np.ones(1))[..., 0]
    np.testing.assert_allclose(np.cos(angles), np.cos(ends), atol=2e-6)


@pytest.mark.parametrize("far", [2.0**24 + 1, -(2.0**30) - 1, 1e30, 2.0**23 + 0.5])
def test_known_floats_of_64_bits_that_float32_has_not_are_refused(far):
    """float32(2^24 + 1) is 2^24: two neighbours would share a position."""
    array = np.array([[0.1, far]])
    with pytest.raises(ValueError, match="positions must fit float32, .* integers"):
        tokens(2).replace(positions=array)
    with pytest.raises(ValueError, match="distances must (fit|be within)"):
        tokens(2, distances=array)
    np.testing.assert_array_equal(
        tokens(2, positions=array[:, :1].repeat(2)[None]).positions,
        np.float32([[0.1, 0.1]]),
    )
