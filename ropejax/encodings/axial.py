"""RoPE on several axes: images, grids, video, or two positions of one token.

A head's pairs are dealt out to the axes; each pair turns by the position on its own
axis. A product then depends on the differences along all axes, each in its own
channels.
"""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar, Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Shaped

from ropejax.encodings.angles import rotary_frequencies
from ropejax.encodings.choices import check_axes, check_choice, positive
from ropejax.encodings.frequency_map import FrequencyMap
from ropejax.encodings.rotary import RotaryAttention
from ropejax.encodings.rotary_base import Pairs

FORMS = ("block", "alternating", "split")


@dataclasses.dataclass(frozen=True, kw_only=True)
class MultiAxisRotary(RotaryAttention):
    """What rotations by several axes of positions have in common.

    Positions are `[B, L, A]`; plain ones `[B, L]` stand for equal positions on all
    axes, as text tokens have them.

    Attributes:
        frequencies: an extension of RoPE, applied to the frequencies before they are
            dealt out (Qwen3-VL: YaRN).
    """

    frequencies: FrequencyMap = FrequencyMap()

    @property
    def num_axes(self) -> int:
        """Number of axes, A."""
        raise NotImplementedError

    def positions_of_pairs(
        self, positions: Array, axis: Int[np.ndarray, " R"]
    ) -> Shaped[Array, "B L r"]:
        """Returns the position that each pair turns by."""
        if positions.ndim == 2:
            return positions[..., None]
        check_axes(self.title, positions, self.num_axes)
        # Chosen, not gathered: XLA 0.12 and before folds a gather of a gather of
        # constants, followed by a change of type, to numbers in another order (CPU).
        chosen = positions[..., :1]
        for number in range(1, self.num_axes):
            chosen = jnp.where(axis == number, positions[..., number, None], chosen)
        return jnp.broadcast_to(chosen, (*positions.shape[:-1], len(axis)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class AxialRotary(MultiAxisRotary):
    """RoPE in two or more dimensions, pairs dealt out evenly to the axes.

    "block": consecutive pairs belong to one axis, each axis having the frequencies of a
    RoPE of width H / A. "alternating": pair r, with the frequency of a RoPE of width H,
    belongs to axis r mod A; then a token at (n, n) is rotated exactly as by RoPE at n.
    "split": the pairs of "alternating", sorted by axis.

    Positions may be fractions, as pixel coordinates scaled to [-1, 1] are; multiply
    them by what the frequencies of a model expect (DINOv3: by 2 pi).

    Attributes:
        axes: number of axes, A.
        form: "block" (RoFormer for images, Qwen2-VL's and DINOv3's encoders),
            "alternating" or "split" (Pixtral).

    Raises:
        ValueError: if pairs cannot be dealt out evenly (on `check`), or `positions`
            have another number of axes.

    References:
        Su (2021), spaces.ac.cn/archives/8397 (block); Su (2024),
        spaces.ac.cn/archives/10352 (alternating).

    Departures:
        None in the rotations; layouts of transformers 5.24 for DINOv3 ("block"),
        Qwen2-VL vision ("block") and Pixtral ("split") are reproduced with "half".
    """

    axes: int = 2
    form: Literal["block", "alternating", "split"] = "block"

    title: ClassVar[str] = "Axial RoPE"
    summary: ClassVar[str] = "RoPE with pairs of channels dealt out to several axes"
    reference: ClassVar[str] = "Su 2021, spaces.ac.cn/archives/8397"

    def __post_init__(self):
        """Refuses an unknown form, and fewer than one axis."""
        check_choice("form", self.form, FORMS)
        positive(axes=self.axes)
        super().__post_init__()

    @property
    def num_axes(self) -> int:
        """Number of axes, A."""
        return self.axes

    def pairs(self, head_dim: int) -> Pairs:
        """Returns which frequency and axis each pair uses."""
        width = self.rotary_width(head_dim)
        if width % (2 * self.axes):
            raise ValueError(
                f"{self.title} deals out pairs to {self.axes} axes: the rotated width "
                f"{width} must be a multiple of {2 * self.axes}."
            )
        count = width // 2
        each = count // self.axes
        if self.form == "block":
            spectrum = rotary_frequencies(2 * each, self.max_wavelength)
            number = np.arange(count)
            return Pairs(spectrum, number % each, number // each)
        spectrum = rotary_frequencies(width, self.max_wavelength)
        entry = np.arange(count)
        if self.form == "split":
            entry = entry.reshape(each, self.axes).T.reshape(-1)
        return Pairs(spectrum, entry, entry % self.axes)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MRoPE(MultiAxisRotary):
    """M-RoPE of Qwen-VL: time, height and width share the frequencies of one RoPE.

    Contiguous: the first `sections[0]` pairs turn by time, the next by height, the last
    by width. Interleaved: pair r turns by height if `r mod 3 = 1` and
    `r < 3 sections[1]`, by width if `r mod 3 = 2` and `r < 3 sections[2]`, else by
    time. A text token has three equal positions and is rotated as by RoPE.

    Attributes:
        sections: pairs for time, height and width. If None, in the proportions of
            Qwen2-VL, about a quarter, 3/8 and 3/8 (16, 24, 24 for a width of 128), or
            interleaved, of Qwen3-VL, 3/8, 5/16 and 5/16 (24, 20, 20).
        interleaved: deal the pairs out in turn (Qwen3-VL) rather than in blocks
            (Qwen2-VL).

    Raises:
        ValueError: if sections do not add up to the head's pairs or, interleaved, give
            height or width more than every third pair (on `check`).

    References:
        Wang et al. (2024), Qwen2-VL, arXiv:2409.12191; transformers 5.24, models
        qwen2_vl and qwen3_vl.
    """

    sections: Sequence[int] | None = None
    interleaved: bool = False

    title: ClassVar[str] = "M-RoPE"
    summary: ClassVar[str] = "RoPE by time, height and width"
    reference: ClassVar[str] = "Wang et al. 2024, arXiv:2409.12191"

    def __post_init__(self):
        """Refuses other than three sections."""
        if self.sections is not None:
            object.__setattr__(self, "sections", tuple(self.sections))
            if len(self.sections) != 3 or min(self.sections) < 0:
                raise ValueError(
                    "sections must be three counts of pairs, got "
                    f"{_plain(self.sections)}."
                )
        super().__post_init__()

    @property
    def num_axes(self) -> int:
        """Three: time, height, width."""
        return 3

    def pairs(self, head_dim: int) -> Pairs:
        """Returns which frequency and axis each pair uses."""
        spectrum = rotary_frequencies(self.rotary_width(head_dim), self.max_wavelength)
        count = len(spectrum)
        sections = self.sections or self._default_sections(count)
        if sum(sections) != count:
            raise ValueError(
                f"sections {_plain(sections)} of {self.title} must add up to {count} "
                "pairs."
            )
        number = np.arange(count)
        axis = np.repeat(np.arange(3), sections)
        if self.interleaved:
            axis = number % 3
            axis = np.where(number < 3 * np.array(sections)[axis], axis, 0)
            if (dealt := tuple(np.bincount(axis, minlength=3))) != sections:
                raise ValueError(
                    f"{count} pairs interleave as {_plain(dealt)}, not as "
                    f"{_plain(sections)}; give height and width fewer pairs each, or "
                    "leave sections None."
                )
        return Pairs(spectrum, number, axis)

    def _default_sections(self, count: int) -> tuple[int, int, int]:
        space = 3 * count // 8
        if self.interleaved:  # only every third pair can be that of height, or width
            space = min((5 * count + 8) // 16, count // 3)
        return count - 2 * space, space, space


def _plain(counts: Sequence[int]) -> str:
    return f"({', '.join(str(int(count)) for count in counts)})"
