"""A config whose model is a Hugging Face checkpoint: `model.pretrained`.

The checkpoint says what the model is; the config, what is asked of it, under which
encoding its rotary layers are, and how it is computed. Its parameters are read when a
run begins (experiments/running/first_params.py).
"""

import dataclasses
import json
import pathlib
from typing import Any

from ml_collections import ConfigDict

from configs import base
from experiments.building.model_parts import make_dtype
from ropejax.encodings import Encoding
from ropejax.encodings.frequency_map import FrequencyMap
from ropejax.encodings.rotary import RotaryAttention
from ropejax.nn import TransformerSpec
from ropejax.nn.from_hf import spec_from_hf
from ropejax.nn.patterns import rotary_part, with_rope
from ropejax.tasks import Task

FIELD = "model.pretrained"
ENCODING = "pretrained"
"""Name in configs of the encodings that a checkpoint has by itself."""

_OWN = ("kind", "pretrained", "mask", "scan_layers", "remat", "dtype")
_DROPPING = ("dropout", "attention_dropout")
"""Fields of `model` that are the config's to say, whatever the checkpoint is."""
_ROUNDING = "round_frequencies"


def is_pretrained(config: ConfigDict) -> bool:
    """Returns whether a config's model is a checkpoint."""
    return bool(config.model.pretrained)


def read_config(config: ConfigDict) -> dict[str, Any]:
    """Returns the checkpoint's own config.

    Raises:
        ValueError: if the folder has none that can be read.
    """
    folder = pathlib.Path(config.model.pretrained)
    try:
        found = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ValueError(
            f"{FIELD}={str(folder)!r}: config.json of the checkpoint cannot be read "
            f"({reason}); give the folder of a Hugging Face checkpoint."
        ) from None
    if not (isinstance(found, dict) and "model_type" in found):
        raise ValueError(
            f"{FIELD}={str(folder)!r}: config.json there has no model_type, so it is "
            "of no Hugging Face checkpoint; a run of ropejax goes into train.init_from."
        )
    return found


def checkpoint_spec(config: ConfigDict) -> TransformerSpec:
    """Returns the model as the checkpoint has it, computed as the config says.

    Raises:
        ValueError: if the checkpoint is of an unknown type, or the config sets what the
            checkpoint says.
    """
    model, plain = config.model, base.get_config().model
    if model.kind != "decoder":
        raise ValueError(
            f"{FIELD} is a decoder, got model.kind={model.kind!r}; set it to 'decoder'."
        )
    for name, value in plain.items():
        if name not in (*_OWN, *_DROPPING) and model[name] != value:
            raise ValueError(
                f"model.{name}={model[name]!r}: the checkpoint in {FIELD} says what "
                f"the model is; leave this field out (at {value!r}, which means "
                "nothing then)."
            )
    own, dtype = read_config(config), make_dtype(config)
    try:
        spec = spec_from_hf(own, dtype=dtype)
    except ValueError as error:
        raise ValueError(f"{FIELD}={model.pretrained!r}: {error}") from None
    settings = {name: model[name] for name in (*_DROPPING, "remat")}
    return dataclasses.replace(
        spec,
        settings=dataclasses.replace(spec.settings, **settings),
        scan_layers=model.scan_layers,
    )


def own_encoding(config: ConfigDict) -> Encoding:
    """Returns the first encoding with RoPE of the checkpoint, or else its first one.

    Raises:
        ValueError: if the config names no checkpoint.
    """
    if not is_pretrained(config):
        raise ValueError(
            f"encoding.name={ENCODING} is that of a checkpoint; name one in {FIELD}."
        )
    own = [kind.encoding for kind in checkpoint_spec(config).pattern]
    return next((one for one in own if rotary_part(one) is not None), own[0])


def rotary_settings(encoding: Encoding) -> dict[str, Any]:
    """Returns those settings of the RoPE in an encoding that are not usual, by name.

    How frequencies are rounded is left out: `rounded_like` sees to it.
    """
    rope = rotary_part(encoding)
    return {
        field.name: getattr(rope, field.name)
        for field in (() if rope is None else dataclasses.fields(rope))
        if field.name != _ROUNDING and getattr(rope, field.name) != field.default
    }


def rounded_like(own: RotaryAttention, made: Encoding) -> Encoding:
    """Returns an encoding whose RoPE rounds frequencies as another one does, if it can.

    Args:
        own: the RoPE of a checkpoint's layer, which rounds as transformers does.
        made: what stands for it.
    """

    def rounded(rope: RotaryAttention) -> RotaryAttention:
        constant = rope.trainable == "none" and not rope.frequencies.length_dependent
        rounding = {_ROUNDING: getattr(own, _ROUNDING) and constant}
        return dataclasses.replace(rope, **rounding)

    return with_rope(made, rounded)


def check_keeps_extension(
    config: ConfigDict, own: RotaryAttention, made: Encoding
) -> None:
    """Raises ValueError where a checkpoint's own extension of RoPE would be lost.

    Methods that only bend distances have plain frequencies, whatever those were that
    the checkpoint was trained with. What extends RoPE by frequencies stands for that.

    Args:
        config: the config.
        own: the RoPE of a layer.
        made: what stands for it.
    """
    rope, plain = rotary_part(made), FrequencyMap()
    if rope is None or rope.frequencies != plain or own.frequencies == plain:
        return
    if "frequencies" in {field.name for field in dataclasses.fields(rope)}:
        return  # given in so many words
    raise ValueError(
        f"encoding.name={config.encoding.name!r} has plain frequencies, and the "
        f"checkpoint has those of {own.frequencies.title}; to bend distances and keep "
        "them, set encoding.name=rope and encoding.options='distance=Rectified(512)' "
        "or another map of distances."
    )


def check_no_settings(config: ConfigDict) -> None:
    """Raises ValueError where settings are given to a checkpoint's own encodings."""
    if config.encoding.options:
        raise ValueError(
            f"encoding.options={config.encoding.options!r} are of no method; name one, "
            "such as rope, whose other settings are then those of the checkpoint."
        )


def check_alphabet(config: ConfigDict, task: Task, spec: TransformerSpec) -> None:
    """Raises ValueError unless a checkpoint knows the symbols of a task."""
    path = getattr(task, "path", None)
    if path is not None and not path.endswith(".npy"):
        what = f"the bytes of {path!r}" if path else "those of a made-up language"
        raise ValueError(
            f"task.options={config.task.options!r}: a checkpoint reads the numbers of "
            f"its tokenizer, and the symbols of this task are {what}; save the tokens "
            "of a text as a .npy file and set path='tokens.npy'."
        )
    for what, asked, known in (
        ("symbols", task.num_symbols, spec.num_symbols),
        ("outputs", task.output_vocab, spec.num_outputs),
    ):
        if asked > known:
            raise ValueError(
                f"task.name={config.task.name} has {asked} {what}, and {FIELD}="
                f"{config.model.pretrained!r} knows {known}; choose another task, or a "
                "text of its tokenizer."
            )
