"""How logits become outputs: `attend`, its engines, and what replaces the softmax."""

from ropejax.attention.api import attend
from ropejax.attention.blockwise import blockwise
from ropejax.attention.cache import Cache
from ropejax.attention.choice import Choice, choose, explain
from ropejax.attention.counts import visible_counts
from ropejax.attention.dense import attention_weights, dense
from ropejax.attention.normalizers import (
    Normalizer,
    Sigmoid,
    SinkSoftmax,
    Softmax,
    StickBreaking,
)
from ropejax.attention.requests import Request
from ropejax.attention.sequence_parallel import SequenceParallel
from ropejax.attention.squared_relu import SquaredReLU
from ropejax.attention.temperature import AdaptiveTemperature
from ropejax.attention.unit_rows import UnitRows
from ropejax.attention.visibility import visible_pairs
from ropejax.attention.whole_row import Entmax, Selective
from ropejax.attention.zigzag import from_zigzag, to_zigzag, zigzag_order

__all__ = [
    "AdaptiveTemperature",
    "Cache",
    "Choice",
    "Entmax",
    "Normalizer",
    "Request",
    "Selective",
    "SequenceParallel",
    "Sigmoid",
    "SinkSoftmax",
    "Softmax",
    "SquaredReLU",
    "StickBreaking",
    "UnitRows",
    "attend",
    "attention_weights",
    "blockwise",
    "choose",
    "dense",
    "explain",
    "from_zigzag",
    "to_zigzag",
    "visible_counts",
    "visible_pairs",
    "zigzag_order",
]
