"""Recurrent baselines: RNN, LSTM, Stack-RNN and Tape-RNN, under the models' contract.

They read tokens one by one, so where tokens are said to be changes nothing, and padding
behind a row cannot be seen. Their scores stand beside those of Transformers in Deletang
et al. 2022, "Neural Networks and the Chomsky Hierarchy" (arXiv 2207.02098).
"""

from types import MappingProxyType

from ropejax.nn.recurrent.cells import LSTM as LSTM
from ropejax.nn.recurrent.cells import RNN as RNN
from ropejax.nn.recurrent.cells import CellSettings as CellSettings
from ropejax.nn.recurrent.cells import Row as Row
from ropejax.nn.recurrent.model import Recurrent as Recurrent
from ropejax.nn.recurrent.model import RecurrentSpec as RecurrentSpec
from ropejax.nn.recurrent.stack import StackRNN as StackRNN
from ropejax.nn.recurrent.stack import update_stack as update_stack
from ropejax.nn.recurrent.tape import TapeRNN as TapeRNN
from ropejax.nn.recurrent.tape import update_tape as update_tape

CELLS = MappingProxyType(
    {"rnn": RNN, "lstm": LSTM, "stack_rnn": StackRNN, "tape_rnn": TapeRNN}
)
"""Name in configs -> class of settings."""
