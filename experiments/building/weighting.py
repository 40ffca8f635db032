"""From a config to what attention does beside its encoding: weights, shifts, gates."""

from types import MappingProxyType
from typing import Any

from ml_collections import ConfigDict

from experiments.building.model_parts import made
from experiments.building.trained_length import defaults
from ropejax.attention.normalizers import Normalizer
from ropejax.nn import NORMALIZERS, OUTPUT_GATES, QK_NORMS, ROW_SCALES, TOKEN_SHIFTS
from ropejax.nn.output_gates import Ungated
from ropejax.nn.query_key_norm import Unnormalized
from ropejax.nn.row_scales import Unscaled
from ropejax.nn.token_shifts import Unshifted
from ropejax.tasks import Task

CATALOGUES = MappingProxyType(
    {
        "normalizer": NORMALIZERS,
        "qk_norm": QK_NORMS,
        "row_scale": ROW_SCALES,
        "token_shift": TOKEN_SHIFTS,
        "output_gate": OUTPUT_GATES,
    }
)
"""Field of `model` -> classes of settings by name."""

_KINDS = {
    "normalizer": Normalizer,
    "qk_norm": Unnormalized,
    "row_scale": Unscaled,
    "token_shift": Unshifted,
    "output_gate": Ungated,
}


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

    return {
        field: made(config, field, catalogue, _KINDS[field], own)
        for field, catalogue in CATALOGUES.items()
    }
