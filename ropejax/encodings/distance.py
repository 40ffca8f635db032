"""Maps of the distance between query and key: RoPE beyond its window, in few views.

A rotary logit depends on query position minus key position. A method that bends this
distance, exact near and compressed far, cannot give each token one position; it gives a
few, and says for each pair which of them counts. So a `Distance` holds, for queries and
for keys, a tuple of views, and `select`. Biases may use the same maps by `relative`.
"""

import dataclasses
from typing import ClassVar, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

from ropejax.settings import Settings, check_finite, make_tuples
from ropejax.tokens import Tokens, relative_positions
from ropejax.typing import Positions


def tokens_between(
    first: Shaped[Array, "*#B"], second: Shaped[Array, "*#B"]
) -> Float[Array, "*B"]:
    """Returns `second - first` as float32, exact where they are near each other.

    Positions above 2^24 would be rounded before they are subtracted; and in halves, as
    the difference of two integers may not fit their type.

    Args:
        first: positions, int32 or float32.
        second: positions that broadcast against those.
    """
    if not jnp.issubdtype(jnp.result_type(first, second), jnp.integer):
        return second.astype(jnp.float32) - first.astype(jnp.float32)
    high = (second >> 16) - (first >> 16)
    low = (second & 0xFFFF) - (first & 0xFFFF)
    return high.astype(jnp.float32) * 2.0**16 + low.astype(jnp.float32)


class View(NamedTuple):
    """Positions `positions * scale + offset`, kept apart so that they stay exact.

    Attributes:
        positions: in tokens, `[B, L]` or `[B, L, A]` for several axes; None if all
            tokens stand at `offset`.
        scale: constant factor on them.
        offset: constant number of tokens added after it.
    """

    positions: Positions | None
    scale: float = 1.0
    offset: float = 0.0

    def until(self, key: "View") -> Float[Array, "B T S"]:
        """Returns how far keys are after these queries, `[B or 1, T, S]`.

        Args:
            key: the view of the keys; of the same scale, if both have positions.
        """
        query, other = (
            jnp.zeros((1, 1), jnp.int32) if view.positions is None else view.positions
            for view in (self, key)
        )
        scale = key.scale if self.positions is None else self.scale
        between = tokens_between(query[:, :, None], other[:, None, :])
        return between * scale + (key.offset - self.offset)


@dataclasses.dataclass(frozen=True)
class Distance(Settings):
    """The plain distance: one view, the positions themselves.

    Positions are int32 or float32, as `Tokens` hold them.

    Attributes:
        title: what the map is called, empty for the plain one.
        reference: paper and arXiv id.
        causal_only: True if distances to later keys are not meaningful.
        shift_invariant: True if shifting all positions by one constant changes nothing.
    """

    title: ClassVar[str] = ""
    reference: ClassVar[str] = ""
    causal_only: ClassVar[bool] = False
    shift_invariant: ClassVar[bool] = True

    def __post_init__(self):
        make_tuples(self)
        check_finite(self)

    def queries(self, positions: Positions) -> tuple[View, ...]:
        """Returns the views of queries at these positions."""
        return (View(positions),)

    def keys(self, positions: Positions) -> tuple[View, ...]:
        """Returns the views of keys, one or as many as of queries."""
        return (View(positions),)

    def select(
        self, query: Shaped[Array, "B T 1"], key: Shaped[Array, "B 1 S"]
    ) -> Int[Array, "B T S"] | None:
        """Returns which view counts for each pair, None if there is only one."""
        return None

    def of(self, relative: Shaped[Array, "B T S"]) -> Shaped[Array, "B T S"] | None:
        """Returns the map of `key - query`, None if it is no function of that alone."""
        return relative

    def relative(self, query: Tokens, key: Tokens) -> Shaped[Array, "B T S"]:
        """Returns the mapped key position minus query position, for biases.

        Args:
            query: the queries.
            key: the keys; with a table of distances, the map is applied to these.

        Returns:
            Differences `[B or 1, T, S]` in tokens; the past is negative.

        Raises:
            ValueError: if there is a table of distances and the map needs positions.
        """
        mapped = self.of(relative_positions(query, key))
        if mapped is not None:
            return mapped
        if key.distances is not None:
            raise ValueError(f"{self.title} needs positions, not a table of distances.")
        q, k = query.positions, key.positions
        query_views, key_views = self.queries(q), self.keys(k)
        choice = self.select(q[:, :, None], k[:, None, :])
        total = jnp.zeros(choice.shape, jnp.float32)
        for n, (a, b) in enumerate(zip(*matched(query_views, key_views), strict=True)):
            total = jnp.where(choice == n, a.until(b), total)
        return total


def matched(query_views: tuple, key_views: tuple) -> tuple[tuple, tuple]:
    """Returns as many views of keys as of queries: a single one serves all."""
    if len(key_views) == 1:
        key_views = key_views * len(query_views)
    return query_views, key_views
