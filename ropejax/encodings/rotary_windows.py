"""RoPE whose far distances are bent: ReRoPE and its kin, each under its own name.

Each class is `Rotary` with one distance map, and has the same parameters, so a model
trained under one runs under another. Defaults suit sequences trained to 40 tokens, the
setting of Ruoss et al. (2023).
"""

import dataclasses
from typing import ClassVar

from ropejax.encodings.choices import positive
from ropejax.encodings.distance import Distance
from ropejax.encodings.distance_maps import Chunked, Grouped, Leaky, Rectified
from ropejax.encodings.frequency_map import FrequencyMap
from ropejax.encodings.length_scaling import DualChunkFactor
from ropejax.encodings.rotary import RotaryAttention


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReRoPE(RotaryAttention):
    """Rectified RoPE: distances beyond a window count as the window, `min(r, window)`.

    Training is with plain RoPE; a window of a quarter to a half of the trained length
    serves any longer length. Usually joined by `LogScale`.

    Attributes:
        window: longest distance, in tokens.
        bidirectional: cut distances to later keys off as well; otherwise causal only.

    References:
        Su (2023), spaces.ac.cn/archives/9708; bojone/rerope@acfe788.
    """

    window: int = 20
    bidirectional: bool = False

    title: ClassVar[str] = "ReRoPE"
    summary: ClassVar[str] = "RoPE with distances cut off at a window"
    reference: ClassVar[str] = "Su 2023, spaces.ac.cn/archives/9708"

    @property
    def distance(self) -> Distance:
        """Distances cut off at the window."""
        return Rectified(self.window, self.bidirectional)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LeakyReRoPE(RotaryAttention):
    """Leaky ReRoPE: beyond a window distances grow slower, `w + (r - w) / factor`.

    Choose the factor so that the longest distance stays within the trained length.

    Attributes:
        window: distances below it stay as they are, w, in tokens.
        factor: how much slower distances grow beyond it, finite; 1 is RoPE, and the
            larger it is, the nearer to `ReRoPE`.
        bidirectional: bend distances to later keys as well; otherwise causal only.

    References:
        Su (2023), spaces.ac.cn/archives/9708; bojone/rerope@acfe788.
    """

    window: int = 20
    factor: float = 16.0
    bidirectional: bool = False

    title: ClassVar[str] = "Leaky ReRoPE"
    summary: ClassVar[str] = "RoPE with distances that grow slower beyond a window"
    reference: ClassVar[str] = "Su 2023, spaces.ac.cn/archives/9708"

    @property
    def distance(self) -> Distance:
        """Distances with a bend at the window."""
        return Leaky(self.window, self.bidirectional, factor=self.factor)


@dataclasses.dataclass(frozen=True, kw_only=True)
class InverseLeakyReRoPE(RotaryAttention):
    """The training side of Inverse Leaky ReRoPE; test with plain RoPE.

    Beyond a window w (a quarter of the trained length) distances grow faster in
    training, `w + 2 expansion (r - w)`, so that at test plain RoPE meets known
    distances up to about `expansion` times the trained length, at plain RoPE's cost.

    Attributes:
        window: distances below it stay as they are, in tokens.
        expansion: how many times longer test sequences are.
        bidirectional: bend distances to later keys as well; otherwise causal only.

    References:
        Su (2023), spaces.ac.cn/archives/9728.
    """

    window: int = 10
    expansion: float = 8.0
    bidirectional: bool = False

    title: ClassVar[str] = "Inverse Leaky ReRoPE"
    summary: ClassVar[str] = "training with faster distances beyond a window"
    reference: ClassVar[str] = "Su 2023, spaces.ac.cn/archives/9728"

    def __post_init__(self):
        """Refuses an expansion that is not positive."""
        positive(expansion=self.expansion)
        super().__post_init__()

    @property
    def distance(self) -> Distance:
        """Distances that grow faster beyond the window."""
        return Leaky(self.window, self.bidirectional, factor=0.5 / self.expansion)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelfExtend(RotaryAttention):
    """Self-Extend: beyond a window positions count in groups, `i // g - j // g + c`.

    Groups start at multiples of g, so shifting all positions changes the result.

    Attributes:
        window: distances below it stay as they are, in tokens.
        group: tokens that share a position beyond it, g.
        fractional: the shift c of the present code, `window - window / g`, rather than
            `window - window // g`.

    References:
        Jin et al. (2024), arXiv:2401.01325; datamllab/LongLM@cdbbb06.
    """

    window: int = 16
    group: int = 4
    fractional: bool = False

    title: ClassVar[str] = "Self-Extend"
    summary: ClassVar[str] = "RoPE with far positions counted in groups"
    reference: ClassVar[str] = "Jin et al. 2024, arXiv:2401.01325"

    @property
    def distance(self) -> Distance:
        """Distances of groups beyond the window."""
        return Grouped(self.window, self.group, self.fractional)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DualChunk(RotaryAttention):
    """Dual Chunk Attention: RoPE within chunks, bounded distances between them.

    Attributes:
        chunk_size: greatest distance used (3/4 of the trained length), in tokens.
        local: distances below it are exact across chunks (1/8 of it).
        factor_length: trained length N for the factor `0.05 ln(L / N) + 1` on rotated
            queries and keys, which the code has and the paper's results do not; none if
            None. With it results depend on the current length L.

    References:
        An et al. (2024), arXiv:2402.17463; HKUNLP/ChunkLlama@2add4d7.
    """

    chunk_size: int = 30
    local: int = 5
    factor_length: int | None = None

    title: ClassVar[str] = "Dual Chunk Attention"
    summary: ClassVar[str] = "RoPE within chunks, bounded distances between them"
    reference: ClassVar[str] = "An et al. 2024, arXiv:2402.17463"

    @property
    def distance(self) -> Distance:
        """Distances within and between chunks."""
        return Chunked(self.chunk_size, self.local)

    @property
    def frequencies(self) -> FrequencyMap:
        """Plain ones, or with the code's factor."""
        if self.factor_length is None:
            return FrequencyMap()
        return DualChunkFactor(self.factor_length)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LMInfinite(RotaryAttention):
    """LM-Infinite's distances: no longer than the trained length, `min(r, limit)`.

    The method's other half is its mask: the first tokens and a window of `limit` (a
    Lambda mask), given to attention like any mask.

    Attributes:
        limit: longest distance, the trained length, in tokens.
        bidirectional: cut distances to later keys off as well; otherwise causal only.

    References:
        Han et al. (2023), arXiv:2308.16137; Glaciohound/LM-Infinite.
    """

    limit: int = 40
    bidirectional: bool = False

    title: ClassVar[str] = "LM-Infinite"
    summary: ClassVar[str] = "RoPE with distances cut off at the trained length"
    reference: ClassVar[str] = "Han et al. 2023, arXiv:2308.16137"

    @property
    def distance(self) -> Distance:
        """Distances cut off at the limit."""
        return Rectified(self.limit, self.bidirectional)
