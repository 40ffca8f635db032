"""Decoding: a symbol is chosen, the likeliest at most, and read back, to the end.

Positions of prompt and answer are fixed before the first symbol is decoded, so every
position scheme works, random ones too. Answers end where the task says they do: after a
known number of symbols, or at an end symbol.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ropejax.nn.answers import NO_SYMBOL, likeliest
from ropejax.positions.base import Placement
from ropejax.tasks.autoregressive import Autoregressive
from ropejax.tasks.base import Batch
from ropejax.whole_numbers import check_whole


def greedy(
    model: Any,
    tokens: Int[Array, "B P"],
    placement: Placement,
    prompts: Int[Array, ""] | Int[Array, " B"],
    outputs: Int[Array, ""] | Int[Array, " B"],
    *,
    max_prompt: int,
    answer_tokens: tuple[int, ...],
    end_symbol: int | None = None,
    use_cache: bool | None = None,
    held: Callable[[Any], Any] | None = None,
) -> Int[Array, "B M"]:
    """Returns the answers that a model decodes greedily.

    Args:
        model: a causal Transformer, or another model with the same methods.
        tokens: symbols `[B, P]`; those behind a row's prompt are not looked at.
        placement: where all tokens of the rows are.
        prompts: tokens of the prompts, separator included, of all rows or of each.
        outputs: output symbols, of all rows or of each; may be traced. Decoding stops
            when the longest answer is complete.
        max_prompt: the longest prompt that this shape can hold (static); answers have
            up to `P + 1 - max_prompt` symbols.
        answer_tokens: the input symbol as which each output symbol is read back.
        end_symbol: the output symbol that ends an answer; zeros follow.
        use_cache: read each token once, or the whole row for each (which any model
            can); None for a cache where the model has one that serves.
        held: places what is kept between symbols on devices; None leaves it to the
            compiler.

    Returns:
        Output symbols `[B, M]`, M = `P + 1 - max_prompt`; zeros behind an answer's end,
        and -1 (`NO_SYMBOL`) where a logit was NaN, which is read back as symbol 0.

    Raises:
        ValueError: if there is no room for an answer as long as is asked for and known,
            or known prompts have no token or more than `max_prompt`.

    References:
        Teacher forcing and greedy decoding as in Kazemnejad et al. 2023, arXiv
        2305.19466, section 3.
    """
    return decode(
        model,
        tokens,
        placement,
        prompts,
        outputs,
        lambda logits, number: likeliest(logits),
        max_prompt=max_prompt,
        answer_tokens=answer_tokens,
        end_symbol=end_symbol,
        use_cache=use_cache,
        held=held,
    )


def decode(
    model: Any,
    tokens: Int[Array, "B P"],
    placement: Placement,
    prompts: Int[Array, ""] | Int[Array, " B"],
    outputs: Int[Array, ""] | Int[Array, " B"],
    choose: Callable[[Float[Array, "B V"], Int[Array, ""]], Int[Array, " B"]],
    *,
    max_prompt: int,
    answer_tokens: tuple[int, ...] | None,
    end_symbol: int | None = None,
    use_cache: bool | None = None,
    held: Callable[[Any], Any] | None = None,
) -> Int[Array, "B M"]:
    """Returns the answers of a model whose symbols are chosen in some way.

    Args:
        model: see `greedy`, like all that is not told of here.
        tokens: symbols `[B, P]`.
        placement: where they are.
        prompts: tokens of the prompts.
        outputs: output symbols.
        choose: a function of logits `[B, V]` and of the place in the answer, from 0,
            that gives an output symbol for each row, or `NO_SYMBOL`.
        max_prompt: the longest prompt.
        answer_tokens: the input symbol as which each output symbol is read back; the
            same numbers if None.
        end_symbol: ends an answer.
        use_cache: read each token once.
        held: places what is kept on devices.

    Raises:
        ValueError: as `greedy`.
    """
    size, room = tokens.shape[0], tokens.shape[1] + 1 - max_prompt
    if room < 1:
        raise ValueError(
            f"{max_prompt=} leaves no place for an answer in rows of {tokens.shape[1]} "
            "tokens; pad them."
        )
    known = check_whole("prompts", prompts)
    if (
        known is not None
        and known.size
        and not 1 <= known.min() <= known.max() <= max_prompt
    ):
        raise ValueError(
            f"prompts have {known.min()} to {known.max()} tokens, and must have 1 to "
            f"{max_prompt=}."
        )
    asked = check_whole("outputs", outputs)
    if asked is not None and asked.size and asked.max() > room:
        raise ValueError(
            f"outputs={asked.max()} symbols are asked for, and rows of "
            f"{tokens.shape[1]} tokens have room for {room} behind prompts of "
            f"{max_prompt=}; pad them."
        )
    prompts, outputs = jnp.asarray(prompts), jnp.asarray(outputs)
    if use_cache is None:
        use_cache = can_cache(model, placement, prompts)
    read_as = None if answer_tokens is None else jnp.asarray(answer_tokens, jnp.int32)
    held = held or (lambda memory: memory)
    if use_cache:
        logits, memory = model.start(
            tokens[:, :max_prompt], placement, prompts, capacity=tokens.shape[1]
        )
    else:
        place = jnp.arange(tokens.shape[1])
        total = (prompts + outputs - 1).reshape(-1, 1)
        valid = jnp.broadcast_to(place < total, tokens.shape)
        pick = lambda logits, at: jnp.take_along_axis(
            logits, jnp.broadcast_to(at.reshape(-1, 1, 1), (size, 1, 1)), axis=1
        )[:, 0]
        logits = pick(model(tokens, placement, valid=valid), prompts - 1)
        memory = tokens

    def further(memory, symbols, at):
        """Logits after reading the answers' latest symbols, at place `at`."""
        symbols = jnp.where(symbols == NO_SYMBOL, 0, symbols)
        symbols = symbols if read_as is None else read_as[symbols]
        if use_cache:
            return model.step(memory, symbols, at)
        is_here = place == at.reshape(-1, 1)
        sequence = jnp.where(is_here, symbols[:, None], memory)
        return pick(model(sequence, placement, valid=valid), at), sequence

    def chosen(logits, ended, number):
        symbols = jnp.where(ended, 0, choose(logits, jnp.asarray(number)))
        over = ended | (number + 1 >= outputs)
        return symbols, over if end_symbol is None else over | (symbols == end_symbol)

    def going_on(carry):
        number, _, _, ended, _ = carry
        return (number < room) & ~jnp.all(ended)

    def step(carry):
        number, symbols, answers, ended, memory = carry
        logits, memory = further(memory, symbols, prompts + number - 1)
        symbols, ended = chosen(logits, ended, number)
        answers = answers.at[:, number].set(symbols)
        return number + 1, symbols, answers, ended, held(memory)

    symbols, ended = chosen(logits, jnp.zeros((size,), bool), 0)
    answers = jnp.zeros((size, room), jnp.int32).at[:, 0].set(symbols)
    carry = (jnp.int32(1), symbols, answers, ended, held(memory))
    return jax.lax.while_loop(going_on, step, carry)[2]


def can_cache(model: Any, placement: Placement, prompts: Array) -> bool:
    """Returns True if a model can decode these prompts with its cache.

    Args:
        model: any model.
        placement: where its tokens are.
        prompts: number of tokens of the prompts, a scalar or `[B]`.
    """
    if not getattr(model, "can_cache", False):
        return False
    return jnp.ndim(prompts) == 0 or not model.has_state(placement)


def decode_batch(
    model: Any,
    task: Autoregressive,
    batch: Batch,
    placement: Placement,
    *,
    max_length: int,
    same_length: bool = False,
    use_cache: bool | None = None,
    held: Callable[[Any], Any] | None = None,
) -> Int[Array, "B P"]:
    """Returns what a model answers at each place of a batch, decoded greedily.

    Args:
        model: a bound model.
        task: the task.
        batch: its batch; the answers in it are not looked at.
        placement: where its tokens are.
        max_length: the length that the batch is padded to, in symbols (static).
        same_length: promises that all rows are of one length.
        use_cache: see `greedy`.
        held: see `greedy`.

    Returns:
        Output symbols `[B, P]` where the targets are (-1 where a logit was NaN), zero
        elsewhere.
    """
    outputs = jnp.sum(batch.target_mask, axis=1, dtype=jnp.int32)
    prompts = batch.lengths - outputs + 1
    if same_length:
        outputs, prompts = outputs[0], prompts[0]
    answers = greedy(
        model,
        task.placing_tokens(batch),
        placement,
        prompts,
        outputs,
        max_prompt=int(task.input_length(max_length)) + 1,
        answer_tokens=task.answer_tokens,
        end_symbol=task.end_symbol,
        use_cache=use_cache,
        held=held,
    )
    number = jnp.arange(batch.tokens.shape[1]) - (prompts.reshape(-1, 1) - 1)
    number = jnp.clip(jnp.broadcast_to(number, batch.tokens.shape), 0)
    number = jnp.minimum(number, answers.shape[1] - 1)
    answers = jnp.take_along_axis(answers, number, axis=1)
    return jnp.where(batch.target_mask, answers, 0)
