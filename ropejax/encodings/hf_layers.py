"""Which layers a Hugging Face model has, in order, and which of them do not turn.

Some models have layers without RoPE between others: those of full attention, every
fourth one, or those with a 0 in a list. What is said here was read in transformers
5.24: in `__post_init__` of its configs, and where its attention applies the rotation.
"""

from typing import Any, NamedTuple

from ropejax.encodings.choices import check_choice
from ropejax.encodings.hf_layer_kinds import (
    dense_prefix,
    null_kinds,
    stated_kinds,
    usual_kind,
)
from ropejax.encodings.hf_values import (
    Config,
    need_count,
    read_count,
    read_flags,
    read_name,
    read_names,
    read_numbers,
)

LAYER_KEYS = ("no_rope_layers", "no_rope_layer_interval", "layer_rope_theta")
"""Keys of a config that say which layers turn, and by what base."""

_NO_SELF_ATTENTION = (
    *("linear_attention", "conv", "recurrent", "moe", "mlp"),
    "cross_attention",
)
"""Kinds of layers without attention among tokens, and so without RoPE."""

_SLIDING_TURN = ("afmoe", "cohere2", "cohere2_moe", "flint", "lara_mini")
"""Model types of which sliding layers alone turn."""

_SLIDING_TURN_IF_ANY = ("exaone4", "exaone4_5_text", "exaone_moe", "kolibri1")
"""As these, but all layers turn where `sliding_window` is null."""

_EVERY_FOURTH_STILL = ("llama4_text", "smollm3")
"""Model types without RoPE in every fourth layer, unless the config says otherwise."""

_FOURTH_FROM_LAST_STILL = ("muse_glimmer_text", "muse_spark_text")
"""The same, but counted backwards from the last layer, which has none."""


class Layer(NamedTuple):
    """What a layer is: its kind, whether it turns, and its own base, if it has one."""

    kind: str | None
    turns: bool = True
    base: float | None = None


def layers_of(config: Config) -> tuple[Layer, ...] | None:
    """Returns a model's layers in order, or None where its config tells none apart.

    Args:
        config: the text model's config, with sizes under their usual names.

    Raises:
        ValueError: if lists of layers are of other lengths than one another or
            `num_hidden_layers`, or have entries of the wrong type, or the number of
            layers is not known of a model whose layers differ.
    """
    turned, bases = _turned(config), _bases(config)
    kinds = stated_kinds(config)
    if kinds is None and read_name(config, "model_type") == "llama4_text":
        chunked = config.get("attention_chunk_size", "left out") is not None
        kind = "chunked_attention" if chunked else "full_attention"
        kinds = tuple(kind if turns else "full_attention" for turns in turned)
    lists = {"layer_types": kinds, "no_rope_layers": turned, "layer_rope_theta": bases}
    counts = {name: len(each) for name, each in lists.items() if each is not None}
    if not counts:
        return None
    if (number := read_count(config, "num_hidden_layers")) is not None:
        counts["num_hidden_layers"] = number
    if len(set(counts.values())) > 1:
        raise ValueError(
            f"the config disagrees with itself about the number of layers: {counts}; "
            "give lists one entry a layer."
        )
    number = next(iter(counts.values()))
    kinds = kinds or ("full_attention",) * number
    forced = _forced(config, number)
    return tuple(
        Layer(
            kind,
            turns=(turned is None or turned[index])
            and (bases is None or bases[index] > 0)
            and (forced[index] or _kind_turns(config, kind)),
            base=bases[index] or None if bases else None,
        )
        for index, kind in enumerate(kinds)
    )


def layer_of(config: Config, layer_type: Any) -> Layer:
    """Returns what all layers of one kind are, or of all kinds if None is named.

    Layers without attention count only if their kind is named. A kind that the config
    does not know is returned as it is.

    Raises:
        ValueError: if some of these layers turn, or by some base, and others do not;
            and as `layers_of`.
    """
    kind, layers = usual_kind(layer_type), layers_of(config)
    if kind is not None and kind not in kinds_of(config):
        return Layer(kind)
    if layers is None:
        if _sliding_turn(config) or (kind is None and null_kinds(config)):
            check_choice("layer_type", kind, kinds_of(config))
        if kind == "full_attention" and _has_prefix(config):
            need_count(config, "num_hidden_layers")
        return Layer(kind, kind is None or _kind_turns(config, kind))
    alike = _alike(layers, kind) or {Layer(kind)}
    if len(alike) == 1:
        return alike.pop()
    telling = [one for one in kinds_of(config) if len(_alike(layers, one)) == 1]
    name = f", or name a layer_type of {telling}" if kind is None and telling else ""
    raise ValueError(
        f"layer_type={layer_type!r} means layers that differ: {_told_apart(layers)}; "
        f"take encodings_from_hf(config), which has one encoding a layer{name}."
    )


def kinds_of(config: Config) -> tuple[str, ...]:
    """Returns the kinds of layers that a config knows, "full_attention" among them."""
    layers = layers_of(config)
    kinds = [each.kind for each in layers or ()]
    if layers is None and _sliding_turn(config):
        kinds = ["sliding_attention"]
    return tuple(dict.fromkeys(("full_attention", *kinds, *null_kinds(config))))


def _alike(layers: tuple[Layer, ...], kind: str | None) -> set[Layer]:
    """What there is among layers of one kind, or of all kinds of attention."""
    return {
        each._replace(kind=kind)
        for each in layers
        if each.kind == kind or (kind is None and each.kind not in _NO_SELF_ATTENTION)
    }


def _told_apart(layers: tuple[Layer, ...]) -> str:
    """What layers differ in, for a message."""
    still = [index for index, each in enumerate(layers) if not each.turns]
    bases = sorted({each.base for each in layers if each.base is not None})
    kinds = sorted({each.kind for each in layers if not each.turns})
    told = [f"layers {still}, of {kinds}, have no RoPE"] if still else []
    return " and ".join(told + ([f"bases are {bases}"] if len(bases) > 1 else []))


def _sliding_turn(config: Config) -> bool:
    """Whether sliding layers turn, and those of full attention do not."""
    model_type = read_name(config, "model_type")
    windowed = config.get("sliding_window", "left out") is not None
    return model_type in _SLIDING_TURN or (
        model_type in _SLIDING_TURN_IF_ANY and windowed
    )


def _kind_turns(config: Config, kind: str) -> bool:
    if kind in _NO_SELF_ATTENTION or kind in null_kinds(config):
        return False
    return kind != "full_attention" or not _sliding_turn(config)


def _turned(config: Config) -> tuple[bool, ...] | None:
    """Which layers turn, where a list or an interval says so."""
    if (given := read_flags(config, "no_rope_layers")) is not None:
        return given
    model_type = read_name(config, "model_type")
    by_base = config.get("layer_rope_theta") is not None
    if model_type in _FOURTH_FROM_LAST_STILL and not by_base:
        number = _number(config)
        return tuple((number - 1 - index) % 4 != 0 for index in range(number))
    interval = read_count(config, "no_rope_layer_interval")
    if interval is None and model_type in _EVERY_FOURTH_STILL:
        interval = 4
    if interval is None:
        return None
    return tuple((index + 1) % interval != 0 for index in range(_number(config)))


def _number(config: Config) -> int:
    if (number := read_count(config, "num_hidden_layers")) is None:
        raise ValueError(
            "this model has layers without RoPE, and the config does not say which: "
            "add no_rope_layers (1 where there is RoPE) or num_hidden_layers."
        )
    return number


def _bases(config: Config) -> tuple[float, ...] | None:
    """The base of each layer, 0 for none, where there is a list of them."""
    if config.get("layer_rope_theta") is None:
        return None
    return read_numbers(config, "layer_rope_theta", zero=True)


def _has_prefix(config: Config) -> bool:
    """Whether first layers may turn whatever their kind: Cohere 2's of experts."""
    return read_name(config, "model_type") == "cohere2_moe"


def _forced(config: Config, number: int) -> tuple[bool, ...]:
    """Which layers turn whatever their kind: with a prefix, those without experts."""
    if not _has_prefix(config):
        return (False,) * number
    dense = read_names(config, "mlp_layer_types")
    if not dense:
        first = dense_prefix(config)
        dense = ("dense",) * first + ("sparse",) * (number - first)
    if len(dense) != number:
        raise ValueError(
            f"mlp_layer_types has {len(dense)} entries for {number} layers; give one "
            "for each."
        )
    period = read_count(config, "prefix_dense_sliding_window_pattern")
    return tuple(kind == "dense" and period in (None, 1) for kind in dense)
