"""BiPE: a position within the sentence, and the number of the sentence.

Text comes in segments: sentences, lines, steps of a calculation. Their length has much
the same distribution in long texts as in short ones; what grows is their number. So a
token has two positions: its place in its segment, which stays small and may be learned,
and the number of its segment, which an encoding that extrapolates takes care of.
"""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from ropejax.concrete import known_values
from ropejax.positions.abacus import is_symbol
from ropejax.positions.base import Placement, PositionScheme
from ropejax.positions.ranges import check_range
from ropejax.positions.rows import real_places
from ropejax.typing import Rng


class Bilevel(NamedTuple):
    """Positions on both levels.

    Attributes:
        within: place in the segment, from 0, `[B, L]`.
        segment: number of the segment, from 0, `[B, L]`.
    """

    within: Int[Array, "B L"]
    segment: Int[Array, "B L"]


def bilevel_positions(
    tokens: Int[Array, "B L"],
    separators: Sequence[int],
    *,
    valid: Bool[Array, "B L"] | None = None,
) -> Bilevel:
    """Returns the positions of tokens in segments that end with a separator.

    Args:
        tokens: symbols, `[B, L]`.
        separators: the symbols that end a segment; each is the last of its own.
        valid: False at padding, behind the tokens, `[B, L]`; padding is at 0.

    References:
        He et al. (2024), arXiv:2401.16421; zhenyuhe00/BiPE@861688f, `get_bilevel_ids`.
    """
    ends = is_symbol(tokens, separators)
    number = jnp.cumsum(ends, axis=1, dtype=jnp.int32) - ends
    at = jnp.broadcast_to(jnp.arange(tokens.shape[1], dtype=jnp.int32), tokens.shape)
    begins = jnp.pad(ends[:, :-1], ((0, 0), (1, 0)))
    within = at - jax.lax.cummax(jnp.where(begins, at, 0), axis=1)
    if valid is not None:
        within, number = (jnp.where(valid, ids, 0) for ids in (within, number))
    return Bilevel(within, number)


@dataclasses.dataclass(frozen=True)
class BiPE(PositionScheme):
    """Segment numbers as positions, and places within segments as the stream `within`.

    The paper adds a learned vector of the place to embeddings, and turns or biases by
    the segment: `compose(Learned(stream="within"), Rotary())`, or `ALiBi()` for
    `Rotary()`, or `Sinusoidal(stream="within")` for `Learned`. By command line:

        --config.positions.name=bipe --config.positions.options="separators=(10,)"
        --config.encoding.name=compose
        --config.encoding.options="within=Learned(stream=within), segment=Rotary()"

    Symbols that a decoder is yet to say are unknown when tokens are placed, and count
    as its first answer symbol; of text that is read as it stands, all are known.

    Attributes:
        separators: the symbols that end a segment, and belong to it: full stop and line
            break in the paper.
        max_segment: tokens of the longest segment, so many rows a table of places
            needs; longer ones are refused. None if a whole row may be one segment.

    Raises:
        ValueError: if `separators` is empty, or max_segment out of range.

    References:
        He et al. (2024), "Two stones hit one bird: bilevel positional encoding for
        better length extrapolation", arXiv:2401.16421; zhenyuhe00/BiPE@861688f,
        `get_bilevel_ids` (the code was read, not the paper).

    Departures:
        The code gives places from 1,024 on the last row of its table.
    """

    separators: tuple[int, ...] = (10, 11)
    max_segment: int | None = None

    title: ClassVar[str] = "BiPE"
    summary: ClassVar[str] = "the number of a token's segment, and its place in it"
    reference: ClassVar[str] = "He et al. 2024, arXiv:2401.16421"

    def __post_init__(self):
        super().__post_init__()
        if not self.separators:
            raise ValueError(
                "separators is empty; name the symbols that end a segment, such as "
                "those of the full stop and the line break."
            )
        if self.max_segment is not None:
            check_range("max_segment", self.max_segment)

    @property
    def named_symbols(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """The separators."""
        return (("separators", self.separators),)

    def position_bound(self, num_tokens: int) -> int:
        """Returns the number of tokens: each may end a segment."""
        return num_tokens

    def stream_bound(self, stream: str, num_tokens: int) -> int | None:
        """Returns the length of the longest segment, for `within`."""
        if stream != "within":
            return None
        return min(num_tokens, self.max_segment or num_tokens)

    def __call__(
        self,
        rng: Rng,
        lengths: Int[Array, " B"],
        *,
        num_tokens: int,
        num_layers: int = 1,
        tokens: Int[Array, "B P"] | None = None,
    ) -> Placement:
        """Returns positions and the stream `within`, `[B, P]`.

        Raises:
            ValueError: if `tokens` is None, or known rows have longer segments than
                `max_segment`. Traced ones then get places past the table, which a
                table turns into NaN.
        """
        if tokens is None:
            raise ValueError("BiPE reads the symbols: pass tokens, got None.")
        real = real_places(lengths, num_tokens)
        within, segment = bilevel_positions(tokens, self.separators, valid=real)
        known = None if self.max_segment is None else known_values(within)
        if known is not None and known.size and known.max() >= self.max_segment:
            raise ValueError(
                f"a segment has {known.max() + 1} tokens, more than "
                f"max_segment={self.max_segment}; raise it, or name more separators."
            )
        return Placement(positions=segment, streams={"within": within})
