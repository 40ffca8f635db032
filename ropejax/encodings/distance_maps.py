"""The distance maps of ReRoPE, Leaky ReRoPE, Self-Extend and Dual Chunk Attention.

All of them keep distances inside a window exact and pack longer ones into the range
seen in training, so that a trained model runs on longer sequences without training.
With i and j the positions of query and key, r = i - j.
"""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Int, Shaped

from ropejax.encodings.choices import positive
from ropejax.encodings.distance import Distance, View


@dataclasses.dataclass(frozen=True)
class _Windowed(Distance):
    """What maps that are exact for distances below a window have in common.

    Attributes:
        window: distances below it stay as they are, in tokens.
        bidirectional: mirror the map for keys after the query, `-d(-r)`.
    """

    window: int = 512
    bidirectional: bool = False

    def __post_init__(self):
        super().__post_init__()
        positive(window=self.window)

    @property
    def causal_only(self) -> bool:
        """True unless bidirectional."""
        return not self.bidirectional

    def select(self, query, key) -> Int[Array, "B T S"]:
        """Returns 0 within the window, 1 before it, and 2 after it if bidirectional."""
        far = (query - key >= self.window).astype(jnp.int32)
        if self.bidirectional:
            far = far + 2 * (key - query >= self.window).astype(jnp.int32)
        return far


@dataclasses.dataclass(frozen=True)
class Rectified(_Windowed):
    """ReRoPE and LM-Infinite: no distance is longer than the window, `min(r, window)`.

    References:
        Su (2023), spaces.ac.cn/archives/9708, bojone/rerope@acfe788; Han et al. (2023),
        LM-Infinite, arXiv:2308.16137.

    Departures:
        `bidirectional` is ours; the code lets keys after a query's window count as
        before it.
    """

    title: ClassVar[str] = "ReRoPE"
    reference: ClassVar[str] = "Su 2023, spaces.ac.cn/archives/9708"

    def queries(self, positions) -> tuple[View, ...]:
        """Returns positions, and the window's edge for all."""
        edge = float(self.window)
        edges = (View(None, offset=edge), View(None, offset=-edge))
        return (View(positions), *edges[: 1 + self.bidirectional])

    def keys(self, positions) -> tuple[View, ...]:
        """Returns positions, and 0 for all."""
        return (View(positions),) + (View(None),) * (1 + self.bidirectional)

    def of(self, relative) -> Shaped[Array, "B T S"]:
        """Returns distances cut off at the window."""
        return jnp.clip(relative, -self.window, self.window)


@dataclasses.dataclass(frozen=True)
class Leaky(_Windowed):
    """Leaky ReRoPE: beyond the window distances grow slower, `w + (r - w) / factor`.

    A factor of 1 is plain RoPE, larger ones come ever nearer to ReRoPE, one below 1 is
    the training side of Inverse Leaky ReRoPE, where distances beyond the window grow
    faster.

    Attributes:
        factor: how much slower distances grow beyond the window, finite.

    References:
        Su (2023), spaces.ac.cn/archives/9708 and 9728; bojone/rerope@acfe788.
    """

    factor: float = 16.0

    title: ClassVar[str] = "Leaky ReRoPE"
    reference: ClassVar[str] = "Su 2023, spaces.ac.cn/archives/9708"

    def __post_init__(self):
        super().__post_init__()
        positive(factor=self.factor)

    def queries(self, positions) -> tuple[View, ...]:
        """Returns positions, and `i / factor + w (1 - 1 / factor)`."""
        start = self.window * (1 - 1 / self.factor)
        starts = (start, -start)[: 1 + self.bidirectional]
        far = (View(positions, 1 / self.factor, offset) for offset in starts)
        return (View(positions), *far)

    def keys(self, positions) -> tuple[View, ...]:
        """Returns positions, and `j / factor`."""
        far = (View(positions, 1 / self.factor),) * (1 + self.bidirectional)
        return (View(positions), *far)

    def of(self, relative) -> Shaped[Array, "B T S"]:
        """Returns distances with a bend at the window, float32."""
        distance = jnp.abs(relative).astype(jnp.float32)
        far = self.window + (distance - self.window) / self.factor
        bent = jnp.where(distance < self.window, distance, far)
        return jnp.sign(relative).astype(jnp.float32) * bent


@dataclasses.dataclass(frozen=True)
class Grouped(Distance):
    """Self-Extend: beyond the window positions count in groups, `i // g - j // g + c`.

    The constant c makes both parts meet: `window - window // g`, or `window - window /
    g` if fractional.

    Attributes:
        window: distances below it stay as they are, in tokens.
        group: tokens that share a position beyond it, g.
        fractional: use the float shift of the present code; positions of far pairs are
            then fractional unless g divides the window.

    References:
        Jin et al. (2024), arXiv:2401.01325, equation 4; datamllab/LongLM@cdbbb06: the
        legacy patch has the integer shift, `self_extend_patch` the fractional one.
    """

    window: int = 1024
    group: int = 8
    fractional: bool = False

    title: ClassVar[str] = "Self-Extend"
    reference: ClassVar[str] = "Jin et al. 2024, arXiv:2401.01325"
    causal_only: ClassVar[bool] = True
    shift_invariant: ClassVar[bool] = False

    def __post_init__(self):
        super().__post_init__()
        positive(window=self.window, group=self.group)

    def queries(self, positions) -> tuple[View, ...]:
        """Returns positions, and numbers of groups plus the shift."""
        part = self.window / self.group
        shift = self.window - (part if self.fractional else self.window // self.group)
        return View(positions), View(positions // self.group, offset=float(shift))

    def keys(self, positions) -> tuple[View, ...]:
        """Returns positions, and numbers of groups."""
        return View(positions), View(positions // self.group)

    def select(self, query, key) -> Int[Array, "B T S"]:
        """Returns 0 within the window and 1 beyond it."""
        return (query - key >= self.window).astype(jnp.int32)

    def of(self, relative) -> None:
        """Returns None: groups depend on the positions themselves."""
        return


@dataclasses.dataclass(frozen=True)
class Chunked(Distance):
    """Dual Chunk Attention: keys know their place within a chunk, `j mod c`.

    Queries stand at `i mod c` for keys of their own chunk, at
    `min(i mod c + c, chunk_size)` for keys of the one before, and at
    `min(2 c - 1, chunk_size)` for keys of earlier ones; c = chunk_size - local.

    Attributes:
        chunk_size: greatest distance ever used (3/4 of the trained length), in tokens.
        local: distances below it are exact across the boundary of chunks (1/8 of it).

    References:
        An et al. (2024), arXiv:2402.17463; HKUNLP/ChunkLlama@2add4d7.
    """

    chunk_size: int = 3072
    local: int = 512

    title: ClassVar[str] = "Dual Chunk Attention"
    reference: ClassVar[str] = "An et al. 2024, arXiv:2402.17463"
    causal_only: ClassVar[bool] = True
    shift_invariant: ClassVar[bool] = False

    def __post_init__(self):
        super().__post_init__()
        positive(local=self.local)
        if self.chunk_size <= self.local:
            raise ValueError(
                f"chunk_size={self.chunk_size} must exceed local={self.local}."
            )

    @property
    def length(self) -> int:
        """Tokens in a chunk, c."""
        return self.chunk_size - self.local

    def queries(self, positions) -> tuple[View, ...]:
        """Returns places for keys of this chunk, the one before, and earlier ones."""
        place = positions % self.length
        before = jnp.minimum(place + self.length, self.chunk_size)
        earlier = float(min(2 * self.length - 1, self.chunk_size))
        return View(place), View(before), View(None, offset=earlier)

    def keys(self, positions) -> tuple[View, ...]:
        """Returns places within the chunk."""
        return (View(positions % self.length),)

    def select(self, query, key) -> Int[Array, "B T S"]:
        """Returns how many chunks lie between, up to 2."""
        between = query // self.length - key // self.length
        return jnp.clip(between, 0, 2).astype(jnp.int32)

    def of(self, relative) -> None:
        """Returns None: chunks depend on the positions themselves."""
        return
