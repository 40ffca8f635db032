"""What the plan says devices send, against compiled programs of small models."""

import dataclasses

import jax
import pytest

from experiments.plan import sending, updating
from experiments.plan.costs import make_plan
from ropejax import masks
from ropejax.attention import AdaptiveTemperature
from ropejax.encodings import ENCODINGS, Dims
from ropejax.nn import BlockSettings, LayerKind, TransformerSpec
from ropejax.nn.token_shifts import KVShift, ShortConvolution
from ropejax.positions import Consecutive
from ropejax.sharding import Rules, Sharding, make_mesh
from ropejax.training import Fixed, Recipe, init_state
from ropejax.training.muon import Muon
from ropejax.training.optimizer_numbers import Numbers
from tests.collectives import gradient_program, sent_bytes
from tests.training.tiny import tiny_recipe

LENGTH, ROWS, VOCABULARY = 64, 8, 64
WIDTH, LAYERS = 64, 2
SPREAD = {"data": 2, "sequence": 4}


def recipe_on(
    sizes,
    form="ring",
    rules=None,
    order="consecutive",
    *,
    encoding="rope",
    kv_heads=4,
    loops=1,
    accumulate=1,
    mesh=make_mesh,
    **settings,
) -> Recipe:
    settings = BlockSettings(mlp_dim=4 * WIDTH, pre_norm=True, dropout=0.0, **settings)
    kind = LayerKind(ENCODINGS[encoding](), masks.Causal())
    dims = Dims(4, kv_heads, WIDTH // 4, WIDTH, LAYERS, causal=True)
    model = TransformerSpec(
        VOCABULARY, VOCABULARY, dims, settings, (kind,), loops=loops
    )
    task_length = LENGTH // 2  # an answer as long as the question
    return dataclasses.replace(
        tiny_recipe(),
        model=model,
        batch_size=ROWS,
        accumulate=accumulate,
        buckets=(task_length,),
        curriculum=Fixed(task_length),
        positions=Consecutive(),
        sharding=Sharding(mesh(sizes), Rules.of(rules or {}), form, order),
    )


def compiled(recipe) -> dict[tuple[str, int], float]:
    """Bytes that a gradient step sends, by kind of collective and group's size."""
    return sent_bytes(gradient_program(recipe, LENGTH))


def told(recipe) -> dict[str, float]:
    params = jax.eval_shape(recipe.model.init, jax.random.key(0))
    return sending.sent_bytes(recipe, recipe.sharding, LENGTH, params)


@pytest.mark.parametrize(
    ("form", "changes"),
    [
        ("all_gather", {"kv_heads": 2, "remat": "full", "token_shift": KVShift()}),
        ("ulysses", {}),
        pytest.param(
            "all_gather", {"token_shift": ShortConvolution()}, marks=pytest.mark.slow
        ),
        pytest.param(
            "ring",
            {"order": "zigzag", "remat": "full", "token_shift": KVShift()},
            marks=pytest.mark.slow,
        ),
        pytest.param("ring", {}, marks=pytest.mark.slow),
        pytest.param("ring", {"encoding": "rerope"}, marks=pytest.mark.slow),
        pytest.param(
            "ring", {"normalizer": AdaptiveTemperature()}, marks=pytest.mark.slow
        ),
        pytest.param("all_gather", {}, marks=pytest.mark.slow),
        pytest.param("ulysses", {"remat": "full"}, marks=pytest.mark.slow),
    ],
)
def test_each_form_of_attention_sends_what_is_told(form, changes):
    """To a part in a hundred: where tokens are, and the loss's sums, are left."""
    recipe = recipe_on(SPREAD, form, **changes)
    sent = compiled(recipe)
    assert sent["all-reduce", 2] == pytest.approx(told(recipe)["data"], rel=0.01)
    hops = {"ring": [("collective-permute", 1)], "ulysses": [("all-to-all", 4)]}
    own = hops.get(form, [("all-gather", 4), ("reduce-scatter", 4)])
    over = sent["all-reduce", 4] + sum(sent[kind] for kind in own)
    assert over == pytest.approx(told(recipe)["sequence"], rel=0.01)


def test_loops_and_parts_of_a_batch_each_add_their_gradients_up():
    recipe = recipe_on({"data": 4, "tensor": 2}, loops=2, accumulate=2)
    sent, expected = compiled(recipe), told(recipe)
    assert sent["all-reduce", 4] == pytest.approx(expected["data"], rel=0.01)
    # Gradients of queries, keys and values are added up apart by the compiler for CPUs.
    layers = 2 * LAYERS
    apart = 2 * layers * (ROWS // 4 * LENGTH * WIDTH * 4)
    assert sent["all-reduce", 2] == pytest.approx(expected["tensor"] + apart, rel=0.01)
    once = told(recipe_on({"data": 4, "tensor": 2}, loops=2))
    assert expected["data"] == 2 * once["data"]
    assert expected["tensor"] == once["tensor"]


def test_changed_rules_change_what_is_sent():
    """Parameters gathered over two axes at once, as the compiled program does it."""
    sizes = {"data": 2, "fsdp": 4}
    recipe = recipe_on(sizes, rules={"embed": ("fsdp", "data")})
    sent, expected = compiled(recipe), sum(told(recipe).values())
    # The compiler for CPUs adds gradients up for all, and cuts off a device's part.
    scattered = sent["all-reduce", 8] / 2
    assert sent["all-gather", 8] + scattered == pytest.approx(expected, rel=0.01)
    copied = told(recipe_on({"fsdp": 8}, rules={"embed": (), "rest": ()}))
    assert copied == {"fsdp": told(recipe_on({"data": 8}))["data"]}
    whole = told(recipe_on({"data": 4, "tensor": 2}, rules={"vocab": ()}))
    cut = told(recipe_on({"data": 4, "tensor": 2}))
    hidden = ROWS // 4 * LENGTH * WIDTH * 4
    # Sums of hidden states after the embedding, and backwards before the readout.
    assert cut["tensor"] - whole["tensor"] == 2 * hidden
    tables = 2 * VOCABULARY * WIDTH + VOCABULARY
    ring = 2 * 3 / 4 * 4
    assert whole["data"] - cut["data"] == pytest.approx(ring * tables / 2)


@pytest.mark.parametrize(
    ("sizes", "rules", "message"),
    [
        ({"data": 4, "tensor": 2}, {"heads": ()}, "'kv_heads' is cut over other"),
        ({"data": 4, "tensor": 2}, {"mlp": ()}, "'mlp' is cut over other"),
        ({"data": 4, "tensor": 2}, {"embed": "tensor"}, "'embed' is cut .* neither"),
        ({"data": 4, "fsdp": 2}, {"batch": "data"}, "'embed' is cut .* neither"),
        ({"data": 8}, {"vocab": "data"}, "'vocab' is cut over a mesh axis of 'batch'"),
        ({"data": 4, "tensor": 2}, {"layers": "tensor"}, "'layers' are cut"),
        (
            {"fsdp": 4, "tensor": 2},
            dict.fromkeys(("heads", "kv_heads", "mlp"), ()),
            "no rows, tokens or heads are spread over .'tensor'.",
        ),
    ],
)
def test_rules_that_leave_it_to_the_compiler_are_refused(sizes, rules, message):
    with pytest.raises(ValueError, match=message):
        make_plan(recipe_on(sizes, rules=rules))


@pytest.mark.parametrize(
    ("sizes", "others"),
    [
        ({"fsdp": 8}, 0),
        # What attention returns, its rows cut over 2 devices, the compiler for CPUs
        # multiplies in another way, which sends more.
        pytest.param({"fsdp": 4, "tensor": 2}, 0.1, marks=pytest.mark.slow),
        pytest.param({"data": 8}, 0, marks=pytest.mark.slow),
    ],
)
def test_an_update_of_muon_sends_and_computes_what_is_told(sizes, others):
    """Newton-Schulz iterations, whose matrices are cut as parameters are."""
    optimizer = Muon()(1e-3, Numbers(1e-3))
    recipe = dataclasses.replace(recipe_on(sizes), optimizer=optimizer)
    program = update_program(recipe)
    expected = sum(size for _, size in updating.update_sent(recipe, recipe.sharding))
    sent = sum(sent_bytes(program.as_text()).values())
    assert sent == pytest.approx(expected, rel=0.01 + others)
    counted = updating.update_operations(recipe, recipe.sharding)
    compiled = 8 * program.cost_analysis()["flops"]
    assert compiled == pytest.approx(counted.total, rel=0.02 + others)
    # By hand: of matrices 64 x 64 and 64 x 256, five iterations in each layer.
    iteration = 4 * (4 + 2) * WIDTH**3 + 2 * (16 + 2) * WIDTH**3
    alone = updating.update_operations(recipe, None)
    assert alone.products == 5 * LAYERS * iteration
    told_with, without = told(recipe), told(recipe_on(sizes))
    assert sum(told_with.values()) - sum(without.values()) == pytest.approx(expected)


def test_adam_sends_nothing_of_its_own():
    recipe = recipe_on({"fsdp": 8})
    assert list(updating.update_sent(recipe, recipe.sharding)) == []
    assert updating.update_operations(recipe, recipe.sharding).products == 0


def update_program(recipe):
    """An optimizer's update of parameters and state as they are placed."""
    spec, sharding, optimizer = recipe.model, recipe.sharding, recipe.optimizer
    state = jax.eval_shape(
        lambda: init_state(dataclasses.replace(recipe, sharding=None), 0)
    )
    where = sharding.state(spec, state)
    as_placed = lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s)
    params = jax.tree.map(as_placed, state.params, where.params)
    moments = jax.tree.map(as_placed, state.opt_state, where.opt_state)
    out = where.params, where.opt_state
    return (
        jax.jit(optimizer.update, out_shardings=out)
        .lower(params, moments, params)
        .compile()
    )
