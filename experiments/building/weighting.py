"""From a config to how attention turns queries and keys into weights."""

from types import MappingProxyType
from typing import Any

from ml_collections import ConfigDict

from experiments.building import options
from experiments.building.options import look_up
from experiments.building.trained_length import defaults
from ropejax.attention.normalizers import Normalizer
from ropejax.nn import NORMALIZERS, QK_NORMS, ROW_SCALES
from ropejax.nn.query_key_norm import Unnormalized
from ropejax.nn.row_scales import Unscaled
from ropejax.tasks import Task

CATALOGUES = MappingProxyType(
    {"normalizer": NORMALIZERS, "qk_norm": QK_NORMS, "row_scale": ROW_SCALES}
)
"""Field of `model` -> classes of settings by name."""

_KINDS = {"normalizer": Normalizer, "qk_norm": Unnormalized, "row_scale": Unscaled}


def make_weighting(config: ConfigDict, task: Task) -> dict[str, Any]:
    """Returns what `CATALOGUES` names, as arguments of `BlockSettings`.

    A trained length that is not given is that of the run's own training.

    Args:
        config: the config.
        task: its task.

    Raises:
        ValueError: if a name or a setting is unknown or out of range.
    """
    own = defaults(config, task)

    def made(field: str) -> Any:
        where = f"model.{field}_options"
        return options.construct(
            look_up(
                config.model[field], CATALOGUES[field], f"model.{field}", _KINDS[field]
            ),
            options.parse(config.model[f"{field}_options"], where),
            where,
            defaults=own,
        )

    return {field: made(field) for field in CATALOGUES}
