"""What all rotary encodings share: frequencies, their training, and turning a view."""

import dataclasses
import math
import numbers
from typing import ClassVar, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ropejax.encodings.angles import (
    Frequencies,
    pair_angles,
    rotary_frequencies,
    share_of,
)
from ropejax.encodings.base import Dims, Encoding
from ropejax.encodings.choices import check_choice
from ropejax.encodings.distance import View
from ropejax.encodings.frequency_map import FrequencyMap, Ratios, beside
from ropejax.encodings.own_segment import own_counts, segment_keys
from ropejax.encodings.rotation import LAYOUTS, Layout, rotate
from ropejax.tokens import Tokens
from ropejax.typing import Params, Rng

_FASTEST = math.log(2.0**24)
"""Above it float32 cannot tell frequencies a turn apart: angles would be noise."""


class Pairs(NamedTuple):
    """Which frequency and which axis of positions each rotated pair uses.

    Attributes:
        spectrum: the distinct frequencies, radians a token, float64.
        entry: index into `spectrum` for each pair, `[R]`.
        axis: axis of positions for each pair, `[R]`, all 0 for one axis.
    """

    spectrum: Float[np.ndarray, " F"]
    entry: Int[np.ndarray, " R"]
    axis: Int[np.ndarray, " R"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rotation(Encoding):
    """Settings and arithmetic common to encodings that rotate; rotates nothing itself.

    Attributes:
        max_wavelength: the base of the frequencies, in tokens (theta in configs).
        layout: which channels form a pair, "half" or "interleaved".
        rotary_fraction: part of a head's channels that is rotated, the first ones;
            their frequencies are computed over that part alone (GPT-NeoX: 0.25).
        trainable: "none", or logarithms of the frequencies are learned, a set a "layer"
            or one "shared" by all layers. Extensions then act on the learned ones. A
            learned one above 2^24 radians a token counts as that, so that angles stay
            finite whatever an optimizer did.
        round_frequencies: round constant frequencies to float32 first, as programs that
            most checkpoints were trained with do, `1 / float32(base ** (2 r / d))`;
            the angles stay exact.
    """

    max_wavelength: float = 10_000.0
    layout: Layout = "half"
    rotary_fraction: float = 1.0
    trainable: Literal["none", "layer", "shared"] = "none"
    round_frequencies: bool = False

    by_distance: ClassVar[bool] = False

    def __post_init__(self):
        """Refuses settings outside their range, those of the frequency map included."""
        super().__post_init__()
        check_choice("layout", self.layout, LAYOUTS)
        check_choice("trainable", self.trainable, ("none", "layer", "shared"))
        base = self.max_wavelength
        real = isinstance(base, numbers.Real) and not isinstance(base, bool)
        if not real or not 1 < base < math.inf:
            raise ValueError(
                "max_wavelength must be a finite number above 1 (10000 is usual), got "
                f"{base!r}."
            )
        if not 0 < self.rotary_fraction <= 1:
            raise ValueError(
                f"rotary_fraction must be in (0, 1], got {self.rotary_fraction}."
            )
        if self.round_frequencies and (
            self.trainable != "none" or self.frequencies.length_dependent
        ):
            raise ValueError(
                "round_frequencies concerns constant frequencies; learned ones, and "
                "those that depend on the length, are float32 anyway."
            )

    @property
    def frequencies(self) -> FrequencyMap:
        """How the frequencies are changed."""
        return FrequencyMap()

    @property
    def length_dependent(self) -> bool:
        """True if the frequencies are."""
        return self.frequencies.length_dependent

    def rotary_width(self, head_dim: int) -> int:
        """Returns the number of rotated channels.

        Raises:
            ValueError: if it is odd or zero.
        """
        width = share_of(head_dim, self.rotary_fraction)
        if width < 2 or width % 2:
            raise ValueError(
                f"{self.title} rotates pairs of channels: head_dim={head_dim} times "
                f"rotary_fraction={self.rotary_fraction} is {width}; make it even."
            )
        return width

    def pairs(self, head_dim: int) -> Pairs:
        """Returns which frequency and axis each pair of a head of this width uses."""
        spectrum = rotary_frequencies(self.rotary_width(head_dim), self.max_wavelength)
        count = len(spectrum)
        return Pairs(spectrum, np.arange(count), np.zeros(count, int))

    def check(self, dims: Dims) -> None:
        """Raises ValueError if pairs or frequency map do not fit the head width."""
        self.frequencies.check(len(self.pairs(dims.head_dim).spectrum))

    def init_shared(self, rng: Rng, dims: Dims) -> Params:
        """Returns the learned log-frequencies `[F]` if all layers share them."""
        return self._log_frequencies(dims) if self.trainable == "shared" else {}

    def init_layer(self, rng: Rng, dims: Dims) -> Params:
        """Returns the learned log-frequencies `[F]` if each layer has its own."""
        return self._log_frequencies(dims) if self.trainable == "layer" else {}

    def prepare(
        self, shared: Params, layer: Params, query: Tokens, key: Tokens, dims: Dims
    ) -> Params:
        """Returns parameters, and ratios and factor of the current length if any.

        With segments each token has the length of its own: then the parameters tell
        what `of_tokens` must know of the keys.
        """
        params = {**shared, **layer}
        if not self.length_dependent:
            return params
        if key.segments is not None:
            return params | {"segment_keys": segment_keys(key)}
        length = current_length(key)
        spectrum = self.pairs(dims.head_dim).spectrum
        ratios = self.frequencies.ratios(spectrum, self.max_wavelength, length)
        factor = jnp.asarray(self.frequencies.factor(length), jnp.float32)
        return params | {"ratios": ratios, "factor": factor}

    def of_tokens(self, params: Params, where: Tokens, head_dim: int) -> Params:
        """Returns parameters with the ratios and the factor of each of some tokens.

        They differ within a row where frequencies follow the length of a segment;
        elsewhere the parameters are returned as they are.

        Args:
            params: what `prepare` returned.
            where: the tokens that are to turn, L of them.
            head_dim: width of a head.

        Returns:
            Parameters for `turn`, with ratios `[B, L, R]` and factor `[B, L]`.
        """
        if not self.length_dependent or "segment_keys" not in params:
            return params
        length = own_counts(params["segment_keys"], where).length
        spectrum, flat = self.pairs(head_dim).spectrum, length.reshape(-1)
        ratios = self.frequencies.ratios(spectrum, self.max_wavelength, flat)
        ratios = jnp.broadcast_to(ratios, (flat.size, len(spectrum)))
        factor = jnp.asarray(self.frequencies.factor(flat), jnp.float32)
        factor = jnp.broadcast_to(factor, flat.shape)
        return params | {
            "ratios": ratios.reshape(*length.shape, len(spectrum)),
            "factor": factor.reshape(length.shape),
        }

    def frequencies_of_pairs(self, params: Params, head_dim: int) -> Frequencies:
        """Returns the frequency of each pair, radians a token, and learned ones if so.

        Args:
            params: what `prepare` returned (`of_tokens`, with segments); `{}` will do
                for constant frequencies.
            head_dim: width of a head.

        Returns:
            `[R]`, float64 on the host if constant; `[R]`, `[B, R]` or `[B, L, R]` on
            the device.
        """
        plan = self.pairs(head_dim)
        return self._frequencies(params, plan, self._ratios(params, plan.spectrum))

    def turn(
        self,
        params: Params,
        x: Float[Array, "B L N H"],
        view: View,
        *,
        backwards: bool = False,
    ) -> Float[Array, "B L N H"]:
        """Rotates heads by the angles of a view of their positions, or back.

        Args:
            params: what `of_tokens` returned for these tokens, or `prepare` where
                frequencies do not depend on a length.
            x: heads to turn.
            view: what positions count as, and by how much.
            backwards: turn by the angles' negatives.
        """
        factor = self._factor(params)
        if view.positions is None and not view.offset and factor is None:
            return x
        plan = self.pairs(x.shape[-1])
        if view.positions is None:
            positions = jnp.zeros((1, 1, 1), jnp.int32)
        else:
            positions = self.positions_of_pairs(view.positions, plan.axis)

        def angles_with(ratios: Ratios) -> Array:
            frequencies = self._frequencies(params, plan, ratios)
            if not isinstance(frequencies, np.ndarray) and frequencies.ndim < 3:
                frequencies = frequencies[..., None, :]
            return pair_angles(
                positions, frequencies, scale=view.scale, offset=view.offset
            )

        angles = angles_with(self._ratios(params, plan.spectrum))
        if self.frequencies.keep_first:
            kept = positions < self.frequencies.keep_first
            angles = jnp.where(kept, angles_with(np.ones_like(plan.spectrum)), angles)
            if factor is not None:
                factor = jnp.where(kept[:, :, None], 1.0, factor)
        if backwards:
            angles = -angles
        return rotate(
            x, angles, layout=self.layout, factor=1.0 if factor is None else factor
        )

    def positions_of_pairs(
        self, positions: Array, axis: Int[np.ndarray, " R"]
    ) -> Array:
        """Returns the position that each pair turns by, `[B, L, 1]` if all share it."""
        if positions.ndim == 2:
            return positions[..., None]
        raise ValueError(
            f"{self.title} takes positions on one axis, got shape {positions.shape}; "
            "use a 2-D or multi-axis rotation."
        )

    def _frequencies(
        self,
        params: Params,
        plan: Pairs,
        ratios: Float[np.ndarray, " F"] | Float[Array, "B F"],
    ) -> Frequencies:
        if self.trainable != "none":
            logs = params["log_frequencies"].astype(jnp.float32)
            spectrum = jnp.exp(jnp.minimum(logs, _FASTEST))
            if ratios.ndim == 2:
                spectrum = spectrum[None]
            return (spectrum * jnp.asarray(ratios, jnp.float32))[..., plan.entry]
        if self.round_frequencies:
            return (_rounded(plan.spectrum) * ratios).astype(np.float32)[plan.entry]
        return (beside(plan.spectrum, ratios) * ratios)[..., plan.entry]

    def _ratios(self, params: Params, spectrum: Float[np.ndarray, " F"]) -> Ratios:
        if not self.length_dependent:
            return self.frequencies.ratios(spectrum, self.max_wavelength)
        return self._prepared(params, "ratios")

    def _factor(self, params: Params) -> Float[Array, "#B #L 1 1"] | None:
        """The factor on rotated channels, None if it is 1."""
        if not self.length_dependent:
            factor = self.frequencies.factor()
            return None if factor == 1 else jnp.full((1, 1, 1, 1), factor, jnp.float32)
        factor = self._prepared(params, "factor")
        if factor.ndim == 2:
            return factor[:, :, None, None]
        return factor.reshape(-1, 1, 1, 1)

    def _prepared(self, params: Params, name: str) -> Array:
        if not params or name not in params:
            raise ValueError(
                f"{self.title} depends on the current length: call prepare first, and "
                "of_tokens where there are segments."
            )
        return params[name]

    def _log_frequencies(self, dims: Dims) -> Params:
        spectrum = self.pairs(dims.head_dim).spectrum
        return {"log_frequencies": jnp.asarray(np.log(spectrum), jnp.float32)}


def _rounded(spectrum: Float[np.ndarray, " F"]) -> Float[np.ndarray, " F"]:
    return (np.float32(1) / (1 / spectrum).astype(np.float32)).astype(np.float64)


def current_length(key: Tokens) -> Int[Array, " B"]:
    """Returns one more than the greatest index of a valid key, `[B or 1]`.

    Order counts, not positions, which may be random or repeated; and each sequence of a
    batch has its own length, so that none depends on its neighbours. Segments of a row
    are not looked at; `own_counts` does.
    """
    index = key.index
    if key.valid is not None:
        index = jnp.where(key.valid, index, -1)
    return index.max(axis=1) + 1
