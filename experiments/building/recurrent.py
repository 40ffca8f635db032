"""From a config to a recurrent model; settings that it has no use for are refused.

A recurrent model knows the order of tokens and nothing else, so a position encoding or
a position scheme would change nothing. An experiment that names one is a mistake, not a
baseline.
"""

from ml_collections import ConfigDict

from experiments.building import options
from experiments.building.options import look_up
from ropejax.nn.recurrent import CELLS, RecurrentSpec
from ropejax.positions import Consecutive
from ropejax.positions.base import PositionScheme
from ropejax.tasks import Task

USED = ("kind", "kind_options", "num_layers", "embed_dim", "dropout", "dtype")
"""Fields of `model` that a recurrent kind reads."""


def is_recurrent(config: ConfigDict) -> bool:
    """Returns whether a config's model is one of `ropejax.nn.recurrent`."""
    return config.model.kind in CELLS


def make_recurrent(config: ConfigDict, task: Task, dtypes) -> RecurrentSpec:
    """Returns the recurrent model of a config; its units are `model.embed_dim`.

    Args:
        config: the config.
        task: what it learns.
        dtypes: dtypes by name.

    Raises:
        ValueError: for an encoding, another field without effect, or a wrong setting.
    """
    check_unused(config)
    model = config.model
    given = options.parse(model.kind_options, "model.kind_options")
    return RecurrentSpec(
        num_symbols=task.num_symbols,
        num_outputs=task.output_vocab,
        cell=options.construct(CELLS[model.kind], given, "model.kind_options"),
        units=model.embed_dim,
        num_layers=model.num_layers,
        dropout=model.dropout,
        dtype=look_up(model.dtype, dtypes, "model.dtype"),
    )


def check_unused(config: ConfigDict) -> None:
    """Raises ValueError where a field without effect is set."""
    from configs import base

    kind, encoding = config.model.kind, config.encoding
    if encoding.name != "none" or encoding.options:
        raise ValueError(
            f"model.kind={kind} takes no position encoding, and encoding.name="
            f"{encoding.name!r} would change nothing; set encoding.name=none and no "
            "encoding.options, or model.kind=encoder."
        )
    for name, default in base.get_config().model.items():
        if name not in USED and config.model[name] != default:
            raise ValueError(
                f"model.{name}={config.model[name]!r} has no effect on model.kind="
                f"{kind}; leave it at {default!r}."
            )


def check_scheme(config: ConfigDict, scheme: PositionScheme, where: str) -> None:
    """Raises ValueError for a scheme that a recurrent model would not notice.

    Args:
        config: the config.
        scheme: the scheme.
        where: what messages call it.
    """
    if is_recurrent(config) and scheme != Consecutive():
        raise ValueError(
            f"model.kind={config.model.kind} reads tokens in order and no positions: "
            f"{scheme.title.lower()} positions would change nothing; leave {where} "
            "consecutive."
        )
