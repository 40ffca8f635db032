"""Position encodings: how a position enters the model, one file a method.

`ENCODINGS` is the only list of them: the command line, the docs page and the
conformance tests all read it.
"""

from types import MappingProxyType

from ropejax.encodings.alibi import ALiBi
from ropejax.encodings.axial import AxialRotary, MRoPE
from ropejax.encodings.base import Dims, Encoding
from ropejax.encodings.compose import Compose, compose
from ropejax.encodings.cope import CoPE
from ropejax.encodings.dape import DAPE
from ropejax.encodings.deberta import DeBERTa
from ropejax.encodings.dynamic_bias import DynamicBias
from ropejax.encodings.fire import FIRE
from ropejax.encodings.floater import Floater
from ropejax.encodings.fope import FoPE
from ropejax.encodings.forgetting import CABLE, Forgetting
from ropejax.encodings.grape import GrapeM
from ropejax.encodings.grape_additive import GrapeA, GrapeAP
from ropejax.encodings.hard_alibi import hard_alibi
from ropejax.encodings.hf_rope import (
    encodings_from_hf,
    rotary_from_hf,
    softmax_factor_from_hf,
)
from ropejax.encodings.kerple import Kerple, WeightedKerple
from ropejax.encodings.learned import Learned, Multiplicative
from ropejax.encodings.log_scale import LogScale
from ropejax.encodings.path import PaTH
from ropejax.encodings.pope import PoPE
from ropejax.encodings.repo import RePo
from ropejax.encodings.rope_bias import BiasedRotary
from ropejax.encodings.rope_mixed import MixedRotary
from ropejax.encodings.rotary import Rotary
from ropejax.encodings.rotary_extensions import (
    DynamicNTKRoPE,
    DynamicYaRN,
    HoPE,
    InterpolatedRoPE,
    Llama3RoPE,
    LongRoPE,
    NTKByPartsRoPE,
    NTKRoPE,
    PRoPE,
    SuNTKRoPE,
    YaRN,
)
from ropejax.encodings.rotary_windows import (
    DualChunk,
    InverseLeakyReRoPE,
    LeakyReRoPE,
    LMInfinite,
    ReRoPE,
    SelfExtend,
)
from ropejax.encodings.sandwich import Sandwich
from ropejax.encodings.scalar_bias import ScalarBias
from ropejax.encodings.shaw import Shaw
from ropejax.encodings.sinusoidal import Sinusoidal
from ropejax.encodings.soft_cap import SoftCap
from ropejax.encodings.t5 import T5Bias
from ropejax.encodings.tisa import TISA
from ropejax.encodings.transformer_xl import TransformerXL
from ropejax.encodings.urpe import URPE
from ropejax.encodings.vo_rope import VORotary
from ropejax.encodings.wall import Wall
from ropejax.encodings.xlnet import XLNet
from ropejax.encodings.xpos import XPos

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
        "rope_mixed": MixedRotary,
        "rope_bias": BiasedRotary,
        "pope": PoPE,
        "fope": FoPE,
        "grape_m": GrapeM,
        "repo": RePo,
        "grape_a": GrapeA,
        "grape_ap": GrapeAP,
        "log_scale": LogScale,
        "soft_cap": SoftCap,
        "sinusoidal": Sinusoidal,
        "learned": Learned,
        "multiplicative": Multiplicative,
        "floater": Floater,
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
        "tisa": TISA,
        "dynamic_bias": DynamicBias,
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

__all__ = [
    "ALiBi",
    "AxialRotary",
    "BiasedRotary",
    "CABLE",
    "CoPE",
    "Compose",
    "DAPE",
    "DeBERTa",
    "Dims",
    "DualChunk",
    "DynamicBias",
    "DynamicNTKRoPE",
    "DynamicYaRN",
    "ENCODINGS",
    "Encoding",
    "FIRE",
    "Floater",
    "FoPE",
    "Forgetting",
    "GrapeA",
    "GrapeAP",
    "GrapeM",
    "HoPE",
    "InterpolatedRoPE",
    "InverseLeakyReRoPE",
    "Kerple",
    "LMInfinite",
    "LeakyReRoPE",
    "Learned",
    "Llama3RoPE",
    "LogScale",
    "LongRoPE",
    "MRoPE",
    "MixedRotary",
    "Multiplicative",
    "NTKByPartsRoPE",
    "NTKRoPE",
    "PRoPE",
    "PaTH",
    "PoPE",
    "RePo",
    "ReRoPE",
    "Rotary",
    "Sandwich",
    "ScalarBias",
    "SelfExtend",
    "Shaw",
    "Sinusoidal",
    "SoftCap",
    "SuNTKRoPE",
    "T5Bias",
    "TISA",
    "TransformerXL",
    "URPE",
    "VORotary",
    "Wall",
    "WeightedKerple",
    "XLNet",
    "XPos",
    "YaRN",
    "compose",
    "encodings_from_hf",
    "hard_alibi",
    "rotary_from_hf",
    "softmax_factor_from_hf",
]
