"""Copy: the input again, of uniform, repeating or all different symbols."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from ropejax.encodings.choices import check_choice
from ropejax.tasks import draws
from ropejax.tasks.base import Example, Task
from ropejax.typing import Rng

CONTENTS = ("uniform", "runs", "unique")


@dataclasses.dataclass(frozen=True)
class CopyString(Task):
    """Copies a string: s_1 ... s_n becomes s_1 ... s_n, once or several times.

    Repeating symbols are the hard case for a model that finds its place by content;
    with all different symbols, content alone says what comes next.

    Attributes:
        vocab_size: number of symbols.
        content: "uniform" symbols; "runs", where a symbol is that before it with
            probability 1/2, else a uniform one; or "unique", symbols that all differ.
        times: how often the string is written.

    Examples:
        0110 -> 0110

    References:
        Kazemnejad et al. 2023, arXiv 2305.19466, table 1 (copy and its variants).

    Departures:
        The paper's tasks are sentences; symbols here are bare. Its repeated symbols are
        "runs" here, which it does not define further.
    """

    title = "Copy"
    summary = "the string again; also of runs, or of all different symbols"
    group = "copying"

    vocab_size: int = 2
    content: str = "uniform"
    times: int = 1

    def __post_init__(self):
        draws.check_alphabet("vocab_size", self.vocab_size)
        check_choice("content", self.content, CONTENTS)
        check_at_least("times", self.times, 1)

    @property
    def input_vocab(self) -> int:
        """The string's symbols."""
        return self.vocab_size

    @property
    def output_vocab(self) -> int:
        """The string's symbols."""
        return self.vocab_size

    def output_length(self, length):
        """The string, `times` times."""
        return self.times * length

    def check_length(self, length: int) -> None:
        """Raises ValueError also where symbols cannot all differ."""
        super().check_length(length)
        if self.content == "unique" and length > self.vocab_size:
            raise ValueError(
                f"{self.title} has no {length} different symbols among vocab_size="
                f"{self.vocab_size}; raise vocab_size."
            )

    def sample_row(self, rng: Rng, length: Int[Array, ""], max_length: int) -> Example:
        """Draws one example, as `Task.sample_row` says."""
        string = self._string(rng, max_length)
        place = jnp.arange(self.times * max_length)
        return Example(string, string[place % length])

    def _string(self, rng: Rng, max_length: int) -> Int[Array, " X"]:
        if self.content == "unique":
            order = jnp.argsort(draws.words(rng, self.vocab_size))
            return order[:max_length].astype(jnp.int32)
        if self.content == "uniform":
            return draws.symbols(rng, max_length, self.vocab_size)
        fresh_rng, stay_rng = jax.random.split(rng)
        fresh = draws.symbols(fresh_rng, max_length, self.vocab_size)
        stay = draws.symbols(stay_rng, max_length, 2) == 1
        place = jnp.arange(max_length)
        latest = jax.lax.cummax(jnp.where(stay & (place > 0), 0, place))
        return fresh[latest]


def check_at_least(name: str, value: int, least: int) -> None:
    """Raises ValueError unless `value` is at least `least`; `name` is reported."""
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {name}={value}.")
