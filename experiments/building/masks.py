"""From a config to the mask that all layers have beside their own: `model.mask`."""

from collections.abc import Callable

import jax
import numpy as np
from ml_collections import ConfigDict

from experiments.building import options
from experiments.building.trained_length import defaults
from ropejax.attention.windows import Reach, as_window
from ropejax.masks import MASKS, Mask
from ropejax.nn import TransformerSpec
from ropejax.nn.patterns import narrowed
from ropejax.tasks import Task
from ropejax.tokens import Tokens, tokens

FIELD = "model.mask"
_ROWS = 256  # queries that are asked at once whether they see any key


def with_mask(config: ConfigDict, task: Task, spec: TransformerSpec) -> TransformerSpec:
    """Returns a model whose layers see what `model.mask` shows, of what they see.

    Args:
        config: the config.
        task: its task, as its kind of model sees it.
        spec: its model, with the masks that the layer pattern gives.

    Raises:
        ValueError: if the text makes no mask, or one that hides nothing.
    """
    text = config.model.mask
    if not text:
        return spec
    mask = options.parse_object(text, FIELD, Mask, MASKS, defaults(config, task))
    made = narrowed(spec, mask)
    pairs = zip(spec.pattern, made.pattern, strict=True)
    if as_window(mask) == Reach() or all(
        as_window(new.mask) is not None and as_window(new.mask) == as_window(old.mask)
        for old, new in pairs
    ):
        causal = " of a causal model" if spec.dims.causal else ""
        raise ValueError(
            f"{FIELD}={text!r} hides nothing that the layers{causal} show; leave it "
            'empty (""), or choose one that hides more.'
        )
    return made


def check_masks(
    model: TransformerSpec, placed: Callable[[], Tokens], what: str
) -> None:
    """Raises ValueError where a mask is not for such tokens, or shows nothing of them.

    Args:
        model: the model.
        placed: returns the tokens of its longest row, without padding; traced, not run.
        what: what they are, for messages.
    """
    masks = {kind.mask for kind in model.pattern if isinstance(kind.mask, Mask)}
    if not masks:
        return
    try:
        where = jax.eval_shape(placed)
        for mask in masks:
            jax.eval_shape(mask, where, where)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None
    for mask in masks:
        if where.length > 1 and _shows_nothing(mask, where.length):
            raise ValueError(
                f"{what}, and in layers with the mask {mask} none of them sees any; "
                f"change {FIELD}, or model.pattern."
            )


def _shows_nothing(mask: Mask, length: int) -> bool:
    """True if it is certain that no token sees any, itself included."""
    if mask.shows_itself:
        return False
    known = tokens(length)
    for start in range(0, length, _ROWS):
        some = tokens(min(_ROWS, length - start), offset=start)
        try:
            if np.asarray(mask(some, known)).any():
                return False
        except ValueError:
            return False  # it goes by what a position scheme says of each row
    return True
