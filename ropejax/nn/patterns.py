"""Layer patterns: another encoding or another window in some layers, by a short rule.

A pattern is a frozen dataclass, called with the model's encoding and number of layers,
that returns the kinds of layers which a `TransformerSpec` repeats. What a model is
trained with and what it is tested with may differ where no parameters are involved:
`with_encodings` changes a spec's encodings and keeps its parameters.
"""

import dataclasses
from collections.abc import Callable
from types import MappingProxyType
from typing import ClassVar

from ropejax.encodings import Encoding, LogScale, compose
from ropejax.encodings.distance_maps import Rectified
from ropejax.encodings.rotary import Rotary, RotaryAttention
from ropejax.masks import Causal, Chunked, Mask, Window
from ropejax.nn.transformer import LayerKind, TransformerSpec
from ropejax.settings import Settings

Kinds = tuple[LayerKind, ...]


@dataclasses.dataclass(frozen=True)
class Alike(Settings):
    """All layers alike: the model's encoding, every token (or every past one) seen."""

    summary: ClassVar[str] = "all layers alike"

    def __call__(self, encoding: Encoding, num_layers: int, *, causal: bool) -> Kinds:
        """Returns the kinds of layers that are repeated.

        Args:
            encoding: the model's encoding.
            num_layers: number of layers.
            causal: True if no token sees a later one; windows then reach back only,
                rather than half to each side.

        Returns:
            Kinds, their number a divisor of `num_layers`.

        Raises:
            ValueError: if the layers cannot be filled so.
        """
        return (LayerKind(encoding, _everything(causal)),)


@dataclasses.dataclass(frozen=True)
class HWFA(Alike):
    """Windows in all layers but the last, which sees all without positions.

    The last layer scales its queries by log n over the trained length. By default the
    window is the largest w with `(w - 1) (num_layers - 1) + 1 <= 3/4 train_length`, so
    that no path through the windows spans more than training did.

    Attributes:
        train_length: trained length N, in tokens.
        window: keys a window holds, the query's own included; the rule above if 0.

    References:
        Su 2023, spaces.ac.cn/archives/9603. Its ablations found every part needed, with
        gated attention units and post-norm.
    """

    summary: ClassVar[str] = "windows, then one layer of full attention, no positions"
    train_length: int = 40
    window: int = 0

    def __call__(self, encoding: Encoding, num_layers: int, *, causal: bool) -> Kinds:
        """See `Alike.__call__`."""
        _at_least(2, num_layers=num_layers, train_length=self.train_length)
        window = self.window
        if not window:
            window = (3 * self.train_length // 4 - 1) // (num_layers - 1) + 1
        local = LayerKind(encoding, _window(window, causal))
        scale = _log_scale(self.train_length, causal)
        last = LayerKind(scale, _everything(causal))
        return (local,) * (num_layers - 1) + (last,)


@dataclasses.dataclass(frozen=True)
class HWFA2(Alike):
    """Windows, and a few evenly spread layers of full attention with log n scaling.

    Full layers stand at `num_layers * f / (full_layers + 1)`. At test time they take
    ReRoPE: `rectified` below.

    Attributes:
        train_length: trained length N, in tokens.
        window: keys a window holds; the article tried 2 to 4 times `N / num_layers`.
        full_layers: number of layers of full attention.

    References:
        Su 2023, spaces.ac.cn/archives/9731.
    """

    summary: ClassVar[str] = "windows, and a few spread layers of full attention"
    train_length: int = 40
    window: int = 16
    full_layers: int = 1

    def __call__(self, encoding: Encoding, num_layers: int, *, causal: bool) -> Kinds:
        """See `Alike.__call__`."""
        parts = self.full_layers + 1
        _at_least(1, full_layers=self.full_layers)
        _at_least(parts, num_layers=num_layers)
        local = LayerKind(encoding, _window(self.window, causal))
        scaled = compose(position=encoding, scale=_log_scale(self.train_length, causal))
        full = LayerKind(scaled, _everything(causal))
        places = {num_layers * at // parts for at in range(1, parts)}
        return tuple(full if at in places else local for at in range(num_layers))


@dataclasses.dataclass(frozen=True)
class RNoPESWA(Alike):
    """Sliding windows, and every few layers full attention without positions.

    Attributes:
        window: keys a window holds.
        every: one layer in so many is a full one, the last of each group.

    References:
        Yang et al. 2025, arXiv 2501.18795, with RoPE in the windows. The ratio 3 to 1
        and the window of 4,096 were confirmed by secondary text only.
    """

    summary: ClassVar[str] = "sliding windows; every 4th layer full, no positions"
    window: int = 4096
    every: int = 4

    def __call__(self, encoding: Encoding, num_layers: int, *, causal: bool) -> Kinds:
        """See `Alike.__call__`."""
        _fills(num_layers, self.every)
        local = LayerKind(encoding, _window(self.window, causal))
        full = LayerKind(Encoding(), _everything(causal))
        return (local,) * (self.every - 1) + (full,)


@dataclasses.dataclass(frozen=True)
class IRoPE(Alike):
    """Chunked attention, and every few layers full attention without positions.

    Full layers scale queries by `1 + 0.1 log(1 + floor((i + 1) / chunk))`.

    Attributes:
        chunk: tokens a chunk.
        every: one layer in so many is a full one, the last of each group.

    References:
        Llama 4 as implemented in Hugging Face transformers; defaults unverified.

    Departures:
        Llama 4 also normalizes queries and keys of the rotary layers after rotation,
        which is not done here.
    """

    summary: ClassVar[str] = "chunks; every 4th layer full, no positions (Llama 4)"
    chunk: int = 8192
    every: int = 4

    def __call__(self, encoding: Encoding, num_layers: int, *, causal: bool) -> Kinds:
        """See `Alike.__call__`."""
        if not causal:
            raise ValueError("iRoPE is causal; set model.causal=True.")
        _fills(num_layers, self.every)
        local = LayerKind(encoding, Chunked(self.chunk))
        full = LayerKind(LogScale(form="steps", train_length=self.chunk), Causal())
        return (local,) * (self.every - 1) + (full,)


@dataclasses.dataclass(frozen=True)
class LocalGlobal(Alike):
    """Windows and full attention in turn, both rotary with a base of their own.

    Attributes:
        window: keys a window holds.
        every: one layer in so many is a full one, the last of each group.
        local_wavelength: base of the rotation in windows.
        global_wavelength: base of the rotation in full layers.

    References:
        Gemma 3 technical report, 2025, arXiv 2503.19786; numbers unverified.
    """

    summary: ClassVar[str] = "windows; every 6th layer full, each with its own base"
    window: int = 1024
    every: int = 6
    local_wavelength: float = 1e4
    global_wavelength: float = 1e6

    def __call__(self, encoding: Encoding, num_layers: int, *, causal: bool) -> Kinds:
        """See `Alike.__call__`."""
        if not hasattr(encoding, "max_wavelength"):
            raise ValueError(
                f"{encoding.title} has no max_wavelength to differ between layers; "
                "choose a rotary encoding."
            )
        _fills(num_layers, self.every)
        based = lambda base: dataclasses.replace(encoding, max_wavelength=base)
        local = LayerKind(based(self.local_wavelength), _window(self.window, causal))
        wide = LayerKind(based(self.global_wavelength), _everything(causal))
        return (local,) * (self.every - 1) + (wide,)


@dataclasses.dataclass(frozen=True)
class StrictPast(Alike):
    """All layers alike: every earlier token seen, and not the query's own.

    Stick-breaking attention as published, with the normalizer `StickBreaking`; what the
    first token is comes through the residual alone.

    References:
        Tan et al. 2024, arXiv 2410.17980.
    """

    summary: ClassVar[str] = "earlier tokens only, not one's own (stick-breaking)"

    def __call__(self, encoding: Encoding, num_layers: int, *, causal: bool) -> Kinds:
        """See `Alike.__call__`."""
        if not causal:
            raise ValueError("the strict past is causal; set model.causal=True.")
        return (LayerKind(encoding, Causal() & ~Window(0, 0)),)


PATTERNS = MappingProxyType(
    {
        "alike": Alike,
        "strict_past": StrictPast,
        "hwfa": HWFA,
        "hwfa2": HWFA2,
        "rnope_swa": RNoPESWA,
        "irope": IRoPE,
        "local_global": LocalGlobal,
    }
)
"""Name in configs -> class of settings."""


def with_encodings(
    spec: TransformerSpec, change: Callable[[Encoding], Encoding]
) -> TransformerSpec:
    """Returns a spec whose layers' encodings are changed, for the same parameters.

    DroPE (Gelberg et al. 2025, arXiv 2512.12167), positions dropped after pretraining:
    `with_encodings(spec, lambda encoding: Encoding())`. A model trained with RoPE and
    tested with ReRoPE: `lambda rope: replace(rope, distance=Rectified(512))`.

    Args:
        spec: the model's.
        change: a function of each layer's encoding; what it returns must need no other
            parameters.

    Returns:
        The changed spec.
    """
    pattern = tuple(
        kind._replace(encoding=change(kind.encoding)) for kind in spec.pattern
    )
    return dataclasses.replace(spec, pattern=pattern)


def with_masks(
    spec: TransformerSpec, change: Callable[[Mask | None], Mask | None]
) -> TransformerSpec:
    """Returns a spec whose layers' masks are changed, for the same parameters.

    StreamingLLM and LM-Infinite at test, a few first tokens and a window behind:
    `with_masks(spec, lambda mask: Lambda(...))`; full attention instead of the windows
    of training: `lambda mask: Causal()`. `narrowed` keeps what there is.

    Args:
        spec: the model's.
        change: a function of each layer's mask, None where all tokens see each other.

    Returns:
        The changed spec.
    """
    pattern = tuple(kind._replace(mask=change(kind.mask)) for kind in spec.pattern)
    return dataclasses.replace(spec, pattern=pattern)


def narrowed(spec: TransformerSpec, mask: Mask) -> TransformerSpec:
    """Returns a spec whose layers see what their own masks and another one both show.

    Args:
        spec: the model's; its parameters do not change.
        mask: the other mask, of all layers.
    """
    return with_masks(spec, lambda own: mask if own is None else own & mask)


def rectified(spec: TransformerSpec, window: int) -> TransformerSpec:
    """Returns a spec with ReRoPE in its full layers: HWFA2's form at test time.

    Args:
        spec: a model trained with RoPE, perhaps composed with a scale, in full layers.
        window: distances are cut off here; the article took half the trained length.

    Returns:
        A spec for the same parameters.

    Raises:
        ValueError: if RoPE in a full layer is a named method, not `Rotary`.
    """
    distance = Rectified(window, bidirectional=not spec.dims.causal)

    def cut_off(rope: RotaryAttention) -> RotaryAttention:
        if not isinstance(rope, Rotary):
            raise ValueError(
                f"{rope.title} takes no map of distances; write it as "
                "Rotary(frequencies=...), whose distances rectified cuts off."
            )
        return dataclasses.replace(rope, distance=distance)

    everything = _everything(spec.dims.causal)
    pattern = tuple(
        kind._replace(encoding=with_rope(kind.encoding, cut_off))
        if kind.mask == everything
        else kind
        for kind in spec.pattern
    )
    return dataclasses.replace(spec, pattern=pattern)


def rotary_part(encoding: Encoding) -> RotaryAttention | None:
    """Returns an encoding, or the part of it, that is RoPE; None where none is.

    Args:
        encoding: one method, or several put together.
    """
    if isinstance(encoding, RotaryAttention):
        return encoding
    for _, part in getattr(encoding, "parts", ()):
        if (found := rotary_part(part)) is not None:
            return found
    return None


def with_rope(
    encoding: Encoding, change: Callable[[RotaryAttention], Encoding]
) -> Encoding:
    """Returns an encoding whose RoPE is changed, also where it is a part of others.

    Without RoPE it is returned as it is.

    Args:
        encoding: one method, or several put together. For all layers of a model:
            `with_encodings(spec, lambda encoding: with_rope(encoding, change))`.
        change: a function of the RoPE in it.

    Raises:
        ValueError: if it is something else than an encoding.
    """
    if not isinstance(encoding, Encoding):
        raise ValueError(
            f"with_rope changes an encoding, got a {type(encoding).__name__}; for a "
            "model's: with_encodings(spec, lambda e: with_rope(e, change))."
        )
    if isinstance(encoding, RotaryAttention):
        return change(encoding)
    if rotary_part(encoding) is None:
        return encoding
    parts = tuple((name, with_rope(part, change)) for name, part in encoding.parts)
    return dataclasses.replace(encoding, parts=parts)


def _window(width: int, causal: bool) -> Mask:
    return Window.sliding(width) if causal else Window.symmetric(width)


def _everything(causal: bool) -> Mask | None:
    return Causal() if causal else None


def _log_scale(train_length: int, causal: bool) -> LogScale:
    count = "causal" if causal else "all"
    return LogScale(form="trained", train_length=train_length, count=count)


def _at_least(least: int, **numbers: int) -> None:
    for name, number in numbers.items():
        if number < least:
            raise ValueError(f"{name} must be at least {least}, got {number}.")


def _fills(num_layers: int, every: int) -> None:
    _at_least(2, every=every)
    if num_layers % every:
        raise ValueError(
            f"groups of {every=} layers do not fill {num_layers=}; change one of them."
        )
