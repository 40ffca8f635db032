"""What a trained model does: where it looks, how far it sees, what positions it met.

Pure functions of a model's parameters and of batches. They form whole matrices of
attention weights, so they are for some rows of some lengths, not for training.
"""

from ropejax.analysis.attention import (
    AttentionStatistics,
    attention_entropy,
    attention_statistics,
    mean_distance,
)
from ropejax.analysis.offsets import offset_similarity
from ropejax.analysis.passes import Layers, embed, trace_layers
from ropejax.analysis.positions import (
    Histogram,
    Seen,
    fraction_unseen,
    met_positions,
    training_positions,
)
from ropejax.analysis.receptive_field import receptive_field

__all__ = [
    "AttentionStatistics",
    "Histogram",
    "Layers",
    "Seen",
    "attention_entropy",
    "attention_statistics",
    "embed",
    "fraction_unseen",
    "mean_distance",
    "met_positions",
    "offset_similarity",
    "receptive_field",
    "trace_layers",
    "training_positions",
]
