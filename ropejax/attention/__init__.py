"""How logits become outputs: `attend`, its engines, and what replaces the softmax."""

from ropejax.attention.api import attend as attend
from ropejax.attention.blockwise import blockwise as blockwise
from ropejax.attention.cache import Cache as Cache
from ropejax.attention.choice import Choice as Choice
from ropejax.attention.choice import choose as choose
from ropejax.attention.choice import explain as explain
from ropejax.attention.dense import attention_weights as attention_weights
from ropejax.attention.dense import dense as dense
from ropejax.attention.normalizers import Normalizer as Normalizer
from ropejax.attention.normalizers import Sigmoid as Sigmoid
from ropejax.attention.normalizers import SinkSoftmax as SinkSoftmax
from ropejax.attention.normalizers import Softmax as Softmax
from ropejax.attention.normalizers import StickBreaking as StickBreaking
from ropejax.attention.requests import Request as Request
from ropejax.attention.sequence_parallel import SequenceParallel as SequenceParallel
from ropejax.attention.squared_relu import SquaredReLU as SquaredReLU
from ropejax.attention.temperature import AdaptiveTemperature as AdaptiveTemperature
from ropejax.attention.unit_rows import UnitRows as UnitRows
from ropejax.attention.visibility import visible_counts as visible_counts
from ropejax.attention.visibility import visible_pairs as visible_pairs
from ropejax.attention.whole_row import Entmax as Entmax
from ropejax.attention.whole_row import Selective as Selective
from ropejax.attention.zigzag import from_zigzag as from_zigzag
from ropejax.attention.zigzag import to_zigzag as to_zigzag
from ropejax.attention.zigzag import zigzag_order as zigzag_order
