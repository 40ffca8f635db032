"""Lengths written as text: `1:500` is 1, 2, ..., 500; `1,2,50:100:10` also works."""


def parse(text: str) -> tuple[int, ...]:
    """Returns the lengths that a text names, increasing, each once.

    Args:
        text: parts with commas between them; a part is a length, a range `first:last`
            with both ends included, or `first:last:step`.

    Raises:
        ValueError: for text that cannot be read, lengths below 1, or none at all.
    """
    lengths: set[int] = set()
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
                f"cannot read {part.strip()!r} in lengths {text!r}; write lengths from "
                "1 up, such as 1,2,50:100 (both ends included) or 50:500:10."
            )
        lengths.update(range(first, last + 1, step))
    return tuple(sorted(lengths))
