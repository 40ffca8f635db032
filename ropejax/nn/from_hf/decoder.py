"""A Hugging Face checkpoint as a decoder: how it is made, and its parameters."""

from collections.abc import Mapping
from typing import Any

from ropejax.encodings.hf_values import Config
from ropejax.nn.from_hf.config import spec_from_hf
from ropejax.nn.from_hf.layout import layout_of
from ropejax.nn.from_hf.models import MODELS, model_type_of
from ropejax.nn.from_hf.weights import Shardings, params_from_hf
from ropejax.nn.transformer import TransformerSpec
from ropejax.typing import Params


def decoder_from_hf(
    config: Config,
    tensors: Mapping[str, Any],
    *,
    dtype: Any = "float32",
    shardings: Shardings | None = None,
) -> tuple[TransformerSpec, Params]:
    """Returns a pretrained language model as a decoder, and its parameters.

        config, tensors = open_checkpoint("path/of/the/model")
        spec, params = decoder_from_hf(config, tensors)
        model = spec.bind(params)
        logits = model(tokens, placement)  # [B, L, V], of what follows each token

    It is a model like any other of this library, so its encodings and masks may be
    exchanged at test (`ropejax.nn.patterns.with_encodings`, `with_masks`), its answers
    decoded through a cache, its loss at any length found by `ropejax.evaluation`, and
    it may be trained further.

    A model that no single device holds is read onto a mesh, each device its part, and
    each process the parts of its devices:

        sharding = ropejax.sharding.Sharding(make_mesh({"fsdp": 8}))
        spec, params = decoder_from_hf(config, tensors, shardings=sharding.parameters)

    Args:
        config: see `spec_from_hf`.
        tensors: all arrays of the checkpoint under their names there, such as
            `model.layers.0.self_attn.q_proj.weight`; float32, float16, bfloat16 (that
            of `ml_dtypes`) or float64. They are read one at a time.
        dtype: dtype of the computation; parameters are float32.
        shardings: a function of the model and its parameters' shapes, which returns
            where each goes; all go to the default device if None.

    Returns:
        How the model is made, and its parameters.

    Raises:
        ValueError: as `spec_from_hf`; if arrays are missing, left over, of another
            shape or no floats; or if a readout that the config ties to the embedding
            differs from it.

    Departures:
        Norms multiply by their gains in float32, and the readout is float32, whatever
        `dtype` is; Llama's code rounds to it before. No original checkpoint was loaded
        in the making: random ones were, and SmolLM2-135M in its 4-bit form.
    """
    spec = spec_from_hf(config, dtype=dtype)
    model = MODELS[model_type_of(config)]
    layout = layout_of(spec, model.names, 1.0 if model.from_one else 0.0)
    return spec, params_from_hf(spec, tensors, layout, shardings)
