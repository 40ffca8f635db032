"""Arithmetic on arrays of bits against Python's integers."""

import math
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.tasks import binary
from ropejax.tasks.compute_sqrt import floor_sqrt


def bits(value, count):
    """Little-endian bits."""
    return [int(bit) for bit in f"{value:0{count}b}"[::-1]]


def values(rows):
    """The numbers in rows of little-endian bits."""
    return [int("".join(map(str, row[::-1])), 2) for row in np.asarray(rows).tolist()]


def rough_numbers(rng, count, size):
    """Numbers below 2^size, with many extreme and carry-prone ones among them."""
    for _ in range(count):
        kind = rng.randrange(4)
        if kind == 0:
            yield rng.choice([0, 1, 2 ** (size - 1), 2**size - 1])
        elif kind == 1:
            yield rng.getrandbits(rng.randint(1, size))
        elif kind == 2:  # runs of equal bits
            value = 0
            while value.bit_length() < size:
                run = rng.randint(1, 40)
                value = (value << run) + rng.choice([0, 2**run - 1]) + (value == 0)
            yield value % 2**size
        else:
            yield rng.getrandbits(size)


@pytest.mark.parametrize("size", [1, 13, 250])
def test_sums_and_products_are_exact(size):
    rng = random.Random(size)
    first, second = (list(rough_numbers(rng, 300, size)) for _ in range(2))
    arrays = [jnp.asarray([bits(v, size) for v in part]) for part in (first, second)]
    total = jax.jit(jax.vmap(binary.add))(*arrays)
    assert total.shape[1] == size + 1
    assert values(total) == [a + b for a, b in zip(first, second, strict=True)]
    product = jax.jit(jax.vmap(binary.multiply))(*arrays)
    assert product.shape[1] == 2 * size
    assert values(product) == [a * b for a, b in zip(first, second, strict=True)]


@pytest.mark.parametrize("size", [1, 13, 14, 500])
def test_roots_are_exact_beside_squares(size):
    """Perfect squares and their neighbours, and the last number with the same root."""
    rng = random.Random(size)
    numbers = list(range(2**size)) if size < 14 else []
    for root in rough_numbers(rng, 400, (size + 1) // 2):
        square = root * root
        numbers += [square - 1, square, square + 1, square + 2 * root]
    numbers = [number for number in numbers if 0 <= number < 2**size]
    big_endian = jnp.asarray([bits(number, size)[::-1] for number in numbers])
    roots = jax.jit(jax.vmap(floor_sqrt))(big_endian)
    assert roots.shape[1] == (size + 1) // 2
    assert values(roots[:, ::-1]) == [math.isqrt(number) for number in numbers]


def test_roots_are_exact_where_rounded_limbs_are_doubtful():
    """Roots whose digits in base 2^12 lie at the edges of rounding to nearest."""
    rng = random.Random(0)
    numbers = []
    for _ in range(1000):
        root = 0
        for _ in range(12):
            digit = rng.choice([0, 1, 2047, 2048, 2049, 4094, 4095])
            root = (root << 12) + digit
        numbers += [max(root * root - 1, 0), root * root, root * root + root]
    size = 2 * 12 * 12
    big_endian = jnp.asarray([bits(number, size)[::-1] for number in numbers])
    roots = jax.jit(jax.vmap(floor_sqrt))(big_endian)
    assert values(roots[:, ::-1]) == [math.isqrt(number) for number in numbers]


def test_numbers_beyond_32_bits_do_not_overflow():
    """Fault B24: integers above 2^31 are cut to 32 bits where x64 is off."""
    ones = jnp.asarray(bits(2**40 - 1, 40))
    assert values(binary.to_bits(binary.to_limbs(ones), 40)[None]) == [2**40 - 1]
    assert values(binary.add(ones, ones)[None]) == [2 * (2**40 - 1)]

    first, second = (jnp.asarray(bits(2**33 + n, 34)) for n in (5, 9))
    total = "".join(map(str, binary.add(first, second).tolist()))
    assert total == "01110000000000000000000000000000001"
    first, second = (jnp.asarray(bits(2**20 + n, 21)) for n in (1, 3))
    product = "".join(map(str, binary.multiply(first, second).tolist()))
    assert product == "11000000000000000000001000000000000000001" + "0"


@pytest.mark.parametrize(
    ("number", "root"),
    [(4503599761588224, 67108864), (2**62 - 1, 2147483647)],
)
def test_root_is_not_rounded_up_as_in_float64(number, root):
    """Fault B24: float64 gives 67108865 for the first."""
    big_endian = jnp.asarray(bits(number, 62)[::-1])
    assert values(floor_sqrt(big_endian)[None, ::-1]) == [root]


def test_carry_keeps_the_value_of_limbs_of_any_sign():
    rng = np.random.default_rng(0)
    limbs = rng.integers(-(2**30), 2**30, size=(50, 12))
    carried = np.asarray(jax.vmap(binary.carry)(jnp.asarray(limbs)))
    assert carried.min() >= 0
    assert carried.max() < 2**12
    for before, after in zip(limbs.tolist(), carried.tolist(), strict=True):
        value = sum(limb << 12 * i for i, limb in enumerate(before)) % 2 ** (12 * 12)
        assert sum(limb << 12 * i for i, limb in enumerate(after)) == value
