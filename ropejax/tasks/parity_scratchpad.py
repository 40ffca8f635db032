"""Parity with a scratchpad: the parity of every prefix, and the last is the answer."""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Int

from ropejax.encodings.choices import check_choice
from ropejax.tasks import draws
from ropejax.tasks.base import Example, Task
from ropejax.typing import Rng


@dataclasses.dataclass(frozen=True)
class ParityScratchpad(Task):
    """Counts ones modulo 2, writing down what it has after every bit.

    The answer is p_1 ... p_n, `p_i` the parity of the first i bits; with `copy_input`,
    x_1 p_1 ... x_n p_n. Its last symbol is what Parity Check answers.

    Attributes:
        copy_input: write each bit before the parity that it leads to.
        scored: "all" symbols count in accuracy, or "answer", the last one alone, to
            compare with Parity Check.

    Examples:
        11010 -> 10011
        1 -> 1

    References:
        Nye et al. 2021, arXiv 2112.00114, for scratchpads; Kazemnejad et al. 2023,
        arXiv 2305.19466, section 6, for what their format does on Parity.

    Departures:
        Two of the formats that are used; the paper's scratchpads are text with
        switchable parts.
    """

    title = "Parity, scratchpad"
    summary = "the parity of every prefix, up to the whole string's"
    group = "scratchpad"

    copy_input: bool = False
    scored: str = "all"

    def __post_init__(self):
        check_choice("scored", self.scored, ("all", "answer"))

    @property
    def input_vocab(self) -> int:
        """Bits."""
        return 2

    @property
    def output_vocab(self) -> int:
        """Bits."""
        return 2

    def output_length(self, length):
        """A parity for each bit, and the bit itself if it is copied."""
        return 2 * length if self.copy_input else length

    def sample_row(self, rng: Rng, length: Int[Array, ""], max_length: int) -> Example:
        """Draws one example, as `Task.sample_row` says."""
        bits = draws.symbols(rng, max_length, 2)
        parities = jnp.cumsum(bits) % 2
        answer = parities
        if self.copy_input:
            answer = jnp.stack([bits, parities], axis=1).reshape(-1)
        score_mask = None
        if self.scored == "answer":
            score_mask = jnp.arange(answer.shape[0]) == self.output_length(length) - 1
        return Example(bits, answer, score_mask)
