r"""Decoder-only models on any task: prompt, separator, and the answer read back.

Reproduces: the setting of Kazemnejad et al. 2023, "The impact of positional encoding on
length generalization in transformers" (arXiv 2305.19466): causal, trained with teacher
forcing on lengths 1 to 20, scored on 1 to 40 by greedy decoding; 12 layers of width 768
(107M parameters), AdamW at 3e-5 with 6% of warm-up, weight decay 0.05, batches of 64,
40,000 steps. The paper has figures only, no table: models without any encoding (NoPE)
rank first on average. Its schedule and dropout were not found: a cosine to zero and 0.1
stand in.

    python -m experiments.main --workdir=runs/copy \
        --config=configs/decoder.py:task=copy,encoding=none,size=small

`size=small` is 4 layers of width 64 at a learning rate of 1e-3, for one core; its
numbers are no reproduction.
"""

from ml_collections import ConfigDict

from configs import arguments, base

SIZES = ("published", "small")


def get_config(arg: str = "") -> ConfigDict:
    """Returns the config of one task, encoding and position scheme.

    Args:
        arg: any of `task=NAME,encoding=NAME,positions=NAME,size=published`.
    """
    chosen = arguments.parse(
        arg, task="copy", encoding="none", positions="consecutive", size="published"
    )
    config = base.get_config()
    config.study = "decoder"
    config.task.name = chosen["task"]
    config.encoding.name = chosen["encoding"]
    config.positions.name = chosen["positions"]
    config.model.kind = "decoder"
    config.model.pre_norm = True
    config.optim.final_fraction = 0.0
    config.optim.weight_decay = 0.05
    config.train.batch_size = 64
    config.train.max_length = 20
    config.train.steps = 40_000
    config.eval.lengths = "1:40"
    config.eval.buckets = "20,40"
    if chosen["size"] == "published":
        _published(config)
    elif chosen["size"] == "small":
        _small(config)
    else:
        raise ValueError(
            f"size must be one of {', '.join(SIZES)}, got {chosen['size']!r}."
        )
    return config


def _published(config: ConfigDict) -> None:
    config.model.num_layers = 12
    config.model.embed_dim = 768
    config.model.num_heads = 12
    config.optim.learning_rate = 3e-5
    config.optim.warmup_steps = 2400


def _small(config: ConfigDict) -> None:
    config.model.num_layers = 4
    config.model.embed_dim = 64
    config.model.num_heads = 4
    config.model.dropout = 0.0
    config.optim.learning_rate = 1e-3
    config.optim.warmup_steps = 300
    config.train.steps = 5000
    config.eval.samples = 128
    config.eval.draws = 4
