"""Optimizers by name: their formulas, on what they act, and members beside runs."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import pytest

from ropejax.training import OPTIMIZERS, Numbers, OptimizerFamily, OwnOptimizer, clipped
from ropejax.training.members import strong
from ropejax.training.muon import Muon
from ropejax.training.optimizers import SGD, Adafactor, Adam, Lion

pytestmark = pytest.mark.fast
RATE = 0.1


def drawn(seed, layers=2):
    """Numbers in place of a small model's parameters, or of their gradients."""
    shapes = {
        "embedding": (3, 4),
        "layers": {
            "kind_0": {
                "attention": {
                    "encoding_params": {"kernel": (layers, 4, 4)},
                    "out": {"kernel": (layers, 2, 3, 4)},
                    "query": {"kernel": (layers, 4, 2, 3)},
                },
                "mlp_in": {"bias": (layers, 8), "kernel": (layers, 4, 8)},
            }
        },
        "readout": {"kernel": (4, 3)},
    }
    rng = np.random.default_rng(seed)
    draw = lambda shape: jnp.asarray(rng.normal(size=shape), jnp.float32)
    return jax.tree.map(draw, shapes, is_leaf=lambda shape: isinstance(shape, tuple))


PARAMS, GRADIENTS = drawn(0), [drawn(seed) for seed in (1, 2, 3)]


def stepped(optimizer, params=PARAMS, gradients=GRADIENTS):
    @jax.jit
    def steps(params, gradients):
        state = optimizer.init(params)
        for gradient in gradients:
            updates, state = optimizer.update(gradient, state, params)
            params = optax.apply_updates(params, updates)
        return params

    return steps(params, gradients)


def assert_same(one, two, rtol=1e-5):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-6), one, two
    )


def test_adam_by_name_is_the_chain_that_it_was_bit_for_bit():
    """The same operations on the same state: old checkpoints go on."""
    moments = {"b1": 0.8, "b2": 0.9, "eps": 1e-4}
    for decay in (0.0, 0.1):
        family = OptimizerFamily(steps=9, decays=decay != 0)
        ours = family(Numbers(RATE, decay, 0.5, **moments))
        theirs = optax.chain(
            optax.clip_by_global_norm(0.5),
            optax.adamw(
                optax.join_schedules([lambda _: 0.0, lambda _: RATE], [0]),
                weight_decay=decay,
                mask=lambda tree: jax.tree_util.tree_map_with_path(
                    lambda path, _: path[-1].key == "kernel", tree
                ),
                **moments,
            )
            if decay
            else optax.adam(RATE, **moments),
        )
        one, two = stepped(ours), stepped(theirs)
        jax.tree.map(np.testing.assert_array_equal, one, two)
        if not decay:
            assert str(jax.eval_shape(ours.init, PARAMS)[1][0]) == str(
                jax.eval_shape(theirs.init, PARAMS)[1][0]
            )


@pytest.mark.parametrize("nesterov", [False, True])
def test_gradient_descent_is_its_formula(nesterov):
    """In float64: a trace of gradients, and decay of kernels apart from it."""
    decay, momentum = 0.3, 0.8
    ends = stepped(SGD(momentum, nesterov)(RATE, Numbers(RATE, decay)))
    for name, decays in (("kernel", decay), ("bias", 0.0)):
        mlp = lambda tree, name=name: np.asarray(
            tree["layers"]["kind_0"]["mlp_in"][name], np.float64
        )
        w, trace = mlp(PARAMS), 0.0
        for g in map(mlp, GRADIENTS):
            trace = momentum * trace + g
            step = g + momentum * trace if nesterov else trace
            w = w - RATE * (step + decays * w)
        np.testing.assert_allclose(mlp(ends), w, rtol=1e-5)


def test_lion_is_its_formula():
    decay, b1, b2 = 0.3, 0.7, 0.9
    ends = stepped(Lion(b1, b2)(RATE, Numbers(RATE, decay)))
    for path, decays in (("embedding", 0.0), ("readout", decay)):
        leaf = lambda tree, path=path: np.asarray(
            jax.tree.leaves(tree[path])[0], np.float64
        )
        w, m = leaf(PARAMS), 0.0
        for g in map(leaf, GRADIENTS):
            w = w - RATE * (np.sign(b1 * m + (1 - b1) * g) + decays * w)
            m = b2 * m + (1 - b2) * g
        np.testing.assert_allclose(leaf(ends), w, rtol=1e-5)


def layer(tree, at):
    """The parameters of one layer, as a model of it alone has them."""
    pick = lambda leaf: leaf[at : at + 1]
    return {**tree, "layers": jax.tree.map(pick, tree["layers"])}


@pytest.mark.parametrize("make", OPTIMIZERS.values())
def test_a_layer_learns_as_it_would_without_the_other_layers(make):
    """Those of a model are one array, whose size or factors are nobody's."""
    settings = {"min_dim_size_to_factor": 2} if make is Adafactor else {}
    optimizer = make(**settings)(RATE, Numbers(RATE, 0.1))
    both = stepped(optimizer)
    for at in range(2):
        alone = [layer(tree, at) for tree in (PARAMS, *GRADIENTS)]
        assert_same(stepped(optimizer, alone[0], alone[1:]), layer(both, at), 1e-4)


def test_adafactor_is_that_of_optax_but_for_a_decay_by_the_learning_rate():
    embedding = lambda tree: {"embedding": tree["embedding"]}
    kernel = lambda tree: tree["readout"]
    given = {"min_dim_size_to_factor": 2, "decay_rate": 0.7, "momentum": 0.5}
    for part, decay in ((embedding, 0.0), (kernel, 0.3 * RATE)):
        trees = [part(tree) for tree in (PARAMS, *GRADIENTS)]
        theirs = optax.adafactor(RATE, weight_decay_rate=decay, **given)
        ours = Adafactor(**given)(lambda step: RATE, Numbers(RATE, 0.3))
        assert_same(*(stepped(one, trees[0], trees[1:]) for one in (ours, theirs)))


def test_muon_turns_every_layers_momentum_and_leaves_the_rest_to_adam():
    numbers = Numbers(RATE, 0.0, b1=0.8, b2=0.9, eps=1e-3)
    optimizer = Muon(others_rate=0.5)(RATE, numbers)
    updates, _ = optimizer.update(GRADIENTS[0], optimizer.init(PARAMS), PARAMS)
    attention = updates["layers"]["kind_0"]["attention"]
    gradients = GRADIENTS[0]["layers"]["kind_0"]["attention"]
    for name, shape in (("query", (4, 6)), ("out", (6, 4))):
        for at in range(2):
            update, gradient = (
                np.asarray(tree[name]["kernel"][at]).reshape(shape)
                for tree in (attention, gradients)
            )
            u, s, v = np.linalg.svd(gradient, full_matrices=False)
            # Near U V^T, with singular values that five iterations bring about 1.
            turned = -u.T @ update @ v.T / (RATE * 0.2 * np.sqrt(6))
            np.testing.assert_allclose(turned, np.diag(np.diag(turned)), atol=1e-4)
            assert np.all((np.diag(turned) > 0.6) & (np.diag(turned) < 1.3))
    adam = Adam()(RATE / 2, numbers)
    theirs, _ = adam.update(GRADIENTS[0], adam.init(PARAMS), PARAMS)
    others = lambda tree: (
        *(tree["embedding"], tree["readout"]),
        tree["layers"]["kind_0"]["mlp_in"]["bias"],
        tree["layers"]["kind_0"]["attention"]["encoding_params"],
    )
    assert_same(others(updates), others(theirs))


def test_muon_is_that_of_optax_on_matrices():
    kernels = [tree["layers"]["kind_0"]["mlp_in"]["kernel"] for tree in GRADIENTS]
    wrapped = [{"mlp": {"kernel": kernel[0]}} for kernel in kernels]
    params = {"mlp": {"kernel": PARAMS["layers"]["kind_0"]["mlp_in"]["kernel"][0]}}
    ours = Muon(beta=0.9, ns_steps=3, consistent_rms=None)(RATE, Numbers(RATE, 0.2))
    theirs = optax.contrib.muon(RATE, ns_steps=3, beta=0.9, weight_decay=0.2)
    assert_same(*(stepped(one, params, wrapped) for one in (ours, theirs)))


MEMBERS = [Numbers(RATE, 0.2, 0.5), Numbers(0.3, 0.1, 2.0)]
OWN = OwnOptimizer(optax.adamw, (("b1", 0.5),), weight_decay=0.3)


@pytest.mark.parametrize(
    "optimizer",
    [SGD(), Lion(), Adafactor(min_dim_size_to_factor=2), Muon(), OWN],
    ids=lambda optimizer: type(optimizer).__name__,
)
def test_members_mapped_over_traced_numbers_equal_the_same_alone(optimizer):
    """Rates, decays and clipping differ; the schedule is traced."""
    heeds_decay = "weight_decay" in optimizer.heeds
    family = OptimizerFamily(
        *(9, 2, 0.1), decays=heeds_decay, optimizer=optimizer, clips=True
    )
    members = MEMBERS
    if not heeds_decay:
        members = [one._replace(weight_decay=0.0) for one in MEMBERS]
    together = jax.jit(jax.vmap(lambda numbers: stepped(family(numbers))))
    mapped = together(strong(members))
    for at, numbers in enumerate(members):
        one = jax.tree.map(lambda leaf, at=at: leaf[at], mapped)
        assert_same(one, stepped(family(numbers)), 1e-3)


def test_one_s_own_decays_kernels_alone_if_it_can_be_told_to():
    with_mask = OWN(RATE, Numbers(RATE))
    mask = lambda tree: jax.tree_util.tree_map_with_path(
        lambda path, _: path[-1].key == "kernel", tree
    )
    theirs = optax.adamw(RATE, b1=0.5, weight_decay=0.3, mask=mask)
    assert_same(stepped(with_mask), stepped(theirs))
    given = []

    def without(learning_rate, weight_decay=7.0):
        given.append(weight_decay)
        return optax.sgd(learning_rate)

    assert_same(
        stepped(OwnOptimizer(without)(RATE, Numbers(RATE))), stepped(optax.sgd(RATE))
    )
    assert given == [0.0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SGD(1.0), r"momentum must be in \[0, 1\), got 1.0"),
        (lambda: SGD(0.0, nesterov=True), "nesterov=True does nothing without"),
        (lambda: Lion(b2=-0.1), r"b2 must be in \[0, 1\), got -0.1"),
        (lambda: Adafactor(clipping_threshold=0.0), "clipping_threshold must be pos"),
        (lambda: Adafactor(momentum=1.5), r"momentum must be in \[0, 1\)"),
        (lambda: Muon(ns_steps=0), "ns_steps must be positive, got 0"),
        (lambda: Muon(consistent_rms=-0.2), "consistent_rms must be positive"),
        (lambda: Muon(beta=0.0), "nesterov=True does nothing at beta=0"),
        (lambda: OwnOptimizer(optax.radam, (("b3", 1),)), "'b3'. Its other arguments"),
        (lambda: OwnOptimizer(optax.adam, (("b1", [0.9]),)), "b1=.* must be hashable"),
        (lambda: OwnOptimizer(optax.sgd, weight_decay=0.1), "=0.1 does nothing with"),
        (lambda: OwnOptimizer(lambda: 1), "must take a learning rate as its first"),
        (lambda: OwnOptimizer(abs)(RATE, Numbers(RATE)), "must return an optax.Grad"),
        (
            lambda: OptimizerFamily(5, optimizer=Lion())(Numbers(RATE, b2=0.9)),
            "b2=0.9 does nothing with Lion; leave it at 0.999",
        ),
        (lambda: OptimizerFamily(5, decays=True, optimizer=OWN), "decays=True does no"),
        (lambda: clipped(optax.sgd(RATE), 0.0), "max_grad_norm must be positive"),
        (lambda: Lion()(RATE, Numbers(RATE, -0.1)), "weight_decay must not be negati"),
    ],
)
def test_settings_that_cannot_be_or_do_nothing_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
