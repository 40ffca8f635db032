r"""A pretrained language model on longer texts than it was trained on.

Reproduces: the question of the papers that extend RoPE without training (position
interpolation, arXiv 2306.15595; YaRN, 2309.00071; ReRoPE, spaces.ac.cn/archives/9708;
LM-Infinite, 2308.16137): the perplexity of a checkpoint by length. The checkpoint is a
folder in Hugging Face's form, and the text a `.npy` file of what the model's own
tokenizer made of it (docs/language_models.md). Nothing is trained; `train.steps` above
zero trains further, at `train.max_length` tokens.

    python -m experiments.main --workdir=runs/yarn \
        --config=configs/pretrained.py:checkpoint=DIR,text=tokens.npy,encoding=yarn \
        --config.encoding.options="scale=2"
    python -m experiments.evaluate --workdir=runs/yarn --lengths=16384 --by-place

`encoding=pretrained` leaves the checkpoint's own, and any other stands for its RoPE,
with the settings of that where none are given, and in layers that have it. Lengths are
from a quarter of the trained length to twice that, and one text serves all: windows of
it at random places. `model.mask` restricts what is seen, as `Lambda(4, 8188)` does.
All extensions beside each other: configs/studies/extension.py.
"""

import json
import pathlib
from collections.abc import Mapping

from ml_collections import ConfigDict

from configs import arguments, base

_BEFORE = "original_max_position_embeddings"
_LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len")
"""Entries of a checkpoint's config: its length before an extension, and its length."""


def get_config(arg: str = "") -> ConfigDict:
    """Returns the config of one checkpoint, text and encoding.

    Args:
        arg: `checkpoint=DIR,text=FILE`, and perhaps `encoding=NAME,trained=TOKENS`:
            the length that the checkpoint was trained on, if not as its config says.
    """
    chosen = arguments.parse(
        arg, checkpoint="", text="", encoding="pretrained", trained=""
    )
    trained = trained_on(chosen)
    config = base.get_config()
    config.study = "pretrained"
    config.task.name = "next_symbol"
    config.task.options = f"path={chosen['text']!r}, held_out=0.0"
    config.encoding.name = chosen["encoding"]
    config.model.kind = "decoder"
    config.model.pretrained = chosen["checkpoint"]
    config.model.dropout = 0.0
    config.optim.learning_rate = 2e-5
    config.optim.b2 = 0.95
    config.train.steps = 0
    config.train.batch_size = 8
    config.train.max_length = trained
    config.train.curriculum = "fixed"
    config.train.buckets = 1
    lengths = [trained // 4, trained // 2, trained, 3 * trained // 2, 2 * trained]
    config.eval.lengths = ",".join(map(str, lengths))
    config.eval.buckets = config.eval.lengths
    config.eval.samples = 8
    config.eval.draws = 1
    return config


def trained_on(chosen: Mapping[str, str]) -> int:
    """Returns the trained length of a checkpoint, in tokens.

    Args:
        chosen: `checkpoint`, `text`, and `trained`, which wins if it is not empty.

    Raises:
        ValueError: if checkpoint or text is missing, or the length is not known.
    """
    for name in ("checkpoint", "text"):
        if not chosen[name]:
            raise ValueError(
                f"{name} is missing; write checkpoint=DIR,text=tokens.npy behind the "
                "config's colon."
            )
    if chosen["trained"]:
        return arguments.whole("trained", chosen["trained"])
    path = pathlib.Path(chosen["checkpoint"]) / "config.json"
    try:
        found = json.loads(path.read_text())
        scaling = found.get("rope_scaling") or found.get("rope_parameters") or {}
        told = [scaling.get(_BEFORE), found.get(_BEFORE), *map(found.get, _LENGTHS)]
        known, reason = next(filter(None, told), None), "it has no such entry"
    except (OSError, ValueError, AttributeError) as error:
        known, reason = None, getattr(error, "strerror", None) or error
    if not isinstance(known, int):
        raise ValueError(
            f"{path} does not say on how many tokens the checkpoint was trained "
            f"({reason}); write trained=TOKENS behind the config's colon."
        )
    return known
