"""Which rows a recurrent model reads."""

from jaxtyping import Array, Bool, Int

from ropejax.padding import check_padding_behind


def check_rows(
    valid: Bool[Array, "B L"] | None, segments: Int[Array, "B L"] | None
) -> None:
    """Raises ValueError for rows that cannot be read from their start to their end.

    Args:
        valid: False at padding; None if there is none.
        segments: of packed rows; None where each is one sequence.
    """
    check_padding_behind(valid)
    if segments is not None:
        raise ValueError(
            "a recurrent model reads one sequence a row; unpack the segments."
        )
