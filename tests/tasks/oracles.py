"""The tasks in plain Python: from an input, the right answer and what is scored.

Nothing here is shared with the package: symbols are decoded, arithmetic is done in
Python's integers, and expressions are parsed by recursive descent.
"""

import math


def even_pairs(inputs):
    changes = sum(a != b for a, b in zip(inputs, inputs[1:], strict=False))
    return [changes % 2]


def parity_check(inputs):
    return [inputs.count(1) % 2]


def cycle_navigation(inputs):
    state = 0
    for move in inputs:
        state = (state + {0: -1, 1: 0, 2: 1}[move]) % 5
    return [state]


def modular_arithmetic(inputs):
    assert len(inputs) % 2 == 1
    text = "".join("01234+-*"[symbol] for symbol in inputs)
    assert all(c.isdigit() == (i % 2 == 0) for i, c in enumerate(text)), text
    return [eval(text) % 5]  # digits and + - * alone, checked above


def stack_manipulation(inputs):
    stack = []
    for symbol in inputs:
        if symbol == 2:
            stack[-1:] = []
        else:
            stack.append(symbol % 3)  # 3 and 4 push 0 and 1
    return terminated(stack[::-1], len(inputs) + 1)


def reverse_string(inputs):
    return inputs[::-1]


def modular_arithmetic_brackets(inputs):
    text = "".join("01234+-*()"[symbol] for symbol in inputs)
    value, rest = parse(text)
    assert rest == "", text
    return [value]


def solve_equation(inputs):
    if len(inputs) < 3:
        assert inputs == [0] * len(inputs)
        return [0]
    text = "".join("01234+-()x="[symbol] for symbol in inputs)
    expression, value = text.split("=")
    assert expression.count("x") == 1, text
    solutions = [
        digit
        for digit in range(5)
        if parse(expression.replace("x", str(digit))) == (int(value), "")
    ]
    assert len(solutions) == 1, text
    return solutions


def duplicate_string(inputs):
    return inputs + inputs


def missing_duplicate_string(inputs):
    if len(inputs) == 1:
        assert inputs == [1]
        return [1]
    half = len(inputs) // 2
    assert inputs[2 * half :] == [3] * (len(inputs) % 2)
    copies = [inputs[:half], inputs[half : 2 * half]]
    assert inputs.count(2) == 1
    with_gap = 0 if 2 in copies[0] else 1
    place = copies[with_gap].index(2)
    return [copies[1 - with_gap][place]]


def odds_first(inputs):
    return inputs[0::2] + inputs[1::2]  # Python counts from 0, the paper from 1


def binary_addition(inputs):
    if len(inputs) <= 2:
        return terminated(little_endian(number(inputs)), len(inputs) + 1)
    first, second = (number(part) for part in split_pair(inputs))
    return terminated(little_endian(first + second), len(inputs) + 1)


def binary_multiplication(inputs):
    if len(inputs) <= 2:
        return [0] * (len(inputs) - 1) + [2]
    first, second = (number(part) for part in split_pair(inputs))
    return terminated(little_endian(first * second), len(inputs))


def compute_sqrt(inputs):
    value = number(inputs[::-1])
    assert value > 0
    digits = math.ceil(len(inputs) / 2)
    return [int(bit) for bit in f"{math.isqrt(value):0{digits}b}"]


def bucket_sort(inputs):
    return sorted(inputs)


def scored(name, targets):
    """Which of the outputs accuracy counts: none after an end symbol."""
    if name in ("stack_manipulation", "binary_addition", "binary_multiplication"):
        return [2 not in targets[:i] for i in range(len(targets))]
    return [True] * len(targets)


def terminated(symbols, count):
    """`symbols`, the end symbol 2, and zeros, `count` symbols in all."""
    assert len(symbols) < count
    return [*symbols, 2, *[0] * (count - 1 - len(symbols))]


def number(bits):
    """The value of little-endian bits."""
    return sum(bit << i for i, bit in enumerate(bits))


def little_endian(value):
    """The digits of a value without leading zeros; 0 is one digit."""
    return [int(bit) for bit in f"{value:b}"[::-1]]


def split_pair(inputs):
    """The two numbers of an input, which are positive."""
    assert inputs.count(2) == 1
    sign = inputs.index(2)
    first, second = inputs[:sign], inputs[sign + 1 :]
    assert 1 in first
    assert 1 in second
    return first, second


def parse(text):
    """The value modulo 5 of the expression `text` begins with, and what follows."""
    if text[0].isdigit():
        return int(text[0]), text[1:]
    if text[0] == "-":  # the grammar puts a minus before a digit only
        return -int(text[1]) % 5, text[2:]
    assert text[0] == "(", text
    left, rest = parse(text[1:])
    if rest[0] == ")":  # (d) or (-d)
        assert len(text) - len(rest) in (2, 3), text
        return left, rest[1:]
    operator = rest[0]
    right, rest = parse(rest[1:])
    assert rest[0] == ")", text
    value = {"+": left + right, "-": left - right, "*": left * right}[operator]
    return value % 5, rest[1:]


ORACLES = {
    oracle.__name__: oracle
    for oracle in (
        even_pairs,
        modular_arithmetic,
        parity_check,
        cycle_navigation,
        stack_manipulation,
        reverse_string,
        modular_arithmetic_brackets,
        solve_equation,
        duplicate_string,
        missing_duplicate_string,
        odds_first,
        binary_addition,
        binary_multiplication,
        compute_sqrt,
        bucket_sort,
    )
}
