"""VO-RoPE: values turn by their position and outputs turn back.

An output then knows how far away each value came from, which rotated queries and keys
alone cannot tell it.
"""

import dataclasses
from typing import ClassVar

from jaxtyping import Array, Float

from ropejax.encodings.distance import View
from ropejax.encodings.rotary_base import Rotation
from ropejax.tokens import Tokens
from ropejax.typing import Params


@dataclasses.dataclass(frozen=True, kw_only=True)
class VORotary(Rotation):
    """Rotates values, and outputs back: `o_i = sum_j a_ij R(j - i) v_j`.

    With `Rotary` in a composition this is QKVO-RoPE. It needs values and outputs of the
    same, even width.

    References:
        Su (2025), spaces.ac.cn/archives/10862.
    """

    title: ClassVar[str] = "VO-RoPE"
    summary: ClassVar[str] = "values turn by their position, outputs turn back"
    reference: ClassVar[str] = "Su 2025, spaces.ac.cn/archives/10862"

    def values(
        self, params: Params, v: Float[Array, "B S K H"], key: Tokens
    ) -> Float[Array, "B S K H"]:
        """Returns values rotated by their positions."""
        params = self.of_tokens(params, key, v.shape[-1])
        return self.turn(params, v, View(key.positions))

    def outputs(
        self, params: Params, out: Float[Array, "B T N H"], query: Tokens
    ) -> Float[Array, "B T N H"]:
        """Returns outputs rotated back by the positions of the queries."""
        params = self.of_tokens(params, query, out.shape[-1])
        return self.turn(params, out, View(query.positions), backwards=True)
