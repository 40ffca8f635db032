"""A model and a recipe small enough to train in a test."""

import dataclasses

from ropejax.encodings import ENCODINGS, Dims
from ropejax.nn import BlockSettings, LayerKind, TransformerSpec
from ropejax.positions import Randomized
from ropejax.tasks import TASKS
from ropejax.training import Recipe, Uniform, adam, even_buckets


def tiny_recipe(task="reverse_string", encoding="rope", dropout=0.5, **changes):
    """Two layers of width 8 on lengths to 6, randomized positions, dropout on."""
    task = TASKS[task]()
    spec = TransformerSpec(
        task.num_symbols,
        task.output_vocab,
        Dims(num_heads=2, num_kv_heads=2, head_dim=4, embed_dim=8, num_layers=2),
        BlockSettings(mlp_dim=16, dropout=dropout),
        (LayerKind(ENCODINGS[encoding]()),),
    )
    recipe = Recipe(
        model=spec,
        task=task,
        positions=Randomized(max_position=32),
        optimizer=adam(1e-2),
        curriculum=Uniform(6),
        buckets=even_buckets(6, 2),
        batch_size=4,
    )
    return dataclasses.replace(recipe, **changes)
