"""The optimizers that configs know by name."""

from types import MappingProxyType

from ropejax.training.muon import Muon
from ropejax.training.optimizers import SGD, Adafactor, Adam, Lion

OPTIMIZERS = MappingProxyType(
    {"adam": Adam, "sgd": SGD, "lion": Lion, "adafactor": Adafactor, "muon": Muon}
)
"""Name in configs -> class of settings."""
