"""A study whose runs take a second: two tasks (or one), two rates, two seeds."""

from ml_collections import ConfigDict

from configs import arguments, base
from configs.sweep import product

TINY = {
    "study": "tiny",
    "positions.name": "randomized",
    "positions.options": "max_position=64",
    "model.num_layers": 1,
    "model.embed_dim": 8,
    "model.num_heads": 2,
    "model.dropout": 0.0,
    "train.steps": 12,
    "train.batch_size": 4,
    "train.max_length": 4,
    "train.buckets": 1,
    "train.steps_per_dispatch": 3,
    "train.log_every": 4,
    "train.save_every": 4,
    "eval.lengths": "3,5:6",
    "eval.buckets": "6",
    "eval.samples": 8,
    "eval.draws": 2,
}
ARGUMENTS = {"tasks": "2", "seeds": "2", "tensor": "1"}


def get_config(arg: str = "") -> ConfigDict:
    given = arguments.parse(arg, **ARGUMENTS)
    config = base.get_config()
    config.update_from_flattened_dict(TINY)
    config.mesh.tensor = int(given["tensor"])
    return config


def get_sweep(arg: str = "") -> list[dict]:
    given = arguments.parse(arg, **ARGUMENTS)
    tasks, seeds = int(given["tasks"]), int(given["seeds"])
    return product(
        {"task.name": ["even_pairs", "parity_check"][:tasks]},
        {"optim.learning_rate": [1e-2, 1e-3]},
        {"train.seed": range(seeds)},
    )
