"""Whether a scheme places tokens where a model's encodings have positions for them."""

from collections.abc import Sequence

from ropejax.nn import LayerKind
from ropejax.positions.base import PositionScheme


def check_reach(
    scheme: PositionScheme,
    pattern: Sequence[LayerKind],
    num_tokens: int,
    *,
    what: str,
    remedy: str,
) -> None:
    """Raises ValueError where tokens get no place, or one beyond an encoding's table.

    Tables of positions, and of streams.

    Args:
        scheme: where tokens are placed.
        pattern: a model's kinds of layers, with their encodings.
        num_tokens: tokens a sequence.
        what: what they are of, for messages.
        remedy: how an encoding is given more positions.
    """
    try:
        scheme.check(num_tokens)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None
    bound = scheme.position_bound(num_tokens)
    for kind in pattern:
        limit = kind.encoding.position_limit
        if limit is not None and (bound is None or bound > limit):
            reach = "without bound" if bound is None else f"up to {bound - 1}"
            raise ValueError(
                f"{what}, at {scheme.title.lower()} positions {reach}, but "
                f"{kind.encoding.title} has positions below {limit} only; {remedy}, or "
                "choose shorter lengths or another position scheme."
            )
        for stream, limit in kind.encoding.stream_limits:
            bound = scheme.stream_bound(stream, num_tokens)
            if bound is not None and bound > limit:
                raise ValueError(
                    f"{what}, with {stream}s up to {bound - 1}, but a table of {limit} "
                    f"rows; set max_position={bound} or more for "
                    f"{kind.encoding.title}, or choose shorter lengths."
                )
