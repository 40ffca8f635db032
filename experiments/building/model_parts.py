"""From a config to parts of a model, each named with its settings beside it."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import jax.numpy as jnp
from ml_collections import ConfigDict

from experiments.building import options
from experiments.building.fitting import Classes
from experiments.building.options import look_up
from ropejax.nn.mlp import MLP, MLPS
from ropejax.nn.norms import NORMS, Norm
from ropejax.nn.readout import READOUTS, Readout

CATALOGUES = MappingProxyType({"norm": NORMS, "mlp": MLPS, "readout": READOUTS})
"""Field of `model` -> classes of settings by name."""

_KINDS = {"norm": Norm, "mlp": MLP, "readout": Readout}


DTYPES = MappingProxyType({name: jnp.dtype(name) for name in ("float32", "bfloat16")})
"""Names that `model.dtype` may have."""


def make_dtype(config: ConfigDict) -> jnp.dtype:
    """Returns the dtype in which a config's model computes.

    Raises:
        ValueError: if the name is unknown.
    """
    return look_up(config.model.dtype, DTYPES, "model.dtype")


def make_part(config: ConfigDict, field: str) -> Any:
    """Returns what `model.FIELD` of `CATALOGUES` names, with its settings.

    Raises:
        ValueError: if the name or a setting is unknown or out of range.
    """
    return made(config, field, CATALOGUES[field], _KINDS[field])


def made(
    config: ConfigDict,
    field: str,
    catalogue: Mapping[str, type],
    kind: type,
    defaults: Mapping[str, Any] | None = None,
    classes: Classes | None = None,
) -> Any:
    """Returns what `model.FIELD` names, with the settings of `model.FIELD_options`.

    Args:
        config: the config.
        field: the field.
        catalogue: classes of settings by name.
        kind: what classes of the user's own must derive from.
        defaults: of settings that are not given, if the class has them.
        classes: classes that its settings may call.

    Raises:
        ValueError: if the name or a setting is unknown or out of range.
    """
    where = f"model.{field}_options"
    return options.construct(
        look_up(config.model[field], catalogue, f"model.{field}", kind),
        options.parse(config.model[f"{field}_options"], where, classes, defaults),
        where,
        classes=classes,
        defaults=defaults,
    )
