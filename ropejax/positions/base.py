"""What a position scheme is: where each token of a padded batch is said to be.

A scheme is a frozen dataclass of settings, called outside the model. It is a pure
function of a PRNG key and the (traced) number of tokens in each row, so "randomized" is
an axis that multiplies every encoding, never a name in the list of encodings.

A row's positions depend on the key, the row and its length only; never on the padding
or the batch size. Of random schemes this holds with threefry keys, JAX's default; keys
of another kind (`jax.random.key(seed, impl="rbg")`) draw positions that are as random,
but may change with the padding and with the rows that they are drawn beside.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Shaped

from ropejax.concrete import known_values
from ropejax.filling import last_repeated
from ropejax.number_types import widened
from ropejax.padding import padding_before, padding_between, real_first
from ropejax.settings import Settings, check_finite, make_tuples
from ropejax.tokens import Tokens, tokens
from ropejax.typing import Rng


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Placement:
    """Where the tokens of a batch are, for every layer.

    Attributes:
        positions: `[B or 1, P]` or `[B or 1, P, A]`, with a leading axis of layers if
            `per_layer`; None for consecutive ones, `0 .. P - 1`.
        distances: a table of distances from 0 up, `[B or 1, P]`, with a leading axis of
            layers if `per_layer`; None to use differences of positions.
        streams: named further positions, each `[B or 1, P]`, or None.
        order: which token each place of the batch holds, `[P]`, where tokens are stored
            in another order than they have; None if they are not. All other arrays go
            by the tokens' own order.
        per_layer: static; True if each layer has a draw of its own.
        by_place: static; where padding stands before or between tokens, positions and
            streams are those of places, padding included (`place_real` makes them so),
            not those of a row's tokens in their order, as schemes make them. It is the
            same where all padding stands behind. Order (`Tokens.index`) counts real
            tokens.

    Raises:
        ValueError: as `ropejax.tokens.Tokens`, of integers that leave int32 (which a
            compiled function would cut without a word) and of narrow floating-point.
    """

    positions: Shaped[Array, "*layers B P"] | Shaped[Array, "*layers B P A"] | None = (
        None
    )
    distances: Shaped[Array, "*layers B P"] | None = None
    streams: dict[str, Shaped[Array, "*batch B P"]] | None = None
    order: Int[Array, " P"] | None = None
    per_layer: bool = dataclasses.field(default=False, metadata={"static": True})
    by_place: bool = dataclasses.field(default=False, metadata={"static": True})

    def __post_init__(self):
        for name in ("positions", "distances", "order"):
            object.__setattr__(self, name, widened(name, getattr(self, name)))
        if isinstance(self.streams, dict):
            streams = {name: widened(name, ids) for name, ids in self.streams.items()}
            object.__setattr__(self, "streams", streams)

    @property
    def num_places(self) -> int | None:
        """How many tokens a row may have (static); None if it may have any number."""
        given = [a for a in (self.positions, self.distances) if a is not None]
        sizes = [array.shape[1 + self.per_layer] for array in given]
        sizes += [array.shape[1] for array in (self.streams or {}).values()]
        return min(sizes, default=None)

    def layers(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Splits into arrays that layers scan over, and arrays that all share."""
        given = {"positions": self.positions, "distances": self.distances}
        given = {name: array for name, array in given.items() if array is not None}
        further = {"streams": self.streams, "order": self.order}
        shared = {name: found for name, found in further.items() if found is not None}
        if self.per_layer:
            return given, shared
        return {}, given | shared

    def rows(self, first: int | Int[Array, ""], count: int, of: int) -> "Placement":
        """Returns where the tokens of some rows of a batch are.

        Args:
            first: the first row; may be traced.
            count: how many.
            of: rows of the batch; arrays of a single row serve all of them.
        """

        def cut(array, axis):
            return jax.lax.dynamic_slice_in_dim(array, first, count, axis)

        return self._of_rows(cut, of)

    def with_rows(self, of: int, extra: int) -> "Placement":
        """Returns the placement with the last row repeated.

        Args:
            of: rows of the batch; arrays of a single row serve any number of them.
            extra: how many more.
        """
        return self._of_rows(lambda x, axis: last_repeated(x, extra, axis), of)

    def _of_rows(self, change: Callable[[Array, int], Array], of: int) -> "Placement":
        """Changes, along an axis, the arrays that have a row for each of `of`."""

        def changed(array, axis):
            return change(array, axis) if array.shape[axis] == of else array

        own, shared = self.layers()
        order = {"order": shared.pop("order")} if "order" in shared else {}
        own = jax.tree.map(lambda array: changed(array, 1), own)
        shared = jax.tree.map(lambda array: changed(array, 0), shared)
        given = own | shared | order
        return Placement(**given, per_layer=self.per_layer, by_place=self.by_place)

    def tokens(self, length: int, *, layer: int | None = None, **known) -> Tokens:
        """Returns the `Tokens` of one layer (the first where embeddings ask: None).

        Args:
            length: number of tokens, P.
            layer: which layer's draw; ignored if all layers share one.
            **known: segments and validity, in the tokens' own order, passed on to
                `ropejax.tokens.tokens`.

        Raises:
            ValueError: if padding is declared or known to stand before or between
                tokens, and the placement does not go by place; or as
                `ropejax.tokens.tokens`.
        """
        self._check_padding(known.get("valid"), known.get("left_padded", False))
        own, shared = self.layers()
        own = jax.tree.map(lambda array: array[layer or 0], own)
        order = shared.pop("order", None)
        made = tokens(length, **own, **shared, **known)
        if self.by_place and _may_have_holes(**known):
            # Masks and lengths go by it as in the row with all padding behind.
            index = real_first(jnp.asarray(known["valid"]))
            made = made.replace(index=index, consecutive_index=False)
        return made if order is None else made.permuted(order)

    def _check_padding(self, valid: Bool[Array, "#B P"] | None, left: bool) -> None:
        """The third of a row's tokens is not what stands at the third place."""
        if self.by_place or (self.positions is None and not self.streams):
            return
        if left or padding_before(valid) or padding_between(valid):
            raise ValueError(
                "padding stands before or between tokens, but the placement goes by "
                "tokens in their order, as schemes make it; make it with ropejax."
                "positions.place_real(scheme, rng, valid), or state by_place=True if "
                "it has an entry for every place, padding included."
            )


def _may_have_holes(
    valid: Bool[Array, "#B P"] | None = None, left_padded: bool = False, **_: Any
) -> bool:
    """True unless padding is known, or declared, to stand at one end of each row."""
    if valid is None:
        return False
    return padding_between(valid) or (not left_padded and known_values(valid) is None)


@dataclasses.dataclass(frozen=True)
class PositionScheme(Settings):
    """A rule that says where tokens are.

    Attributes:
        title: the scheme's usual name.
        summary: one line for lists.
        reference: paper and arXiv id.
        random: True if the key matters.
    """

    title: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    reference: ClassVar[str] = ""
    random: ClassVar[bool] = False

    def __post_init__(self):
        make_tuples(self)
        check_finite(self)

    @property
    def rows_differ(self) -> bool:
        """True if rows of equal length may be placed differently.

        Where it is False and a batch has one length, `lengths` of a single entry serve
        all its rows, and what is made of positions is made once.
        """
        return False

    def position_bound(self, num_tokens: int) -> int | None:
        """Returns what all positions lie below; None if they have no bound.

        Args:
            num_tokens: the longest row, in tokens.
        """
        raise _unwritten(self, "position_bound")

    @property
    def named_symbols(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Its settings that name symbols to look for among tokens, with the symbols."""
        return ()

    def stream_bound(self, stream: str, num_tokens: int) -> int | None:
        """Returns what a stream's ids lie below; None if there is none of that name.

        Args:
            stream: name of the stream.
            num_tokens: the longest row, in tokens.
        """
        return None

    def check(self, num_tokens: int) -> None:
        """Raises ValueError if rows of some length cannot be placed.

        Args:
            num_tokens: the longest row, in tokens.
        """

    def __call__(
        self,
        rng: Rng,
        lengths: Int[Array, " B"],
        *,
        num_tokens: int,
        num_layers: int = 1,
        tokens: Int[Array, "B P"] | None = None,
    ) -> Placement:
        """Places the tokens of a padded batch.

        Args:
            rng: PRNG key; unused unless the scheme is random. A row that must be the
                same in any batch and any padding needs a threefry key, JAX's default.
            lengths: number of real tokens in each row, `[B]`, integers, may be traced.
            num_tokens: the padded length P (static).
            num_layers: number of layers, for schemes that draw once a layer.
            tokens: the symbols `[B, P]`, for schemes that read them (Abacus).

        Returns:
            A `Placement`. What it says of padding is in range but means nothing.

        Raises:
            ValueError: if `num_tokens` tokens cannot be placed, or lengths are not
                integers.
        """
        raise _unwritten(self, "__call__")


def _unwritten(scheme: PositionScheme, name: str) -> NotImplementedError:
    return NotImplementedError(
        f"{type(scheme).__name__} does not define {name}, which every position scheme "
        "must; ropejax.positions.PositionScheme says what it is."
    )
