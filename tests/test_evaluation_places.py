"""Counts by place in the answer are those of a plain loop over rows and places."""

import collections
import dataclasses
import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.encodings import Dims
from ropejax.evaluation import evaluate
from ropejax.evaluation_places import COUNTED
from ropejax.positions import Consecutive
from ropejax.tasks import Autoregressive
from ropejax.tasks.flip_flop import FlipFlop
from ropejax.tasks.masked_text import MaskedText
from ropejax.tasks.next_symbol import NextSymbol
from ropejax.tasks.stack_manipulation import StackManipulation

SAMPLES, BUCKET, LENGTHS = 12, 7, (3, 6)
HOW = {"samples": SAMPLES, "draws": 2, "buckets": (BUCKET,)}


@dataclasses.dataclass(frozen=True)
class Guesser:
    """Answers by a fixed, irregular function of the symbols so far."""

    outputs: int
    dims = Dims(1, 1, 1, 1, num_layers=1, causal=True)

    def bind(self, params):
        return self

    def __call__(self, tokens, placement, **_):
        place = jnp.arange(tokens.shape[1])
        seen = jnp.cumsum((1 + tokens) * (1 + place % 3), axis=1)[..., None]
        return 3 * jnp.sin((seen % 17) * (1 + jnp.arange(self.outputs)))


def guesses(task):
    return lambda lengths=LENGTHS, **more: evaluate(
        Guesser(task.output_vocab), {}, task, Consecutive(), lengths, **HOW | more
    )


@partial(jax.jit, static_argnames="task")
def drawn(task, length):
    """The rows that an evaluation scores."""
    rng = jax.random.split(jax.random.fold_in(jax.random.key(1), length))[0]
    return task.sample(rng, jnp.full((SAMPLES,), length), max_length=BUCKET)


def decoded(task, tokens, first, many):
    """One row's answer, each symbol read back before the next."""
    tokens, said = np.array(tokens), []
    for place in range(first, first + many):
        logits = Guesser(task.output_vocab)(jnp.asarray(tokens)[None], None)
        said.append(int(logits[0, place].argmax()))
        if said[-1] == task.end_symbol:
            break
        if place + 1 < len(tokens):
            tokens[place + 1] = task.answer_tokens[said[-1]]
    return said + [0] * (many - len(said))


def counted_by_hand(task, length):
    """Each count at each place, and the rows that are all right: a loop."""
    batch = jax.tree.map(np.asarray, drawn(task, length))
    logits = np.asarray(
        Guesser(task.output_vocab)(jnp.asarray(batch.tokens), None), np.float64
    )
    inputs = int(task.input_length(length))
    first = 0 if task.in_place else inputs
    many = inputs if task.in_place else int(task.output_length(length))
    counts = {name: np.zeros(many) for name in COUNTED}
    symbols = [[collections.Counter() for _ in range(many)] for _ in range(2)]
    exact = 0
    for row in range(SAMPLES):
        answers = logits[row, first : first + many].argmax(-1)
        if isinstance(task, Autoregressive):
            answers = decoded(task, batch.tokens[row], first, many)
        mistakes = 0
        for number in range(many):
            here = row, first + number
            target = batch.targets[here]
            if batch.target_mask[here]:
                counts["outputs"][number] += 1
                normalizer = np.log(np.exp(logits[here]).sum())
                counts["loss"][number] += normalizer - logits[here][target]
            if batch.score_mask[here]:
                counts["scored"][number] += 1
                right = answers[number] == target
                counts["correct"][number] += right
                counts["first_wrong"][number] += not right and not mistakes
                mistakes += not right
                symbols[row % 2][number][int(target)] += 1
        exact += not mistakes
    for number in range(many):
        for own, other in ((0, 1), (1, 0)):
            found = symbols[other][number]
            guess = min(found, key=lambda s: (-found[s], s)) if found else 0
            counts["blind_correct"][number] += symbols[own][number][guess]
    return counts, exact


TASKS = {
    "answers that end early": StackManipulation(),
    "decoded greedily": Autoregressive(StackManipulation()),
    "every symbol of a text": NextSymbol(),
    "masked symbols": MaskedText(),
    "answers at some inputs": FlipFlop(answers="each"),
}


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_places_are_those_of_a_loop_and_add_up_to_the_totals(task):
    for length, score in guesses(task)(by_place=True).items():
        places = score.places
        by_hand, exact = counted_by_hand(task, length)
        for name in COUNTED:
            wanted, got = by_hand[name], getattr(places, name)
            assert got.shape == wanted.shape
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-4, err_msg=name)
            if name == "first_wrong":
                assert score.rows - got.sum() == score.exact == exact
            elif name == "loss":
                assert got.sum() == pytest.approx(score.loss, rel=1e-5)
            else:
                assert got.sum() == getattr(score, name)
        assert places.right_so_far[-1] == pytest.approx(score.exact_match)


def test_what_is_counted_in_all_is_the_same_with_places_and_without():
    ask = guesses(TASKS["decoded greedily"])
    by_place = ask(by_place=True)
    assert ask() == {n: one._replace(places=None) for n, one in by_place.items()}


def test_fixed_rows_have_the_places_of_drawn_ones_and_others_are_refused():
    task = TASKS["answers that end early"]
    ask = guesses(task)
    fixed = ask(by_place=True, examples=lambda length, bucket: drawn(task, length))
    assert fixed == ask(by_place=True)
    with pytest.raises(ValueError, match="outputs stand outside places 3 to 6"):
        ask([3], by_place=True, examples=lambda length, bucket: drawn(task, 6))


def test_whole_windows_say_what_windows_that_slide_by_any_stride_would():
    """Press et al. 2021: the last S symbols of windows that slide by S are scored."""
    whole = guesses(NextSymbol())([6], by_place=True)[6]
    assert whole.places.sliding_perplexity(6) == pytest.approx(whole.perplexity)
    sliding = guesses(NextSymbol(last=2))([6], by_place=True)[6]
    assert whole.places.sliding_perplexity(2) == pytest.approx(sliding.perplexity)
    # Places are those of the window still, and the same symbols stand there.
    assert sliding.places.outputs.tolist() == [0, 0, 0, 0, SAMPLES, SAMPLES]
    assert np.isnan(sliding.places.accuracy).tolist() == [True] * 4 + [False] * 2
    np.testing.assert_array_equal(
        sliding.places.correct[-2:], whole.places.correct[-2:]
    )
    for stride, message in (
        (0, "stride must be at least 1"),
        (7, "stride must be at most 6"),
        (1.5, "whole number"),
        (3, "stride=3 goes over places that were not scored.* at most 2"),
    ):
        with pytest.raises(ValueError, match=message):
            sliding.places.sliding_perplexity(stride)


def test_stretches_of_places_add_up_to_all_of_them():
    places = guesses(NextSymbol())([6], by_place=True)[6].places
    halves = places.in_stretches(4)
    assert halves.stretch_starts(4).tolist() == [0, 1, 2, 3]
    assert places.stretch_starts(4).tolist() == [0, 1, 3, 4]
    for name in COUNTED:
        own = getattr(places, name)
        parts = [own[0], own[1] + own[2], own[3], own[4] + own[5]]
        np.testing.assert_allclose(getattr(halves, name), parts)
    assert places.in_stretches(100) == places != halves
    assert math.isclose(halves.right_so_far[-1], places.right_so_far[-1])
    with pytest.raises(ValueError, match="most must be at least 1"):
        places.in_stretches(0)
