"""URPE: weights are multiplied by a learned number of the offset, after the softmax.

Whatever is added to logits, the weights of a row still sum to one: of a sequence of
equal tokens every output is the same, and no depth or width of layers can tell the
places of its tokens. Factors behind the softmax lift that, and with them a model of
relative positions can approximate any continuous function of sequences.
"""

import dataclasses
from typing import ClassVar

from ropejax.encodings.heads import weighted_sum
from ropejax.encodings.scalar_bias import OffsetTable, bias_of_rows
from ropejax.tokens import Tokens
from ropejax.typing import Array, Float, Params


@dataclasses.dataclass(frozen=True)
class URPE(OffsetTable):
    """Multiplies each weight by a learned number of its head and offset.

    `sum_j w_ij table[clip(j - i, -clip, clip) + clip, h] v_j`, w behind the softmax.

    The published model has a relative bias before the softmax too: compose this with
    `T5Bias`, say. Weights then may be negative and need not sum to one.

    Attributes:
        clip: offsets beyond this many tokens share a number.
        shared: True if all layers share one table.
        init_std: standard deviation of the numbers at the start, about 1.

    Raises:
        ValueError: if clip is not positive or init_std negative, or positions are
            fractional.

    References:
        Luo et al., 2022, "Your transformer may not be as powerful as you expect",
        arXiv:2205.13401; lsj2408/URPE@47b711f, `fairseq/modules` (the code was read,
        not the paper).

    Departures:
        The code starts its numbers from N(0, 1), not near 1, and has none beyond its
        longest sequence, where the outermost is used here. Its other form, a number for
        each of T5's buckets, is left out.
    """

    shared: bool = True

    centre: ClassVar[float] = 1.0
    title: ClassVar[str] = "URPE"
    summary: ClassVar[str] = "weights times a learned number of the offset"
    reference: ClassVar[str] = "Luo et al. 2022, arXiv:2205.13401"

    def mix(
        self,
        params: Params,
        weights: Float[Array, "B N T S"],
        v: Float[Array, "B S K H"],
        query: Tokens,
        key: Tokens,
    ) -> Float[Array, "B T N H"]:
        """Returns weights times the numbers of their offsets, against values."""
        return weighted_sum(weights * bias_of_rows(params["table"], query, key), v)
