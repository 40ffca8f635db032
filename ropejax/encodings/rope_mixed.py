"""RoPE-Mixed: each pair turns by a learned mixture of the positions on all axes.

Pairs that belong to one axis each, as in axial RoPE, cannot tell a diagonal neighbour
from others: an image has more than two directions. Here a pair has a frequency for each
axis, a wave along a direction of its own, and learns which way that points and how fast
it turns.
"""

import dataclasses
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ropejax.encodings.angles import pair_angles, rotary_frequencies
from ropejax.encodings.base import Dims, Encoding, Views
from ropejax.encodings.choices import check_axes, check_choice
from ropejax.encodings.rotation import LAYOUTS, Layout, rotate
from ropejax.tokens import Tokens
from ropejax.typing import Params, Rng
from ropejax.whole_numbers import whole_number

Directions = Literal["random", "axes"]
DIRECTIONS = ("random", "axes")


@dataclasses.dataclass(frozen=True, kw_only=True)
class MixedRotary(Encoding):
    """Turns each pair by a sum over axes of a learned frequency times the position.

    Pair r of head h turns by `sum_a p_a f_ahr`, p_a the position on axis a; with one
    axis alone whose f are not zero, this is RoPE by that axis. Positions are
    `[B, L, A]`, integers or fractions; plain ones `[B, L]` stand for equal positions on
    all axes.

    At the start the pairs of a head are dealt out to A directions at right angles, in
    blocks as even as can be, and the block of direction d has
    `f_a = d_a max_wavelength ** (-2 r / W)`, RoPE's of a head as wide as the block, W
    channels.

    A token at 0 on all axes is not turned, as published class tokens are not. A key
    head and its query heads share frequencies.

    Attributes:
        axes: number of axes, A.
        max_wavelength: the base of the frequencies at the start.
        directions: at the start, "random" for each head, as published, or the "axes"
            themselves: then it starts as `AxialRotary(form="block")`.
        layout: which channels form a pair, "half" or "interleaved" (as published).
        shared: True if all layers share the frequencies.

    Raises:
        ValueError: if a setting is out of range, heads are of odd width or have fewer
            pairs than there are axes (in `check`), or positions have another number of
            axes.

    References:
        Heo et al. (2024), "Rotary position embedding for vision transformer",
        arXiv:2403.13298; naver-ai/rope-vit@04a2ad8, `init_random_2d_freqs` and
        `compute_mixed_cis` (the code was read, not the paper).

    Departures:
        The code has two axes, width before height, and no grouped heads, and its pairs
        fall in even blocks; other numbers are additions: directions are then a rotation
        drawn uniformly, as they are for two. Its optimizer leaves frequencies out of
        weight decay.
    """

    axes: int = 2
    max_wavelength: float = 10.0
    directions: Directions = "random"
    layout: Layout = "half"
    shared: bool = False

    title: ClassVar[str] = "RoPE-Mixed"
    summary: ClassVar[str] = "pairs turn by learned mixtures of positions on all axes"
    reference: ClassVar[str] = "Heo et al. 2024, arXiv:2403.13298"
    by_distance: ClassVar[bool] = False

    def __post_init__(self):
        super().__post_init__()
        whole_number("axes", self.axes, least=1)
        check_choice("directions", self.directions, DIRECTIONS)
        check_choice("layout", self.layout, LAYOUTS)
        if not self.max_wavelength > 1:
            raise ValueError(
                "max_wavelength must exceed 1 (10 is usual, for images), got "
                f"{self.max_wavelength}."
            )

    @property
    def num_axes(self) -> int:
        """Number of axes, A."""
        return self.axes

    def check(self, dims: Dims) -> None:
        """Raises ValueError if heads have no pair for each axis."""
        count = len(rotary_frequencies(dims.head_dim, self.max_wavelength))
        if count < self.axes:
            raise ValueError(
                f"{self.title} deals out {count} pairs of head_dim={dims.head_dim} to "
                f"{self.axes} directions: make head_dim {2 * self.axes} or more, or "
                "have fewer axes."
            )

    def init_shared(self, rng: Rng, dims: Dims) -> Params:
        """Returns all frequencies if shared, else nothing."""
        return self._init(rng, dims) if self.shared else {}

    def init_layer(self, rng: Rng, dims: Dims) -> Params:
        """Returns `{"frequencies": [A, K, R]}`, radians a token, unless shared."""
        return {} if self.shared else self._init(rng, dims)

    def queries(
        self, params: Params, q: Float[Array, "B T N H"], query: Tokens
    ) -> Views:
        """Returns queries turned by the frequencies of their key heads."""
        return (self._turned(params, q, query),)

    def keys(self, params: Params, k: Float[Array, "B S K H"], key: Tokens) -> Views:
        """Returns keys turned by their frequencies."""
        return (self._turned(params, k, key),)

    def _init(self, rng: Rng, dims: Dims) -> Params:
        self.check(dims)
        block = np.arange(dims.head_dim // 2) * self.axes // (dims.head_dim // 2)
        sizes = np.bincount(block)
        speeds = [rotary_frequencies(2 * size, self.max_wavelength) for size in sizes]
        towards = jnp.broadcast_to(
            jnp.eye(self.axes), (dims.num_kv_heads, self.axes, self.axes)
        )
        if self.directions == "random":
            towards = _rotations(rng, dims.num_kv_heads, self.axes)
        by_pair = jnp.moveaxis(towards[:, block], -1, 0)
        return {"frequencies": by_pair * np.float32(np.concatenate(speeds))}

    def _turned(self, params: Params, x: Array, where: Tokens) -> Array:
        positions = where.positions
        if positions.ndim == 2:
            positions = jnp.repeat(positions[..., None], self.axes, axis=-1)
        check_axes(self.title, positions, self.axes)
        frequencies = params["frequencies"].astype(jnp.float32)
        angles = sum(
            pair_angles(positions[..., axis, None, None], frequencies[axis])
            for axis in range(self.axes)
        )
        angles = jnp.repeat(angles, x.shape[2] // angles.shape[2], axis=2)
        return rotate(x, angles, layout=self.layout)


def _rotations(rng: Rng, count: int, size: int) -> Float[Array, "K A A"]:
    """Returns rotations of space drawn uniformly, without reflections."""
    drawn = jax.random.orthogonal(rng, size, (count,), jnp.float32)
    return drawn.at[:, -1].multiply(jnp.linalg.det(drawn)[:, None])
