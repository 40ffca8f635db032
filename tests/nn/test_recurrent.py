"""Recurrent baselines: steps against numpy, memories against Python, padding, learning.

Formulas: Deletang et al. 2022, arXiv 2207.02098, appendix A, and Joulin and Mikolov
2015, arXiv 1503.01007, equations 3 and 4.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.evaluation import evaluate
from ropejax.nn.recurrent import CELLS, LSTM, RNN, RecurrentSpec, StackRNN, TapeRNN
from ropejax.nn.recurrent.model import describe_rows
from ropejax.nn.recurrent.stack import update_stack
from ropejax.nn.recurrent.tape import update_tape
from ropejax.positions import Consecutive
from ropejax.positions.base import Placement
from ropejax.tasks import ParityCheck, ReverseString
from ropejax.training import Recipe, Uniform, adam, train

SYMBOLS = np.array([[0, 1, 1, 0, 2, 2, 2, 2], [1, 0, 1, 2, 2, 2, 0, 0]])
VALID = np.array([[1] * 8, [1] * 6 + [0] * 2], bool)


def small(name, **changes):
    cell = changes.pop("cell", CELLS[name]())
    return RecurrentSpec(3, 2, cell, **({"units": 6} | changes))


def run(spec, params, tokens, valid=None, **more):
    return spec.bind(params)(jnp.asarray(tokens), Placement(), valid=valid, **more)


def stack_oracle(stack, actions, pushed):
    push, pop, keep = actions
    below = [*stack[1:], np.zeros_like(stack[0])]
    above = [pushed, *stack[:-1]]
    return np.array(
        [
            push * above[at] + pop * below[at] + keep * stack[at]
            for at in range(len(stack))
        ]
    )


@pytest.mark.fast
def test_a_stack_step_is_the_papers_mixture_of_push_pop_and_no_operation():
    draw = np.random.default_rng(0)
    stack = draw.normal(size=(2, 3, 5, 4))
    actions = draw.dirichlet(np.ones(3), size=(2, 3))
    pushed = draw.normal(size=(2, 3, 4))
    found = update_stack(
        *(jnp.asarray(x, jnp.float32) for x in (stack, actions, pushed))
    )
    for at in np.ndindex(2, 3):
        wanted = stack_oracle(stack[at], actions[at], pushed[at])
        np.testing.assert_allclose(found[at], wanted, atol=1e-6)


@pytest.mark.fast
def test_a_stack_with_certain_actions_is_a_python_list():
    draw = np.random.default_rng(1)
    stack, model = jnp.zeros((1, 9, 2)), []
    for _ in range(40):
        action, value = draw.integers(3), draw.normal(size=2).astype(np.float32)
        stack = update_stack(stack, jnp.eye(3)[action][None], value[None])
        if action == 0:
            model = [value, *model][:9]
        elif action == 1:
            model = model[1:]
        wanted = np.array([*model, *[np.zeros(2)] * (9 - len(model))])
        np.testing.assert_array_equal(stack[0], wanted)


def tape_oracle(tape, actions, written, size, jump):
    ring, rest = tape[:size].copy(), tape[size:]
    ring[0] = written
    steps = (0, 1, -1, jump, -jump)
    moved = sum(
        p * np.roll(ring, -step, axis=0) for p, step in zip(actions, steps, strict=True)
    )
    return np.concatenate([moved, rest])


@pytest.mark.fast
def test_a_tape_step_writes_and_then_mixes_five_moves_of_each_rows_ring():
    draw = np.random.default_rng(2)
    tape = draw.normal(size=(4, 7, 3))
    actions = draw.dirichlet(np.ones(5), size=4)
    written = draw.normal(size=(4, 3))
    sizes, jumps = np.array([7, 5, 1, 6]), np.array([3, 4, 1, 9])
    given = (jnp.asarray(x, jnp.float32) for x in (tape, actions, written))
    found = update_tape(*given, jnp.asarray(sizes), jnp.asarray(jumps))
    for at in range(4):
        wanted = tape_oracle(tape[at], actions[at], written[at], sizes[at], jumps[at])
        np.testing.assert_allclose(found[at], wanted, atol=1e-6)


@pytest.mark.fast
def test_a_tape_with_certain_moves_is_a_python_list_with_a_head():
    draw = np.random.default_rng(3)
    size, jump = 6, 4
    cells, head = [0.0] * size, 0
    tape = jnp.zeros((1, 8, 1))
    for value in draw.normal(size=30).astype(np.float32):
        move = draw.integers(5)
        tape = update_tape(
            tape,
            jnp.eye(5)[move][None],
            jnp.full((1, 1), value),
            jnp.array([size]),
            jnp.array([jump]),
        )
        cells[head] = value
        head = (head + (0, 1, -1, jump, -jump)[move]) % size
        turned = [cells[(head + at) % size] for at in range(size)]
        np.testing.assert_array_equal(tape[0, :size, 0], turned)


@pytest.mark.fast
def test_rows_know_their_tokens_and_their_inputs():
    row = describe_rows(jnp.asarray(SYMBOLS), jnp.asarray(VALID), placeholder=2)
    assert (row.num_tokens, list(row.lengths), list(row.inputs)) == (8, [8, 6], [4, 3])
    row = describe_rows(jnp.asarray(SYMBOLS[:, :3]), None, placeholder=2)
    assert (list(row.lengths), list(row.inputs)) == ([3, 3], [3, 3])


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def float64(tree):
    return jax.tree.map(lambda x: np.asarray(x, np.float64), tree)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_an_rnn_is_its_formula(activation, rng):
    spec = small("rnn", cell=RNN(activation))
    params = spec.init(rng)
    own = float64(params)
    cell, readout = own["cells"]["layer_0"]["cell"], own["readout"]
    act = {"relu": lambda x: np.maximum(x, 0), "tanh": np.tanh}[activation]
    h = np.zeros((2, 6))
    for at, x in enumerate(np.eye(3)[SYMBOLS].swapaxes(0, 1)):
        h = act(
            x @ cell["dense_i"]["kernel"]
            + cell["dense_i"]["bias"]
            + h @ cell["dense_h"]["kernel"]
        )
        wanted = np.maximum(h, 0) @ readout["kernel"] + readout["bias"]
        if at in (0, 7):
            found = run(spec, params, SYMBOLS)[:, at]
            np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_an_lstm_is_its_formula_and_starts_with_open_forget_gates(rng):
    spec = small("lstm", num_layers=2)
    params = spec.init(rng)
    own = float64(params)
    np.testing.assert_array_equal(
        own["cells"]["layer_1"]["cell"]["dense_h"]["bias"], [0] * 6 + [1] * 6 + [0] * 12
    )
    x = np.eye(3)[SYMBOLS]
    for layer in own["cells"].values():
        layer, outputs = layer["cell"], []
        c = h = np.zeros((2, 6))
        for one in x.swapaxes(0, 1):
            gates = one @ layer["dense_i"]["kernel"] + h @ layer["dense_h"]["kernel"]
            i, f, g, o = np.split(gates + layer["dense_h"]["bias"], 4, axis=-1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
            outputs.append(h)
        x = np.stack(outputs, axis=1)
    readout = own["readout"]
    wanted = np.maximum(x, 0) @ readout["kernel"] + readout["bias"]
    np.testing.assert_allclose(run(spec, params, SYMBOLS), wanted, atol=1e-5)


@pytest.mark.parametrize("name", CELLS)
def test_padding_cannot_be_seen(name, rng):
    spec = small(name)
    params = spec.init(rng)
    whole = run(spec, params, SYMBOLS, VALID)
    alone = run(spec, params, SYMBOLS[1:, :6])
    np.testing.assert_allclose(whole[1:, :6], alone, atol=1e-6)
    wide = np.pad(SYMBOLS, ((0, 0), (0, 9)))
    padded = run(spec, params, wide, np.pad(VALID, ((0, 0), (0, 9))))
    np.testing.assert_allclose(padded[0, :8], whole[0], atol=1e-6)


@pytest.mark.parametrize("name", CELLS)
def test_no_token_sees_a_later_symbol_and_all_see_an_earlier_one(name, rng):
    spec = small(
        name, cell=LSTM() if name == "lstm" else CELLS[name](activation="tanh")
    )
    params = spec.init(rng)
    other = SYMBOLS.copy()
    other[:, 2] = 1 - other[:, 2]
    changed = np.abs(run(spec, params, SYMBOLS) - run(spec, params, other)).max((0, 2))
    assert (changed[:2] == 0).all()
    assert (changed[2:] > 0).all()


def reversing_parameters(spec, sharp=40.0, large=8.0):
    """Weights of a Stack-RNN that reverses strings, set by hand.

    Units 0 and 1 are the input symbol, 2 and 3 the stack's top at a placeholder; units
    0 and 1 push themselves, a placeholder pops.
    """
    params = jax.tree.map(
        lambda x: np.zeros(x.shape, np.float32), spec.init(jax.random.key(0))
    )
    cell = params["cells"]["layer_0"]
    inputs = cell["hidden"]["cell"]["dense_i"]["kernel"]  # rows: 0, 1, o, top 0, top 1
    inputs[0, 0] = inputs[1, 1] = 1
    inputs[3, 2] = inputs[4, 3] = 1
    inputs[:2, 2:] = -large
    cell["push"]["kernel"][0, 0] = cell["push"]["kernel"][1, 1] = 1
    cell["actions"]["kernel"][:2, 0] = sharp
    cell["actions"]["kernel"][2:, 1] = sharp
    params["readout"]["kernel"][2, 0] = params["readout"]["kernel"][3, 1] = 1
    return params


def test_a_stack_rnn_with_weights_set_by_hand_reverses_strings_of_any_length():
    spec = small("stack_rnn", cell=StackRNN(cell_width=2), units=4)
    params, task = reversing_parameters(spec), ReverseString()
    scores = evaluate(
        spec, params, task, Consecutive(), [1, 7, 300], samples=8, draws=1
    )
    assert [one.accuracy for one in scores.values()] == [1, 1, 1]


def test_members_of_a_population_are_as_alone_and_bfloat16_is_close(rng):
    spec = small("tape_rnn", dtype=jnp.dtype("bfloat16"))
    exact = small("tape_rnn")
    members = jax.vmap(spec.init)(jax.random.split(rng, 2))
    together = jax.vmap(lambda params: run(spec, params, SYMBOLS))(members)
    second = jax.tree.map(lambda x: x[1], members)
    assert together.dtype == jnp.float32
    np.testing.assert_allclose(together[1], run(spec, second, SYMBOLS), atol=2e-2)
    np.testing.assert_allclose(together[1], run(exact, second, SYMBOLS), atol=5e-2)


def test_dropout_acts_in_training_only(rng):
    spec = small("rnn", dropout=0.5, num_layers=2)
    params = spec.init(rng)
    plain = run(small("rnn", num_layers=2), params, SYMBOLS)
    np.testing.assert_array_equal(run(spec, params, SYMBOLS), plain)
    whole = run(spec, params, SYMBOLS, rng=rng)
    assert np.abs(whole - plain).max() > 1e-3
    # Rows computed apart drop what they would have dropped together (one layer: the
    # dropped units are those before the readout).
    spec = small("rnn", dropout=0.5)
    params = spec.init(rng)
    whole = run(spec, params, SYMBOLS, rng=rng)
    second = run(spec, params, SYMBOLS[1:], rng=rng, first_row=1)
    np.testing.assert_allclose(second, whole[1:], atol=1e-6)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: small("rnn", units=0), "units must be at least 1, got 0"),
        (lambda: small("rnn", dropout=1.0), "dropout rate must be in"),
        (lambda: RNN("gelu"), "relu or tanh, got 'gelu'"),
        (lambda: StackRNN(num_stacks=0), "num_stacks must be at least 1"),
        (lambda: TapeRNN(num_cells=-1), "num_cells must be at least 0"),
        (lambda: TapeRNN(hidden=(0,)), "hidden widths"),
    ],
)
def test_what_cannot_be_is_refused(make, match):
    with pytest.raises(ValueError, match=match):
        make()


def test_packed_rows_are_refused(rng):
    spec = small("rnn")
    with pytest.raises(ValueError, match="unpack"):
        run(spec, spec.init(rng), SYMBOLS, segments=jnp.zeros_like(SYMBOLS))


def test_an_rnn_learns_parity_at_short_lengths_and_is_right_at_long_ones():
    task = ParityCheck()
    spec = RecurrentSpec(task.num_symbols, task.output_vocab, RNN(), units=32)
    recipe = Recipe(
        model=spec,
        task=task,
        positions=Consecutive(),
        optimizer=adam(5e-3),
        curriculum=Uniform(10),
        buckets=(10,),
        batch_size=64,
    )
    state = train(recipe, steps=1500, seed=0, steps_per_dispatch=1500, save_every=1500)
    scores = evaluate(
        spec, state.params, task, Consecutive(), [100, 500], samples=64, draws=1
    )
    assert [one.accuracy for one in scores.values()] == [1, 1]


@pytest.mark.fast
@pytest.mark.parametrize("dtype", ["int32", None, "flaot32", bool])
def test_a_type_that_is_none_of_floats_is_refused(dtype):
    with pytest.raises(ValueError, match="dtype must be a floating-point type, got"):
        RecurrentSpec(3, 2, RNN(), dtype=dtype)
