"""From a config to what the layers of a Transformer are: attention and MLP, or GAUs."""

import dataclasses
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import jax
from ml_collections import ConfigDict

from configs import base
from experiments.building import options
from experiments.building.fitting import Classes
from experiments.building.model_parts import make_part
from experiments.building.options import look_up
from ropejax.encodings.choices import check_choice, positive
from ropejax.settings import Settings

ACTIVATIONS = MappingProxyType(
    {name: getattr(jax.nn, name) for name in ("relu", "gelu", "silu", "tanh")}
)

_OF_MLP = {"mlp_factor": "expansion", "activation": "activation"}
_OF_OTHER_LAYERS = (
    *("mlp", "mlp_options", "mlp_dim", "parallel", "qkv_bias", "out_bias"),
    "head_dim",
)


@dataclasses.dataclass(frozen=True)
class GAU(Settings):
    """Gated attention units in place of attention and MLP: `ropejax.nn.gated`.

    Two of them have about the weights of one layer of attention and MLP, so set
    `model.num_layers` to twice as many to compare, and `model.num_heads` to 1 for the
    papers' units.

    Attributes:
        expansion: expanded width e over `model.embed_dim`.
        head_dim: width s of queries and keys, 128 in the paper; `model.embed_dim /
            model.num_heads` if None.
        activation: of gates, values and the common projection of queries and keys.

    Raises:
        ValueError: if a number is not positive or the activation is unknown.
    """

    expansion: int = 2
    head_dim: int | None = None
    activation: str = "silu"

    summary: ClassVar[str] = "gated attention units; two are about one other layer"

    def __post_init__(self):
        positive(expansion=self.expansion)
        if self.head_dim is not None:
            positive(head_dim=self.head_dim)
        check_choice("activation", self.activation, ACTIVATIONS)


BLOCKS = MappingProxyType({"GAU": GAU})
"""Classes that `model.kind_options` of a Transformer may call, as in block=GAU()."""


@dataclasses.dataclass(frozen=True)
class _KindOptions(Settings):
    """What `model.kind_options` of an encoder or a decoder holds."""

    block: GAU | None = None


class Layers(NamedTuple):
    """What a config's layers are.

    Attributes:
        head_dim: width of queries and keys.
        settings: arguments of `ropejax.nn.BlockSettings`.
    """

    head_dim: int
    settings: dict[str, Any]


def make_layers(config: ConfigDict, parts: Classes = MappingProxyType({})) -> Layers:
    """Returns what the layers of an encoder or a decoder are.

    Args:
        config: the config of a Transformer; of an encoder-decoder it is not asked what
            its layers are.
        parts: further classes that a kind's settings may call, though not of these
            kinds: what is wrong is then said to be the setting.

    Raises:
        ValueError: for an unknown name or setting, one out of range, or a setting of
            the MLP where there is none.
    """
    model, where = config.model, "model.kind_options"
    block = None
    if model.kind in ("encoder", "decoder"):
        given = options.parse(model.kind_options, where, {**parts, **BLOCKS})
        if others := [name for name in given if name != "block"]:
            raise ValueError(
                f"{where}={model.kind_options!r}: settings but block are of recurrent "
                f"kinds and encoder_decoder only, got {', '.join(others)}; "
                f"model.kind={model.kind} has the setting block, as in block=GAU()."
            )
        if isinstance(given.get("block"), str):
            raise ValueError(
                f"{where}: block={given['block']} is a name, which may have settings; "
                "write block=GAU(), or leave it out for attention and MLP."
            )
        block = options.construct(_KindOptions, given, where, classes=BLOCKS).block
    plain = base.get_config().model
    if block is None:
        if model.mlp_dim is not None and model.mlp_factor != plain.mlp_factor:
            raise ValueError(
                f"model.mlp_factor={model.mlp_factor} and model.mlp_dim="
                f"{model.mlp_dim} both say how wide the MLP is; leave the first at "
                f"{plain.mlp_factor}, or the second out."
            )
        by_factor = model.mlp_factor * model.embed_dim
        by_heads = model.embed_dim // model.num_heads
        return Layers(
            by_heads if model.head_dim is None else model.head_dim,
            {
                "mlp_dim": by_factor if model.mlp_dim is None else model.mlp_dim,
                "activation": look_up(
                    model.activation, ACTIVATIONS, "model.activation"
                ),
                "mlp": make_part(config, "mlp"),
                "parallel": model.parallel,
                "qkv_bias": model.qkv_bias,
                "out_bias": model.out_bias,
            },
        )
    for field, setting in _OF_MLP.items():
        if model[field] != plain[field]:
            raise ValueError(
                f"model.{field}={model[field]!r} is of the MLP, which gated attention "
                f"units replace; leave it at {plain[field]!r} and set {setting} in "
                f"{where}, as in block=GAU({setting}={model[field]})."
            )
    for field in _OF_OTHER_LAYERS:
        if model[field] != plain[field]:
            own = " (GAU has a head_dim of its own)" if field == "head_dim" else ""
            raise ValueError(
                f"model.{field}={model[field]!r} is of layers of attention and MLP, "
                f"which gated attention units replace{own}; leave it at "
                f"{plain[field]!r}."
            )
    head_dim = block.head_dim or model.embed_dim // model.num_heads
    return Layers(
        head_dim,
        {
            "mlp_dim": block.expansion * model.embed_dim,
            "activation": ACTIVATIONS[block.activation],
            "gated": True,
        },
    )
