"""Pretrained language models: a Hugging Face checkpoint as a decoder of this library.

`models` says what the code of each type of model does that its config does not say,
`config` reads sizes and settings, `windows` which tokens each layer sees;
`llama_layout` and `neox_layout` say where each array goes, `weights` brings it there,
and `files` opens a folder of them. What is not known is
refused: a key, or a tensor, that is passed over loads without an error and computes
something else.
"""

from ropejax.nn.from_hf.config import spec_from_hf
from ropejax.nn.from_hf.decoder import decoder_from_hf
from ropejax.nn.from_hf.files import open_checkpoint

__all__ = ["decoder_from_hf", "open_checkpoint", "spec_from_hf"]
