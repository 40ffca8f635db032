"""Pretrained language models: a Hugging Face checkpoint as a decoder, and back.

`models` says what the code of each type of model does that its config does not say, and
`entries` which entries are read; `config` reads sizes and settings, `positions` how
positions enter, `windows` which tokens each layer sees; `array_names` says what arrays
are called, `layout` where each goes, `weights` brings it there or back, and `files`
opens a folder of them. `written` says a model as a config, and `checkpoint` as a whole.
What is not known is refused: a key, or a tensor, that is passed over loads without an
error and computes something else.
"""

from ropejax.nn.from_hf.checkpoint import to_hf
from ropejax.nn.from_hf.config import spec_from_hf, trained_length
from ropejax.nn.from_hf.decoder import decoder_from_hf
from ropejax.nn.from_hf.files import open_checkpoint, save_checkpoint

__all__ = [
    "decoder_from_hf",
    "open_checkpoint",
    "save_checkpoint",
    "spec_from_hf",
    "to_hf",
    "trained_length",
]
