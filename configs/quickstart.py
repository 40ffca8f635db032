"""The quickstart: one small model with plain and one with randomized positions.

Reproduces: the effect of Ruoss et al. 2023 (arXiv 2305.16843), at a laptop's size.

    make quickstart
"""

from ml_collections import ConfigDict

from configs import arguments, base


def get_config(arg: str = "") -> ConfigDict:
    """Returns a small model on Even Pairs.

    Args:
        arg: `positions=consecutive` or `positions=randomized`; `short=yes` for a run of
            seconds that shows that everything works, and nothing else.
    """
    chosen = arguments.parse(arg, positions="randomized", short="no")
    short = chosen["short"].lower()
    config = base.get_config()
    config.study = "quickstart"
    config.task.name = "even_pairs"
    config.positions.name = chosen["positions"]
    config.positions.as_published = False
    if chosen["positions"] == "randomized":
        config.positions.options = "per_sequence=True"
        config.positions.title = "randomized"
    config.encoding.name = "compose"
    config.encoding.options = (
        "rope=Rotary(), "
        "scale=LogScale(form=trained, train_length=40, count=all, least=2)"
    )
    config.encoding.title = "RoPE, log-n scaling"
    config.model.num_layers = 2
    config.model.embed_dim = 32
    config.model.num_heads = 4
    config.model.pre_norm = True
    config.model.dropout = 0.0
    config.optim.learning_rate = 5e-3
    config.optim.b2 = 0.95
    config.optim.warmup_steps = 500
    config.optim.final_fraction = 0.0
    config.train.batch_size = 64
    config.train.buckets = 2
    config.train.steps = 6000
    config.train.save_every = 1000
    config.eval.lengths = "1:40:3,40,45:100:5,110:200:10,225:500:25"
    config.eval.buckets = "40,100,200,500"
    config.eval.samples = 256
    if short == "yes":
        config.study = "quickstart_short"
        config.optim.warmup_steps = 10
        config.train.max_length = 10
        config.train.buckets = 1
        config.train.steps = 200
        config.eval.lengths = "2:10:2,15,20,30,40"
        config.eval.buckets = "10,40"
        config.eval.samples = 64
    elif short != "no":
        raise ValueError(f"short must be yes or no, got {chosen['short']!r}.")
    return config
