"""Lengths written as text: `1:500` is 1, 2, ..., 500; `1,2,50:100:10` also works."""

LONGEST = 2**31 - 1
"""The longest length: what a 32-bit integer holds."""
MOST = 2**20
"""So many lengths are scored at most, each on its own."""


def parse(text: str, name: str = "lengths") -> tuple[int, ...]:
    """Returns the lengths that a text names, increasing, each once.

    Args:
        text: parts with commas between them; a part is a length, a range `first:last`
            with both ends included, or `first:last:step`.
        name: the field or option that holds it, for messages.

    Raises:
        ValueError: for text that cannot be read, lengths below 1 or above `LONGEST`,
            none at all, or more than `MOST`.
    """
    lengths: set[int] = set()
    count = 0
    for part in text.split(","):
        try:
            numbers = [int(number) for number in part.split(":")]
        except ValueError:
            numbers = []
        first, last, step = {1: numbers * 2 + [1], 2: [*numbers, 1], 3: numbers}.get(
            len(numbers), (0, 0, 0)
        )
        if not (1 <= first <= last and step >= 1):
            raise ValueError(
                f"cannot read {part.strip()!r} in {name} {text!r}; write lengths "
                "from 1 up, such as 1,2,50:100 (both ends included) or 50:500:10."
            )
        if last > LONGEST:
            raise ValueError(
                f"{name} {text!r}: {last} is longer than any input can be; lengths "
                f"are at most {LONGEST}."
            )
        these = range(first, last + 1, step)
        count += len(these)
        if count > MOST:
            raise ValueError(
                f"{name} {text!r} are {count} and more, each of which is scored on "
                f"its own; give at most {MOST}, such as every thousandth: "
                f"{first}:{last}:1000."
            )
        lengths.update(these)
    return tuple(sorted(lengths))
