"""Thin Flax modules around the pure functions of ropejax."""

from ropejax.nn.answers import NO_SYMBOL, likeliest
from ropejax.nn.attention import MultiHeadAttention
from ropejax.nn.block import Block, BlockSettings
from ropejax.nn.decoder_greedy import decode_batch, greedy
from ropejax.nn.dropout import dropout
from ropejax.nn.encoder_decoder import EncoderDecoder, EncoderDecoderSpec
from ropejax.nn.gated import GatedAttention, GatedBlock
from ropejax.nn.query_key_norm import QK_NORMS
from ropejax.nn.row_scales import ROW_SCALES
from ropejax.nn.transformer import LayerKind, Transformer, TransformerSpec
from ropejax.nn.weighting import NORMALIZERS, Weighting

__all__ = [
    "Block",
    "BlockSettings",
    "EncoderDecoder",
    "EncoderDecoderSpec",
    "GatedAttention",
    "GatedBlock",
    "LayerKind",
    "MultiHeadAttention",
    "NORMALIZERS",
    "NO_SYMBOL",
    "QK_NORMS",
    "ROW_SCALES",
    "Transformer",
    "TransformerSpec",
    "Weighting",
    "decode_batch",
    "dropout",
    "greedy",
    "likeliest",
]
