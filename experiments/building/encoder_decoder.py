"""From a config to an encoder-decoder."""

from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from experiments.building import options
from experiments.building.blocks import BLOCKS
from experiments.building.trained_length import defaults
from ropejax.encodings import Encoding
from ropejax.nn import TransformerSpec
from ropejax.nn.encoder_decoder import EncoderDecoderSpec
from ropejax.tasks import Task

KIND = "encoder_decoder"
_NOT_FOR_IT = {
    "pattern": "alike",
    "mask": "",
    "loops": 1,
    "input_injection": "none",
    "embedding_norm": False,
}


def make_encoder_decoder(
    config: ConfigDict,
    task: Task,
    encoding: Encoding,
    spec: TransformerSpec,
    parts: Mapping[str, Any],
) -> EncoderDecoderSpec:
    """Returns the encoder-decoder of a config.

    Args:
        config: the config; `model.kind_options` may give `cross=Rotary()`, the encoding
            of cross attention.
        task: what gives its alphabet.
        encoding: of self-attention.
        spec: the decoder-only model of the same config: its sizes.
        parts: classes that settings may call.

    Raises:
        ValueError: for settings that only the other kinds have.
    """
    for name, value in _NOT_FOR_IT.items():
        if config.model[name] != value:
            raise ValueError(
                f"model.{name}={config.model[name]!r} is not for model.kind={KIND}; "
                f"leave it at {value!r}."
            )
    where = "model.kind_options"
    own = defaults(config, task)
    known = {**parts, **BLOCKS}
    given = options.parse(config.model.kind_options, where, known, own)
    if "block" in given:
        raise ValueError(
            f"{where}: block is of encoders and decoders; {KIND} has attention and MLP "
            "in its layers, since gated attention units leave out cross attention."
        )
    cross = given.pop("cross", Encoding())
    if given:
        raise ValueError(
            f"{where}: {KIND} has no setting {next(iter(given))!r}; it has cross, the "
            "encoding of cross attention, as in cross=Rotary()."
        )
    if not isinstance(cross, Encoding):
        raise ValueError(
            f"{where}: cross must be an encoding, as in cross=Rotary(), got {cross!r}."
        )
    return EncoderDecoderSpec(
        num_symbols=spec.num_symbols,
        num_outputs=spec.num_outputs,
        separator=task.placeholder,
        dims=spec.dims,
        settings=spec.settings,
        encoding=encoding,
        cross=cross,
        scan_layers=spec.scan_layers,
        readout=spec.readout,
        embedding_scale=spec.embedding_scale,
    )
