"""Attention with the sequence over devices equals dense attention on one of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax import masks
from ropejax.attention import (
    Entmax,
    Selective,
    SequenceParallel,
    Sigmoid,
    SinkSoftmax,
    SquaredReLU,
    StickBreaking,
    zigzag_order,
)
from ropejax.encodings import (
    ENCODINGS,
    ALiBi,
    CoPE,
    Encoding,
    ReRoPE,
    Rotary,
    compose,
)
from ropejax.tokens import tokens
from tests.attention import cases
from tests.attention.on_mesh import (
    LENGTH,
    assert_spread_equals_dense,
    both,
    mesh_of,
    results,
)

ENCODED = {
    "none": Encoding(),
    "rope": Rotary(),
    "alibi": ALiBi(learned=True),
    "rerope": ReRoPE(window=5),
    "t5": ENCODINGS["t5"](),
}


@pytest.mark.parametrize("name", ENCODED)
def test_ring_equals_dense(name):
    assert_spread_equals_dense(
        SequenceParallel("ring"), ENCODED[name], mesh_of(sequence=4), return_lse=True
    )


@pytest.mark.parametrize("form", ["all_gather", "ulysses"])
def test_other_forms_equal_dense(form):
    """Slopes are a parameter of each head, so all-to-all must cut the right ones."""
    how = SequenceParallel(form)
    assert_spread_equals_dense(how, ALiBi(learned=True), mesh_of(sequence=2))


def padded_segments():
    rng = np.random.default_rng(0)
    segments = jnp.asarray(np.sort(rng.integers(0, 3, (2, LENGTH)), axis=1))
    valid = jnp.arange(LENGTH) < jnp.array([[LENGTH], [19]])
    return tokens(LENGTH, segments=segments, valid=valid)


@pytest.mark.parametrize("head_axis", ["tensor", None])
def test_window_segments_and_padding_with_rows_and_heads_spread_as_well(head_axis):
    """Rows see different keys; heads are cut by hand, or left to the compiler."""
    mesh = mesh_of(data=2, sequence=2, tensor=2)
    how = SequenceParallel("ring", batch_axes=("data",), head_axis=head_axis)
    mask = masks.Window(7, 2)
    where = padded_segments()
    assert_spread_equals_dense(how, Rotary(), mesh, where, mask)


def test_parameters_with_a_row_for_each_sequence_are_cut_with_the_rows():
    """Dynamic NTK's frequencies follow each row's own length."""
    how = SequenceParallel("ring", batch_axes=("data",))
    encoding = ENCODINGS["dynamic_ntk"](train_length=8)
    assert_spread_equals_dense(
        how, encoding, mesh_of(data=2, sequence=2), padded_segments()
    )


@pytest.mark.parametrize(
    "how",
    [
        SequenceParallel("ring", batch_axes=("data",), head_axis="other"),
        SequenceParallel("ulysses", "other", batch_axes=("data",)),
        SequenceParallel(axis=None, batch_axes=("data",), head_axis="other"),
    ],
    ids=["ring", "ulysses", "rows and heads"],
)
def test_dropout_is_that_of_one_device(how):
    """A mask of the whole batch's rows and heads, wherever they are."""
    sizes = {"data": 2, "other": 2} | (
        {"sequence": 2} if how.axis == "sequence" else {}
    )
    settings = {"dropout_rate": 0.5, "rng": jax.random.key(3)}
    assert_spread_equals_dense(how, Encoding(), mesh_of(**sizes), **settings)


def test_rows_and_heads_of_whole_sequences():
    """Parameters of heads, features of heads, and a factor for each row and head."""
    how = SequenceParallel(axis=None, batch_axes=("data",), head_axis="tensor")
    factor = 1 + jnp.arange(2 * LENGTH * 4.0).reshape(2, LENGTH, 4) / 100
    settings = {"row_scale": factor, "normalizer": SinkSoftmax()}
    settings["normalizer_params"] = {"sink": jnp.arange(4.0)}
    encoding = compose(alibi=ALiBi(learned=True), fox=ENCODINGS["fox"]())
    mesh = mesh_of(data=2, tensor=2)
    assert_spread_equals_dense(how, encoding, mesh, **settings)


@pytest.mark.parametrize(
    ("normalizer", "params"),
    [
        (SinkSoftmax(), {"sink": jnp.arange(4.0)}),
        (Sigmoid(), None),
        (SquaredReLU(), None),
    ],
    ids=["sink", "sigmoid", "squared-relu"],
)
def test_other_normalizers_go_around(normalizer, params):
    assert_spread_equals_dense(
        SequenceParallel("ring"),
        Encoding(),
        mesh_of(sequence=2),
        normalizer=normalizer,
        normalizer_params=params,
    )


def test_entmax_has_its_whole_rows_under_ulysses():
    assert_spread_equals_dense(
        SequenceParallel("ulysses"),
        Encoding(),
        mesh_of(sequence=2),
        mask=masks.Causal(),
        normalizer=Entmax(),
    )


def test_carried_state_is_served_by_all_gather_only():
    mesh = mesh_of(sequence=2)
    for encoding, settings in (
        (CoPE(), {}),
        (Encoding(), {"normalizer": StickBreaking()}),
    ):
        with pytest.raises(ValueError, match="all_gather"):
            results(
                encoding, mesh=mesh, implementation=SequenceParallel("ring"), **settings
            )
    assert_spread_equals_dense(SequenceParallel("all_gather"), CoPE(), mesh)


@pytest.mark.parametrize("form", ["ring", "all_gather", "ulysses"])
def test_what_needs_all_rows_of_all_heads_is_refused(form):
    """Selective attention reads the logits of its first head, whole."""
    with pytest.raises(ValueError, match="Selective needs whole rows .* all heads"):
        results(
            Encoding(),
            mesh=mesh_of(sequence=2),
            implementation=SequenceParallel(form),
            normalizer=Selective(),
        )


def _served(form):
    names = []
    for name, cls in ENCODINGS.items():
        carry = form == "ring" and cls().has_carry
        mixing = form == "ulysses" and cls().mixes_heads
        if not (carry or mixing):
            names.append(name)
    return names


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "name"), [(f, n) for f in ("ring", "ulysses") for n in _served(f)]
)
def test_every_encoding_of_the_catalogue(form, name):
    """In zigzag order for the ring, whose tokens are nowhere consecutive then.

    The ring is on rows, tokens and heads; ulysses on rows and tokens.

    Gradients are compared to the largest number or one: some are zero but for rounding.
    """
    how = SequenceParallel(form, batch_axes=("data",), head_axis="tensor")
    where = tokens(LENGTH)
    if form == "ring":
        where = where.permuted(jnp.asarray(zigzag_order(LENGTH, 2)))
    mesh = mesh_of(data=2, sequence=2, tensor=2)
    if form == "ulysses":
        mesh = mesh_of(data=2, sequence=2)
        how = SequenceParallel(form, batch_axes=("data",))
    cases.assert_close(*both(how, ENCODINGS[name](), mesh, where), 1e-5)
