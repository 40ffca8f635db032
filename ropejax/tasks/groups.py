"""Small finite groups as permutations, and their multiplication tables.

A permutation of n points is the tuple of their images, (1, 0, 2) for the one that swaps
the first two of three. The product p q does p first and then q: (p q)(i) = q(p(i)). The
elements of a group are numbered in the order of their tuples, so 0 is the identity; of
Z60, whose generator moves every point on by one, k is the element that moves it by k.
"""

import functools
from types import MappingProxyType

import numpy as np

Permutation = tuple[int, ...]


def _cycles(points: int, *cycles: tuple[int, ...]) -> Permutation:
    """The permutation that moves each point of a cycle to the next one."""
    image = list(range(points))
    for cycle in cycles:
        for point, following in zip(cycle, (*cycle[1:], cycle[0]), strict=True):
            image[point] = following
    return tuple(image)


GENERATORS: MappingProxyType[str, tuple[Permutation, ...]] = MappingProxyType(
    {
        "Z60": (_cycles(60, tuple(range(60))),),
        "S3": (_cycles(3, (0, 1)), _cycles(3, (0, 1, 2))),
        "S4": (_cycles(4, (0, 1)), _cycles(4, (0, 1, 2, 3))),
        "S5": (_cycles(5, (0, 1)), _cycles(5, (0, 1, 2, 3, 4))),
        "A4": (_cycles(4, (0, 1, 2)), _cycles(4, (0, 1), (2, 3))),
        "A5": (_cycles(5, (0, 1, 2)), _cycles(5, (0, 1, 2, 3, 4))),
        "A4xZ5": (
            _cycles(9, (0, 1, 2)),
            _cycles(9, (0, 1), (2, 3)),
            _cycles(9, (4, 5, 6, 7, 8)),
        ),
    }
)
"""Generators of each group by its name: Z cyclic, S symmetric, A alternating."""


def product(first: Permutation, second: Permutation) -> Permutation:
    """Returns the permutation that does `first` and then `second`."""
    return tuple(second[image] for image in first)


@functools.cache
def elements(name: str) -> tuple[Permutation, ...]:
    """Returns a group's elements, in order: all products of its generators."""
    generators = GENERATORS[name]
    found = {tuple(range(len(generators[0])))}
    fresh = list(found)
    while fresh:
        fresh = [product(p, q) for p in fresh for q in generators]
        fresh = list(set(fresh) - found)
        found |= set(fresh)
    return tuple(sorted(found))


@functools.cache
def table(name: str) -> np.ndarray:
    """Returns a group's multiplication table `[G, G]`: entry [p, q] is p q."""
    numbers = {element: number for number, element in enumerate(elements(name))}
    rows = [[numbers[product(p, q)] for q in numbers] for p in numbers]
    return np.asarray(rows, np.int32)


def generator_numbers(name: str) -> tuple[int, ...]:
    """Returns the numbers of a group's generators, in the order of `GENERATORS`."""
    return tuple(elements(name).index(generator) for generator in GENERATORS[name])
