"""How logits become outputs: `attend`, its engines, and what replaces the softmax."""

from ropejax.attention.api import attend as attend
from ropejax.attention.blockwise import blockwise as blockwise
from ropejax.attention.cache import Cache as Cache
from ropejax.attention.choice import Choice as Choice
from ropejax.attention.choice import choose as choose
from ropejax.attention.dense import dense as dense
from ropejax.attention.normalizers import Normalizer as Normalizer
from ropejax.attention.normalizers import Sigmoid as Sigmoid
from ropejax.attention.normalizers import SinkSoftmax as SinkSoftmax
from ropejax.attention.normalizers import Softmax as Softmax
from ropejax.attention.normalizers import StickBreaking as StickBreaking
from ropejax.attention.visibility import visible_counts as visible_counts
from ropejax.attention.visibility import visible_pairs as visible_pairs
from ropejax.attention.whole_row import AdaptiveTemperature as AdaptiveTemperature
from ropejax.attention.whole_row import Entmax as Entmax
from ropejax.attention.whole_row import Selective as Selective
