"""Where tokens are: position schemes, called outside the model, one file an idea.

`POSITIONS` is the only list of the schemes that one trains with. The other functions
make positions for given layouts: packed or padded rows, grids, text with pictures, a
rolling cache, or out of hidden states.
"""

from types import MappingProxyType

from ropejax.positions.abacus import Abacus, abacus_digits
from ropejax.positions.base import Placement, PositionScheme
from ropejax.positions.bipe import BiPE, bilevel_positions
from ropejax.positions.cache_index import streaming_positions
from ropejax.positions.cape import CAPE
from ropejax.positions.consecutive import Consecutive
from ropejax.positions.coupled import Coupled
from ropejax.positions.coupled_levels import CoupledLevels
from ropejax.positions.equal_mean import EqualMean
from ropejax.positions.evenly_spaced import EvenlySpaced
from ropejax.positions.grid import grid_positions, patch_centres
from ropejax.positions.learned import init_learned_positions, learned_positions
from ropejax.positions.multimodal import (
    Layout,
    Text,
    Vision,
    mrope_positions,
    rope_tie_positions,
    rope_tv_positions,
)
from ropejax.positions.packed import packed_positions, segments_from_lengths
from ropejax.positions.padded import count_real, left_padded, right_padded
from ropejax.positions.pose import PoSE
from ropejax.positions.random_floats import RandomFloats
from ropejax.positions.randomized import Randomized
from ropejax.positions.real_tokens import place_real
from ropejax.positions.shifted import Shifted

POSITIONS: MappingProxyType[str, type[PositionScheme]] = MappingProxyType(
    {
        "consecutive": Consecutive,
        "shifted": Shifted,
        "cape": CAPE,
        "randomized": Randomized,
        "evenly_spaced": EvenlySpaced,
        "equal_mean": EqualMean,
        "random_floats": RandomFloats,
        "pose": PoSE,
        "abacus": Abacus,
        "coupled": Coupled,
        "coupled_levels": CoupledLevels,
        "bipe": BiPE,
    }
)
"""Name in configs -> class of settings."""

__all__ = [
    "Abacus",
    "BiPE",
    "CAPE",
    "Consecutive",
    "Coupled",
    "CoupledLevels",
    "EqualMean",
    "EvenlySpaced",
    "Layout",
    "POSITIONS",
    "Placement",
    "PoSE",
    "PositionScheme",
    "RandomFloats",
    "Randomized",
    "Shifted",
    "Text",
    "Vision",
    "abacus_digits",
    "bilevel_positions",
    "count_real",
    "grid_positions",
    "init_learned_positions",
    "learned_positions",
    "left_padded",
    "mrope_positions",
    "packed_positions",
    "patch_centres",
    "place_real",
    "right_padded",
    "rope_tie_positions",
    "rope_tv_positions",
    "segments_from_lengths",
    "streaming_positions",
]
