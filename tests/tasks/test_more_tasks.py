"""Tasks beside the 15 of the benchmark, each against plain Python."""

import dataclasses
import functools
import inspect
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.tasks import ALL_TASKS, MORE_TASKS, TASKS, TEXT_TASKS
from ropejax.tasks.scattered import chosen_places
from tests.tasks import number_oracles, state_oracles
from tests.tasks.samples import UNOPTIMIZED, row

LENGTHS = np.array([1, 2, 3, 4, 5, 8, 11, 12] + [3, 8, 12] * 160)
SMALL, LARGE = 12, 15


def task_of(text):
    name, _, options = text.partition(" ")
    return MORE_TASKS[name](**eval(f"dict({options})"))


@functools.cache
def drawn(text, max_length=LARGE, rows=None):
    """A batch of `LENGTHS`, as numpy arrays."""
    sample = jax.jit(
        functools.partial(task_of(text).sample, max_length=max_length),
        compiler_options=UNOPTIMIZED,
    )
    lengths = np.minimum(LENGTHS[:rows], max_length)
    return jax.tree.map(np.asarray, sample(jax.random.key(0), jnp.asarray(lengths)))


def copy(task, inputs, length):
    if task.content == "unique":
        assert len(set(inputs)) == len(inputs)
    return inputs * task.times


def selective_copy(task, inputs, length):
    kept = [symbol for symbol in inputs if symbol != task.vocab_size]
    assert len(kept) == -(-len(inputs) // task.spacing)
    return kept


def sort(task, inputs, length):
    assert len(inputs) == task.width * max(1, length // task.width)
    texts = [
        tuple(inputs[i : i + task.width]) for i in range(0, len(inputs), task.width)
    ]
    return [digit for text in sorted(texts) for digit in text]


def parity_scratchpad(task, inputs, length):
    answer = []
    for count in range(1, len(inputs) + 1):
        answer += inputs[count - 1 : count] if task.copy_input else []
        answer.append(sum(inputs[:count]) % 2)
    return answer


def passkey(task, inputs, length):
    """Takes the sentence and what stands around it away; the filler must be left."""
    start, before, after = list(task.start), list(task.before), list(task.after)
    question = list(task.question[:-1])
    sizes = [len(start), len(before), task.num_digits, len(after), len(question)]
    assert len(inputs) == max(length, sum(sizes))
    assert inputs[: len(start)] == start
    assert inputs[len(inputs) - len(question) :] == question
    text = inputs[len(start) : len(inputs) - len(question)]
    at = next(i for i in range(len(text)) if text[i : i + len(before)] == before)
    end = at + len(before) + task.num_digits
    number = text[at + len(before) : end]
    assert text[end : end + len(after)] == after
    filler = text[:at] + text[end + len(after) :]
    assert filler == [task.filler[i % len(task.filler)] for i in range(len(filler))]
    if task.depth is not None:
        assert abs(at - task.depth * len(filler)) <= 0.5
    assert set(number) <= set(task.digits)
    return number


def induction_heads(task, inputs, length):
    trigger = task.vocab_size
    assert inputs.count(trigger) == 2
    assert inputs[-1] == trigger
    return [inputs[inputs.index(trigger) + 1]]


def addition_scratchpad(task, inputs, length):
    """Adds as at school, and writes down what it does."""
    a, b = inputs[:length], inputs[length + 1 :]
    carry, steps, digits = 0, [], []
    while a:
        total = a[-1] + b[-1] + carry
        step = {"input": [a.pop(), b.pop()], "computation": [*divmod(total, task.base)]}
        carry, digit = divmod(total, task.base)
        digits.insert(0, digit)
        step |= {"output": [digit], "carry": [carry], "remaining": [*a, task.base, *b]}
        for part in step:
            steps += step[part] if part in task.parts else []
    return [*steps, carry, *digits]


def oracle_of(name):
    """The task in plain Python: of this file, or of one beside it."""
    oracles = vars(number_oracles) | vars(state_oracles) | globals()
    return oracles[name]


ALL_PARTS = "parts=('input', 'computation', 'output', 'carry', 'remaining')"

TOKENIZED = (
    "num_digits=2, digits=(21, 40, 33), filler=(9,), before=(8, 2), vocab_size=50, "
    "question=(2, 9)"
)

CASES = [
    "copy",
    "copy content='runs', vocab_size=3, times=2",
    "copy content='unique', vocab_size=20",
    "selective_copy spacing=3",
    "sort",
    "sort base=5, width=1",
    "parity_scratchpad",
    "parity_scratchpad copy_input=True, scored='answer'",
    "key_lookup",
    "key_lookup num_keys=2, num_values=3",
    "associative_recall num_keys=4",
    "passkey",
    "passkey num_digits=2, depth=0.5, start=(7, 3), after=(), question=(4, 5, 6)",
    f"passkey {TOKENIZED}",
    "induction_heads vocab_size=4",
    "word_problem group_name='A4xZ5', symbols='generators'",
    "flip_flop p_write=0.25, p_read=0.25, p_ignore=0.5",
    "dyck num_kinds=2, max_depth=3",
    "mode vocab_size=3",
    "addition",
    "addition base=2, order='plain', widths='zeros', terminate=True",
    "addition operands=12, order='answer', widths='blanks'",
    "addition base=3, num_hints=20, operands=3",
    "addition num_hints=17, order='plain', widths='zeros', terminate=True",
    "addition order='answer', blank_every=4",
    "addition order='answer', operands=3, running_sums=True",
    "addition base=2, order='plain', operands=5, widths='blanks', running_sums=True",
    "multiplication",
    "multiplication base=2, order='plain', widths='zeros', terminate=True",
    "multiplication base=16, num_hints=40, widths='blanks'",
    "multiplication order='answer', blank_every=5",
    "summation",
    "summation base=7, modulus=3",
    "polynomial",
    "polynomial modulus=97, max_degree=5",
    "lego",
    "lego num_variables=5, asked='last'",
    "count",
    "count num_numbers=16",
    "addition_scratchpad",
    f"addition_scratchpad base=3, widths='zeros', scored='answer', {ALL_PARTS}",
    "addition_scratchpad parts=('remaining',)",
]


@pytest.mark.parametrize("text", CASES)
def test_rows_agree_with_plain_python_and_do_not_depend_on_padding(text):
    task, batch = task_of(text), drawn(text)
    oracle = oracle_of(text.split(" ")[0])
    for index, length in enumerate(LENGTHS.tolist()):
        inputs, targets, scored = row(task, batch, index, length)
        assert all(0 <= symbol < task.input_vocab for symbol in inputs)
        assert all(0 <= symbol < task.output_vocab for symbol in targets)
        assert targets == oracle(task, inputs, length), (length, inputs)
        wanted = [True] * len(targets)
        if task.end_symbol is not None:
            end = targets.index(task.end_symbol)
            wanted = [place <= end for place in range(len(targets))]
        if getattr(task, "scored", "all") == "answer":
            final = length + 1 if "addition" in text else 1
            wanted = [place >= len(targets) - final for place in range(len(targets))]
        assert scored == wanted
    narrow = drawn(text, SMALL, 8)
    for name in ("tokens", "targets", "target_mask", "score_mask"):
        wide = getattr(batch, name)[:8]
        width = getattr(narrow, name).shape[1]
        np.testing.assert_array_equal(wide[:, :width], getattr(narrow, name))
        assert not wide[:, width:].any()


# Symbols of docstrings that are no digits, in the order of their numbers.
WRITTEN = {
    "addition": "0123456789+",
    "addition_scratchpad": "0123456789+",
    "multiplication": "0123456789*",
    "dyck": "([{<)]}>",
    "induction_heads": "0123456789ABCDEFG",
}


@pytest.mark.fast
@pytest.mark.parametrize("name", MORE_TASKS)
def test_documentation_is_complete_and_its_examples_are_right(name):
    cls = MORE_TASKS[name]
    task = cls()
    for section in ("Examples:", "References:", "Departures:", "arXiv"):
        assert section in cls.__doc__
    for field in dataclasses.fields(task):
        assert f"{field.name}: " in cls.__doc__
    text = inspect.getdoc(cls).split("Examples:\n")[1].split("\n\n")[0]
    written = WRITTEN.get(name, "0123456789")
    for line in text.splitlines():
        left, right = re.fullmatch(r" +(.+?) -> (\d+)(?: +\(.*\))?", line).groups()
        spaced = " " in left
        inputs = (
            [int(symbol) for symbol in left.split()]
            if spaced
            else [written.index(symbol) for symbol in left]
        )
        answer = [int(symbol) for symbol in right]
        padded = name in ("addition", "multiplication")
        one = dataclasses.replace(task, widths="zeros") if padded else task
        on_numbers = padded or name == "addition_scratchpad"
        length = len(inputs) // 2 if on_numbers else len(inputs)
        length = len(answer) if name == "count" else length
        assert oracle_of(name)(one, inputs, length) == answer
        assert task.input_length(length) == len(inputs)
        assert task.output_length(length) == len(answer)


@pytest.mark.fast
def test_catalogues_keep_the_benchmark_apart():
    assert list(ALL_TASKS) == [*TASKS, *MORE_TASKS, *TEXT_TASKS]
    assert all(task.level is None for task in (MORE_TASKS | TEXT_TASKS).values())
    assert all(task.level is not None for task in TASKS.values())
    assert len({task.title for task in ALL_TASKS.values()}) == len(ALL_TASKS)
    for task in (MORE_TASKS | TEXT_TASKS).values():
        assert task.group != "Chomsky hierarchy"
        counts = [task().num_tokens(length) for length in range(1, 60)]
        assert counts == sorted(counts)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("key_lookup num_values=4", 1 / 4),
        ("passkey num_digits=4", 1 / 10),
        ("induction_heads vocab_size=4", 1 / 4),
        ("parity_scratchpad", 1 / 2),
        ("flip_flop p_write=0.25, p_read=0.25, p_ignore=0.5", 1 / 2),
        ("dyck num_kinds=2, max_depth=3", 1 / 2),
        ("mode vocab_size=3", 1 / 3),
        ("summation base=4, modulus=4", 1 / 4),
        ("lego", 1 / 2),
        ("addition base=2", None),
    ],
)
def test_answers_cannot_be_guessed_without_the_input(text, expected):
    """How often the most frequent symbol of each place is right."""
    batch = drawn(text)
    rows = LENGTHS == 12
    start = int(task_of(text).input_length(12))
    count = int(task_of(text).output_length(12))
    targets = batch.targets[rows][:, start : start + count]
    share = [np.bincount(column).max() / len(column) for column in targets.T]
    if expected is not None:
        assert np.mean(share) == pytest.approx(expected, abs=0.12)
        return
    # Both numbers start with a one in base 2, so the sum always has 13 digits.
    assert share[-1] == 1
    assert np.mean(share[:-1]) == pytest.approx(0.5, abs=0.12)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("copy content='other'", "content must be one of uniform, runs, unique"),
        ("copy times=0", "times must be at least 1"),
        ("selective_copy spacing=0", "spacing must be at least 1"),
        ("sort base=10, width=10", "base \\*\\* width must be at most"),
        ("parity_scratchpad scored='last'", "scored must be one of all, answer"),
        ("key_lookup num_keys=1", "num_keys=1"),
        ("word_problem group_name='A6'", "got 'A6'. Did you mean 'A5' or 'A4'"),
        ("word_problem symbols='generator'", "Did you mean 'generators'"),
        ("word_problem answers='all'", "answers must be one of last, each"),
        ("flip_flop p_ignore=0.98", "add up to 1, got 0.1, 0.1 and 0.98; give all"),
        ("flip_flop p_write=-0.1, p_read=0.3", "must be at least 0 and add up to 1"),
        ("flip_flop p_write=float('nan')", "must be at least 0 and add up to 1"),
        ("flip_flop answers='reads'", "answers must be one of last, each"),
        ("passkey num_digits=0", "num_digits must be at least 1"),
        ("passkey depth=1.5", "depth must lie in 0 .. 1, or be None"),
        ("passkey depth=float('nan')", "depth must lie in 0 .. 1, or be None"),
        ("passkey question=()", "question must have at least one symbol"),
        ("passkey filler=()", "filler must have at least one symbol"),
        ("passkey before=(-1,)", "before has the symbol -1; symbols are numbered"),
        ("passkey digits=(3, 4, 3)", "must be two or more symbols that all differ"),
        ("passkey digits=(3,)", "must be two or more symbols that all differ"),
        ("passkey vocab_size=16", "vocab_size=16 must be above the largest symbol, 16"),
        ("passkey path='no.npy'", "path='no.npy' is no file"),
        ("passkey path='no.npy', filler=(3,)", "are both the filler"),
        ("associative_recall answers='all'", "answers must be one of last, each"),
        ("dyck max_depth=2", "max_depth must be at least 3, got 2"),
        ("dyck max_depth=2**31", "max_depth must be at most 65536"),
        ("dyck num_kinds=1", "num_kinds=1"),
        ("mode vocab_size=1", "vocab_size=1"),
        ("addition base=1", "base=1"),
        ("addition operands=1", "operands must be at least 2"),
        ("addition order='backwards'", "order must be one of reversed, answer"),
        ("addition order='reverse'", "got 'reverse'. Did you mean 'reversed'"),
        ("addition blank_every=-1", "blank_every must be at least 0"),
        ("addition running_sums=True, terminate=True", "set terminate=False"),
        ("multiplication base=1", "base=1"),
        ("multiplication widths='zero'", "got 'zero'. Did you mean 'zeros'"),
        ("summation modulus=1", "modulus=1"),
        ("polynomial max_degree=0", "max_degree must lie in 1 .. 63, got max_degree=0"),
        ("polynomial max_degree=64", "max_degree must lie in"),
        ("lego num_variables=1", "num_variables=1"),
        ("lego asked='first'", "asked must be one of any, last"),
        ("count num_numbers=1", "num_numbers=1"),
        ("addition_scratchpad parts=()", "without a scratchpad the task is Addition"),
        ("addition_scratchpad parts=('carry', 'carry')", "each once"),
        ("addition_scratchpad parts=('sum',)", "parts must be one of input, comp"),
        ("addition_scratchpad widths='blanks'", "widths must be one of equal, zeros"),
        ("addition_scratchpad base=1", "base=1"),
    ],
)
def test_settings_without_meaning_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        task_of(text)


def test_sums_are_the_same_with_and_without_a_scratchpad():
    """Of a row, so that accuracies on the answers compare."""
    plain, steps = (
        drawn(text, SMALL, 8)
        for text in ("addition order='plain'", "addition_scratchpad scored='answer'")
    )
    for index, length in enumerate(LENGTHS[:8]):
        inputs = slice(2 * length + 1)
        np.testing.assert_array_equal(
            plain.tokens[index, inputs], steps.tokens[index, inputs]
        )
        np.testing.assert_array_equal(
            plain.targets[index, plain.score_mask[index]],
            steps.targets[index, steps.score_mask[index]],
        )


@pytest.mark.fast
def test_lengths_without_examples_are_refused():
    with pytest.raises(ValueError, match="no 6 different symbols among vocab_size=5"):
        task_of("copy content='unique', vocab_size=5").check_length(6)
    with pytest.raises(ValueError, match="need num_hints of at least 7, got 6"):
        task_of("addition num_hints=6").check_length(6)
    with pytest.raises(ValueError, match="need num_hints of at least 12, got 11"):
        task_of("multiplication num_hints=11").check_length(6)
    with pytest.raises(ValueError, match="in base=16384: numbers have at most 7 dig"):
        task_of("multiplication base=2**14").check_length(8)
    with pytest.raises(ValueError, match="its 4 clauses need as many variables"):
        task_of("lego num_variables=3").check_length(13)
    with pytest.raises(ValueError, match="there are num_numbers=8 in all"):
        task_of("count num_numbers=8").check_length(9)


@pytest.mark.fast
def test_every_choice_of_places_is_equally_likely():
    words = jax.random.bits(jax.random.key(1), (6000, 5), jnp.uint32)
    chosen = jax.vmap(lambda words: chosen_places(words, 4, 2))(words)
    found, counts = np.unique(np.asarray(chosen), axis=0, return_counts=True)
    assert len(found) == 6  # 4 choose 2
    assert not found[:, 4].any()
    assert np.abs(counts / 1000 - 1).max() < 0.12
