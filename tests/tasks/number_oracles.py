"""Tasks on numbers in plain Python: `(task, inputs, length) -> answer`.

Each asserts as well that the input is one that the task may draw. Sums and products are
those of Python's integers.
"""

import math

import numpy as np


def addition(task, inputs, length):
    numbers, lowest = numbers_of(task, inputs, length)
    room = length + 1
    while task.base ** (room - length) < task.operands:
        room += 1
    if task.running_sums:
        return running_sums(task, numbers, room)
    return written(task, sum(numbers), room, lowest)


def multiplication(task, inputs, length):
    numbers, lowest = numbers_of(task, inputs, length)
    return written(task, math.prod(numbers), 2 * length, lowest)


def numbers_of(task, inputs, length):
    """The numbers of a text, and the hint of their lowest digits."""
    text = [s for s in inputs if not (task.blank_every and s == task.blank)]
    fields, field = [], []
    for symbol in [*text, task.sign]:
        if symbol == task.sign:
            fields.append(field)
            field = []
        else:
            field.append(symbol)
    assert len(fields) == task.operands
    numbers, lowest = [], None
    for field in fields:
        assert len(field) == length * (2 if task.num_hints else 1)
        field = field if task.order == "reversed" else field[::-1]  # least first
        if task.num_hints:  # a digit's hint stands before it, read from the left
            hints = field[0::2] if task.order == "reversed" else field[1::2]
            field = field[1::2] if task.order == "reversed" else field[0::2]
            hints = [hint for hint in hints if hint < task.sign]  # blanks have none
            assert np.all(np.diff(hints) == 1)
            assert lowest in (None, hints[0])
            lowest = hints[0]
        if task.widths == "blanks":
            width = next((i for i, s in enumerate(field) if s >= task.base), length)
            assert all(s == task.blank for s in field[width:])
            field = field[:width]
        assert all(digit < task.base for digit in field)
        if task.widths != "zeros":
            assert len(field) == 1 or field[-1] > 0
        numbers.append(sum(d * task.base**i for i, d in enumerate(field)))
    if task.widths == "zeros" and length > 1:
        assert max(numbers) >= task.base ** (length - 1)
    return numbers, lowest


def written(task, total, room, lowest):
    """An answer as it is written, with zeros where nothing counts."""
    digits = []
    while total:
        total, digit = divmod(total, task.base)
        digits.append(digit)
    count = max(len(digits), 1) if task.terminate else room
    digits += [0] * (count - len(digits))
    order = range(count)[::-1] if task.order == "plain" else range(count)
    answer = []
    for place in order:
        answer += [lowest + place] if task.num_hints else []
        answer.append(digits[place])
    if task.terminate:
        answer.append(task.end_symbol)
    full = room * (2 if task.num_hints else 1) + task.terminate
    return answer + [0] * (full - len(answer))


def running_sums(task, numbers, room):
    written, total = [], 0
    for number in [0, *numbers]:
        total += number
        digits = [total // task.base**place % task.base for place in range(room)]
        written += [task.base, *(digits[::-1] if task.order == "plain" else digits)]
    return written[1:]


def summation(task, inputs, length):
    assert len(inputs) == length
    return [sum(inputs) % task.modulus]


def polynomial(task, inputs, length):
    assert len(inputs) == max(3, length - (length + 1) % 2)
    x, *terms = inputs
    assert x < task.modulus
    value = 0
    for coefficient, symbol in zip(terms[::2], terms[1::2], strict=True):
        assert coefficient < task.modulus <= symbol
        value += coefficient * x ** (symbol - task.modulus)
    return [value % task.modulus]


def lego(task, inputs, length):
    *text, asked = inputs
    assert len(text) == 3 * max(1, (length - 1) // 3)
    one, plus, minus = range(task.num_variables, task.num_variables + 3)
    clauses = {}
    for name, sign, before in zip(text[::3], text[1::3], text[2::3], strict=True):
        assert name < one
        assert name not in clauses
        clauses[name] = {plus: 1, minus: -1}[sign], before
    befores = [before for _, before in clauses.values()]
    assert len(set(befores)) == len(befores)
    if task.asked == "last":
        assert asked not in befores
    value, name = 1, asked
    while name != one:
        sign, name = clauses[name]
        value *= sign
    return [int(value == 1)]


def count(task, inputs, length):
    first, last = inputs
    assert last - first == length - 1
    return list(range(first, last + 1))
