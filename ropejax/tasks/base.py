"""What a task is: a pure sampler from a key, and the facts that describe it.

A task is a frozen dataclass of settings. It draws whole batches on the device from a
PRNG key and *traced* lengths, so that sampling lives inside the compiled training step
and one compiled shape serves every length that fits it.

A row of a batch is laid out as

    x_1 ... x_n  o ... o  . ... .
    input        |y|      padding

where `o` is one placeholder symbol (`task.placeholder`) repeated once per output
symbol: the model answers at the placeholders (Deletang et al. 2022, arXiv 2207.02098,
appendix A). Tasks on text, and others if so set, have no placeholders: their answers
are read at symbols of the input itself (`Task.in_place`).

A row depends on its own key and its own length only; never on the batch size, on the
other rows, or on how far the batch is padded: with JAX's default threefry keys, that
is (`Task.sample` says which others are drawn otherwise).
"""

import dataclasses
import enum
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from ropejax.seeds import check_key
from ropejax.settings import Settings
from ropejax.tasks import draws
from ropejax.typing import Rng
from ropejax.whole_numbers import check_whole, whole_number


class Level(enum.Enum):
    """The Chomsky level of a task's language (Deletang et al. 2022, section 4)."""

    REGULAR = "regular"
    DETERMINISTIC_CONTEXT_FREE = "deterministic context-free"
    CONTEXT_SENSITIVE = "context-sensitive"


class Batch(NamedTuple):
    """A padded batch, every row laid out as in the module docstring.

    Attributes:
        tokens: symbols, `[B, P]`; the input, then placeholders, then padding.
        targets: the right symbol at each placeholder, `[B, P]`, zero elsewhere.
        target_mask: True at the placeholders (or, of answers in place, at the symbols
            that are asked for): where the loss is taken, `[B, P]`.
        score_mask: True where accuracy is counted, `[B, P]`. Within `target_mask`; it
            is smaller for tasks whose answers vary in length, which score nothing
            after the end symbol.
        lengths: number of real tokens a row, input and placeholders together, `[B]`.
    """

    tokens: Int[Array, "B P"]
    targets: Int[Array, "B P"]
    target_mask: Bool[Array, "B P"]
    score_mask: Bool[Array, "B P"]
    lengths: Int[Array, " B"]


class Example(NamedTuple):
    """One unpadded-by-layout example: what a task's `sample_row` returns.

    Attributes:
        inputs: symbols `[X]`; entries past the row's length are ignored.
        targets: symbols `[Y]`; entries past `output_length(length)` are ignored. Of
            answers in place, `[X]`, one for each input symbol.
        score_mask: True where accuracy counts, `[Y]`; None where all outputs count. Of
            answers in place, True at the symbols that are asked for, `[X]`.
    """

    inputs: Int[Array, " X"]
    targets: Int[Array, " Y"]
    score_mask: Bool[Array, " Y"] | None = None


@dataclasses.dataclass(frozen=True)
class Task(Settings):
    """A task of the benchmark: settings, alphabets, and a sampler.

    Subclasses set the class attributes, `input_vocab`, `output_vocab`, `output_length`
    and `sample_row`; layout, masks and batching are done here, once. Tasks outside the
    Chomsky-hierarchy benchmark have no level, and name their group.
    """

    title: ClassVar[str]
    summary: ClassVar[str]
    level: ClassVar[Level | None] = None
    group: ClassVar[str] = "Chomsky hierarchy"
    in_place: ClassVar[bool] = False
    """Answers are read at the input's own symbols, and no output is placed behind."""
    left_to_right: ClassVar[bool] = False
    """The answer at a symbol is seen further on: models must not look ahead."""

    @property
    def input_vocab(self) -> int:
        """Number of different input symbols, the placeholder not counted."""
        raise _unwritten(self, "input_vocab")

    @property
    def output_vocab(self) -> int:
        """Number of different output symbols (the classes of the answer)."""
        raise _unwritten(self, "output_vocab")

    @property
    def placeholder(self) -> int:
        """The extra input symbol at which outputs are read."""
        return self.input_vocab

    @property
    def num_symbols(self) -> int:
        """Size of the model's input alphabet: input symbols and the placeholder."""
        return self.input_vocab + 1

    @property
    def tested(self) -> "Task":
        """The task that evaluations draw from: this one, unless data is held out."""
        return self

    @property
    def end_symbol(self) -> int | None:
        """The output symbol that ends an answer; None if no symbol does.

        Outputs after it are zeros that do not count.
        """
        return None

    def placing_tokens(self, batch: "Batch") -> Int[Array, "B P"]:
        """Returns the symbols that position schemes may read: those known beforehand.

        Args:
            batch: what `sample` returned.
        """
        return batch.tokens

    def input_length(self, length):
        """Number of input symbols at `length` (int or traced): `length`, as a rule.

        It differs for a task that has inputs of some lengths only, and that, as
        published, draws the next shorter one at the others.
        """
        return length

    def output_length(self, length):
        """Number of output symbols for an input of `length` symbols (int or traced)."""
        raise _unwritten(self, "output_length")

    def num_tokens(self, length):
        """Number of tokens the model reads for `length`: input and placeholders.

        It never decreases as `length` grows, so the shape that holds the longest
        length holds every other.
        """
        return self.input_length(length) + self.output_length(length)

    def sample_row(self, rng: Rng, length: Int[Array, ""], max_length: int) -> Example:
        """Draws one example into arrays sized for `max_length`.

        A row must not change with `max_length`: draw one-dimensionally, as
        `jax.random.randint(rng, (max_length,), ...)` does, whose draws are prefixes of
        longer ones, and let `length` say where the row ends. What is behind it in the
        arrays is not looked at.

        Args:
            rng: PRNG key of this row alone.
            length: number of input symbols, traced.
            max_length: the longest that the arrays must hold (static).
        """
        raise _unwritten(self, "sample_row")

    def check_length(self, length: int) -> None:
        """Raises ValueError if no example of this (static) `length` exists."""
        length = whole_number("length", length)
        if not 1 <= length <= draws.MAX_BOUND:
            raise ValueError(
                f"{self.title} has no example of length {length}: lengths run from 1 "
                f"to {draws.MAX_BOUND}."
            )

    def sample(
        self,
        rng: Rng,
        lengths: Int[Array, " B"],
        *,
        max_length: int,
        first_row: int | Int[Array, ""] = 0,
    ) -> Batch:
        """Draws a batch, one row for each entry of `lengths`.

        Args:
            rng: PRNG key of the batch, old-style or new-style. Row `b` uses
                `fold_in(rng, first_row + b)`. A row is the same in any batch and any
                padding with threefry keys, JAX's default; with keys of another kind
                (`jax.random.key(seed, impl="rbg")`), or where
                `jax_threefry_partitionable` is off, batches are as random, but a row
                changes with `max_length`, and one of "rbg" and "unsafe_rbg" keys with
                the rows that it is drawn beside.
            lengths: input length of each row in symbols, `[B]`; an array or a list,
                which may be traced. Every entry must lie in 1 .. `max_length` (checked
                when the values are known).
            max_length: the longest length that this shape can hold (static).
            first_row: index of the first row within a larger batch, so that a batch
                drawn in parts, or shard by shard, equals the batch drawn at once.

        Returns:
            A `Batch` with `P = num_tokens(max_length)`.

        Raises:
            ValueError: if `max_length` has no examples, `lengths` are not integers, or
                known ones leave 1 .. `max_length`, `rng` is no PRNG key, or
                `first_row` no row.
        """
        max_length = whole_number("max_length", max_length)
        self.check_length(max_length)
        check_key(rng)
        _check_first_row(first_row)
        lengths = _checked_lengths(lengths, max_length)
        rows = first_row + jnp.arange(lengths.shape[0])
        keys = jax.vmap(lambda row: jax.random.fold_in(rng, row))(rows)
        return jax.vmap(lambda key, length: self._layout(key, length, max_length))(
            keys, lengths
        )

    def _layout(self, rng: Rng, length: Int[Array, ""], max_length: int) -> Batch:
        """One row: input, placeholders and padding at their places."""
        example = self.sample_row(rng, length, max_length)
        if self.in_place:
            return self._layout_in_place(example, length, max_length)
        num_inputs, num_outputs = self.input_length(length), self.output_length(length)
        place = jnp.arange(self.num_tokens(max_length))
        answer = place - num_inputs  # index into the outputs at each place
        is_input = place < num_inputs
        is_output = (answer >= 0) & (answer < num_outputs)
        inputs = example.inputs[jnp.clip(place, 0, example.inputs.shape[0] - 1)]
        index = jnp.clip(answer, 0, example.targets.shape[0] - 1)
        tokens = jnp.where(is_input, inputs, 0)
        tokens = jnp.where(is_output, self.placeholder, tokens)
        score_mask = is_output
        if example.score_mask is not None:
            score_mask = is_output & example.score_mask[index]
        return Batch(
            tokens=tokens.astype(jnp.int32),
            targets=jnp.where(is_output, example.targets[index], 0).astype(jnp.int32),
            target_mask=is_output,
            score_mask=score_mask,
            lengths=jnp.asarray(num_inputs + num_outputs, jnp.int32),
        )

    def _layout_in_place(
        self, example: Example, length: Int[Array, ""], max_length: int
    ) -> Batch:
        """One row of input and padding, with its answers at symbols of the input."""
        num_inputs = self.input_length(length)
        is_input = jnp.arange(self.num_tokens(max_length)) < num_inputs
        asked = is_input
        if example.score_mask is not None:
            asked = is_input & example.score_mask
        return Batch(
            tokens=jnp.where(is_input, example.inputs, 0).astype(jnp.int32),
            targets=jnp.where(asked, example.targets, 0).astype(jnp.int32),
            target_mask=asked,
            score_mask=asked,
            lengths=jnp.asarray(num_inputs, jnp.int32),
        )


def _check_first_row(first_row: int | Int[Array, ""]) -> None:
    known = check_whole("first_row", first_row)
    if known is not None and not 0 <= known < 2**31:
        raise ValueError(
            f"first_row must be in 0 .. 2**31 - 1, the row of the whole batch with "
            f"which this part starts, got {first_row}."
        )


def _unwritten(task: Task, name: str) -> NotImplementedError:
    return NotImplementedError(
        f"{type(task).__name__} does not define {name}, which every task must; "
        "ropejax.tasks.Task says what it is."
    )


def _checked_lengths(lengths, max_length: int) -> Int[Array, " B"]:
    """`lengths` as int32, refused when a known value does not fit `max_length`."""
    known = check_whole("lengths", lengths)
    if known is not None and known.size:
        low, high = int(known.min()), int(known.max())
        if low < 1 or high > max_length:
            raise ValueError(
                f"lengths run from {low} to {high}, but this shape holds 1 to "
                f"{max_length=}; raise max_length or drop the lengths outside."
            )
    lengths = jnp.asarray(lengths, jnp.int32)
    if lengths.ndim != 1:
        raise ValueError(
            f"lengths must have one axis, one entry a row, got shape {lengths.shape}."
        )
    return lengths
