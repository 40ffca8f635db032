"""Position encodings: how a position enters the model, one file a method.

`ENCODINGS` is the only list of them: the command line, the docs page and the
conformance tests all read it.
"""

from types import MappingProxyType

from ropejax.encodings.alibi import ALiBi as ALiBi
from ropejax.encodings.axial import AxialRotary as AxialRotary
from ropejax.encodings.axial import MRoPE as MRoPE
from ropejax.encodings.base import Dims as Dims
from ropejax.encodings.base import Encoding as Encoding
from ropejax.encodings.compose import Compose as Compose
from ropejax.encodings.compose import compose as compose
from ropejax.encodings.cope import CoPE as CoPE
from ropejax.encodings.dape import DAPE as DAPE
from ropejax.encodings.deberta import DeBERTa as DeBERTa
from ropejax.encodings.fire import FIRE as FIRE
from ropejax.encodings.forgetting import CABLE as CABLE
from ropejax.encodings.forgetting import Forgetting as Forgetting
from ropejax.encodings.grape import GrapeM as GrapeM
from ropejax.encodings.grape_additive import GrapeA as GrapeA
from ropejax.encodings.grape_additive import GrapeAP as GrapeAP
from ropejax.encodings.hard_alibi import hard_alibi as hard_alibi
from ropejax.encodings.hf_rope import rotary_from_hf as rotary_from_hf
from ropejax.encodings.hf_rope import softmax_factor_from_hf as softmax_factor_from_hf
from ropejax.encodings.kerple import Kerple as Kerple
from ropejax.encodings.kerple import WeightedKerple as WeightedKerple
from ropejax.encodings.learned import Learned as Learned
from ropejax.encodings.learned import Multiplicative as Multiplicative
from ropejax.encodings.log_scale import LogScale as LogScale
from ropejax.encodings.path import PaTH as PaTH
from ropejax.encodings.pope import PoPE as PoPE
from ropejax.encodings.repo import RePo as RePo
from ropejax.encodings.rope_bias import BiasedRotary as BiasedRotary
from ropejax.encodings.rotary import Rotary as Rotary
from ropejax.encodings.rotary_extensions import DynamicNTKRoPE as DynamicNTKRoPE
from ropejax.encodings.rotary_extensions import DynamicYaRN as DynamicYaRN
from ropejax.encodings.rotary_extensions import HoPE as HoPE
from ropejax.encodings.rotary_extensions import InterpolatedRoPE as InterpolatedRoPE
from ropejax.encodings.rotary_extensions import Llama3RoPE as Llama3RoPE
from ropejax.encodings.rotary_extensions import LongRoPE as LongRoPE
from ropejax.encodings.rotary_extensions import NTKByPartsRoPE as NTKByPartsRoPE
from ropejax.encodings.rotary_extensions import NTKRoPE as NTKRoPE
from ropejax.encodings.rotary_extensions import PRoPE as PRoPE
from ropejax.encodings.rotary_extensions import SuNTKRoPE as SuNTKRoPE
from ropejax.encodings.rotary_extensions import YaRN as YaRN
from ropejax.encodings.rotary_windows import DualChunk as DualChunk
from ropejax.encodings.rotary_windows import InverseLeakyReRoPE as InverseLeakyReRoPE
from ropejax.encodings.rotary_windows import LeakyReRoPE as LeakyReRoPE
from ropejax.encodings.rotary_windows import LMInfinite as LMInfinite
from ropejax.encodings.rotary_windows import ReRoPE as ReRoPE
from ropejax.encodings.rotary_windows import SelfExtend as SelfExtend
from ropejax.encodings.sandwich import Sandwich as Sandwich
from ropejax.encodings.scalar_bias import ScalarBias as ScalarBias
from ropejax.encodings.shaw import Shaw as Shaw
from ropejax.encodings.sinusoidal import Sinusoidal as Sinusoidal
from ropejax.encodings.t5 import T5Bias as T5Bias
from ropejax.encodings.transformer_xl import TransformerXL as TransformerXL
from ropejax.encodings.urpe import URPE as URPE
from ropejax.encodings.vo_rope import VORotary as VORotary
from ropejax.encodings.wall import Wall as Wall
from ropejax.encodings.xlnet import XLNet as XLNet
from ropejax.encodings.xpos import XPos as XPos

ENCODINGS = MappingProxyType(
    {
        "none": Encoding,
        "rope": Rotary,
        "position_interpolation": InterpolatedRoPE,
        "ntk": NTKRoPE,
        "su_ntk": SuNTKRoPE,
        "ntk_by_parts": NTKByPartsRoPE,
        "yarn": YaRN,
        "dynamic_yarn": DynamicYaRN,
        "dynamic_ntk": DynamicNTKRoPE,
        "longrope": LongRoPE,
        "llama3_rope": Llama3RoPE,
        "p_rope": PRoPE,
        "hope": HoPE,
        "rerope": ReRoPE,
        "leaky_rerope": LeakyReRoPE,
        "inverse_leaky_rerope": InverseLeakyReRoPE,
        "self_extend": SelfExtend,
        "dual_chunk": DualChunk,
        "lm_infinite": LMInfinite,
        "xpos": XPos,
        "vo_rope": VORotary,
        "rope_2d": AxialRotary,
        "m_rope": MRoPE,
        "rope_bias": BiasedRotary,
        "pope": PoPE,
        "grape_m": GrapeM,
        "repo": RePo,
        "grape_a": GrapeA,
        "grape_ap": GrapeAP,
        "log_scale": LogScale,
        "sinusoidal": Sinusoidal,
        "learned": Learned,
        "multiplicative": Multiplicative,
        "shaw": Shaw,
        "scalar_bias": ScalarBias,
        "urpe": URPE,
        "t5": T5Bias,
        "transformer_xl": TransformerXL,
        "xlnet": XLNet,
        "deberta": DeBERTa,
        "alibi": ALiBi,
        "kerple": Kerple,
        "kerple_weighted": WeightedKerple,
        "sandwich": Sandwich,
        "fire": FIRE,
        "dape": DAPE,
        "cope": CoPE,
        "fox": Forgetting,
        "cable": CABLE,
        "wall": Wall,
        "path": PaTH,
    }
)
"""Name in configs -> class of settings."""
