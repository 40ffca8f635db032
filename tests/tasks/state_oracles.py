"""Tasks of a state or of recall in plain Python: `(task, inputs, length) -> answer`.

Each asserts as well that the input is one that the task may draw. Nothing here is
shared with the package: groups are those of `itertools`, brackets are on a stack.
"""

import functools
import itertools


def is_even(permutation):
    pairs = itertools.combinations(permutation, 2)
    return sum(first > second for first, second in pairs) % 2 == 0


@functools.cache
def group(name):
    """Elements in order, and the generators that the documentation names."""
    if name == "Z60":
        shifts = [tuple((i + k) % 60 for i in range(60)) for k in range(60)]
        return shifts, [shifts[1]]
    if name == "A4xZ5":
        four, own = group("A4")
        shifts = [tuple(4 + (i + k) % 5 for i in range(5)) for k in range(5)]
        both = [(*p, *shift) for p in four for shift in shifts]
        return both, [*((*p, *shifts[0]) for p in own), (*four[0], *shifts[1])]
    points = int(name[1])
    every = itertools.permutations(range(points))
    found = [p for p in every if name[0] == "S" or is_even(p)]
    cycle = (*range(1, points), 0)
    swap, three = (1, 0, *range(2, points)), (1, 2, 0, *range(3, points))
    chosen = {"S": [swap, cycle], "A4": [three, (1, 0, 3, 2)], "A5": [three, cycle]}
    return found, chosen[name if name in chosen else name[0]]


def word_problem(task, inputs, length):
    assert len(inputs) == length
    elements, generators = group(task.group_name)
    symbols = elements
    if task.symbols == "generators":
        symbols = [elements[0], *generators]
    state, states = elements[0], []
    for symbol in inputs:
        state = tuple(symbols[symbol][image] for image in state)
        states.append(elements.index(state))
    return states if task.answers == "each" else states[-1:]


def flip_flop(task, inputs, length):
    assert len(inputs) == max(3, length - (length + 1) % 2)
    text = "".join("01wri"[symbol] for symbol in inputs)
    assert text[0] == "w"
    assert text[-1] == "r"
    memory, answers = None, []
    for instruction, bit in zip(text[::2], text[1::2] + "?", strict=True):
        assert instruction in "wri"
        assert bit in "01?"
        memory = bit if instruction == "w" else memory
        assert instruction != "r" or bit in (memory, "?")
        answers += [int(memory), -1]
    return answers[:-1] if task.answers == "each" else answers[-2:-1]


def dyck(task, inputs, length):
    assert len(inputs) == length
    open_ones = []
    for symbol in inputs:
        if symbol < task.num_kinds:
            open_ones.append(symbol)
        else:
            assert open_ones.pop() == symbol - task.num_kinds
        assert len(open_ones) <= task.max_depth
    return open_ones[-1:]


def mode(task, inputs, length):
    assert len(inputs) == length
    by_count = sorted(set(inputs), key=inputs.count)
    assert len(by_count) == 1 or inputs.count(by_count[-2]) < inputs.count(by_count[-1])
    return by_count[-1:]


def pairs_of(task, inputs):
    keys, values = inputs[:-1:2], [v - task.num_keys for v in inputs[1::2]]
    assert all(0 <= key < task.num_keys for key in (*keys, inputs[-1]))
    assert all(0 <= value < task.num_values for value in values)
    return list(zip(keys, values, strict=True)), inputs[-1]


def key_lookup(task, inputs, length):
    pairs, asked = pairs_of(task, inputs)
    (value,) = [value for key, value in pairs if key == asked]
    return [value]


def associative_recall(task, inputs, length):
    pairs, asked = pairs_of(task, inputs)
    book = dict(pairs)
    assert all(book[key] == value for key, value in pairs)
    if task.answers == "last":
        return [book[asked]]
    seen, answers = set(), []
    for symbol in inputs:
        answers.append(book[symbol] if symbol in seen else -1)
        seen |= {symbol} if symbol < task.num_keys else set()
    return answers
