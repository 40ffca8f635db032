"""Any task for a decoder-only model: the answer is read back, symbol after symbol.

Where a model that reads answers at placeholders sees

    x_1 ... x_n  o    o    o         and answers  y_1 y_2 y_3,

a decoder-only model sees the first placeholder, as the separator of prompt and answer,
and then the right answer one place late:

    x_1 ... x_n  o    y_1  y_2       and answers  y_1 y_2 y_3

(teacher forcing). Targets, masks and lengths are the same, so training is too; under a
causal mask no answer is seen before it is given. At test time the model's own answers
take the place of the right ones (`ropejax.nn.decoder_greedy`).
"""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from ropejax.tasks.base import Batch, Level, Task
from ropejax.typing import Rng


@dataclasses.dataclass(frozen=True)
class Autoregressive(Task):
    """A task whose answers are read back, for models with a causal mask.

    An output symbol is read as the input symbol of the same number. Those that have
    none, and the end symbol, whose number may mean something else in inputs, are read
    as symbols of their own, numbered after the placeholder.

    Attributes:
        task: the task as models with placeholders see it.
    """

    task: Task

    @property
    def title(self) -> str:
        """The task's own."""
        return self.task.title

    @property
    def summary(self) -> str:
        """The task's own."""
        return self.task.summary

    @property
    def level(self) -> Level:
        """The task's own."""
        return self.task.level

    @property
    def input_vocab(self) -> int:
        """The task's own; symbols of answers alone are not counted."""
        return self.task.input_vocab

    @property
    def output_vocab(self) -> int:
        """The task's own."""
        return self.task.output_vocab

    @property
    def placeholder(self) -> int:
        """The task's own."""
        return self.task.placeholder

    @property
    def end_symbol(self) -> int | None:
        """The task's own."""
        return self.task.end_symbol

    @property
    def answer_tokens(self) -> tuple[int, ...]:
        """The input symbol as which each output symbol is read back."""
        fresh = iter(range(self.input_vocab + 1, self.input_vocab + 2**17))
        shared = lambda y: y < self.input_vocab and y != self.end_symbol
        return tuple(y if shared(y) else next(fresh) for y in range(self.output_vocab))

    @property
    def num_symbols(self) -> int:
        """Size of the model's input alphabet, with what only answers hold."""
        return max(self.task.num_symbols, max(self.answer_tokens) + 1)

    def input_length(self, length):
        """The task's own."""
        return self.task.input_length(length)

    def output_length(self, length):
        """The task's own."""
        return self.task.output_length(length)

    def check_length(self, length: int) -> None:
        """See `Task.check_length`."""
        self.task.check_length(length)

    def sample(
        self,
        rng: Rng,
        lengths: Int[Array, " B"],
        *,
        max_length: int,
        first_row: int | Int[Array, ""] = 0,
    ) -> Batch:
        """Draws the task's batch, and shifts the right answers in: see `Task.sample`.

        Returns:
            A `Batch` that differs from the task's own in `tokens` alone.
        """
        batch = self.task.sample(
            rng, lengths, max_length=max_length, first_row=first_row
        )
        return self.read_back(batch)

    def read_back(self, batch: Batch) -> Batch:
        """Returns a batch of the task itself with the right answers shifted in.

        Args:
            batch: what the task's own `sample` returned.
        """
        given = jnp.asarray(self.answer_tokens, jnp.int32)[batch.targets]
        late = jnp.pad(given[:, :-1], ((0, 0), (1, 0)))
        return batch._replace(tokens=jnp.where(_is_answer(batch), late, batch.tokens))

    def placing_tokens(self, batch: Batch) -> Int[Array, "B P"]:
        """Returns the prompts, the separator, and for answers their first symbol.

        Positions are fixed before the answer is known, so a scheme that reads symbols
        may know that an answer is there, and not what it is.
        """
        return jnp.where(_is_answer(batch), self.answer_tokens[0], batch.tokens)


def _is_answer(batch: Batch) -> Bool[Array, "B P"]:
    """True where an answer is read: at all placeholders but the first of a row."""
    before = jnp.pad(batch.target_mask[:, :-1], ((0, 0), (1, 0)))
    return batch.target_mask & before
