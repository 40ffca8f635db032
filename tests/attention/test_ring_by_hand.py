"""Attention inside `jax.shard_map`, zigzag order, and what is refused."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from ropejax import masks
from ropejax.attention import (
    SequenceParallel,
    attend,
    from_zigzag,
    to_zigzag,
    zigzag_order,
)
from ropejax.encodings import (
    ENCODINGS,
    ALiBi,
    Dims,
    Encoding,
)
from ropejax.tokens import tokens
from tests.attention import cases
from tests.attention.on_mesh import (
    LENGTH,
    mesh_of,
    results,
)


def by_hand(how, mesh, specs, encoding, where, mask=None):
    """Returns gradients and outputs, cut by hand in `jax.shard_map`."""
    case = cases.case(encoding, LENGTH, Dims(4, 4, 8, 16, causal=True))
    q, k, v = (case.arrays[name] for name in "qkv")
    slopes = encoding.prepare({}, case.arrays["layer"], where, where, DIMS)

    def attention(q, k, v, slopes, where, **settings):
        return attend(
            q,
            k,
            v,
            encoding=encoding,
            params=slopes,
            query=where,
            key=where,
            mask=masks.Causal() if mask is None else mask,
            **settings,
        )

    run = jax.shard_map(
        functools.partial(attention, implementation=how, block_q=4, block_k=4),
        mesh=mesh,
        in_specs=specs,
        out_specs=specs[0],
    )
    dense = functools.partial(attention, implementation="dense")
    return (q, k, v, slopes), case.cotangent, run, dense


DIMS = Dims(4, 4, 8, 16, causal=True)


@pytest.mark.parametrize("form", ["ring", "all_gather"])
def test_zigzag_order_by_hand_on_sequence_and_heads(form):
    mesh = mesh_of(sequence=4, heads=2)
    encoding, where = ALiBi(learned=True), tokens(LENGTH)
    arrays = P(None, "sequence", "heads")
    specs = (arrays, arrays, arrays, P("heads"), P(None, "sequence"))
    (q, k, v, slopes), cotangent, run, dense = by_hand(
        SequenceParallel(form), mesh, specs, encoding, where
    )

    def spread(q, k, v, slopes):
        moved = where.permuted(jnp.asarray(zigzag_order(LENGTH, 4)))
        out = run(*to_zigzag((q, k, v), 4), slopes, moved)
        return from_zigzag(out, 4)

    def gradients(function):
        loss = lambda *x: ((out := function(*x)) * cotangent).sum() + 0 * out.sum()
        both = cases.jit(jax.value_and_grad(loss, (0, 1, 2, 3)))
        return cases.jit(function)(q, k, v, slopes), both(q, k, v, slopes)[1]

    got = gradients(spread)
    wanted = gradients(lambda *x: dense(*x, where))
    cases.assert_close(got[0], wanted[0])
    cases.assert_close(got[1], wanted[1], 1e-5)


def test_parameters_are_prepared_for_the_whole_sequence_by_hand():
    """ALiBi without learned slopes needs no params; the table's reach is checked."""
    mesh, where = mesh_of(sequence=2), tokens(LENGTH)
    case = cases.case(Encoding(), LENGTH)
    q, k, v = (case.arrays[name] for name in "qkv")
    table = where.replace(distances=jnp.arange(LENGTH // 2 + 1)[None] * 2)
    encoding = ALiBi()

    def run(where, specs=None):
        part = P(None, "sequence")
        return jax.shard_map(
            lambda q, k, v, at: attend(
                q,
                k,
                v,
                encoding=encoding,
                query=at,
                key=at,
                mask=masks.Causal(),
                implementation=SequenceParallel("ulysses"),
            ),
            mesh=mesh,
            in_specs=(part, part, part, part if specs is None else specs),
            out_specs=part,
        )(q, k, v, where)

    wanted = attend(
        q,
        k,
        v,
        encoding=encoding,
        query=where,
        key=where,
        mask=masks.Causal(),
        implementation="dense",
    )
    cases.assert_close(run(where), wanted)
    specs = jax.tree.map(lambda _: P(None, "sequence"), table).replace(distances=P())
    with pytest.raises(ValueError, match="17 distances is too short for 32 tokens"):
        run(table, specs=specs)


def test_whole_arrays_on_a_mesh_of_explicit_types():
    mesh = jax.make_mesh((4,), ("sequence",), axis_types=(AxisType.Explicit,))
    case = cases.case(Encoding(), LENGTH)
    spread = jax.NamedSharding(mesh, P(None, "sequence"))
    where = tokens(LENGTH)

    def run(arrays, where, **settings):
        run = cases.attention(Encoding(), where, **settings)
        return run(arrays | {"shared": {}, "layer": {}})

    arrays = {name: case.arrays[name] for name in "qkvx"}
    wanted = run(arrays, where, implementation="dense")
    run = functools.partial(run, implementation=SequenceParallel("ring"))
    with jax.set_mesh(mesh):
        out = cases.jit(run)(*jax.device_put((arrays, where), spread))
    assert jax.typeof(out).sharding.spec == P(None, "sequence", None, None)
    cases.assert_close(out, wanted)


def test_zigzag_gives_devices_equal_work():
    order = zigzag_order(48, 4).reshape(4, -1)
    assert order[1].tolist() == [*range(6, 12), *range(36, 42)]
    pairs = (order + 1).sum(axis=1)  # keys that a device's causal queries see
    assert len(set(pairs.tolist())) == 1
    x = jnp.arange(48)[None]
    assert not (to_zigzag(x, 4) == x).all()
    np.testing.assert_array_equal(from_zigzag(to_zigzag(x, 4), 4), x)
    with pytest.raises(ValueError, match="40 or 48"):
        zigzag_order(42, 4)


def test_sizes_that_do_not_divide_are_named():
    case = cases.case(Encoding(), 30)

    def run(how, case=case, **axes):
        with jax.set_mesh(mesh_of(**axes)):
            cases.attention(Encoding(), implementation=how)(case.arrays)

    with pytest.raises(ValueError, match="30 queries .* 28 or 32"):
        run(SequenceParallel(), sequence=4)
    with pytest.raises(ValueError, match="2 rows .* are 4"):
        run(SequenceParallel(batch_axes=("data",)), data=4, sequence=2)
    with pytest.raises(ValueError, match="'sequence', but the mesh has the axes data"):
        run(SequenceParallel(), data=2)
    with pytest.raises(ValueError, match="do not divide 2 key heads"):
        run(SequenceParallel("ulysses"), cases.case(Encoding(), 32), sequence=4)
    with pytest.raises(ValueError, match="is not set"):
        cases.attention(Encoding(), implementation=SequenceParallel())(case.arrays)
    with pytest.raises(ValueError, match="form must be one of ring, all_gather"):
        SequenceParallel("rings")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"form": 3}, "form must be text, got 3"),
        ({"form": "rign"}, "got 'rign'; did you mean 'ring'"),
        ({"engine": "danse"}, "got 'danse'; did you mean 'dense'"),
        ({"engine": "foo"}, "engine must be one of auto, dense, .* got 'foo'"),
        ({"batch_axes": "data"}, "batch_axes must be a tuple .* got 'data'"),
        (
            {"batch_axes": ["data"]},
            r"batch_axes must be a tuple of names, got \['data'",
        ),
        ({"batch_axes": ("sequence",)}, "must be different .* got 'sequence' twice"),
        ({"axis": "a", "head_axis": "a"}, "must be different axes .* got 'a' twice"),
        ({"mesh": "cpu"}, "mesh must be a jax.sharding.Mesh .* got 'cpu'"),
    ],
    ids=str,
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        SequenceParallel(**settings)


def test_methods_that_need_what_a_form_lacks_are_refused():
    per_head = masks.PerHead((masks.Window(2), masks.Causal()) * 2)
    for how, encoding, mask, remedy in (
        ("ulysses", ENCODINGS["dape"](), masks.Causal(), "ring"),
        ("ulysses", Encoding(), per_head, "ring"),
    ):
        with pytest.raises(ValueError, match=f'SequenceParallel."{remedy}"'):
            results(
                encoding,
                None,
                mask,
                mesh=mesh_of(sequence=2),
                implementation=SequenceParallel(how),
            )
