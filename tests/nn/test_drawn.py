"""Combinations that nobody thought of: what holds for every Transformer.

A test that fails says its model, and `check(seed, ...)` makes it again. More seeds:

    for seed in range(1000):
        check(seed)
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.masks import Causal
from ropejax.positions import Placement, packed_positions, place_real
from ropejax.sharding import Sharding, make_mesh
from tests.attention import cases
from tests.nn import drawn

ROWS = 3


class Model:
    """A drawn model with parameters, and rows of symbols with padding behind."""

    def __init__(self, seed: int):
        self.of = drawn.request(seed)
        self.rng = np.random.default_rng([seed, 9])
        self.params = drawn.parameters(self.of, seed)
        shape = (ROWS, drawn.LONGEST)
        self.symbols = self.rng.integers(0, drawn.SYMBOLS, shape, np.int32)
        lengths = [drawn.LONGEST, *self.rng.integers(1, drawn.LONGEST, ROWS - 1)]
        self.lengths = self.rng.permutation(lengths).astype(np.int32)
        self.named = f"seed {seed}: {self.of}"
        self.placement = self.placed(self.symbols)
        self.run = self.program(self.of)
        self.base = self.real(self.logits())
        assert np.isfinite(self.base).all(), self.named

    def placed(self, symbols):
        place = jax.jit(lambda symbols, n: drawn.placed(self.of, symbols, n))
        return place(symbols, self.lengths)

    def program(self, of):
        return cases.jit(lambda *given: drawn.logits(of, *given))

    def logits(self, run=None, **other):
        """Logits, of what is `other` than it was."""
        given = {
            name: other.get(name, getattr(self, name))
            for name in ("params", "symbols", "lengths", "placement")
        }
        return (run or self.run)(*given.values())

    def changed(self, **changes) -> drawn.Request:
        spec = dataclasses.replace(self.of.spec, **changes)
        return dataclasses.replace(self.of, spec=spec)

    def real(self, out, lengths=None):
        """Logits at real tokens, zeros at padding."""
        lengths = self.lengths if lengths is None else lengths
        where = np.arange(out.shape[1])[None] < lengths[:, None]
        return np.where(where[..., None], out, 0)

    def same(self, got, wanted, what: str, tolerance: float = 1e-4) -> None:
        atol = tolerance * max(1.0, float(np.abs(wanted).max(initial=0.0)))
        named = f"{what}, {self.named}"
        np.testing.assert_allclose(got, wanted, rtol=0, atol=atol, err_msg=named)


def check(seed: int, *rules) -> None:
    """Raises AssertionError, with the model, if it breaks a rule of all models.

    Args:
        seed: which model.
        *rules: some of `RULES`; all if there is none.
    """
    model = Model(seed)
    for rule in rules or RULES:
        rule(model)


def rows_are_independent(model: Model) -> None:
    """Of their order, of what others hold, and of what stands in padding."""
    order = np.array([2, 0, 1])
    lengths = model.lengths[order]
    moved = _in_order(model.placement, order)
    out = model.logits(symbols=model.symbols[order], lengths=lengths, placement=moved)
    model.same(model.real(out, lengths), model.base[order], "another order", 1e-5)
    behind = np.arange(drawn.LONGEST)[None] >= model.lengths[:, None]
    symbols = np.where(behind, (model.symbols + 2) % drawn.SYMBOLS, model.symbols)
    symbols[1] = (symbols[1] + 1) % drawn.SYMBOLS
    lengths = model.lengths.copy()
    lengths[1] = drawn.LONGEST + 1 - lengths[1]
    out = model.real(model.logits(symbols=symbols, lengths=lengths))
    model.same(out[[0, 2]], model.base[[0, 2]], "a row beside another", 1e-6)


def _in_order(placement: Placement, order) -> Placement:
    """The placement of the same rows in another order."""

    def moved(tree, axis):
        many = lambda x: jnp.take(x, order, axis) if x.shape[axis] == ROWS else x
        return jax.tree.map(many, tree)

    own, common = placement.layers()
    arrays = moved(own, 1) | moved(common, 0)
    return dataclasses.replace(placement, **arrays)


def no_token_sees_later_ones(model: Model) -> None:
    """In causal models."""
    if not model.of.spec.dims.causal:
        return
    first = int(model.rng.integers(1, drawn.LONGEST))
    symbols = model.symbols.copy()
    symbols[:, first:] = (symbols[:, first:] + 1) % drawn.SYMBOLS
    out = model.real(model.logits(symbols=symbols))
    model.same(out[:, :first], model.base[:, :first], "later tokens are other", 1e-6)


def loops_are_layers_spelled_out(model: Model) -> None:
    """One compiled repetition of the pattern, or all of them."""
    out = model.logits(model.program(model.changed(scan_layers=False)))
    model.same(model.real(out), model.base, "layers are spelled out")


def further_padding_changes_nothing(model: Model) -> None:
    """Behind rows: neither where tokens are placed, nor what they say."""
    symbols = np.pad(model.symbols, ((0, 0), (0, 3)), constant_values=1)
    out = model.logits(symbols=symbols, placement=model.placed(symbols))
    out = model.real(out)[:, : drawn.LONGEST]
    model.same(out, model.base, "rows are padded further")


def padding_may_stand_anywhere(model: Model) -> None:
    """Before tokens, or between them."""
    of, width = model.of, drawn.LONGEST + 2
    left = model.rng.random() < 0.5 or model.placement.distances is not None
    valid = np.zeros((ROWS, width), bool)
    for row, length in enumerate(model.lengths):
        ends = np.arange(width - length, width)
        valid[row, ends if left else model.rng.permutation(width)[:length]] = True
    symbols = model.rng.integers(0, drawn.SYMBOLS, valid.shape, np.int32)
    real = np.arange(drawn.LONGEST)[None] < model.lengths[:, None]
    symbols[valid] = model.symbols[real]

    def run(params, symbols, valid):
        placement = place_real(
            of.positions,
            jax.random.key(3),
            valid,
            num_layers=of.spec.dims.num_layers,
            tokens=symbols,
        )
        bound = of.spec.bind(params)
        return bound(symbols, placement, valid=valid, left_padded=left)

    out = np.asarray(cases.jit(run)(model.params, symbols, valid))
    model.same(out[valid], model.base[real], f"tokens at {valid}")


def segments_are_sequences_of_their_own(model: Model) -> None:
    """Two in a row, under masks that do not go by a token's place."""
    spec, placement = model.of.spec, model.placement
    masks = {kind.mask for kind in spec.pattern}
    if placement.distances is not None or masks - {None, Causal()}:
        return
    sizes = model.lengths[:2]

    def together(array, axis):
        rows = (min(row, array.shape[axis] - 1) for row in (0, 1))
        parts = [
            jax.lax.slice_in_dim(
                jnp.take(array, np.array([row]), axis), 0, n, axis=axis + 1
            )
            for row, n in zip(rows, sizes, strict=True)
        ]
        return jnp.concatenate(parts, axis=axis + 1)

    segments = np.repeat([0, 1], sizes)[None].astype(np.int32)
    if placement.positions is None:
        positions = packed_positions(jnp.asarray(segments))
    else:
        positions = together(placement.positions, int(placement.per_layer))
    streams = jax.tree.map(lambda x: together(x, 0), placement.streams)
    where = dataclasses.replace(placement, positions=positions, streams=streams)
    pairs = tuple(zip((0, 1), sizes, strict=True))
    symbols = np.concatenate([model.symbols[row, :n] for row, n in pairs])[None]
    run = lambda params: spec.bind(params)(symbols, where, segments=segments)
    out = cases.jit(run)(model.params)[0]
    alone = np.concatenate([model.base[row, :n] for row, n in pairs])
    model.same(out, alone, "packed in one row")


def decoding_gives_what_a_full_pass_gives(model: Model) -> None:
    """A prompt at once, of one length or of each row its own, then token by token."""
    spec = model.of.spec
    bound = spec.bind(model.params)
    if not bound.can_cache:
        return
    prompts = np.minimum(model.lengths, model.rng.integers(1, drawn.LONGEST, ROWS))
    if bound.has_state(model.placement) or model.rng.random() < 0.5:
        prompts = prompts.min()
    size = int(prompts.max())
    steps = drawn.LONGEST - size

    def decode(params, symbols, placement, prompts):
        bound, rows = spec.bind(params), jnp.arange(ROWS)
        prompt, capacity = symbols[:, :size], size + steps
        logits, memory = bound.start(prompt, placement, prompts, capacity=capacity)

        def one(memory, number):
            places = prompts + number
            read = symbols[rows, jnp.broadcast_to(places, rows.shape)]
            out, memory = bound.step(memory, read, places)
            return memory, out

        out = jax.lax.scan(one, memory, jnp.arange(steps))[1]
        return jnp.concatenate([logits[None], out])

    given = (model.params, model.symbols, model.placement, jnp.asarray(prompts))
    out = np.asarray(cases.jit(decode)(*given))
    starts = np.broadcast_to(prompts, ROWS)
    for row, (start, length) in enumerate(zip(starts, model.lengths, strict=True)):
        wanted = model.base[row, start - 1 : length][: steps + 1]
        model.same(out[: len(wanted), row], wanted, f"prompts of {prompts} tokens")


def gradients_do_not_depend_on_what_is_kept_for_them(model: Model) -> None:
    """Dropout on: what is computed again drops the same."""

    def gradient(remat):
        settings = dataclasses.replace(model.of.spec.settings, remat=remat)
        of = model.changed(settings=settings)

        def loss(params):
            given = (params, model.symbols, model.lengths, model.placement)
            out = drawn.logits(of, *given, rng=jax.random.key(1))
            real = jnp.arange(out.shape[1])[None] < model.lengths[:, None]
            return jnp.where(real[..., None], jnp.sin(out), 0).sum()

        return jax.tree.leaves(cases.jit(jax.grad(loss))(model.params))

    remat = ("full", "dots")[int(model.rng.integers(2))]
    for got, wanted in zip(gradient(remat), gradient("none"), strict=True):
        model.same(got, wanted, f"gradients with remat={remat}", 2e-4)


RULES = (
    rows_are_independent,
    no_token_sees_later_ones,
    loops_are_layers_spelled_out,
    further_padding_changes_nothing,
    padding_may_stand_anywhere,
    segments_are_sequences_of_their_own,
    decoding_gives_what_a_full_pass_gives,
    gradients_do_not_depend_on_what_is_kept_for_them,
)


@pytest.mark.parametrize(
    ("seed", "rules"),
    [
        (1, (rows_are_independent, padding_may_stand_anywhere)),
        (29, (further_padding_changes_nothing, decoding_gives_what_a_full_pass_gives)),
    ],
)
def test_what_holds_for_every_model(seed, rules):
    check(seed, *rules)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_all_that_holds_for_every_model(seed):
    check(seed)


MESHES = (
    {"data": 8},
    {"sequence": 8},
    {"sequence": 4, "data": 2},
    {"fsdp": 2, "tensor": 2, "sequence": 2},
    {"replica": 2, "sequence": 2, "tensor": 2},
    {"tensor": 4, "fsdp": 2},
)


class Rows(NamedTuple):
    """A batch as a mesh takes it."""

    tokens: jax.Array
    lengths: jax.Array
    cotangent: jax.Array


def check_mesh(seed: int) -> str:
    """Raises AssertionError unless a model on some mesh is as it is on one device.

    Dropout is on for odd seeds.

    Returns:
        The mesh, or why the model cannot be spread over it.
    """
    of, rng = drawn.request(seed), np.random.default_rng([seed, 10])
    sizes = MESHES[int(rng.integers(len(MESHES)))]
    how = {"sequence_form": str(rng.choice(["ring", "all_gather", "ulysses"]))}
    if how["sequence_form"] == "ring" and "sequence" in sizes and rng.random() < 0.4:
        how["sequence_order"] = "zigzag"
    rows = 8
    try:
        sharding = Sharding(make_mesh(sizes), **how)
        sharding.check(of.spec, rows)
    except ValueError as refused:
        return str(refused)
    params, shape = drawn.parameters(of, seed), (rows, drawn.LONGEST)
    batch = Rows(
        rng.integers(0, drawn.SYMBOLS, shape, np.int32),
        rng.integers(1, drawn.LONGEST + 1, rows).astype(np.int32),
        np.cos(np.arange(np.prod(shape))).reshape(shape).astype(np.float32),
    )
    here = _loss_and_gradient(of, seed, None)(params, batch)
    placed = jax.device_put(params, sharding.parameters(of.spec, params))
    there = _loss_and_gradient(of, seed, sharding)(placed, batch)
    named = jax.tree_util.tree_leaves_with_path(here)
    for (path, wanted), got in zip(named, jax.tree.leaves(there), strict=True):
        assert np.isfinite(wanted).all()
        atol = 1e-3 * max(0.1, float(np.abs(wanted).max(initial=0.0)))
        what = f"{jax.tree_util.keystr(path)}, seed {seed}: {sizes} {how} {of}"
        np.testing.assert_allclose(got, wanted, rtol=0, atol=atol, err_msg=what)
    return f"{sizes} {how}"


def _loss_and_gradient(of, seed: int, sharding: Sharding | None):
    def loss(params, batch):
        spec = of.spec
        if sharding is not None:
            batch = sharding.batch(batch)
        placement = drawn.placed(of, batch.tokens, batch.lengths)
        valid = jnp.arange(batch.tokens.shape[1])[None] < batch.lengths[:, None]
        batch = batch._replace(cotangent=jnp.where(valid, batch.cotangent, 0))
        if sharding is not None:
            spec, params = sharding.model(spec), sharding.gathered(spec, params)
            batch, placement = sharding.ordered(batch, placement)
        rng = jax.random.key(4) if seed % 2 else None
        out = spec.bind(params)(batch.tokens, placement, valid=valid, rng=rng)
        each = (out * batch.cotangent[..., None]).sum((1, 2))
        return each.sum(), each

    return cases.jit(jax.value_and_grad(loss, has_aux=True))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_a_mesh_alters_nothing(seed):
    check_mesh(seed)
