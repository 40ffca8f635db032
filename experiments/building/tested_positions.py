"""Where tokens are at test time: what is not said there is as in training.

A model knows the positions that it was trained at. So a test-time scheme without
settings of its own has those of the training scheme: all of them if it is the same one,
and of another one the range of positions, `max_position`.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from experiments.building import options
from experiments.building.fitting import fitted
from experiments.building.methods import PARTS, make_positions, published_settings
from ropejax.positions import POSITIONS
from ropejax.positions.base import PositionScheme

RANGE = "max_position"
"""The setting that schemes of different kinds share in meaning."""

DRAWN = ("max_offset", "max_random_offset", "random_start")
"""Settings of which nothing or False means that a scheme draws nothing."""


class Tested(NamedTuple):
    """A test-time scheme.

    Attributes:
        scheme: where tokens are.
        label: its name and settings in results and tables; None if all is as trained.
    """

    scheme: PositionScheme
    label: str | None


def make_tested(
    config: ConfigDict | Mapping[str, Any],
    trained: PositionScheme,
    name: str,
    text: str = "",
    where: tuple[str, str] = ("eval.positions", "eval.options"),
) -> Tested:
    """Returns a test-time scheme for a model, with what results call it.

    Args:
        config: the model's config.
        trained: where tokens were in training.
        name: catalogue name of the scheme.
        text: its settings; those that are not given are the training scheme's.
        where: what messages call the name and the settings.

    Raises:
        ValueError: if the name or a setting is unknown or out of range.
    """
    config = ConfigDict(config)
    cls = options.look_up(name, POSITIONS, where[0], PositionScheme)
    given = options.parse(text, where[1], PARTS)
    own = _taken_over(trained, cls, given, where)
    scheme = make_positions(config, name, text, where, own)
    if scheme == trained:
        return Tested(trained, None)
    named = _defaults(cls) | published_settings(config, cls) | given
    taken = [
        f"{setting}={value!r}"
        for setting, value in own.items()
        if setting not in given and value != named[setting]
    ]
    return Tested(
        scheme, options.with_options(name, ", ".join(filter(None, [text, *taken])))
    )


def label_at_test(config: Mapping[str, Any]) -> str:
    """Returns what results call the test-time positions of a config.

    Args:
        config: the config, plain.
    """
    positions, tested = config["positions"], config["eval"]
    label = None
    if tested["positions"] is not None:
        trained = make_positions(config)
        label = make_tested(
            config, trained, tested["positions"], tested["options"]
        ).label
    return label or options.with_options(positions["name"], positions["options"])


def _taken_over(
    trained: PositionScheme,
    cls: type[PositionScheme],
    given: Mapping[str, Any],
    where: tuple[str, str],
) -> dict[str, Any]:
    """Returns the settings of a scheme that follow from the training scheme."""
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}
    if type(trained) is cls:
        own = {name: getattr(trained, name) for name in fields}
        draws = [given[name] for name in DRAWN if name in given]
        if draws and not any(draws):
            del own["per_sequence"]  # nothing is left to draw, by row or by batch
        return own
    reach = _reach(trained)
    if reach is None or RANGE not in fields or RANGE in given:
        return {}
    try:
        return {RANGE: fitted(reach, fields[RANGE].type, RANGE)}
    except ValueError as error:
        raise ValueError(
            f"{where[0]}: the training positions' {error} Set {RANGE} in {where[1]}."
        ) from None


def _reach(scheme: PositionScheme) -> float | None:
    """Returns the `max_position` of a scheme, or of the one that it is based on."""
    if hasattr(scheme, RANGE):
        return getattr(scheme, RANGE)
    base = getattr(scheme, "base", None)
    return None if base is None else _reach(base)


def _defaults(cls: type[PositionScheme]) -> dict[str, Any]:
    return {field.name: field.default for field in dataclasses.fields(cls)}
