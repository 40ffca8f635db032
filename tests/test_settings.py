"""Settings that are no numbers are refused where they are made, by name."""

import dataclasses
import importlib
import math
import pkgutil

import pytest

from ropejax.encodings import (
    ENCODINGS,
    ALiBi,
    Encoding,
    Rotary,
    YaRN,
    rotary_from_hf,
)
from ropejax.encodings.distance import Distance
from ropejax.encodings.frequency_map import FrequencyMap
from ropejax.positions import POSITIONS, Consecutive, PositionScheme


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
