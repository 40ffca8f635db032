"""Text that is drawn: each symbol at random, by what the model thinks of it."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ropejax.nn.answers import NO_SYMBOL
from ropejax.nn.decoder_greedy import decode
from ropejax.positions.base import Placement
from ropejax.seeds import check_key
from ropejax.settings import Settings
from ropejax.typing import Rng
from ropejax.whole_numbers import whole_number

_COLDEST = float(jnp.finfo(jnp.float32).tiny)
"""A lower temperature, which is 0 in float32, draws the same: the likeliest."""


@dataclasses.dataclass(frozen=True)
class Sampling(Settings):
    """Which symbols may be drawn, and how likely they are.

    Logits are divided by the temperature; of what is then likeliest the `top_k` symbols
    are kept, and of these the fewest whose probabilities reach `top_p` together. They
    are drawn by their probabilities among each other. Symbols as likely as the last one
    that is kept are kept too.

    Attributes:
        temperature: below 1 the likely symbols are drawn more often, above it less.
        top_k: most symbols to choose among; all if None.
        top_p: least probability of those to choose among, 0 < p <= 1; 1 keeps all.

    Raises:
        ValueError: if a number is out of range; no temperature at all is `greedy`.

    References:
        Fan et al. 2018 (top k), arXiv 1805.04833; Holtzman et al. 2019 (nucleus, top
        p), arXiv 1904.09751.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0

    def __post_init__(self):
        if not 0 < self.temperature < math.inf:
            raise ValueError(
                f"temperature must be positive and finite, got {self.temperature}; for "
                "the likeliest symbol use greedy."
            )
        if self.top_k is not None:
            whole_number("top_k", self.top_k, least=1)
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must lie in (0, 1], got {self.top_p}.")

    def logits(self, logits: Float[Array, "*B V"]) -> Float[Array, "*B V"]:
        """Returns logits of what is drawn, float32, the largest 0; -inf: never drawn.

        Args:
            logits: the model's, `[*B, V]`.
        """
        logits = logits.astype(jnp.float32)
        # Below the largest, so that at no temperature several become infinite.
        below = logits - logits.max(-1, keepdims=True)
        logits = below / max(self.temperature, _COLDEST)
        if self.top_k is not None and self.top_k < logits.shape[-1]:
            least = jax.lax.top_k(logits, self.top_k)[0][..., -1:]
            logits = jnp.where(logits < least, -jnp.inf, logits)
        if self.top_p < 1:
            falling = jnp.sort(logits, axis=-1, descending=True)
            chances = jax.nn.softmax(falling, axis=-1)
            before = jnp.cumsum(chances, axis=-1) - chances
            kept = jnp.where(before < self.top_p, falling, jnp.inf)
            least = jnp.min(kept, axis=-1, keepdims=True)
            logits = jnp.where(logits < least, -jnp.inf, logits)
        return logits


def sample(
    model: Any,
    tokens: Int[Array, "B P"],
    placement: Placement,
    prompts: Int[Array, ""] | Int[Array, " B"],
    outputs: Int[Array, ""] | Int[Array, " B"],
    rng: Rng,
    *,
    max_prompt: int,
    sampling: Sampling = Sampling(),
    answer_tokens: tuple[int, ...] | None = None,
    end_symbol: int | None = None,
    use_cache: bool | None = None,
    held: Callable[[Any], Any] | None = None,
) -> Int[Array, "B M"]:
    """Returns answers, or texts that go on, whose symbols are drawn.

    A row's symbols depend on the key, its number and its own tokens: not on what other
    rows are, nor on the longest prompt.

    Args:
        model: see `ropejax.nn.greedy`, like all but `rng` and `sampling`.
        tokens: symbols `[B, P]`; those behind a row's prompt are not looked at.
        placement: where all tokens of the rows are.
        prompts: tokens of the prompts, of all rows or of each.
        outputs: most output symbols, of all rows or of each.
        rng: PRNG key.
        max_prompt: the longest prompt that this shape can hold (static).
        sampling: which symbols are drawn.
        answer_tokens: the input symbol as which each output symbol is read back; the
            same numbers if None, as in language models.
        end_symbol: the output symbol that ends an answer; zeros follow.
        use_cache: see `greedy`.
        held: see `greedy`.

    Returns:
        Output symbols `[B, M]`, as `greedy`.

    Raises:
        ValueError: as `greedy`, or if `rng` is no key.
    """
    check_key(rng)
    rows = jnp.arange(tokens.shape[0])
    of_rows = jax.vmap(lambda row: jax.random.fold_in(rng, row))(rows)

    def choose(logits, number):
        lost = jnp.isnan(logits).any(-1)
        rngs = jax.vmap(lambda row_rng: jax.random.fold_in(row_rng, number))(of_rows)
        drawn = jax.vmap(jax.random.categorical)(rngs, sampling.logits(logits))
        return jnp.where(lost, NO_SYMBOL, drawn.astype(jnp.int32))

    return decode(
        model,
        tokens,
        placement,
        prompts,
        outputs,
        choose,
        max_prompt=max_prompt,
        answer_tokens=answer_tokens,
        end_symbol=end_symbol,
        use_cache=use_cache,
        held=held,
    )
