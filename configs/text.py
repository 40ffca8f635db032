r"""Language models tested on longer texts than they were trained on.

Reproduces: the question of Press et al. 2021, "Train short, test long" (arXiv
2108.12409): perplexity at lengths beyond the trained one; and, for masked text, that of
Su 2023 (spaces.ac.cn/archives/9444). Trained on 64 symbols, tested to 512. The text is
that of a made-up language (ropejax/tasks/language.py), in which half of the phrases
repeat an earlier one, or a file of your own, byte by byte, whose last tenth is held out
for the test (`held_out=0.1` in `task.options`). The model is small; the papers' numbers
are of large ones on other text.

    python -m experiments.main --workdir=runs/text \
        --config=configs/text.py:task=next_symbol,encoding=alibi
    python -m experiments.evaluate --workdir=runs/text --lengths=64,128,256,512,1024

The first symbols of a row have little before them. `--config.task.options="last=16"` in
the second command counts the last 16 of each row alone, as windows that slide by 16 do.

Measured, one seed, 1,000 steps (a minute and a half of one x86-64 core): perplexity
1.52 (ALiBi) and 1.68 (RoPE) at 96 symbols, 1.58 and 5.1 at 192, 1.64 and 35 at 512.
Of masked symbols, RoPE tells 96% at 16 symbols, 88% at 192, and 45% at 512.

Tasks: `next_symbol`, with a causal model, and `masked_text`, with one that sees all.
Perplexity stands beside accuracy in tables, results and reports. `layers=llama` has the
layers of Llama (Touvron et al. 2023, arXiv 2302.13971): RMS norms, a gated MLP of SiLU
that is 8/3 as wide as the model (of another width, set `model.mlp_dim` too), no biases,
and the embedding, unscaled, reads out too.
A `.npy` file is a text of the numbers in it, such as a tokenizer makes.
"""

from ml_collections import ConfigDict

from configs import arguments, base

LAYERS = ("plain", "llama")

TASKS = {"next_symbol": "decoder", "masked_text": "encoder"}
"""Tasks, and the kind of model that each is for."""


def get_config(arg: str = "") -> ConfigDict:
    """Returns the config of one task, encoding and position scheme.

    Args:
        arg: any of `task=NAME,encoding=NAME,positions=NAME,text=FILE,layers=plain`.
    """
    chosen = arguments.parse(
        arg,
        task="next_symbol",
        encoding="rope",
        positions="consecutive",
        text="",
        layers="plain",
    )
    if chosen["layers"] not in LAYERS:
        raise ValueError(
            f"layers must be one of {', '.join(LAYERS)}, got {chosen['layers']!r}."
        )
    if chosen["task"] not in TASKS:
        raise ValueError(
            f"task must be one of {', '.join(TASKS)}, got {chosen['task']!r}."
        )
    config = base.get_config()
    config.study = "text"
    config.task.name = chosen["task"]
    if chosen["text"]:
        config.task.options = f"path={chosen['text']!r}"
    config.encoding.name = chosen["encoding"]
    config.positions.name = chosen["positions"]
    config.model.kind = TASKS[chosen["task"]]
    config.model.num_layers = 2
    config.model.embed_dim = 64
    config.model.num_heads = 4
    config.model.activation = "gelu"
    config.model.pre_norm = True
    config.model.dropout = 0.0
    config.optim.learning_rate = 3e-3
    config.optim.warmup_steps = 100
    config.optim.final_fraction = 0.1
    config.train.steps = 1000
    config.train.batch_size = 32
    config.train.max_length = 64
    config.train.curriculum = "fixed"
    config.train.buckets = 1
    config.train.save_every = 1000
    config.train.keep = 1
    config.eval.lengths = "16:64:16,96:128:32,192:512:64"
    config.eval.buckets = "64,128,256,512"
    config.eval.samples = 64
    config.eval.draws = 4
    if chosen["layers"] == "llama":
        _llama(config)
    return config


def _llama(config: ConfigDict) -> None:
    config.model.norm = "rms"
    config.model.mlp = "gated"
    config.model.mlp_dim = 8 * round(config.model.embed_dim / 3)
    config.model.activation = "silu"
    config.model.readout = "tied"
    config.model.embedding_scale = 1.0
