"""Settings that are no numbers are refused where they are made, by name."""

import copy
import dataclasses
import importlib
import math
import pickle
import pkgutil
import typing

import numpy as np
import pytest

from ropejax.encodings import (
    ENCODINGS,
    ALiBi,
    Encoding,
    LongRoPE,
    MRoPE,
    Rotary,
    T5Bias,
    YaRN,
    rotary_from_hf,
)
from ropejax.encodings.compose import Compose
from ropejax.encodings.distance import Distance
from ropejax.encodings.frequency_map import Chain, FrequencyMap
from ropejax.encodings.interpolation import PositionInterpolation
from ropejax.nn.recurrent.tape import TapeRNN
from ropejax.positions import POSITIONS, Consecutive, PositionScheme, Randomized
from ropejax.positions.abacus import Abacus
from ropejax.positions.coupled import Coupled
from ropejax.positions.coupled_levels import CoupledLevels
from ropejax.settings import Settings
from ropejax.tasks.addition_scratchpad import AdditionScratchpad


def every_kind(base):
    """The classes of settings, in all modules of the package that has the base."""
    where = base.__module__.rpartition(".")[0]
    package = importlib.import_module(where)
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    found, left = [], [base]
    while left:
        kind = left.pop()
        found.append(kind)
        left += kind.__subclasses__()
    return [kind for kind in found if kind.__module__.startswith(f"{where}.")]


KINDS = [
    kind
    for base in (Encoding, FrequencyMap, Distance, PositionScheme)
    for kind in every_kind(base)
]


def is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


# Settings without a default, or with one that cannot stand alone.
NEEDED = {"Compose": {"parts": (("one", Encoding()),)}}


@pytest.mark.fast
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_none_are_refused_by_name(kind, number):
    given = NEEDED.get(kind.__name__, {})
    settings = kind(**given)
    for field in dataclasses.fields(kind):
        if is_number(getattr(settings, field.name)):
            with pytest.raises(ValueError, match=field.name):
                kind(**given | {field.name: number})


@pytest.mark.fast
def test_the_kinds_are_all_there():
    assert {*ENCODINGS.values(), *POSITIONS.values()} <= {*KINDS}


@pytest.mark.fast
def test_numbers_inside_tuples_count_and_the_message_shows_the_value():
    with pytest.raises(ValueError, match=r"slopes must be finite.*nan.*ALiBi"):
        ALiBi(slopes=(0.5, math.nan))
    with pytest.raises(ValueError, match=r"max_wavelength.*inf"):
        Rotary(max_wavelength=math.inf)
    with pytest.raises(ValueError, match=r"scale.*nan"):
        YaRN(scale=math.nan)


@pytest.mark.fast
def test_a_configuration_from_elsewhere_is_refused_alike():
    scaling = {"rope_type": "linear", "factor": math.nan}
    with pytest.raises(ValueError, match="nan"):
        rotary_from_hf({"rope_theta": 1e4, "rope_scaling": scaling})


@pytest.mark.fast
def test_the_check_leaves_settings_without_numbers_alone():
    assert Consecutive() == Consecutive()


# Arguments of another type

ALL_KINDS = [kind for base in Settings.__subclasses__() for kind in every_kind(base)]
NUMBERS = {bool: (1.5, "yes"), int: (1.5, "2", True), float: ("0.1", True, 1j)}


@pytest.mark.fast
@pytest.mark.parametrize("kind", ALL_KINDS, ids=lambda kind: kind.__qualname__)
def test_arguments_of_another_type_are_refused_by_name(kind):
    """For every kind of settings that there is: tasks, masks, encodings, layers, ..."""
    hints = typing.get_type_hints(kind)
    fields = [field.name for field in dataclasses.fields(kind) if field.init]
    for name in fields:
        hint = hints[name]
        wrong = [object(), *NUMBERS.get(hint, ())] if hint in (*NUMBERS, str) else []
        for value in wrong:
            with pytest.raises(ValueError, match=rf"^{name} must be .*, got "):
                kind(**{name: value})


@pytest.mark.fast
def test_arguments_of_the_right_type_are_left_as_they_are():
    assert Randomized(np.int64(64), True).max_position == 64
    assert Rotary(max_wavelength=500).max_wavelength == 500  # whole numbers are numbers
    with pytest.raises(ValueError, match="per_layer must be True or False, got 1"):
        Randomized(64, True, 1)  # by place too
    with pytest.raises(ValueError, match="bidirectional must be True or False or None"):
        T5Bias(bidirectional="no")
    with pytest.raises(ValueError, match=r"slopes must be a tuple of a number each or"):
        ALiBi(slopes=("1",))
    with pytest.raises(
        ValueError, match="frequencies must be a FrequencyMap, got 'ntk'"
    ):
        Rotary(frequencies="ntk")
    with pytest.raises(TypeError, match="unexpected keyword argument 'max_wave'"):
        Rotary(max_wave=1e4)
    copied = copy.deepcopy(pickle.loads(pickle.dumps(YaRN(scale=8.0))))
    assert copied == YaRN(scale=8.0) == dataclasses.replace(YaRN(), scale=8.0)


LISTS = [
    (ALiBi, {"slopes": [1.0, 2.0]}),
    (LongRoPE, {"long_factors": [1.0, 2.0], "train_length": 4}),
    (MRoPE, {"sections": [1, 2, 1]}),
    (Compose, {"parts": [["a", ALiBi()], ["b", Rotary()]]}),
    (Chain, {"maps": [PositionInterpolation(2.0)]}),
    (Abacus, {"digits": [0, 1]}),
    (Coupled, {"separators": [10, 11]}),
    (CoupledLevels, {"separators": [11, 12]}),
    (AdditionScratchpad, {"parts": ["input", "output"]}),
    (TapeRNN, {"hidden": [3]}),
]


@pytest.mark.fast
@pytest.mark.parametrize(("kind", "lists"), LISTS, ids=lambda x: str(x)[:30])
def test_lists_become_tuples_so_that_settings_have_a_hash(kind, lists):
    def tupled(value):
        return tuple(map(tupled, value)) if isinstance(value, list) else value

    made = kind(**lists)
    same = kind(**{name: tupled(value) for name, value in lists.items()})
    assert made == same
    assert hash(made) == hash(same)


@pytest.mark.fast
def test_settings_of_ones_own_are_checked_too():
    @dataclasses.dataclass(frozen=True)
    class Mine(Encoding):
        strength: float = 1.0
        other: "Elsewhere" = None  # noqa: F821

    with pytest.raises(
        ValueError, match="strength must be a number, got None for Mine"
    ):
        Mine(strength=None)
    assert Mine(2.0, other="anything").other == "anything"


# Classes of the user's own


def without_decorator():
    class Own(Encoding):
        width: int = 3

    return Own


def with_own_init():
    class Own(Encoding):
        def __init__(self, width=3):
            object.__setattr__(self, "width", width)

    return Own


def that_can_change():
    class Own(Settings):
        width: int = 3

    return dataclasses.dataclass(Own)


@pytest.mark.fast
@pytest.mark.parametrize(
    "make",
    [without_decorator, with_own_init, that_can_change],
    ids=lambda f: f.__name__,
)
def test_a_class_whose_settings_would_not_be_compared_is_refused(make):
    with pytest.raises(ValueError, match=r"Own is no .*dataclass\(frozen=True\)"):
        make()()


def test_a_class_that_only_alters_hooks_needs_no_decorator():
    class Renamed(Rotary):
        title: typing.ClassVar[str] = "Renamed"

    assert Renamed() == Renamed() != Rotary()
