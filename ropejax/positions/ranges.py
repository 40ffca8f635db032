"""How large positions may be: numbers that schemes are set up with, checked there."""

LARGEST = 2**31 - 1
"""The largest position: they are int32."""

LARGEST_SCALED = 2**23
"""The largest range of which uniform float32 draws, of 23 bits, reach every integer."""

SCALED = "random starts and gaps are drawn with 23 bits"
"""Why there is that limit, for messages."""


def check_range(
    name: str, value: float, *, least: int = 1, most: int = LARGEST, why: str = ""
) -> None:
    """Raises ValueError unless `least <= value <= most`.

    Args:
        name: what messages call the number.
        value: the number.
        least: the smallest allowed.
        most: the largest allowed.
        why: why that is the largest; "positions are int32" if empty.
    """
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}.")
    if value > most:
        raise ValueError(
            f"{name} must be at most {most}, got {value}: "
            f"{why or 'positions are int32'}."
        )
