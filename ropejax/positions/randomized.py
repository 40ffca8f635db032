"""Randomized positions: n ordered ids drawn out of many, so that long ids are trained.

A model that only ever reads short rows meets only small positions, and at test time
long rows bring positions that it has never seen. So each row of n tokens is placed at n
ids drawn without replacement from 0 .. max_position - 1 and sorted: their order is what
a position tells, and all ids, hence all distances, occur in training. Rows up to
`max_position` tokens long then hold nothing new. Positions stay random at test time.

A draw is one random order of all ids, of which a row of n tokens takes the first n. It
does not depend on how far a batch is padded, so neither does a row.
"""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from ropejax.positions.base import Placement, PositionScheme
from ropejax.positions.ranges import check_range
from ropejax.positions.rows import draw_rows, real_places
from ropejax.seeds import check_key
from ropejax.typing import Rng

_RANK_BITS = 24  # of a float32, which ranks are compared as


def random_order(
    rng: Rng, num_ids: int, count: int | None = None
) -> Int[Array, " count"]:
    """Returns the first of the ids 0 .. num_ids - 1 in a random order.

    Every order is equally likely, and a smaller `count` gives the beginning of the same
    order. Ids are ranked by 24 random bits each; two ids draw the same bits with
    probability 2^-24 and then keep their order, which is no bias that could be
    measured.

    Args:
        rng: PRNG key.
        num_ids: number of ids (static).
        count: how many are returned (static); all if None.

    Returns:
        Different ids `[count]`, int32.
    """
    bits = jax.random.bits(rng, (num_ids,), jnp.uint32) >> (32 - _RANK_BITS)
    # As floats, which hold 24 bits exactly: XLA picks out their largest on a CPU ten
    # times as fast as it sorts them.
    rank = -bits.astype(jnp.float32)
    return jax.lax.top_k(rank, num_ids if count is None else count)[1]


def first_of_order(
    order: Int[Array, "#B P"],
    lengths: Int[Array, " B"],
    num_ids: int,
    *,
    sort: bool = True,
) -> Int[Array, "B P"]:
    """Returns, for each row, the first `length` ids of a random order, sorted.

    Args:
        order: the first P of 0 .. I - 1 in a random order, one for all rows or one a
            row, `[B or 1, P]`.
        lengths: how many ids each row takes, `[B]`; may be traced.
        num_ids: how many ids there are, I (static).
        sort: False leaves ids in the order drawn.

    Returns:
        Ids `[B, P]`; those of padding are I - 1.

    Raises:
        ValueError: if P exceeds I, or known lengths leave 0 .. P.
    """
    num_tokens = order.shape[-1]
    if num_tokens > num_ids:
        raise ValueError(
            f"{num_tokens} tokens cannot have different ids out of {num_ids}; draw "
            "from more ids."
        )
    # The largest id marks padding: sorting leaves it last even where it was drawn.
    real = real_places(lengths, num_tokens)
    ids = jnp.where(real, order, num_ids - 1)
    return jnp.sort(ids, axis=-1) if sort else ids


@dataclasses.dataclass(frozen=True)
class Randomized(PositionScheme):
    """A sorted draw without replacement from `0 .. max_position - 1`.

    A row of n tokens takes the first n ids of a random order of all ids, sorted. With
    `distances`, what is drawn is not positions but a table of distances: 0, and then
    n - 1 sorted ids out of `1 .. max_position - 1`; tokens whose indices differ by d
    are `distances[d]` apart, to either side.

    What the authors' code draws, by encoding (all with one draw for the whole batch):

    | encoding                 | `per_layer` | `distances` |
    |--------------------------|-------------|-------------|
    | sinusoidal, learned      | False       | False       |
    | rotary                   | True        | False       |
    | Transformer-XL relative  | True        | True        |
    | ALiBi                    | True        | True        |

    "Randomized YaRN" (2026, arXiv:2606.23687) is this scheme together with rotary
    positions at YaRN's frequencies, and rows that grow longer over training.

    Attributes:
        max_position: number of ids to draw from, in tokens; no row may be longer.
        per_sequence: one draw a row, instead of one for the batch (of which shorter
            rows take fewer ids).
        per_layer: one draw a layer, instead of one for all layers; training refuses it
            where no layer reads positions, as with encodings added to embeddings.
        distances: draw a table of distances instead of positions.
        sort: False leaves ids in the order drawn, so that they no longer tell the order
            of tokens: the ablation, not the method.

    Raises:
        ValueError: if `max_position` is not in 1 .. 2^24.

    References:
        Ruoss, Deletang, Genewein, Grau-Moya, Csordas, Bennani, Legg, Veness (2023),
        "Randomized positional encodings boost length generalization of transformers",
        arXiv:2305.16843, section 3; google-deepmind/randomized_positional_encodings at
        e8c6474.

    Departures:
        A shared draw is one order of all ids, of which each row takes as many as it has
        tokens; the authors' batches hold rows of one length. For ALiBi the authors add
        half a token to the distance on one side to break ties: that belongs to the
        bias, not to this table. Their relative encoding looks up a table that lacks its
        negative half, so that all keys to one side look alike; here both sides differ.
    """

    max_position: int = 2048
    per_sequence: bool = False
    per_layer: bool = False
    distances: bool = False
    sort: bool = True

    title: ClassVar[str] = "Randomized"
    summary: ClassVar[str] = "sorted ids drawn without replacement from a larger range"
    reference: ClassVar[str] = "Ruoss et al. 2023, arXiv:2305.16843"
    random: ClassVar[bool] = True

    def __post_init__(self):
        super().__post_init__()
        check_range(
            "max_position",
            self.max_position,
            most=2**_RANK_BITS,
            why=f"ids are ranked by {_RANK_BITS} random bits each",
        )

    @property
    def rows_differ(self) -> bool:
        """True if each row has a draw of its own."""
        return self.per_sequence

    def position_bound(self, num_tokens: int) -> int:
        """Returns `max_position`: ids, and distances, lie below it."""
        return self.max_position

    def check(self, num_tokens: int) -> None:
        """Raises ValueError if there are more tokens than ids."""
        if num_tokens > self.max_position:
            raise ValueError(
                f"Rows of {num_tokens} tokens do not fit max_position="
                f"{self.max_position}: each token needs an id of its own. Raise "
                "max_position (and train with it) or use shorter rows."
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
        """Draws positions or distances `[(layers,) B, P]`.

        See `PositionScheme.__call__`. Layer l draws with `fold_in(rng, l)` if
        `per_layer`, and row b with `fold_in(that key, b)` if `per_sequence`.
        """
        check_key(rng)
        self.check(num_tokens)
        real_places(lengths, num_tokens)  # refuses lengths that do not fit
        if self.per_layer:
            draw = jax.vmap(
                lambda layer: self._draw(
                    jax.random.fold_in(rng, layer), lengths, num_tokens
                )
            )(jnp.arange(num_layers))
        else:
            draw = self._draw(rng, lengths, num_tokens)
        if self.distances:
            return Placement(distances=draw, per_layer=self.per_layer)
        return Placement(positions=draw, per_layer=self.per_layer)

    def _draw(
        self, rng: Rng, lengths: Int[Array, " B"], num_tokens: int
    ) -> Int[Array, "B P"]:
        """One layer's ids, or one layer's table of distances."""
        # With distances, id i stands for distance i + 1, and 0 comes before them all.
        zero = int(self.distances)
        num_ids = self.max_position - zero
        lengths = jnp.asarray(lengths, jnp.int32)
        order = draw_rows(
            lambda key: random_order(key, num_ids, max(num_tokens - zero, 0)),
            rng,
            lengths.shape[0],
            per_sequence=self.per_sequence,
        )
        ids = first_of_order(
            order,
            jnp.maximum(lengths - zero, 0),
            num_ids,
            sort=self.sort,
        )
        if not self.distances:
            return ids
        return jnp.pad(ids + 1, ((0, 0), (1, 0)))[:, :num_tokens]
