"""Flip-Flop: what was last written, past everything that is to be ignored."""

import dataclasses

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int

from ropejax.encodings.choices import check_choice
from ropejax.tasks import draws
from ropejax.tasks.base import Example, Task
from ropejax.tasks.key_lookup import num_pairs
from ropejax.typing import Rng

_WRITE, _READ, _IGNORE = 2, 3, 4
_SHARES = 2**16


@dataclasses.dataclass(frozen=True)
class FlipFlop(Task):
    """Reads a memory of one bit after instructions to write, read and ignore.

    The input is pairs of an instruction, 2 to write, 3 to read, 4 to ignore, and a bit,
    and then one more instruction to read; the answer is the bit that was written last.
    The first instruction writes, the others are drawn; written and ignored bits are
    uniform, and the bit of a read is the one last written. Inputs have an odd number of
    symbols, 3 or more, as those of Key Lookup.

    Attributes:
        p_write: probability of an instruction to write; to 2^-16, as the others.
        p_read: of one to read.
        p_ignore: of one to ignore; the three add up to 1.
        answers: "last" asks for the last bit read, behind the input; "each" for that of
            every instruction to read, at the instruction itself. The bits follow, so
            models must be causal then.

    Examples:
        2140403 -> 1    (write 1, ignore 0 twice, read)
        21203040413 -> 0

    References:
        Liu et al. 2023, arXiv 2306.00946, definition 1. The default is its
        FFL(0.8); its other test sets are FFL(0.98) and FFL(0.1), where
        writing and reading have half of the rest each.

    Departures:
        One read is asked for and not all, unless answers are "each". Examples of every
        length are drawn, not of 512 symbols alone.
    """

    title = "Flip-Flop"
    summary = "the bit written last, past instructions to ignore"
    group = "recall"

    p_write: float = 0.1
    p_read: float = 0.1
    p_ignore: float = 0.8
    answers: str = "last"

    def __post_init__(self):
        shares = self.p_write, self.p_read, self.p_ignore
        # Written so that NaN is refused too.
        if not (min(shares) >= 0 and abs(sum(shares) - 1) <= 1e-6):
            raise ValueError(
                "p_write, p_read and p_ignore must be at least 0 and add up to 1, got "
                f"{self.p_write}, {self.p_read} and {self.p_ignore}; give all three."
            )
        check_choice("answers", self.answers, ("last", "each"))

    @property
    def in_place(self) -> bool:
        """Whether each read is asked for, where its instruction is."""
        return self.answers == "each"

    @property
    def left_to_right(self) -> bool:
        """The bit of a read that is asked for in place follows it."""
        return self.in_place

    @property
    def input_vocab(self) -> int:
        """Two bits and three instructions."""
        return 5

    @property
    def output_vocab(self) -> int:
        """Two bits."""
        return 2

    def input_length(self, length):
        """Pairs and an instruction: odd, 3 or more."""
        return 2 * num_pairs(length) + 1

    def output_length(self, length):
        """One symbol; none behind the input if answers are in place."""
        return 0 * length + (not self.in_place)

    def sample_row(self, rng: Rng, length: Int[Array, ""], max_length: int) -> Example:
        """Draws one example, as `Task.sample_row` says."""
        instructions_rng, bits_rng = jax.random.split(rng)
        count, room = num_pairs(length), num_pairs(max_length) + 1
        drawn = self._instructions(draws.words(instructions_rng, room))
        pair = jnp.arange(room)
        instructions = jnp.where(pair == count, _READ, drawn)
        instructions = jnp.where(pair == 0, _WRITE, instructions)
        fresh = draws.symbols(bits_rng, room, 2)
        latest = lax.cummax(jnp.where(instructions == _WRITE, pair, 0))
        memory = fresh[latest]
        is_read = instructions == _READ
        bits = jnp.where(is_read, memory, fresh)
        inputs = _interleaved(instructions, bits)
        if self.in_place:
            asked = _interleaved(is_read, jnp.zeros_like(is_read))
            return Example(inputs, _interleaved(memory, bits), asked)
        return Example(inputs, memory[count][None])

    def _instructions(self, words: Array) -> Int[Array, " M"]:
        """Maps uniform words to instructions with their probabilities."""
        share = draws.below(words, _SHARES)
        writes = round(self.p_write * _SHARES)
        reads = round((self.p_write + self.p_read) * _SHARES)
        drawn = jnp.where(share < reads, _READ, _IGNORE)
        return jnp.where(share < writes, _WRITE, drawn)


def _interleaved(
    first: Int[Array, " M"] | Bool[Array, " M"],
    second: Int[Array, " M"] | Bool[Array, " M"],
) -> Int[Array, " X"] | Bool[Array, " X"]:
    """One of each in turn, without the second of the last pair, `[2 M - 1]`."""
    return jnp.stack([first, second], axis=1).reshape(-1)[:-1]
