"""Recurrent baselines: of the Chomsky hierarchy, and of state tracking.

They read tokens one by one, so where tokens are said to be changes nothing, and padding
behind a row cannot be seen.

RNN, LSTM, Stack-RNN and Tape-RNN are cells, whose next state is no linear function of
the last; their scores stand beside those of Transformers in Deletang et al. 2022,
"Neural Networks and the Chomsky Hierarchy" (arXiv 2207.02098). DeltaNet and Mamba are
linear recurrences within a Transformer's layers, in place of attention.
"""

from types import MappingProxyType

from ropejax.nn.recurrent.cells import LSTM as LSTM
from ropejax.nn.recurrent.cells import RNN as RNN
from ropejax.nn.recurrent.cells import CellSettings as CellSettings
from ropejax.nn.recurrent.cells import Row as Row
from ropejax.nn.recurrent.delta_net import DeltaNet as DeltaNet
from ropejax.nn.recurrent.delta_rule import delta_rule as delta_rule
from ropejax.nn.recurrent.layered import Layered as Layered
from ropejax.nn.recurrent.layered import LayeredSpec as LayeredSpec
from ropejax.nn.recurrent.mamba import Mamba as Mamba
from ropejax.nn.recurrent.mixers import MixerSettings as MixerSettings
from ropejax.nn.recurrent.model import Recurrent as Recurrent
from ropejax.nn.recurrent.model import RecurrentSpec as RecurrentSpec
from ropejax.nn.recurrent.selective_scan import selective_scan as selective_scan
from ropejax.nn.recurrent.stack import StackRNN as StackRNN
from ropejax.nn.recurrent.stack import update_stack as update_stack
from ropejax.nn.recurrent.tape import TapeRNN as TapeRNN
from ropejax.nn.recurrent.tape import update_tape as update_tape

CELLS = MappingProxyType(
    {"rnn": RNN, "lstm": LSTM, "stack_rnn": StackRNN, "tape_rnn": TapeRNN}
)
"""Name in configs -> class of settings of a cell."""

MIXERS = MappingProxyType({"delta_net": DeltaNet, "mamba": Mamba})
"""Name in configs -> class of settings of what stands in place of attention."""

RECURRENT = MappingProxyType({**CELLS, **MIXERS})
"""Both: the kinds of recurrent models."""
