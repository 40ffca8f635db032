"""Which tokens each layer of a Hugging Face model sees: all past ones, or a window."""

from ropejax.encodings.hf_layers import layers_of
from ropejax.encodings.hf_values import Config, need_count, read_count, read_flag
from ropejax.masks import Causal, Mask, Window
from ropejax.nn.from_hf.model_type import ModelType


def masks_of(config: Config, model: ModelType, number: int) -> tuple[Mask, ...]:
    """Returns the mask of each layer.

    A window of w holds w tokens, the query's own included: `0 <= i - j < w`.

    Args:
        config: of the checkpoint.
        model: what its type of model does.
        number: of layers.

    Raises:
        ValueError: if the config does not say how wide windows are, or which layers
            have them, or says kinds of layers that are none of these.
    """
    full = (Causal(),) * number
    if model.windows == "none":
        return full
    if model.windows in ("all", "by_kind"):
        absent = "sliding_window" not in config
        width = model.window if absent else read_count(config, "sliding_window")
        if model.windows == "by_kind":
            return _by_kind(config, width, _sliding_kinds(config))
        return full if width is None else (Window.sliding(width),) * number
    if not read_flag(config, "use_sliding_window", False):
        _check_full(config)
        return full
    if (width := read_count(config, "sliding_window")) is None:
        if "sliding_window" in config:  # null: the code of these models has none then
            _check_full(config)
            return full
        need_count(config, "sliding_window")
    return _by_kind(config, width, _sliding(config, number))


def _by_kind(
    config: Config, width: int | None, sliding: tuple[bool, ...]
) -> tuple[Mask, ...]:
    """Windows in the layers that slide, which must then have a width."""
    if any(sliding) and width is None:
        need_count(config, "sliding_window")
    return tuple(Window.sliding(width) if slides else Causal() for slides in sliding)


def _sliding(config: Config, number: int) -> tuple[bool, ...]:
    """Which layers have windows: as `layer_types` says, or by the model's rule."""
    if config.get("layer_types") is not None:
        return _sliding_kinds(config)
    if config.get("model_type") == "smollm3":
        return tuple(not layer.turns for layer in layers_of(config))
    first = read_count(config, "max_window_layers", zero=True)
    if first is None:
        need_count(config, "max_window_layers")
    return tuple(index >= first for index in range(number))


def _sliding_kinds(config: Config) -> tuple[bool, ...]:
    """Which layers have windows by their kind."""
    layers = layers_of(config)
    for kind in dict.fromkeys(layer.kind for layer in layers):
        if kind not in ("full_attention", "sliding_attention"):
            raise ValueError(
                f"layer_types has {kind!r}, and layers here are of 'full_attention' or "
                "'sliding_attention'; change it if it is one of these."
            )
    return tuple(layer.kind == "sliding_attention" for layer in layers)


def _check_full(config: Config) -> None:
    """Raises ValueError if layers are said to slide, where there is no window."""
    kinds = config.get("layer_types") or ()
    if set(kinds) - {"full_attention"}:
        raise ValueError(
            f"layer_types={kinds!r}, but use_sliding_window is not true or "
            "sliding_window is null; set both, or make all layers 'full_attention'."
        )
