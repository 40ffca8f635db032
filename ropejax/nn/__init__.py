"""Thin Flax modules around the pure functions of ropejax."""

from ropejax.nn.answers import NO_SYMBOL, likeliest
from ropejax.nn.attention import MultiHeadAttention
from ropejax.nn.block import Block, BlockSettings
from ropejax.nn.decoder_greedy import decode_batch, greedy
from ropejax.nn.decoder_sampling import Sampling, sample
from ropejax.nn.dropout import dropout
from ropejax.nn.encoder_decoder import EncoderDecoder, EncoderDecoderSpec
from ropejax.nn.gated import GatedAttention, GatedBlock
from ropejax.nn.mlp import MLPS, GatedMLP
from ropejax.nn.norms import NORMS, LayerNorm, Norm, RMSNorm
from ropejax.nn.output_gates import OUTPUT_GATES
from ropejax.nn.query_key_norm import QK_NORMS
from ropejax.nn.readout import READOUTS, LinearReadout, TiedReadout
from ropejax.nn.row_scales import ROW_SCALES
from ropejax.nn.token_shifts import TOKEN_SHIFTS
from ropejax.nn.transformer import LayerKind, Transformer, TransformerSpec
from ropejax.nn.weighting import NORMALIZERS, Weighting

__all__ = [
    "Block",
    "BlockSettings",
    "EncoderDecoder",
    "EncoderDecoderSpec",
    "GatedAttention",
    "GatedBlock",
    "GatedMLP",
    "LayerKind",
    "LayerNorm",
    "LinearReadout",
    "MLPS",
    "MultiHeadAttention",
    "NORMALIZERS",
    "NORMS",
    "NO_SYMBOL",
    "Norm",
    "OUTPUT_GATES",
    "QK_NORMS",
    "READOUTS",
    "RMSNorm",
    "ROW_SCALES",
    "Sampling",
    "TOKEN_SHIFTS",
    "TiedReadout",
    "Transformer",
    "TransformerSpec",
    "Weighting",
    "decode_batch",
    "dropout",
    "greedy",
    "likeliest",
    "sample",
]
