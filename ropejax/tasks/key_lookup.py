"""Key Lookup: the value of one key among many pairs, a needle in a haystack."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from ropejax.tasks import draws
from ropejax.tasks.base import Example, Task
from ropejax.typing import Rng


@dataclasses.dataclass(frozen=True)
class KeyLookup(Task):
    """Finds the one pair that has the key asked for, and answers its value.

    The input is pairs `key value`, and then the key asked for, which one of the pairs
    has, at a random place. The other pairs' keys are uniform among the other keys, so
    the answer is one symbol at any length. Keys are the symbols from 0 up, values those
    after them; the answer is the value's number. Inputs have an odd number of symbols:
    at even lengths, and below 3, the next one that holds pairs is drawn (at 4, of 3).

    Attributes:
        num_keys: number of keys.
        num_values: number of values.

    Examples:
        2 17 1 16 3 16 1 -> 0    (16 keys; 16 is value 0)

    References:
        The needle-in-a-haystack test with keys and values, as in Hsieh et al. 2024
        (RULER), arXiv 2404.06654, section 3.

    Departures:
        Symbols stand for words; pairs have no text between them.
    """

    title = "Key Lookup"
    summary = "the value of one key among pairs: a needle in a haystack"
    group = "recall"

    num_keys: int = 16
    num_values: int = 16

    def __post_init__(self):
        draws.check_alphabet("num_keys", self.num_keys)
        draws.check_alphabet("num_values", self.num_values)

    @property
    def input_vocab(self) -> int:
        """Keys, then values."""
        return self.num_keys + self.num_values

    @property
    def output_vocab(self) -> int:
        """Values."""
        return self.num_values

    def input_length(self, length):
        """Pairs and the key asked for: odd, 3 or more."""
        return 2 * num_pairs(length) + 1

    def output_length(self, length):
        """One symbol."""
        return 1 + 0 * length

    def sample_row(self, rng: Rng, length: Int[Array, ""], max_length: int) -> Example:
        """Draws one example, as `Task.sample_row` says."""
        head_rng, keys_rng, values_rng = jax.random.split(rng, 3)
        room = num_pairs(max_length)
        asked_word, place_word = draws.words(head_rng, 2)
        asked = draws.below(asked_word, self.num_keys)
        needle = draws.below(place_word, num_pairs(length))
        others = (
            draws.symbols(keys_rng, room, self.num_keys - 1)
            if self.num_keys > 2
            else jnp.zeros((room,), jnp.int32)
        )
        # Skipping the key asked for keeps the others uniform.
        keys = others + (others >= asked)
        keys = jnp.where(jnp.arange(room) == needle, asked, keys)
        values = draws.symbols(values_rng, room, self.num_values)
        inputs = asked_after(keys, self.num_keys + values, asked, num_pairs(length))
        return Example(inputs, values[needle][None])


def num_pairs(length):
    """Number of pairs in an input of about `length` symbols, one at least."""
    pairs = (length - 1) // 2
    return max(pairs, 1) if isinstance(pairs, int) else jnp.maximum(pairs, 1)


def asked_after(
    keys: Int[Array, " M"],
    values: Int[Array, " M"],
    asked: Int[Array, ""],
    count: Int[Array, ""],
) -> Int[Array, " X"]:
    """Returns `count` pairs in turn, and then the key asked for, `[2 M + 1]`."""
    pairs = jnp.stack([keys, values], axis=1).reshape(-1)
    pairs = jnp.pad(pairs, (0, 1))
    return jnp.where(jnp.arange(pairs.shape[0]) == 2 * count, asked, pairs)
