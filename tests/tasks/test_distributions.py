"""The samplers' distributions against those published, computed in plain Python.

At short lengths the probability of every input is computed exactly; drawn inputs must
all be possible ones and pass a chi-square test. Long expressions are compared with
samples of the published grammar.
"""

import collections
import fractions
import itertools
import random

import numpy as np
import pytest
from scipy import stats

from ropejax.tasks import TASKS
from tests.tasks.samples import LENGTHS, LONGEST, draw

Fraction = fractions.Fraction


def drawn_inputs(name, length, seeds=(11, 12)):
    """Inputs of thousands of rows of one length, as tuples."""
    task = TASKS[name]()
    count = task.input_length(length)
    for seed in seeds:
        batch = draw(name, LONGEST, seed, np.full(len(LENGTHS), length))
        yield from (tuple(tokens) for tokens in batch.tokens[:, :count].tolist())


def assert_follows(outcomes, probabilities):
    """The outcomes are all possible ones and as frequent as they should be."""
    assert sum(probabilities.values()) == 1
    counts = collections.Counter(outcomes)
    assert set(counts) <= set(probabilities)
    total = counts.total()
    observed, expected, rest = [], [], [0, 0.0]
    for outcome, probability in probabilities.items():
        if total * probability >= 5:
            observed.append(counts[outcome])
            expected.append(float(total * probability))
        else:  # too rare for a cell of its own
            rest[0] += counts[outcome]
            rest[1] += float(total * probability)
    if rest[1]:
        observed.append(rest[0])
        expected.append(rest[1])
    if len(observed) > 1:
        assert stats.chisquare(observed, expected).pvalue > 1e-3


def uniform(*alphabets):
    """All strings with these alphabets at their places, equally likely."""
    strings = list(itertools.product(*alphabets))
    return dict.fromkeys(strings, Fraction(1, len(strings)))


def positive(count):
    """The little-endian bits of the positive numbers of `count` bits."""
    return [bits for bits in itertools.product((0, 1), repeat=count) if any(bits)]


@pytest.mark.parametrize(
    ("name", "length", "alphabets"),
    [
        ("even_pairs", 5, [range(2)] * 5),
        ("parity_check", 5, [range(2)] * 5),
        ("cycle_navigation", 4, [range(3)] * 4),
        ("reverse_string", 5, [range(2)] * 5),
        ("duplicate_string", 5, [range(2)] * 5),
        ("odds_first", 5, [range(2)] * 5),
        ("bucket_sort", 3, [range(5)] * 3),
        ("modular_arithmetic", 3, [range(5), range(5, 8), range(5)]),
        ("modular_arithmetic", 4, [range(5), range(5, 8), range(5)]),
        ("binary_addition", 1, [range(2)]),
        ("binary_addition", 2, [range(2)] * 2),
        ("binary_multiplication", 1, [range(2)]),
        ("binary_multiplication", 2, [range(2)] * 2),
        ("missing_duplicate_string", 1, [[1]]),
        ("solve_equation", 1, [[0]]),
        ("solve_equation", 2, [[0]] * 2),
        ("stack_manipulation", 1, [range(2)]),
    ],
)
def test_inputs_are_uniform(name, length, alphabets):
    assert_follows(drawn_inputs(name, length), uniform(*alphabets))


@pytest.mark.parametrize("length", [1, 2, 5])
def test_roots_are_asked_of_all_positive_numbers_alike(length):
    numbers = positive(length)
    expected = dict.fromkeys(numbers, Fraction(1, len(numbers)))
    assert_follows(drawn_inputs("compute_sqrt", length), expected)


@pytest.mark.parametrize("name", ["binary_addition", "binary_multiplication"])
def test_pairs_split_uniformly_and_hold_positive_numbers_alike(name):
    length, expected = 6, {}
    for first_length in range(1, length - 1):
        parts = positive(first_length), positive(length - 1 - first_length)
        pairs = list(itertools.product(*parts))
        for first, second in pairs:
            expected[(*first, 2, *second)] = Fraction(1, (length - 2) * len(pairs))
    assert_follows(drawn_inputs(name, length), expected)


def test_long_numbers_are_uniform_bit_by_bit():
    inputs = np.asarray(list(drawn_inputs("compute_sqrt", 500)))
    rate = inputs.mean(axis=0)
    # 500 rates within 4.5 standard errors: one in 300 batches fails by chance.
    assert np.abs(rate - 0.5).max() < 4.5 * 0.5 / np.sqrt(len(inputs))


def test_stacks_have_uniform_sizes_symbols_and_actions():
    length, expected = 4, {}
    for size in range(1, length):
        strings = uniform(*[range(2)] * size, *[range(2, 5)] * (length - size))
        for string, probability in strings.items():
            expected[string] = probability / (length - 1)
    assert_follows(drawn_inputs("stack_manipulation", length), expected)


@pytest.mark.parametrize(("length", "padding"), [(6, ()), (7, (3,))])
def test_any_symbol_of_either_copy_may_be_missing(length, padding):
    expected = {}
    for string in itertools.product((0, 1), repeat=3):
        for missing in range(6):
            twice = [*string, *string]
            twice[missing] = 2
            outcome = (*twice, *padding)
            expected[outcome] = expected.get(outcome, 0) + Fraction(1, 8 * 6)
    assert_follows(drawn_inputs("missing_duplicate_string", length), expected)


def shapes(length, operators):
    """The published grammar's expressions, with d for any digit, and probabilities."""
    if length <= 4:
        return {("d", "-d", "(d)", "(-d)")[length - 1]: Fraction(1)}
    expected = {}
    for left_length in range(1, length - 3):
        left = shapes(left_length, operators)
        right = shapes(length - 3 - left_length, operators)
        for (a, p), operator, (b, q) in itertools.product(
            left.items(), operators, right.items()
        ):
            share = p * q / (len(operators) * (length - 4))
            shape = f"({a}{operator}{b})"
            expected[shape] = expected.get(shape, 0) + share
    return expected


def decoded(inputs, symbols):
    return "".join(symbols[symbol] for symbol in inputs)


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 6, 9, 12])
def test_short_expressions_follow_the_published_grammar(length):
    drawn = drawn_inputs("modular_arithmetic_brackets", length)
    found = (decoded(inputs, "ddddd+-*()") for inputs in drawn)
    assert_follows(found, shapes(length, "+-*"))


@pytest.mark.parametrize("length", [3, 7, 11])
def test_unknowns_replace_digits_as_published(length):
    """The unknown is the first digit from a uniform position on, around the end."""
    expected = {}
    for shape, probability in shapes(length - 2, "+-").items():
        for start in range(length - 2):
            place = start
            while shape[place] != "d":
                place = (place + 1) % (length - 2)
            equation = f"{shape[:place]}x{shape[place + 1 :]}=d"
            share = probability / (length - 2)
            expected[equation] = expected.get(equation, 0) + share
    drawn = drawn_inputs("solve_equation", length)
    assert_follows((decoded(inputs, "ddddd+-()x=") for inputs in drawn), expected)


def test_digits_and_operators_of_expressions_are_uniform_and_independent():
    found = collections.Counter(
        inputs[1:4] for inputs in drawn_inputs("modular_arithmetic_brackets", 5)
    )
    assert_follows(found.elements(), uniform(range(5), range(5, 8), range(5)))


def published_expression(rng, length):
    """A random shape of the published grammar, with d for digits."""
    if length <= 4:
        return ("d", "-d", "(d)", "(-d)")[length - 1]
    left_length = rng.randrange(1, length - 3)
    left = published_expression(rng, left_length)
    right = published_expression(rng, length - 3 - left_length)
    return f"({left}{rng.choice('+-*')}{right})"


def features(shape):
    """What distinguishes trees: the root's split, the depth, leaves and operators."""
    depth, deepest, root_operator = 0, 0, len(shape)
    for place, symbol in enumerate(shape):
        depth += {"(": 1, ")": -1}.get(symbol, 0)
        deepest = max(deepest, depth)
        if depth == 1 and symbol in "+-*" and shape[place - 1] != "(":
            root_operator = min(root_operator, place)
    return {
        "left operand": root_operator - 1,
        "depth": deepest,
        "digits": shape.count("d"),
        "+": shape.count("+"),
        "-": shape.count("-"),
        "*": shape.count("*"),
        "nested from the left": len(shape) - len(shape.lstrip("(")),
    }


@pytest.mark.parametrize("length", [40, 300])
def test_long_expressions_resemble_published_ones(length):
    rng = random.Random(5)
    drawn = [
        features(decoded(inputs, "ddddd+-*()"))
        for inputs in drawn_inputs("modular_arithmetic_brackets", length)
    ]
    published = [features(published_expression(rng, length)) for _ in range(5000)]
    for feature in drawn[0]:
        ours = [row[feature] for row in drawn]
        theirs = [row[feature] for row in published]
        # About 20 equal parts of the published values, compared as a table.
        edges = np.unique(np.quantile(theirs, np.linspace(0, 1, 20)))
        table = [
            np.histogram(np.clip(part, edges[0], edges[-1]), edges)[0]
            for part in (ours, theirs)
        ]
        table = np.asarray(table)[:, np.sum(table, axis=0) > 0]
        assert stats.chi2_contingency(table).pvalue > 1e-3, feature
