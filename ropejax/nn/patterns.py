"""Layer patterns: another encoding or another window in some layers, by a short rule.

Each function returns the kinds of layers that a `TransformerSpec` repeats. What a model
is trained with and what it is tested with may differ where no parameters are involved:
`with_encodings` changes a spec's encodings and keeps its parameters.
"""

import dataclasses
from collections.abc import Callable
from types import MappingProxyType

from ropejax.encodings import Encoding, LogScale, Rotary, compose
from ropejax.encodings.distance_maps import Rectified
from ropejax.masks import Causal, Chunked, Mask, Window
from ropejax.nn.transformer import LayerKind, TransformerSpec

Pattern = tuple[LayerKind, ...]


def hwfa(
    num_layers: int,
    *,
    train_length: int,
    window: int | None = None,
    causal: bool = True,
) -> Pattern:
    """Window attention with RoPE, but for a last layer that sees all without RoPE.

    The last layer scales its queries by log n over the trained length. By default the
    window is the largest w with `(w - 1) (num_layers - 1) + 1 <= 3/4 train_length`, so
    that no path through the windows spans more than training did.

    Args:
        num_layers: number of layers, at least 2.
        train_length: trained length N, in tokens.
        window: keys a window holds, the query's own included; the rule above if None.
        causal: windows reach back only, rather than half to each side.

    Returns:
        One kind a layer.

    Raises:
        ValueError: if there is no room for a window, or a number is out of range.

    References:
        Su 2023, spaces.ac.cn/archives/9603. Read in the article; its ablations found
        every part needed, with gated attention units and post-norm.
    """
    _at_least(2, num_layers=num_layers, train_length=train_length)
    if window is None:
        window = (3 * train_length // 4 - 1) // (num_layers - 1) + 1
    local = LayerKind(Rotary(), _window(window, causal))
    scale = LogScale(
        form="trained", train_length=train_length, count="causal" if causal else "all"
    )
    return (local,) * (num_layers - 1) + (LayerKind(scale, _everything(causal)),)


def hwfa2(
    num_layers: int,
    *,
    train_length: int,
    window: int,
    full_layers: int = 1,
    causal: bool = True,
) -> Pattern:
    """Window attention with RoPE, and a few spread layers of full attention with RoPE.

    Full layers, at `num_layers * f / (full_layers + 1)`, also scale queries by log n.
    At test time they take ReRoPE (`hwfa2_at_test`).

    Args:
        num_layers: number of layers.
        train_length: trained length N, in tokens.
        window: keys a window holds; the article tried 2 to 4 times `N / num_layers`.
        full_layers: number of layers of full attention.
        causal: windows reach back only, rather than half to each side.

    Returns:
        One kind a layer.

    Raises:
        ValueError: if a number is out of range.

    References:
        Su 2023, spaces.ac.cn/archives/9731.
    """
    _at_least(1, full_layers=full_layers)
    _at_least(2, train_length=train_length)
    _at_least(full_layers + 1, num_layers=num_layers)
    local = LayerKind(Rotary(), _window(window, causal))
    full = LayerKind(
        _scaled_rotary(Rotary(), train_length, causal), _everything(causal)
    )
    places = {num_layers * at // (full_layers + 1) for at in range(1, full_layers + 1)}
    return tuple(full if at in places else local for at in range(num_layers))


def hwfa2_at_test(
    spec: TransformerSpec, *, train_length: int, rerope_window: int, causal: bool = True
) -> TransformerSpec:
    """Returns a model trained with `hwfa2` with ReRoPE in its full layers.

    Args:
        spec: the trained model's.
        train_length: trained length N, in tokens.
        rerope_window: distances are cut off here; the article took N / 2.
        causal: as in training.

    Returns:
        A spec for the same parameters.
    """
    distance = Rectified(rerope_window, bidirectional=not causal)
    trained = _scaled_rotary(Rotary(), train_length, causal)
    tested = _scaled_rotary(Rotary(distance=distance), train_length, causal)
    return with_encodings(
        spec, lambda encoding: tested if encoding == trained else encoding
    )


def rnope_swa(
    num_layers: int, *, window: int = 4096, every: int = 4, causal: bool = True
) -> Pattern:
    """Sliding windows with RoPE, and every few layers full attention without positions.

    Args:
        num_layers: number of layers, a multiple of `every`.
        window: keys a window holds.
        every: one layer in so many is a full one, the last of each group.
        causal: windows reach back only, rather than half to each side.

    Returns:
        The kinds of one group.

    Raises:
        ValueError: if groups do not fill the layers.

    References:
        Yang et al. 2025, arXiv 2501.18795. The ratio 3 to 1 and the window of 4,096
        were confirmed by secondary text only.
    """
    _at_least(2, every=every)
    _fills(num_layers, every)
    local = LayerKind(Rotary(), _window(window, causal))
    return (local,) * (every - 1) + (LayerKind(Encoding(), _everything(causal)),)


def irope(num_layers: int, *, chunk: int = 8192, every: int = 4) -> Pattern:
    """Chunked attention with RoPE, and every few layers full attention without RoPE.

    The full layers scale queries by `1 + 0.1 log(1 + floor((i + 1) / chunk))`.

    Args:
        num_layers: number of layers, a multiple of `every`.
        chunk: tokens a chunk.
        every: one layer in so many is a full one, the last of each group.

    Returns:
        The kinds of one group; causal.

    Raises:
        ValueError: if groups do not fill the layers.

    References:
        Llama 4 as implemented in Hugging Face transformers; defaults unverified.

    Departures:
        Llama 4 also normalizes queries and keys of the rotary layers after rotation,
        which is not done here.
    """
    _at_least(2, every=every)
    _fills(num_layers, every)
    local = LayerKind(Rotary(), Chunked(chunk))
    full = LayerKind(LogScale(form="steps", train_length=chunk), Causal())
    return (local,) * (every - 1) + (full,)


def local_global(
    num_layers: int,
    *,
    window: int = 1024,
    every: int = 6,
    local_wavelength: float = 1e4,
    global_wavelength: float = 1e6,
    causal: bool = True,
) -> Pattern:
    """Windows and full attention in turn, both with RoPE of their own base.

    Args:
        num_layers: number of layers, a multiple of `every`.
        window: keys a window holds.
        every: one layer in so many is a full one, the last of each group.
        local_wavelength: base of the rotation in windows.
        global_wavelength: base of the rotation in full layers.
        causal: windows reach back only, rather than half to each side.

    Returns:
        The kinds of one group.

    Raises:
        ValueError: if groups do not fill the layers.

    References:
        Gemma 3 technical report, 2025, arXiv 2503.19786; numbers unverified.
    """
    _at_least(2, every=every)
    _fills(num_layers, every)
    local = LayerKind(Rotary(max_wavelength=local_wavelength), _window(window, causal))
    wide = LayerKind(Rotary(max_wavelength=global_wavelength), _everything(causal))
    return (local,) * (every - 1) + (wide,)


def with_encodings(
    spec: TransformerSpec, change: Callable[[Encoding], Encoding]
) -> TransformerSpec:
    """Returns a spec whose layers' encodings are changed, for the same parameters.

    DroPE (Gelberg et al. 2025, arXiv 2512.12167), positions dropped after pretraining:
    `with_encodings(spec, lambda encoding: Encoding())`. A model trained with RoPE and
    tested with ReRoPE: `lambda rope: dataclasses.replace(rope,
    distance=Rectified(512))`.

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


PATTERNS = MappingProxyType(
    {
        "hwfa": hwfa,
        "hwfa2": hwfa2,
        "rnope_swa": rnope_swa,
        "irope": irope,
        "local_global": local_global,
    }
)
"""Name in configs -> function of the number of layers and options."""


def _window(width: int, causal: bool) -> Mask:
    return Window.sliding(width) if causal else Window.symmetric(width)


def _everything(causal: bool) -> Mask | None:
    return Causal() if causal else None


def _scaled_rotary(rotary: Rotary, train_length: int, causal: bool) -> Encoding:
    count = "causal" if causal else "all"
    scale = LogScale(form="trained", train_length=train_length, count=count)
    return compose(rope=rotary, scale=scale)


def _at_least(least: int, **numbers: int) -> None:
    for name, number in numbers.items():
        if number < least:
            raise ValueError(f"{name} must be at least {least}, got {number}.")


def _fills(num_layers: int, every: int) -> None:
    if num_layers % every:
        raise ValueError(
            f"groups of {every=} layers do not fill {num_layers=}; change one of them."
        )
