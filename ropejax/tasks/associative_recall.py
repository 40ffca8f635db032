"""Associative Recall: keys keep their values through a row; what was this one's?"""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from ropejax.encodings.choices import check_choice
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
        answers: "last" asks for the value of the last key, behind the input; "each" for
            that of every key which stood before, at the key itself (multi-query
            recall). The values follow, so models must be causal then.

    Examples:
        2 20 5 17 2 20 5 -> 1    (16 keys; 17 is value 1)

    References:
        Ba et al. 2016, arXiv 1610.06258, section 4.1, one key a row; Arora et al. 2023
        (MQAR), arXiv 2312.04927, several.

    Departures:
        Of MQAR: keys recur uniformly, and not at gaps of a power law; nothing stands
        between pairs.
    """

    title = "Associative Recall"
    summary = "the value that goes with a key in this row"

    answers: str = "last"

    def __post_init__(self):
        super().__post_init__()
        check_choice("answers", self.answers, ("last", "each"))

    @property
    def in_place(self) -> bool:
        """Whether each key that stood before is asked for, where it stands."""
        return self.answers == "each"

    @property
    def left_to_right(self) -> bool:
        """The value of a key that is asked for in place follows it."""
        return self.in_place

    def output_length(self, length):
        """One symbol; none behind the input if answers are in place."""
        return 0 * length + (not self.in_place)

    def sample_row(self, rng: Rng, length: Int[Array, ""], max_length: int) -> Example:
        """Draws one example, as `Task.sample_row` says."""
        head_rng, keys_rng, book_rng = jax.random.split(rng, 3)
        keys = draws.symbols(keys_rng, num_pairs(max_length), self.num_keys)
        book = draws.symbols(book_rng, self.num_keys, self.num_values)
        pair = draws.below(draws.words(head_rng, 1)[0], num_pairs(length))
        asked = keys[pair]
        values = self.num_keys + book[keys]
        inputs = asked_after(keys, values, asked, num_pairs(length))
        if self.in_place:
            return self._each(inputs, book)
        return Example(inputs, book[asked][None])

    def _each(self, inputs: Int[Array, " X"], book: Int[Array, " K"]) -> Example:
        """The same row, with the value of each key that stood before it asked for."""
        place = jnp.arange(inputs.shape[0])
        is_key = inputs < self.num_keys
        key = jnp.where(is_key, inputs, 0)
        never = jnp.full(self.num_keys, inputs.shape[0])
        first = never.at[key].min(jnp.where(is_key, place, inputs.shape[0]))
        return Example(inputs, book[key], is_key & (place > first[key]))
