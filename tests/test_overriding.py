"""A misspelt hook is refused, not silently never called."""

import dataclasses

import pytest

from ropejax.encodings import Encoding
from ropejax.masks import Mask
from ropejax.positions import PositionScheme


def test_a_misspelt_hook_is_named():
    @dataclasses.dataclass(frozen=True)
    class Misspelt(Encoding):
        def biass(self, params, query, key, scale):
            return None

    with pytest.raises(ValueError, match=r"Misspelt\.biass .* rename it to bias"):
        Misspelt()


def test_a_misspelt_promise_is_named():
    @dataclasses.dataclass(frozen=True)
    class Misspelt(Encoding):
        shift_invariance = False

    with pytest.raises(ValueError, match="rename it to shift_invariant"):
        Misspelt()


def test_what_a_base_misspells_is_named_in_what_derives_from_it():
    class Base(Mask):
        def pair(self, i, j):
            return j <= i

    @dataclasses.dataclass(frozen=True)
    class Derived(Base):
        pass

    with pytest.raises(ValueError, match=r"Base\.pair .* rename it to pairs"):
        Derived()


def test_a_hook_of_other_arguments_is_named():
    @dataclasses.dataclass(frozen=True)
    class Short(Encoding):
        def bias(self, params, query, key):
            return None

    with pytest.raises(
        ValueError, match=r"bias must take \(self, params, query, key, "
    ):
        Short()


def test_other_names_further_arguments_and_other_methods_are_fine():
    @dataclasses.dataclass(frozen=True)
    class Own(Encoding):
        slope: float = 1.0

        def bias(self, parameters, q, k, factor, extra=None):
            return None

        def slopes(self):
            return None

    @dataclasses.dataclass(frozen=True)
    class Any(Encoding):
        def queries(self, *args):
            return super().queries(*args)

    Own()
    Any()


def test_keyword_arguments_of_the_base_are_given_too():
    @dataclasses.dataclass(frozen=True)
    class Own(PositionScheme):
        def __call__(self, *arguments):
            return None

    with pytest.raises(ValueError, match=r"__call__ must take .*unexpected keyword"):
        Own()
