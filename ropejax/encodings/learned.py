"""Learned absolute positions: a table with one free vector for each position.

The plainest encoding, and the one without any extrapolation: a position beyond the
table has no vector. JAX would silently reuse the last row; here it is refused.
`extension` makes n rows serve n^2 positions, after training or in it. With `stream`,
the vectors are those of another number that is known of each token: Abacus digits.
"""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from ropejax.encodings.base import Dims, Encoding
from ropejax.encodings.choices import not_negative, positive
from ropejax.tokens import Tokens
from ropejax.typing import Array, Float, Params, Rng, Shaped


@dataclasses.dataclass(frozen=True)
class Learned(Encoding):
    """Adds the row of a learned table that belongs to each position.

    `x + table[m]`, m the position. With an extension alpha, n rows reach n^2 positions:
    `u_m = (table[m] - alpha table[0]) / (1 - alpha)`, and position `a n + b` gets
    `alpha u_a + (1 - alpha) u_b`, which is `table[b]` itself for a = 0. The same
    parameters serve both, so a trained model is extended with `dataclasses.replace`.

    A position outside the range is refused where it is known before compilation (a
    static length, or concrete positions); a traced one turns its token into NaN, so
    that it cannot pass unseen.

    Attributes:
        max_position: rows of the table, n.
        extension: alpha, in 0 .. 1 but not 1/2 (which would confuse a n + b with
            b n + a); None for no extension.
        init_std: standard deviation of the table at the start.
        stream: name of the stream that is looked up instead of positions, such as
            "digit" of `ropejax.positions.Abacus`; "" for positions. Two streams, as of
            `ropejax.positions.CoupledLevels`, or rows and columns of an image, take two
            tables: `compose` them.

    Raises:
        ValueError: if a setting is out of range, positions are out of range or
            fractional, or tokens lack the stream.

    References:
        Gehring et al., 2017, arXiv:1705.03122; Devlin et al., 2018, arXiv:1810.04805.
        Extension: Su, 2020, spaces.ac.cn/archives/7947 (with alpha 0.4). Digits:
        McLeish et al., 2024, arXiv:2405.17399 (Abacus; a table of 1,024 rows, of which
        the first, learned too, is for all that is no digit).

    Departures:
        None.
    """

    max_position: int = 2048
    extension: float | None = None
    init_std: float = 0.02
    stream: str = ""

    title: ClassVar[str] = "Learned"
    summary: ClassVar[str] = "a learned vector for each position, added to embeddings"
    reference: ClassVar[str] = "Gehring et al. 2017, arXiv:1705.03122"
    shift_invariant: ClassVar[bool] = False
    by_distance: ClassVar[bool] = False

    def __post_init__(self):
        super().__post_init__()
        positive(max_position=self.max_position)
        not_negative(init_std=self.init_std)
        if self.extension is not None and (
            not 0 < self.extension < 1 or self.extension == 0.5
        ):
            raise ValueError(
                f"extension must lie in 0 .. 1 and not be 0.5, got {self.extension}; "
                "0.4 is usual."
            )

    @property
    def position_limit(self) -> int | None:
        """Positions must be below this: the rows, or their square if extended."""
        return None if self.stream else self.num_ids

    @property
    def stream_limits(self) -> tuple[tuple[str, int], ...]:
        """What the stream's ids must be below, if it is a stream that is looked up."""
        return ((self.stream, self.num_ids),) if self.stream else ()

    @property
    def num_ids(self) -> int:
        """What is looked up must be below this, positions or stream."""
        return self.max_position ** (1 if self.extension is None else 2)

    def init_shared(self, rng: Rng, dims: Dims) -> Params:
        """Returns `{"table": [max_position, D]}`."""
        shape = (self.max_position, dims.embed_dim)
        return {"table": self.init_std * jax.random.normal(rng, shape, jnp.float32)}

    def rows(self, shared: Params, where: Tokens) -> Float[Array, "B L D"]:
        """Returns the vectors of positions, float32."""
        table = jnp.asarray(shared["table"], jnp.float32)
        if self.stream:
            where = _at(stream_of(where, self.stream))
        if self.extension is None:
            return table_rows(table, where)
        check_positions(where, self.num_ids)
        alpha, size = self.extension, self.max_position
        base = (table - alpha * table[:1]) / (1 - alpha)
        coarse, fine = jnp.divmod(where.positions, size)
        return alpha * table_rows(base, _at(coarse)) + (1 - alpha) * table_rows(
            base, _at(fine)
        )

    def embed(
        self, shared: Params, x: Float[Array, "B L D"], where: Tokens
    ) -> Float[Array, "B L D"]:
        """Returns x plus the vectors of its positions, in x's dtype."""
        return (x.astype(jnp.float32) + self.rows(shared, where)).astype(x.dtype)


@dataclasses.dataclass(frozen=True)
class Multiplicative(Learned):
    """Multiplies embeddings by learned vectors of positions.

    `x * (1 + table[m])`, channel by channel.

    Attributes:
        max_position: rows of the table.
        extension: as for `Learned`.
        init_std: standard deviation of the table at the start.
        stream: as for `Learned`.

    References:
        Su, 2021, spaces.ac.cn/archives/8130, section on multiplicative encodings;
        bojone/bert4keras@c1ae0dc, `PositionEmbedding` with merge_mode "mul".

    Departures:
        The article writes `x * p`; the table here holds `p - 1`, as in bert4keras, so
        that small numbers at the start leave embeddings as they are.
    """

    title: ClassVar[str] = "Multiplicative"
    summary: ClassVar[str] = "embeddings times a learned vector for each position"
    reference: ClassVar[str] = "Su 2021, spaces.ac.cn/archives/8130"

    def embed(
        self, shared: Params, x: Float[Array, "B L D"], where: Tokens
    ) -> Float[Array, "B L D"]:
        """Returns x times one plus the vectors of its positions, in x's dtype."""
        return (x.astype(jnp.float32) * (1 + self.rows(shared, where))).astype(x.dtype)


def table_rows(table: Float[Array, "M D"], where: Tokens) -> Float[Array, "B L D"]:
    """Returns the table's rows at integer positions; never clamps.

    Args:
        table: one row a position, M of them.
        where: tokens with positions in `0 .. M - 1`.

    Returns:
        Rows `[B or 1, L, D]`, NaN where a traced position lies outside the table.

    Raises:
        ValueError: if positions are not integers on one axis, or known before
            compilation to lie outside the table.
    """
    check_positions(where, table.shape[0])
    rows = jnp.asarray(table).at[where.positions].get(mode="fill", fill_value=jnp.nan)
    return jnp.where((where.positions >= 0)[..., None], rows, jnp.nan)


def check_positions(where: Tokens, limit: int) -> None:
    """Raises ValueError unless positions can be rows of a table, as far as is known."""
    positions = where.positions
    if positions.ndim == 3:
        raise ValueError(
            "a table of positions needs positions on one axis, [batch, length], got "
            f"shape {positions.shape}; give each axis as a stream of its own, and put "
            'a table for each together: compose(row=Learned(stream="row"), ...).'
        )
    if positions.ndim != 2 or not jnp.issubdtype(positions.dtype, jnp.integer):
        raise ValueError(
            "a table of positions needs integers [batch, length], got "
            f"{positions.dtype}{list(positions.shape)}; use a sinusoidal encoding."
        )
    if where.consecutive_positions and where.length > limit:
        raise ValueError(
            f"{where.length} consecutive positions do not fit a table of {limit}; "
            "raise max_position."
        )
    if not isinstance(positions, jax.core.Tracer):
        known = np.asarray(positions)
        if known.size and (known.min() < 0 or known.max() >= limit):
            raise ValueError(
                f"positions {known.min()} .. {known.max()} leave the table's range "
                f"0 .. {limit - 1}; raise max_position."
            )


def stream_of(where: Tokens, name: str) -> Shaped[Array, "B L"]:
    """Returns a named stream of positions.

    Raises:
        ValueError: if the tokens have none of that name.
    """
    streams = where.streams or {}
    if name not in streams:
        raise ValueError(
            f"the tokens have no stream {name!r}, only {sorted(streams)}; choose a "
            "position scheme that makes it (abacus makes digit, coupled_levels digit "
            "and operand, bipe within)."
        )
    return streams[name]


def _at(positions) -> Tokens:
    return Tokens(index=positions, positions=positions)
