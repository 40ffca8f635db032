"""A model of this library as a Hugging Face checkpoint, if there is a type for it."""

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import numpy as np

from ropejax.encodings.choices import check_choice, positive
from ropejax.nn.from_hf.config import spec_from_hf
from ropejax.nn.from_hf.layout import layout_of
from ropejax.nn.from_hf.models import MODELS
from ropejax.nn.from_hf.weights import tensors_of
from ropejax.nn.from_hf.written import config_of, layers_of
from ropejax.nn.parameters import check_fit
from ropejax.nn.transformer import TransformerSpec, embedding_scale
from ropejax.typing import Params

_NO_SAY = (
    *("dropout", "attention_dropout", "dtype", "implementation", "remat"),
    *("hidden_sharding", "scan_layers"),
)
"""Settings of training, and of how logits are computed."""


def to_hf(
    spec: TransformerSpec,
    params: Params,
    *,
    model_type: str | None = None,
    max_length: int | None = None,
    outputs_only: bool = False,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Returns a model as the config and the arrays of a Hugging Face checkpoint.

        config, tensors = to_hf(spec, params)
        save_checkpoint("path/of/the/model", config, tensors)

    It must be exactly what the code of one type of model computes: `decoder_from_hf`
    makes the same model of what is returned, which is checked.

    Args:
        spec: how the model is made: a decoder, layers of any kind that
            `ropejax.nn.from_hf` knows.
        params: its parameters.
        model_type: which type, such as "llama"; the first that fits if None.
        max_length: how many tokens the model is for, `max_position_embeddings`, which
            other programs may want to know; None to leave it out, or where the position
            encoding says so.
        outputs_only: leave out symbols that are no outputs, such as the placeholder of
            a task on bytes, which the model cannot read then. Such a model has an
            output for every symbol.

    Returns:
        The config, as in `config.json`, and float32 arrays by name.

    Raises:
        ValueError: if no type is such a model, with what differs from the nearest one;
            or if the parameters are not the model's.

    Departures:
        transformers rounds RoPE's frequencies to float32, whether or not
        `round_frequencies` says so; dropout is not told.
    """
    if not isinstance(spec, TransformerSpec):
        raise ValueError(
            f"spec must be a TransformerSpec, got {type(spec).__name__}: other models "
            "have no type there that is known."
        )
    if max_length is not None:
        positive(max_length=max_length)
    if model_type is not None:
        check_choice("model_type", model_type, MODELS)
    shapes = jax.eval_shape(spec.init, jax.random.key(0))
    check_fit(params, shapes)
    if outputs_only and spec.num_outputs < spec.num_symbols:
        spec = dataclasses.replace(spec, num_symbols=spec.num_outputs)
        table = params["embedding"][: spec.num_outputs]
        params = {**params, "embedding": table}
    found: list[_Tried] = []
    for name in MODELS if model_type is None else (model_type,):
        config, tried = _tried(spec, name, max_length)
        if tried.distance == 0:
            model = MODELS[name]
            layout = layout_of(spec, model.names, 1.0 if model.from_one else 0.0)
            return config, tensors_of(spec, params, layout)
        found.append(tried)
    nearest = min(found, key=lambda tried: tried.distance)
    which = "" if model_type else ", the type that is nearest to it"
    more = spec.num_outputs < spec.num_symbols
    remedy = "outputs_only=True leaves out symbols that are no outputs." if more else ""
    raise ValueError(
        f"the model is no {nearest.name!r}{which}: {nearest.reasons.rstrip('.')}. "
        f"{remedy or 'Train one that is.'}"
    )


class _Tried(NamedTuple):
    """How far a model is from those of a type, and why."""

    name: str
    distance: float
    reasons: str


def _tried(
    spec: TransformerSpec, name: str, max_length: int | None
) -> tuple[dict[str, Any], _Tried]:
    """A model as a config of a type, and in what that would be another model."""
    try:
        config = config_of(spec, name, max_length)
        others = _differences(spec, spec_from_hf(config))
    except ValueError as error:
        return {}, _Tried(name, math.inf, str(error))
    return config, _Tried(name, len(others), "; ".join(others))


def _differences(spec: TransformerSpec, other: TransformerSpec) -> list[str]:
    """What two models differ in that alters logits."""
    ours, theirs = _said(spec), _said(other)
    return [
        f"{name} is {ours[name]}, and would be {theirs[name]}"
        for name in ours
        if ours[name] != theirs[name]
    ]


def _said(spec: TransformerSpec) -> dict[str, Any]:
    """All that alters logits, in one form."""
    said = spec.dims._asdict() | {
        field.name: getattr(holder, field.name)
        for holder in (spec, spec.settings)
        for field in dataclasses.fields(holder)
        if field.name not in (*_NO_SAY, "settings", "pattern", "dims")
    }
    said["embedding_scale"] = embedding_scale(spec)
    if said["attention_scale"] is None and not spec.settings.qk_norm.has_scale:
        said["attention_scale"] = spec.dims.head_dim**-0.5
    layers = [
        (_rounded(encoding), cap, mask) for encoding, cap, mask in layers_of(spec)
    ]
    alike = all(each == layers[0] for each in layers)
    return {**said, "layers": layers[:1] if alike else layers}


def _rounded(encoding: Any) -> Any:
    """RoPE without whether its frequencies are rounded."""
    if getattr(encoding, "round_frequencies", False):
        return dataclasses.replace(encoding, round_frequencies=False)
    return encoding
