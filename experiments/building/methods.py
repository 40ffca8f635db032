"""The task, the encoding and the position scheme that a config names.

Settings are text there, such as `distance=Rectified(512)`; here they become objects.
"""

import types
from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from experiments.building import options
from experiments.building.encoder_decoder import KIND
from experiments.building.options import look_up
from experiments.building.pretrained import (
    ENCODING,
    check_no_settings,
    checkpoint_spec,
    is_pretrained,
    own_encoding,
    rotary_settings,
)
from experiments.building.published_draws import published_draw
from experiments.building.recurrent import check_scheme
from experiments.building.trained_length import defaults
from ropejax.encodings import (
    ENCODINGS,
    Encoding,
    compose,
    distance_maps,
    frequency_map,
    interpolation,
    length_scaling,
    yarn_map,
)
from ropejax.encodings.distance import Distance
from ropejax.encodings.frequency_map import FrequencyMap
from ropejax.nn.recurrent import RECURRENT
from ropejax.positions import POSITIONS, Randomized
from ropejax.positions.base import PositionScheme
from ropejax.tasks import ALL_TASKS, Autoregressive, Task

KINDS = types.MappingProxyType(
    {"encoder": False, "decoder": True, KIND: True, **dict.fromkeys(RECURRENT, False)}
)
"""Kinds of models, and whether they read their own answers back."""


COMPOSE = "compose"
"""Name in configs of encodings put together, which is no method of its own."""


def _parts() -> dict[str, type]:
    """Classes that settings may hold, such as the distance map of a rotary encoding."""
    modules = (distance_maps, frequency_map, interpolation, length_scaling, yarn_map)
    found = [cls for module in modules for cls in vars(module).values()]
    parts = [
        cls
        for cls in found
        if isinstance(cls, type)
        and issubclass(cls, Distance | FrequencyMap)
        and not cls.__name__.startswith("_")
    ]
    named = [*parts, *POSITIONS.values(), *ENCODINGS.values()]
    return {cls.__name__: cls for cls in named}


PARTS = types.MappingProxyType(_parts())


def make_task(config: ConfigDict) -> Task:
    """Returns the task of a config, as its kind of model sees it.

    Raises:
        ValueError: if a name or a setting is unknown, or the model cannot be asked so.
    """
    cls = look_up(config.task.name, ALL_TASKS, "task.name", Task)
    given = options.parse(config.task.options, "task.options")
    own = {}
    if is_pretrained(config) and str(given.get("path", "")).endswith(".npy"):
        own = {"vocab_size": checkpoint_spec(config).num_symbols}
    task = options.construct(cls, given, "task.options", defaults=own)
    reads_back = look_up(config.model.kind, KINDS, "model.kind")
    if not task.in_place:
        return Autoregressive(task) if reads_back else task
    if config.model.kind == KIND:
        raise ValueError(
            f"task.name={config.task.name} is answered at the input's own symbols, so "
            f"model.kind={KIND} has nothing to decode; set model.kind=decoder or "
            "encoder."
        )
    if (
        task.left_to_right
        and config.model.kind == "encoder"
        and not config.model.causal
    ):
        raise ValueError(
            f"task.name={config.task.name} asks for what comes next, which models that "
            "look ahead see; set model.kind=decoder, or model.causal=True."
        )
    return task


def make_encoding(
    config: ConfigDict, task: Task | None = None, like: Encoding | None = None
) -> Encoding:
    """Returns the encoding of a config; "compose" puts encodings together by name.

    A trained length that is not given is that of the run's own training, or that of
    the checkpoint which is its model.

    Args:
        config: the config.
        task: its task; made here if None.
        like: the RoPE that it stands for in a checkpoint, whose settings it has where
            the config gives none; the first one of the checkpoint if None.

    Raises:
        ValueError: if a name or a setting is unknown or out of range.
    """
    if config.encoding.name == ENCODING:
        check_no_settings(config)
        return own_encoding(config)
    own = defaults(config, make_task(config) if task is None else task)
    if is_pretrained(config):
        own = rotary_settings(like or own_encoding(config)) | own
    where = "encoding.options"
    given = options.parse(config.encoding.options, where, PARTS, own)
    if config.encoding.name == COMPOSE:
        return make_composition(given)
    known = {**ENCODINGS, COMPOSE: compose, ENCODING: own_encoding}
    cls = look_up(config.encoding.name, known, "encoding.name", Encoding)
    return options.construct(cls, given, where, classes=PARTS, defaults=own)


def make_composition(given: Mapping[str, Any]) -> Encoding:
    """Returns encodings put together, as in `rope=Rotary(), scale=LogScale()`.

    Raises:
        ValueError: if there is none, a part is no encoding, or two claim one hook.
    """
    for name, part in given.items():
        if not isinstance(part, Encoding):
            raise ValueError(
                f"encoding.options: part {name!r} must be an encoding, as Rotary(), "
                f"got {part!r}."
            )
    if not given:
        raise ValueError(
            "encoding.name=compose needs parts in encoding.options, such as "
            "rope=Rotary(), scale=LogScale(count=all)."
        )
    return compose(**given)


def make_positions(
    config: ConfigDict | Mapping[str, Any],
    name: str | None = None,
    text: str = "",
    where: tuple[str, str] = ("positions.name", "positions.options"),
    own: Mapping[str, Any] = types.MappingProxyType({}),
) -> PositionScheme:
    """Returns the position scheme of a config, or another one for the same model.

    Args:
        config: the config.
        name: catalogue name; name and settings of the config if None.
        text: settings of the named scheme.
        where: what messages call the name and the settings.
        own: settings where the text gives none; the scheme's defaults, or what was
            published for the encoding, if not here either.

    Raises:
        ValueError: if the name or a setting is unknown or out of range.
    """
    config = ConfigDict(config)
    if name is None:
        name, text = config.positions.name, config.positions.options
    cls = look_up(name, POSITIONS, where[0], PositionScheme)
    given = options.parse(text, where[1], PARTS)
    others = {**published_settings(config, cls), **own}
    scheme = options.construct(cls, given, where[1], classes=PARTS, defaults=others)
    check_scheme(config, scheme, where[0])
    return scheme


def published_settings(config: ConfigDict, cls: type) -> dict[str, Any]:
    """Returns the settings of a scheme that the config asks for by `as_published`.

    Args:
        config: the config.
        cls: the scheme's class.
    """
    if not (cls is Randomized and config.positions.as_published):
        return {}
    return published_draw(make_encoding(config))
