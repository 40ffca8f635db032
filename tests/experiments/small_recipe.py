"""A small model that reverses strings, on a mesh of eight devices if asked."""

import dataclasses

from ropejax.encodings import ENCODINGS, Dims
from ropejax.nn import BlockSettings, LayerKind, TransformerSpec
from ropejax.positions import Consecutive
from ropejax.sharding import Sharding, abstract_mesh
from ropejax.tasks import ReverseString
from ropejax.training import Fixed, Recipe, adam


def recipe(name="rope", *, width=32, layers=2, length=24, rows=16, sizes=None):
    task = ReverseString()
    spec = TransformerSpec(
        task.num_symbols,
        task.output_vocab,
        Dims(4, 4, width // 4, width, layers),
        BlockSettings(mlp_dim=4 * width, dropout=0.1),
        (LayerKind(ENCODINGS[name]()),),
    )
    found = Recipe(
        model=spec,
        task=task,
        positions=Consecutive(),
        optimizer=adam(1e-3),
        curriculum=Fixed(length),
        buckets=(length,),
        batch_size=rows,
    )
    if sizes is None:
        return found
    return dataclasses.replace(found, sharding=Sharding(abstract_mesh(sizes, 8)))
