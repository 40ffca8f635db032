"""From a config's mesh to a sharding: which devices hold what.

All sizes 1, the default, is one device, and nothing is spread.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from jax.sharding import AbstractMesh, Mesh
from ml_collections import ConfigDict

from experiments.building import options
from experiments.building.options import look_up
from ropejax.attention.sequence_parallel import FORMS
from ropejax.sharding import MESH_AXES, ORDERS, Rules, Sharding, make_mesh

AXES = tuple(axis for axis in MESH_AXES if axis != "population")
"""Axes that a single run has."""


def make_sharding(
    config: ConfigDict | Mapping[str, Any],
    devices: Sequence[jax.Device] | None = None,
) -> Sharding | None:
    """Returns how a config's run is spread over devices, None for one device.

    Args:
        config: the config.
        devices: devices to use; all of them if None.

    Raises:
        ValueError: if sizes do not fit the devices, or a name is unknown.
    """
    mesh = ConfigDict(config).mesh
    sizes = {axis: mesh[axis] for axis in AXES}
    if all(size == 1 for size in sizes.values()):
        return sharding_on(config, None)
    try:
        made = make_mesh(sizes, devices=devices)
    except ValueError as error:
        raise ValueError(f"mesh: {error}") from None
    return sharding_on(config, made)


def sharding_on(
    config: ConfigDict | Mapping[str, Any], mesh: Mesh | AbstractMesh | None
) -> Sharding | None:
    """Returns how a config's run is spread over a mesh, whatever sizes its own has.

    Args:
        config: the config.
        mesh: devices, real or abstract; None for one.

    Raises:
        ValueError: if a name is unknown, or settings do not fit the mesh.
    """
    given = ConfigDict(config).mesh
    look_up(given.sequence_form, dict.fromkeys(FORMS), "mesh.sequence_form")
    rules = options.parse(given.rules, "mesh.rules")
    try:
        table = Rules.of(rules)
        if mesh is None or math.prod(mesh.shape.values()) == 1:  # -1 of one device
            _check_one_device(given.sequence_order)
            return None
        return Sharding(mesh, table, given.sequence_form, given.sequence_order)
    except ValueError as error:
        raise ValueError(f"mesh: {error}") from None


def _check_one_device(order: str) -> None:
    look_up(order, dict.fromkeys(ORDERS), "mesh.sequence_order")
    if order != ORDERS[0]:
        raise ValueError(
            f"sequence_order={order!r} is for sequences that are spread over devices; "
            "set mesh.sequence, or leave mesh.sequence_order out."
        )


def members_sharding(
    config: Mapping[str, Any], members: int, devices: Sequence[jax.Device]
) -> Sharding | None:
    """Returns how runs that are trained together are spread, each over a mesh.

    The devices that a model's mesh leaves take further models, as long as there are
    any; one that takes the rest of the devices (-1), or that spreads sequences, is
    trained alone.

    Args:
        config: the config of any of them, plain.
        members: how many there are.
        devices: devices to use.

    Raises:
        ValueError: as `make_sharding`.
    """
    sizes = {axis: config["mesh"][axis] for axis in AXES}
    own = math.prod(sizes.values())
    known = min(sizes.values()) >= 1
    if not known or own == 1 or own > len(devices):
        return make_sharding(config, devices)
    models = 1 if sizes["sequence"] > 1 else min(members, len(devices) // own)
    devices = devices[: own * models]
    return sharding_on(
        config, make_mesh(sizes | {"population": models}, devices=devices)
    )


def without_mesh(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a plain config for one device, whatever it was trained on."""
    return on_other_mesh(config, {})


def on_other_mesh(config: Mapping[str, Any], sizes: Mapping[str, int]) -> dict:
    """Returns a plain config for a mesh of other sizes; rules and forms stay.

    Args:
        config: the config, plain.
        sizes: sizes by axis; those that are not given are 1.
    """
    here = dict.fromkeys(AXES, 1) | dict(sizes)
    if here["sequence"] == 1:
        here["sequence_order"] = ORDERS[0]
    return dict(config) | {"mesh": dict(config["mesh"]) | here}


def parse_sizes(text: str, flag: str) -> dict[str, int]:
    """Returns sizes by mesh axis of `data=4,tensor=-1`.

    Args:
        text: what was given.
        flag: the option's name, for messages.

    Raises:
        ValueError: for anything else, and for members of a population.
    """
    sizes = {}
    for part in text.split(","):
        name, equals, size = (word.strip() for word in part.partition("="))
        if not (equals and re.fullmatch("-1|[0-9]+", size)) or name in sizes:
            raise ValueError(
                f"{flag}={text!r}: write axis=size, each axis once, as data=4,tensor=2."
            )
        sizes[name] = int(size)
    if "population" in sizes and sizes.pop("population") != 1:
        raise ValueError(
            f"{flag}={text!r} is for one model, and the axis population spreads the "
            "members of a population, each of which costs as much as alone; leave it "
            "out."
        )
    return sizes
