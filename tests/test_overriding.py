"""A misspelt hook is refused, not silently never called."""

import dataclasses

import pytest

from ropejax.encodings import Encoding, Rotary
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


def own(*bases, **body):
    """Returns a class that derives from others, as a user would write it."""
    return dataclasses.dataclass(frozen=True)(type("Own", bases, body))


@pytest.mark.parametrize(
    ("bases", "body", "message"),
    [
        # True as a method, whatever it returns.
        ((Encoding,), {"shift_invariant": lambda self: False}, "write @property"),
        ((Encoding,), {"position_limit": lambda self: 8}, "write @property"),
        # Not to be called, where the library calls it.
        ((Encoding,), {"bias": None}, "stands for a method"),
        ((Encoding,), {"__annotations__": {"check": bool}}, "hides the method"),
        # A dataclass makes no default of it: the base of RoPE would stay 10,000.
        ((Rotary,), {"max_wavelength": 5e5}, "has no annotation"),
    ],
)
def test_what_would_have_no_effect_or_be_called_in_vain_is_named(bases, body, message):
    with pytest.raises(ValueError, match=rf"^Own\.\w+.*{message}"):
        own(*bases, **body)()


class Helper:
    def logit(self):
        """Nearly a hook of Encoding, but that is no class of its own to judge."""

    def check(self):
        """Hidden by that of Encoding, which comes first."""


class Loose(PositionScheme):
    def __call__(self, rng, lengths, **others):
        """Does not say what it is given."""


class Wide(Encoding):
    hook = None

    def row(self, size, **others):
        """Takes any name."""


@pytest.mark.parametrize(
    ("bases", "body"),
    [
        ((Encoding, Helper), {}),
        ((Loose,), {"__call__": lambda self, rng, lengths, *, num_tokens: None}),
        ((Wide,), {"row": lambda self, size, **o: None, "hook": lambda self: None}),
        (
            (Rotary,),
            {"__annotations__": {"max_wavelength": float}, "max_wavelength": 9.0},
        ),
        ((Encoding,), {"title": property(lambda self: "Own"), "causal_only": True}),
        ((Encoding,), {"bias": staticmethod(lambda params, query, key, scale: None)}),
    ],
)
def test_what_python_allows_and_the_library_can_call_is_fine(bases, body):
    own(*bases, **body)()
