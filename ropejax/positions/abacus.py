"""Abacus: each digit is told its place in its own number.

To add two numbers, a model must line up digits of equal significance, and counting them
over long numbers is what it fails at. Abacus ids count digits within each number, from
1, wherever the number stands; all other tokens have id 0. With numbers written least
significant digit first, equal ids are equal significance. In training, all ids are
moved up by one random offset, so that the large ids of longer numbers are trained too.

The ids are a stream of their own, beside the tokens' ordinary positions.
"""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from ropejax.positions.base import Placement, PositionScheme
from ropejax.positions.consecutive import Consecutive
from ropejax.positions.ranges import LARGEST, check_range
from ropejax.positions.rows import draw_rows, real_places
from ropejax.seeds import check_key
from ropejax.typing import Rng


def places_in_runs(member: Bool[Array, "B L"]) -> Int[Array, "B L"]:
    """Returns 1, 2, 3, ... along each run of True, and 0 elsewhere."""
    count = jnp.cumsum(member.astype(jnp.int32), axis=-1)
    before_run = jax.lax.cummax(jnp.where(member, 0, count), axis=count.ndim - 1)
    return jnp.where(member, count - before_run, 0)


def is_symbol(tokens: Int[Array, "B L"], symbols: Sequence[int]) -> Bool[Array, "B L"]:
    """Returns True where a token is one of `symbols`."""
    return jnp.isin(tokens, jnp.asarray(tuple(symbols), jnp.int32))


def abacus_digits(
    tokens: Int[Array, "B L"],
    digits: Sequence[int],
    *,
    offset: int | Int[Array, "#B"] = 0,
    valid: Bool[Array, "B L"] | None = None,
) -> Int[Array, "B L"]:
    """Returns `offset + 1, offset + 2, ...` along each run of digits, and 0 elsewhere.

    Args:
        tokens: symbols, `[B, L]`.
        digits: the symbols that are digits.
        offset: added to the ids of digits, one number or `[B or 1]`.
        valid: False at padding, `[B, L]`: padding has id 0 even if it looks like a
            digit.

    Returns:
        Ids `[B, L]`, int32.

    References:
        McLeish et al. (2024), "Transformers can do arithmetic with the right
        embeddings", arXiv:2405.17399; mcleish7/arithmetic at 55af9d5, `abacus.py`.
    """
    member = is_symbol(tokens, digits)
    if valid is not None:
        member = member & valid
    offset = jnp.asarray(offset, jnp.int32).reshape(-1, 1)
    return jnp.where(member, places_in_runs(member) + offset, 0)


@dataclasses.dataclass(frozen=True)
class Abacus(PositionScheme):
    """Digit ids as the stream `digit`, beside the positions of another scheme.

    Train with `max_offset` above 0; test with `dataclasses.replace(scheme,
    max_offset=0)`.

    Attributes:
        digits: the symbols that are digits.
        max_offset: the random offset is uniform over `0 .. max_offset`.
        per_sequence: one offset a row, instead of one for the batch (as published).
        base: scheme of the tokens' ordinary positions; it gets a key of its own.

    Raises:
        ValueError: if `digits` is empty, or `max_offset` not in 0 .. 2^31 - 2.

    References:
        McLeish et al. (2024), arXiv:2405.17399, where max_offset is 99 in training.

    Departures:
        None.
    """

    digits: tuple[int, ...] = tuple(range(10))
    max_offset: int = 99
    per_sequence: bool = False
    base: PositionScheme = Consecutive()

    title: ClassVar[str] = "Abacus"
    summary: ClassVar[str] = "each digit's place in its number, as a stream of its own"
    reference: ClassVar[str] = "McLeish et al. 2024, arXiv:2405.17399"
    random: ClassVar[bool] = True

    def __post_init__(self):
        super().__post_init__()
        if not self.digits:
            raise ValueError("digits is empty; name the symbols that are digits.")
        check_range("max_offset", self.max_offset, least=0, most=LARGEST - 1)

    @property
    def named_symbols(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """The digits, and what `base` looks for."""
        return (("digits", self.digits), *self.base.named_symbols)

    @property
    def rows_differ(self) -> bool:
        """True if each row has an offset of its own, or `base` places it so."""
        return self.per_sequence or self.base.rows_differ

    def position_bound(self, num_tokens: int) -> int | None:
        """Returns the bound of the ordinary positions."""
        return self.base.position_bound(num_tokens)

    def digit_bound(self, num_tokens: int) -> int:
        """Returns one more than the largest digit id, for the size of a table.

        Args:
            num_tokens: the longest row, in tokens.
        """
        return num_tokens + self.max_offset + 1

    def stream_bound(self, stream: str, num_tokens: int) -> int | None:
        """Returns the bound of digit ids, or of a stream of `base`."""
        if stream == "digit":
            return self.digit_bound(num_tokens)
        return self.base.stream_bound(stream, num_tokens)

    def check(self, num_tokens: int) -> None:
        """Raises ValueError if `base` cannot place rows, or ids may leave int32."""
        self.base.check(num_tokens)
        if self.digit_bound(num_tokens) > 2**31:
            raise ValueError(
                f"max_offset={self.max_offset} moves the digits of {num_tokens} tokens "
                f"up to {self.digit_bound(num_tokens) - 1}, beyond int32; lower it."
            )

    def __call__(
        self,
        rng: Rng,
        lengths: Int[Array, " B"],
        *,
        num_tokens: int,
        num_layers: int = 1,
        tokens: Int[Array, "B P"] | None = None,
    ) -> Placement:
        """Returns the placement of `base` with the stream `digit`, `[B, P]`.

        Raises:
            ValueError: if `tokens` is None.
        """
        if tokens is None:
            raise ValueError("Abacus reads the symbols: pass tokens, got None.")
        check_key(rng)
        self.check(num_tokens)
        real = real_places(lengths, num_tokens)
        offset_rng, base_rng = jax.random.split(rng)
        most = self.max_offset + 1
        offset = draw_rows(
            lambda key: jax.random.randint(key, (), 0, most, jnp.int32),
            offset_rng,
            real.shape[0],
            per_sequence=self.per_sequence,
        )
        placement = self.base(
            base_rng,
            lengths,
            num_tokens=num_tokens,
            num_layers=num_layers,
            tokens=tokens,
        )
        digit = abacus_digits(tokens, self.digits, offset=offset, valid=real)
        streams = {**(placement.streams or {}), "digit": digit}
        return dataclasses.replace(placement, streams=streams)
