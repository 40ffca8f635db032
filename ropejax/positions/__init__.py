"""Where tokens are: position schemes, called outside the model, one file an idea.

`POSITIONS` is the only list of the schemes that one trains with. The other functions
make positions for given layouts: packed or padded rows, grids, text with pictures, a
rolling cache, or out of hidden states.
"""

from types import MappingProxyType

from ropejax.positions.abacus import Abacus as Abacus
from ropejax.positions.abacus import abacus_digits as abacus_digits
from ropejax.positions.base import Placement as Placement
from ropejax.positions.base import PositionScheme as PositionScheme
from ropejax.positions.cache_index import streaming_positions as streaming_positions
from ropejax.positions.consecutive import Consecutive as Consecutive
from ropejax.positions.coupled import Coupled as Coupled
from ropejax.positions.coupled_levels import CoupledLevels as CoupledLevels
from ropejax.positions.equal_mean import EqualMean as EqualMean
from ropejax.positions.evenly_spaced import EvenlySpaced as EvenlySpaced
from ropejax.positions.grid import grid_positions as grid_positions
from ropejax.positions.grid import patch_centres as patch_centres
from ropejax.positions.learned import init_learned_positions as init_learned_positions
from ropejax.positions.learned import learned_positions as learned_positions
from ropejax.positions.multimodal import Layout as Layout
from ropejax.positions.multimodal import Text as Text
from ropejax.positions.multimodal import Vision as Vision
from ropejax.positions.multimodal import mrope_positions as mrope_positions
from ropejax.positions.multimodal import rope_tie_positions as rope_tie_positions
from ropejax.positions.multimodal import rope_tv_positions as rope_tv_positions
from ropejax.positions.packed import packed_positions as packed_positions
from ropejax.positions.packed import segments_from_lengths as segments_from_lengths
from ropejax.positions.padded import count_real as count_real
from ropejax.positions.padded import left_padded as left_padded
from ropejax.positions.padded import right_padded as right_padded
from ropejax.positions.pose import PoSE as PoSE
from ropejax.positions.random_floats import RandomFloats as RandomFloats
from ropejax.positions.randomized import Randomized as Randomized
from ropejax.positions.real_tokens import place_real as place_real
from ropejax.positions.shifted import Shifted as Shifted

POSITIONS: MappingProxyType[str, type[PositionScheme]] = MappingProxyType(
    {
        "consecutive": Consecutive,
        "shifted": Shifted,
        "randomized": Randomized,
        "evenly_spaced": EvenlySpaced,
        "equal_mean": EqualMean,
        "random_floats": RandomFloats,
        "pose": PoSE,
        "abacus": Abacus,
        "coupled": Coupled,
        "coupled_levels": CoupledLevels,
    }
)
"""Name in configs -> class of settings."""
