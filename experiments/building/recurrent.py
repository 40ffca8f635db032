"""From a config to a recurrent model; settings that it has no use for are refused.

A recurrent model knows the order of tokens and nothing else, so a position encoding or
a position scheme would change nothing. An experiment that names one is a mistake, not a
baseline.
"""

from typing import Any

from ml_collections import ConfigDict

from experiments.building import options
from experiments.building.blocks import make_layers
from experiments.building.model_parts import make_dtype, make_part
from ropejax.encodings import Dims
from ropejax.nn import BlockSettings
from ropejax.nn.recurrent import (
    CELLS,
    MIXERS,
    RECURRENT,
    LayeredSpec,
    MixerSettings,
    RecurrentSpec,
)
from ropejax.positions import Consecutive
from ropejax.positions.base import PositionScheme
from ropejax.tasks import Task

USED = ("kind", "kind_options", "num_layers", "embed_dim", "dropout", "dtype")
"""Fields of `model` that every recurrent kind reads."""

OF_LAYERS = (
    *("mlp", "mlp_options", "mlp_factor", "mlp_dim", "activation"),
    *("norm", "norm_options", "pre_norm", "output_norm", "residual_scale"),
    *("remat", "scan_layers"),
)
"""Fields that a kind reads too whose layers are those of a Transformer."""


def is_recurrent(config: ConfigDict) -> bool:
    """Returns whether a config's model is one of `ropejax.nn.recurrent`."""
    return config.model.kind in RECURRENT


def make_recurrent(config: ConfigDict, task: Task) -> RecurrentSpec | LayeredSpec:
    """Returns the recurrent model of a config.

    Args:
        config: the config; units of a cell are `model.embed_dim`.
        task: what it learns.

    Raises:
        ValueError: for an encoding, another field without effect, or a wrong setting.
    """
    check_unused(config)
    model = config.model
    dtype = make_dtype(config)
    if model.kind in CELLS:
        return RecurrentSpec(
            num_symbols=task.num_symbols,
            num_outputs=task.output_vocab,
            cell=_settings(config),
            units=model.embed_dim,
            num_layers=model.num_layers,
            dropout=model.dropout,
            dtype=dtype,
        )
    return LayeredSpec(
        num_symbols=task.num_symbols,
        num_outputs=task.output_vocab,
        dims=make_dims(config),
        settings=BlockSettings(
            **make_layers(config).settings,
            norm=make_part(config, "norm"),
            pre_norm=model.pre_norm,
            output_norm=model.output_norm,
            residual_scale=model.residual_scale,
            dropout=model.dropout,
            dtype=dtype,
            remat=model.remat,
        ),
        mixer=make_mixer(config),
        scan_layers=model.scan_layers,
    )


def make_mixer(config: ConfigDict) -> MixerSettings:
    """Returns what stands in place of attention, for a kind of `MIXERS`."""
    return _settings(config)


def make_dims(config: ConfigDict) -> Dims:
    """Returns the sizes of a model of a kind of `MIXERS`.

    Raises:
        ValueError: if heads do not divide the width.
    """
    model = config.model
    heads = model.num_heads if MIXERS[model.kind].has_heads else 1
    if heads < 1 or model.embed_dim % heads:
        raise ValueError(
            f"model.num_heads={heads} must divide model.embed_dim={model.embed_dim}; "
            "change one of them."
        )
    return Dims(
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=model.embed_dim // heads,
        embed_dim=model.embed_dim,
        num_layers=model.num_layers,
        causal=True,
    )


def _settings(config: ConfigDict) -> Any:
    where = "model.kind_options"
    given = options.parse(config.model.kind_options, where)
    return options.construct(RECURRENT[config.model.kind], given, where)


def check_unused(config: ConfigDict) -> None:
    """Raises ValueError where fields without effect are set, naming all of them."""
    from configs import base

    plain = base.get_config()
    kind = config.model.kind
    wanted = {"encoding.name": "none", "encoding.options": ""}
    wanted |= {"positions.name": "consecutive", "positions.options": ""}
    used = set(USED)
    if kind in MIXERS:
        used |= {*OF_LAYERS, *(["num_heads"] if MIXERS[kind].has_heads else [])}
    wanted |= {f"model.{n}": x for n, x in plain.model.items() if n not in used}
    if config.eval.positions is not None:
        wanted |= {"eval.positions": "consecutive", "eval.options": ""}
    given = {path: config[path.split(".")[0]][path.split(".")[1]] for path in wanted}
    wrong = [path for path, value in given.items() if value != wanted[path]]
    if not wrong:
        return
    was = ", ".join(f"{path}={given[path]!r}" for path in wrong)
    set_to = [path for path in wrong if wanted[path] is not None]
    flags = " ".join(f"--config.{path}={_as_text(wanted[path])}" for path in set_to)
    unset = [path for path in wrong if wanted[path] is None]
    remedy = [f"set {flags}"] if set_to else []
    remedy += [f"leave out {', '.join(unset)}"] if unset else []
    remedy = " and ".join(remedy)
    start = f"configs/deletang.py:architecture={kind},task={config.task.name}"
    raise ValueError(
        f"model.kind={kind} reads tokens in order and has no position encoding, no "
        f"position scheme and no attention, so these would change nothing: {was}. "
        f"{remedy[0].upper()}{remedy[1:]}; or start from --config={start}, whose "
        "settings are those of a recurrent model."
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
