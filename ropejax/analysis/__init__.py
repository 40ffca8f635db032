"""What a trained model does: where it looks, how far it sees, what positions it met.

Pure functions of a model's parameters and of batches. They form whole matrices of
attention weights, so they are for some rows of some lengths, not for training.
"""

from ropejax.analysis.attention import AttentionStatistics as AttentionStatistics
from ropejax.analysis.attention import attention_entropy as attention_entropy
from ropejax.analysis.attention import attention_statistics as attention_statistics
from ropejax.analysis.attention import mean_distance as mean_distance
from ropejax.analysis.offsets import offset_similarity as offset_similarity
from ropejax.analysis.passes import Layers as Layers
from ropejax.analysis.passes import trace_layers as trace_layers
from ropejax.analysis.positions import Histogram as Histogram
from ropejax.analysis.positions import Seen as Seen
from ropejax.analysis.positions import fraction_unseen as fraction_unseen
from ropejax.analysis.positions import met_positions as met_positions
from ropejax.analysis.positions import training_positions as training_positions
from ropejax.analysis.receptive_field import receptive_field as receptive_field
