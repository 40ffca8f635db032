"""How many numbers mixing tokens takes, which says how many rows fit in memory."""

from typing import Any

from ropejax.nn.recurrent.layered import LayeredSpec
from ropejax.nn.recurrent.model import RecurrentSpec


def logits_a_token(model: Any, num_tokens: int) -> int:
    """Returns the attention logits of a token in a layer, 0 of a recurrent model.

    Args:
        model: how the model is made.
        num_tokens: tokens of its row.
    """
    if isinstance(model, LayeredSpec | RecurrentSpec):
        return 0
    return model.dims.num_heads * num_tokens
