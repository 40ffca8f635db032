"""Associative Recall: keys keep their values through a row; what was this one's?"""

import dataclasses

import jax
from jaxtyping import Array, Int

from ropejax.tasks import draws
from ropejax.tasks.base import Example
from ropejax.tasks.key_lookup import KeyLookup, asked_after, num_pairs
from ropejax.typing import Rng


@dataclasses.dataclass(frozen=True)
class AssociativeRecall(KeyLookup):
    """Answers the value that goes with a key, in a row's own dictionary.

    Each row draws a value for every key. The input is pairs `key value` of uniform
    keys, which repeat with the same value, and then one of the keys that occurred,
    that of a uniform pair. Lengths and symbols are those of Key Lookup.

    Attributes:
        num_keys: number of keys.
        num_values: number of values.

    Examples:
        2 20 5 17 2 20 5 -> 1    (16 keys; 17 is value 1)

    References:
        Ba et al. 2016, arXiv 1610.06258, section 4.1; Arora et al. 2023, arXiv
        2312.04927.

    Departures:
        One key is asked for in a row, as in Ba et al., not several.
    """

    title = "Associative Recall"
    summary = "the value that goes with a key in this row"

    def sample_row(self, rng: Rng, length: Int[Array, ""], max_length: int) -> Example:
        """Draws one example, as `Task.sample_row` says."""
        head_rng, keys_rng, book_rng = jax.random.split(rng, 3)
        keys = draws.symbols(keys_rng, num_pairs(max_length), self.num_keys)
        book = draws.symbols(book_rng, self.num_keys, self.num_values)
        pair = draws.below(draws.words(head_rng, 1)[0], num_pairs(length))
        asked = keys[pair]
        values = self.num_keys + book[keys]
        inputs = asked_after(keys, values, asked, num_pairs(length))
        return Example(inputs, book[asked][None])
