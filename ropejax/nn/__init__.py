"""Thin Flax modules around the pure functions of ropejax."""

from ropejax.nn.answers import NO_SYMBOL as NO_SYMBOL
from ropejax.nn.answers import likeliest as likeliest
from ropejax.nn.attention import MultiHeadAttention as MultiHeadAttention
from ropejax.nn.block import Block as Block
from ropejax.nn.block import BlockSettings as BlockSettings
from ropejax.nn.decoder_greedy import decode_batch as decode_batch
from ropejax.nn.decoder_greedy import greedy as greedy
from ropejax.nn.dropout import dropout as dropout
from ropejax.nn.encoder_decoder import EncoderDecoder as EncoderDecoder
from ropejax.nn.encoder_decoder import EncoderDecoderSpec as EncoderDecoderSpec
from ropejax.nn.gated import GatedAttention as GatedAttention
from ropejax.nn.gated import GatedBlock as GatedBlock
from ropejax.nn.query_key_norm import QK_NORMS as QK_NORMS
from ropejax.nn.row_scales import ROW_SCALES as ROW_SCALES
from ropejax.nn.transformer import LayerKind as LayerKind
from ropejax.nn.transformer import Transformer as Transformer
from ropejax.nn.transformer import TransformerSpec as TransformerSpec
from ropejax.nn.weighting import NORMALIZERS as NORMALIZERS
from ropejax.nn.weighting import Weighting as Weighting
