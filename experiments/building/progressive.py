"""From a config to the loss of a looped model."""

from typing import Any

from ml_collections import ConfigDict

from ropejax.training.progressive import ProgressiveLoss


def make_progressive(config: ConfigDict, model: Any) -> ProgressiveLoss | None:
    """Returns how a looped model's loops enter the loss; None if it is a plain loss.

    Args:
        config: the config.
        model: its model.

    Raises:
        ValueError: if a number is out of range, or the model has no loops.
    """
    weight, last = config.train.progressive_weight, config.train.gradient_loops
    if weight == 0 and last is None:
        return None
    try:
        loss = ProgressiveLoss(weight, last)
        loss.check(getattr(model, "loops", 1))
    except ValueError as error:
        names = "train.progressive_weight, train.gradient_loops"
        raise ValueError(f"{names}: {error}") from None
    return loss
