"""ALiBi: attention with linear biases, a penalty that grows with distance.

Each head lowers a logit by its slope times the distance, so heads look back over
windows of different softness. There is nothing else, and nothing to learn, which is
why it runs at any length.
"""

import dataclasses
import math
from typing import ClassVar

import jax.numpy as jnp

from ropejax.encodings.base import Dims, Encoding
from ropejax.encodings.bias_forms import FactoredBias, NarrowBias, narrow_params
from ropejax.encodings.relative_terms import relative_bias
from ropejax.tokens import Tokens
from ropejax.typing import Array, Float, Params, Rng, Shaped
from ropejax.whole_numbers import whole_number

_STEEPEST = 1e20
"""Nats a token: far beyond where all weight is on the nearest key, and finite over any
distance that int32 holds."""


def alibi_slopes(num_heads: int) -> tuple[float, ...]:
    """Returns the reference slopes of ALiBi, head by head.

    `2 ** (-8 h / N)`, h = 1 .. N, for a power of two; otherwise those of the power of
    two below, followed by every other one of the power above.

    Args:
        num_heads: number of heads, N.

    Returns:
        N slopes, in nats a token.

    Raises:
        ValueError: if there is no head.

    References:
        Press et al., 2021, arXiv:2108.12409, section 3;
        ofirpress/attention_with_linear_biases@4b92f28, `get_slopes`.
    """
    num_heads = whole_number("num_heads", num_heads, least=1)
    below = 2 ** int(math.log2(num_heads))
    slopes = [2.0 ** (-8 * head / below) for head in range(1, below + 1)]
    between = [2.0 ** (-4 * head / below) for head in range(1, 2 * below, 2)]
    return tuple(slopes + between[: num_heads - below])


def alibi_bias(
    slopes: Float[Array, " N"],
    relative: Shaped[Array, "#B *P"],
    right_slopes: Float[Array, " N"] | None = None,
    tie_break: bool = False,
) -> Float[Array, "#B N *P"]:
    """Returns `-slope |distance|`, in nats, float32.

    Args:
        slopes: of each head, in nats a token.
        relative: key minus query position, in tokens, of any pairs.
        right_slopes: slopes for keys after the query; the same ones if None.
        tie_break: add half a slope to keys before the query.
    """
    relative = relative[:, None].astype(jnp.float32)
    heads = (1, -1) + (1,) * (relative.ndim - 2)
    past = relative < 0
    distance = jnp.abs(relative)
    slope = slopes.reshape(heads)
    if right_slopes is not None:
        slope = jnp.where(past, slope, right_slopes.reshape(heads))
    if tie_break:
        distance = distance - 0.5 * past
    return -slope * distance


@dataclasses.dataclass(frozen=True)
class ALiBi(Encoding):
    """Subtracts each head's slope times the distance from its scaled logits.

    `logits - slope_h |i - j|`, i and j the positions of query and key.

    Under a causal mask this is the paper's method; without one it is its usual
    symmetric extension, which cannot tell left from right unless `tie_break`,
    `right_slopes` or `two_sided` says otherwise.

    Attributes:
        slopes: one a head, in nats a token; the reference rule if None.
        right_slopes: slopes for keys after the query; the same as `slopes` if None.
        tie_break: add half a slope to keys before the query, as the code of randomized
            positions does, so that left and right differ.
        learned: train the slopes, from these values on (kept positive: their logarithms
            are the parameters; a slope above 1e20 counts as 1e20, so that results stay
            finite whatever an optimizer did).
        two_sided: if learned, keys after the query learn slopes of their own.

    Raises:
        ValueError: if slopes are negative or above 1e20, or (in `check`) not one a
            head, or an option would have no effect.

    References:
        Press et al., 2021, arXiv:2108.12409, section 3. Tie-break: Ruoss et al., 2023,
        arXiv:2305.16843, google-deepmind/randomized_positional_encodings@e8c6474,
        `compute_alibi_encodings_biases`.

    Departures:
        The official code adds `slope * j`, which differs by a constant of each row and
        so not at all after the softmax.
    """

    slopes: tuple[float, ...] | None = None
    right_slopes: tuple[float, ...] | None = None
    tie_break: bool = False
    learned: bool = False
    two_sided: bool = False

    title: ClassVar[str] = "ALiBi"
    summary: ClassVar[str] = "a linear penalty on distance, one slope a head"
    reference: ClassVar[str] = "Press et al. 2021, arXiv:2108.12409"

    def __post_init__(self):
        super().__post_init__()
        for name in ("slopes", "right_slopes"):
            given = getattr(self, name)
            if given is not None and min(given, default=0) < 0:
                raise ValueError(f"{name} must not be negative, got {given}.")
            if given is not None and max(given, default=0) > _STEEPEST:
                raise ValueError(f"{name} must be at most {_STEEPEST:g}, got {given}.")
            if given is not None and self.learned and min(given, default=0) <= 0:
                raise ValueError(f"learned {name} must start positive, got {given}.")
        if self.two_sided and not self.learned:
            raise ValueError(
                "two_sided concerns learned slopes; for fixed ones give right_slopes."
            )
        if self.learned and self.right_slopes is not None and not self.two_sided:
            raise ValueError("learned right_slopes need two_sided=True.")

    def check(self, dims: Dims) -> None:
        """Raises ValueError if slopes are given, but not one a head."""
        for name in ("slopes", "right_slopes"):
            given = getattr(self, name)
            if given is not None and len(given) != dims.num_heads:
                raise ValueError(
                    f"{name} must be one a head, got {len(given)} for "
                    f"{dims.num_heads} heads."
                )

    def init_layer(self, rng: Rng, dims: Dims) -> Params:
        """Returns logarithms of slopes if they are learned, else nothing."""
        if not self.learned:
            return {}
        left, right = self._sides(dims)
        sides = {"log_slopes": left}
        if self.two_sided:
            sides["log_right_slopes"] = right
        return {name: jnp.log(slopes) for name, slopes in sides.items()}

    def prepare(
        self, shared: Params, layer: Params, query: Tokens, key: Tokens, dims: Dims
    ) -> Params:
        """Returns the slopes of each head."""
        self.check(dims)
        if self.learned:
            # Infinity times a distance of 0 would be NaN.
            return {
                name.removeprefix("log_"): jnp.exp(
                    jnp.minimum(values.astype(jnp.float32), math.log(_STEEPEST))
                )
                for name, values in layer.items()
            }
        left, right = self._sides(dims)
        return {"slopes": left} | ({"right_slopes": right} if self.right_slopes else {})

    def bias(
        self, params: Params, query: Tokens, key: Tokens, scale: float | Array
    ) -> Float[Array, "B N T S"]:
        """Returns minus slope times distance."""
        numbers, function, _ = self.narrow_bias(params)
        return relative_bias(lambda offsets: function(numbers, offsets), query, key)

    def narrow_bias(self, params: Params) -> NarrowBias:
        """Returns minus slope times distance, of head and offset."""

        def function(numbers, offsets):
            right = numbers.get("right_slopes")
            return alibi_bias(numbers["slopes"], offsets, right, self.tie_break)

        return NarrowBias(narrow_params(params, "slopes", "right_slopes"), function)

    def factored_size(self, length: int) -> float | None:
        """Returns the steepest slope times the length; None for learned slopes."""
        if self.learned or self.tie_break:
            return None
        return length * (1.0 if self.slopes is None else max(self.slopes))

    def factored_bias(self, params: Params, query: Tokens, key: Tokens) -> FactoredBias:
        """Returns slope and key position: `-slope (i - j)` is `slope j` of each row."""
        place = (key.positions - key.positions[:, :1]).astype(jnp.float32)
        return FactoredBias(
            params["slopes"].astype(jnp.float32)[None, None, :, None],
            place[:, :, None, None],
        )

    def _sides(self, dims):
        left = alibi_slopes(dims.num_heads) if self.slopes is None else self.slopes
        right = left if self.right_slopes is None else self.right_slopes
        return jnp.array(left, jnp.float32), jnp.array(right, jnp.float32)
