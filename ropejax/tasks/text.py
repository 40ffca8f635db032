"""What tasks on text share: where text comes from, and that answers are in place."""

import dataclasses
import functools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from ropejax.tasks.base import Task
from ropejax.tasks.language import Language
from ropejax.typing import Rng

LARGEST_FILE = 2**26
"""Most bytes of a file of text: it becomes a part of the compiled program."""


@dataclasses.dataclass(frozen=True)
class TextTask(Task):
    """A task on text: that of a made-up language, or of a file of the user's own.

    A file's symbols are its bytes, 256 of them; in a config: `path='text.txt'`. Those
    of a file of NumPy (`.npy`, integers on one axis) are its numbers, such as what a
    tokenizer made of a text, and there are as many as `vocab_size` or, without it, the
    largest number says. An example is a window at a uniform place of the file, which
    must stay as it is while it is used. Its last part is held out: training never sees
    it, and evaluations see nothing else. (With `held_out=0` both read all of it, and
    scores of a small file that is read many times say how well it is known by heart.)

    Attributes:
        path: the file; the made-up language if empty.
        held_out: share of the file, at its end, that is for evaluation.
        part: which part is read: training or test (see `tested`).
        num_letters: of the language: see `ropejax.tasks.language.Language`.
        num_words: of the language.
        num_classes: of the language.
        repeat: of the language.
        language: its number.
        vocab_size: how many symbols there are, of a `.npy` file whose own numbers need
            not be all of them: those of its tokenizer, so that several texts are
            of one task; None: up to the largest in the file.
    """

    group = "text"
    in_place = True

    path: str = ""
    held_out: float = 0.1
    part: str = "training"
    num_letters: int = 15
    num_words: int = 16
    num_classes: int = 4
    repeat: float = 0.5
    language: int = 0
    vocab_size: int | None = None

    def __post_init__(self):
        made_up = self._language()
        if not 0 <= self.held_out < 1:
            raise ValueError(
                f"held_out must lie in 0 .. 1, 1 excluded, got {self.held_out}."
            )
        if self.part not in ("training", "test"):
            raise ValueError(f"part must be training or test, got {self.part!r}.")
        if self.vocab_size is not None:
            self._check_vocab_size()
        if not self.path:
            if (self.held_out, self.part) != (0.1, "training"):
                raise ValueError(
                    f"held_out={self.held_out} and part={self.part!r} are for a file; "
                    "give its path. The made-up language never repeats its texts."
                )
            return
        if made_up != Language():
            raise ValueError(
                f"path={self.path!r} is a text of its own, so settings of the made-up "
                "language mean nothing; leave either out."
            )
        for part in ("training", "test"):
            if (size := self._content(part).size) < 2:
                raise ValueError(
                    f"held_out={self.held_out} leaves {size} {self._unit} of "
                    f"{self.path} for {part}; choose another share."
                )

    def _check_vocab_size(self) -> None:
        if not _holds_numbers(self.path):
            raise ValueError(
                f"vocab_size={self.vocab_size} is for a .npy file of numbers; leave it "
                "out, since bytes and the made-up language have a number of their own."
            )
        largest = int(file_symbols(self.path).max())
        if self.vocab_size <= largest:
            raise ValueError(
                f"vocab_size={self.vocab_size} must be above the largest number in "
                f"{self.path}, {largest}."
            )

    def _content(self, part: str = "") -> np.ndarray:
        """The symbols of a part of the file; of that which is read if empty."""
        whole = file_symbols(self.path)
        if not self.held_out:
            return whole
        cut = whole.size - round(self.held_out * whole.size)
        return whole[:cut] if (part or self.part) == "training" else whole[cut:]

    @property
    def tested(self) -> "TextTask":
        """The same task on what is held out of a file."""
        return dataclasses.replace(self, part="test") if self.path else self

    def _language(self) -> Language:
        return Language(
            self.num_letters,
            self.num_words,
            self.num_classes,
            self.repeat,
            self.language,
        )

    @property
    def text_symbols(self) -> int:
        """Number of different symbols of the text."""
        if self.vocab_size is not None:
            return self.vocab_size
        if _holds_numbers(self.path):
            return int(file_symbols(self.path).max()) + 1
        return 256 if self.path else self.num_letters + 1

    @property
    def _unit(self) -> str:
        return "numbers" if _holds_numbers(self.path) else "bytes"

    def output_length(self, length):
        """None: answers are at the input's own symbols."""
        return 0 * length

    def check_length(self, length: int) -> None:
        """Raises ValueError also where the file is shorter than that."""
        super().check_length(length)
        wanted = length + self.left_to_right  # and what comes next
        if self.path and wanted > self._content().size:
            raise ValueError(
                f"{self.path} has {self._content().size} {self._unit} for {self.part} "
                f"(held_out={self.held_out}), but examples of length {length} read "
                f"{wanted}; take shorter ones, or share the file in another way."
            )

    def text(
        self, rng: Rng, length: Int[Array, ""], max_length: int
    ) -> Int[Array, " {max_length}"]:
        """Draws a text of `length` symbols, of which some others may follow.

        Args:
            rng: PRNG key.
            length: symbols wanted; may be traced.
            max_length: the longest that this shape can hold (static).
        """
        if not self.path:
            return self._language().text(rng, max_length)
        content = jnp.asarray(self._content())
        start = jax.random.randint(rng, (), 0, content.size - length + 1, jnp.int32)
        place = jnp.minimum(start + jnp.arange(max_length), content.size - 1)
        return content[place].astype(jnp.int32)


@functools.lru_cache(maxsize=8)
def file_bytes(path: str) -> np.ndarray:
    """Returns the bytes of a file, read once.

    Raises:
        ValueError: if there is no such file, or it is empty or too large.
    """
    file = pathlib.Path(path)
    if not file.is_file():
        raise ValueError(f"path={path!r} is no file; paths start from where you are.")
    size = file.stat().st_size
    if not 2 <= size <= LARGEST_FILE:
        raise ValueError(
            f"path={path!r} has {size} bytes; a text has 2 to {LARGEST_FILE}. Cut a "
            "part of it out, since all of it is kept on the device."
        )
    return np.fromfile(file, np.uint8)


@functools.lru_cache(maxsize=8)
def file_symbols(path: str) -> np.ndarray:
    """Returns the symbols of a file: its bytes, or the numbers of a `.npy` file, int32.

    Raises:
        ValueError: as `file_bytes`; or if a `.npy` file has other than integers from 0
            to `2**31 - 2` on one axis, at least two.
    """
    raw = file_bytes(path)
    if not _holds_numbers(path):
        return raw
    try:
        found = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"path={path!r} is no file of NumPy: {error}") from None
    if found.ndim != 1 or found.dtype.kind not in "iu" or found.size < 2:
        raise ValueError(
            f"path={path!r} holds {found.dtype}{list(found.shape)}; a text is two or "
            "more integers on one axis."
        )
    low, high = int(found.min()), int(found.max())
    if low < 0 or high > 2**31 - 2:
        raise ValueError(
            f"path={path!r} has numbers from {low} to {high}; symbols are numbered "
            "from 0, below 2**31 - 1."
        )
    return found.astype(np.int32)


def _holds_numbers(path: str) -> bool:
    return path.endswith(".npy")
