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
    """Raises ValueError where fields without effect are set, naming all of them."""
    from configs import base

    plain = base.get_config()
    kind = config.model.kind
    wanted = {"encoding.name": "none", "encoding.options": ""}
    wanted |= {"positions.name": "consecutive", "positions.options": ""}
    wanted |= {f"model.{n}": x for n, x in plain.model.items() if n not in USED}
    if config.eval.positions is not None:
        wanted |= {"eval.positions": "consecutive", "eval.options": ""}
    given = {path: config[path.split(".")[0]][path.split(".")[1]] for path in wanted}
    wrong = [path for path, value in given.items() if value != wanted[path]]
    if not wrong:
        return
    was = ", ".join(f"{path}={given[path]!r}" for path in wrong)
    set_to = [path for path in wrong if wanted[path] is not None]
    remedy = " ".join(f"--config.{path}={_as_text(wanted[path])}" for path in set_to)
    unset = [path for path in wrong if wanted[path] is None]
    leave = f" and leave out {', '.join(unset)}" if unset else ""
    start = f"configs/deletang.py:architecture={kind},task={config.task.name}"
    raise ValueError(
        f"model.kind={kind} reads tokens in order and has no position encoding, no "
        f"position scheme and no attention, so these would change nothing: {was}. Set "
        f"{remedy}{leave}; or start from --config={start}, whose settings are those "
        "of a recurrent model."
    )


def _as_text(value: object) -> str:
    return '""' if value == "" else str(value)


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
