"""Evaluation on a mesh: the same scores, answers decoded there too, nothing gathered.

One program a mesh: 8 virtual devices, rows that fill no device's part evenly.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.encodings import ENCODINGS, Dims
from ropejax.evaluation import evaluate, evaluate_length
from ropejax.evaluation_places import COUNTED
from ropejax.masks import Causal
from ropejax.nn import BlockSettings, LayerKind, TransformerSpec
from ropejax.positions import Consecutive, Randomized
from ropejax.sharding import Sharding, make_mesh
from ropejax.tasks import TASKS, Autoregressive
from tests.collectives import float_shapes

TASK = TASKS["stack_manipulation"]()
DRAWS, SAMPLES = 2, 12  # 6 rows at once: on 4 or 8 devices, some have none


def model_of(task, encoding="t5", causal=False):
    kind = LayerKind(ENCODINGS[encoding](), Causal() if causal else None)
    spec = TransformerSpec(
        task.num_symbols,
        task.output_vocab,
        Dims(4, 4, 4, 16, num_layers=2, causal=causal),
        BlockSettings(mlp_dim=24, dropout=0.0, pre_norm=True),
        (kind,),
    )
    params = spec.init(jax.random.key(0))
    return spec, jax.tree.map(lambda leaf: 4 * leaf, params)  # answers that differ


def scored(task, spec, params, sharding=None, by_place=False):
    if sharding is not None:
        params = jax.device_put(params, sharding.parameters(spec, params))
    return evaluate(
        spec,
        params,
        task,
        Randomized(max_position=64, per_sequence=True),
        [3, 7],
        samples=SAMPLES,
        draws=DRAWS,
        buckets=(8,),
        sharding=sharding,
        by_place=by_place,
    )


def assert_same_scores(got, wanted):
    """In all; and by place, where both were counted so."""
    assert list(got) == list(wanted)
    in_all = lambda score: score._replace(loss=0.0, places=None)
    for length, score in got.items():
        assert score.loss == pytest.approx(wanted[length].loss, rel=1e-5)
        assert in_all(score) == in_all(wanted[length])
        assert score.rows == SAMPLES
        if score.places is not None and wanted[length].places is not None:
            for name in COUNTED:
                here, there = (getattr(s.places, name) for s in (score, wanted[length]))
                rtol = 2e-4 if name == "loss" else 0
                np.testing.assert_allclose(here, there, rtol=rtol, err_msg=name)


@pytest.mark.parametrize(
    "sizes", [{"data": 4, "tensor": 2}, {"data": 2, "sequence": 4}], ids=str
)
def test_an_encoder_has_the_same_scores_on_a_mesh(sizes):
    spec, params = model_of(TASK)
    sharding = Sharding(make_mesh(sizes))
    assert_same_scores(scored(TASK, spec, params, sharding), scored(TASK, spec, params))


@pytest.fixture(scope="module")
def decoder():
    task = Autoregressive(TASK)
    spec, params = model_of(task, causal=True)
    return task, spec, params, scored(task, spec, params, by_place=True)


@pytest.mark.parametrize(
    ("sizes", "order"),
    [
        ({"fsdp": 4, "tensor": 2}, "consecutive"),
        ({"data": 2, "sequence": 2, "tensor": 2}, "zigzag"),
    ],
    ids=str,
)
def test_what_a_decoder_answers_on_a_mesh_is_scored_alike(decoder, sizes, order):
    task, spec, params, wanted = decoder
    assert 0 < wanted[7].correct < wanted[7].scored
    sharding = Sharding(make_mesh(sizes), sequence_order=order)
    by_place = order == "zigzag"  # which stores tokens in another order than theirs
    got = scored(task, spec, params, sharding, by_place)
    assert (got[7].places is not None) == by_place
    assert_same_scores(got, wanted)


def test_no_device_has_all_of_a_model_nor_of_what_is_decoded(decoder):
    """Under FSDP: one layer's parameters are gathered at a time, and no activations."""
    task, spec, params, _ = decoder
    sharding = Sharding(make_mesh({"fsdp": 8}))
    params = jax.device_put(params, sharding.parameters(spec, params))
    text = (
        evaluate_length.lower(
            *(spec, params, task, Consecutive(), jax.random.key(0), jnp.int32(7)),
            bucket=8,
            samples=16,
            draws=2,
            sharding=sharding,
        )
        .compile()
        .as_text()
    )
    found = float_shapes(text)
    layers, tables = params["layers"], (params["embedding"], params["readout"])
    known = {leaf.shape[1:] for leaf in jax.tree.leaves(layers)}
    known |= {leaf.shape for leaf in jax.tree.leaves(tables)}
    squeezed = lambda shapes: {tuple(n for n in s if n > 1) for s in shapes}
    assert squeezed(found["all-gather"]) <= squeezed(known)
    assert set(found) == {"all-gather", "all-reduce"}
    assert squeezed(found["all-reduce"]) <= {(), (2,)}  # sums of what was counted


def test_devices_that_share_a_sequence_decode_rows_of_their_own():
    sharding = Sharding(make_mesh({"data": 2, "sequence": 4}), sequence_order="zigzag")
    rows = sharding.by_rows
    assert (rows.batch_parts, rows.length_parts) == (8, 1)
    assert rows.by_rows is rows
    alone = Sharding(make_mesh({"fsdp": 8}))
    assert alone.by_rows is alone


def test_a_model_that_cannot_be_spread_so_is_refused_before_anything():
    spec, params = model_of(TASK)
    with pytest.raises(ValueError, match="num_heads=4 does not divide over 8 devices"):
        scored(TASK, spec, params, Sharding(make_mesh({"tensor": 8})))
    ring = Sharding(make_mesh({"sequence": 8}))
    carried = model_of(TASK, "cope", causal=True)
    with pytest.raises(ValueError, match="cannot go around a ring"):
        evaluate(*carried, TASK, Consecutive(), [3], samples=2, draws=1, sharding=ring)


def test_places_are_checked_for_what_a_mesh_pads_tokens_to():
    """15 tokens are 16 on 4 devices, and positions for 15 would run out."""
    spec, params = model_of(TASK)
    tokens = TASK.num_tokens(7)
    assert tokens % 4
    tight = Randomized(max_position=tokens)
    with pytest.raises(ValueError, match=str(tokens)):
        evaluate(
            *(spec, params, TASK, tight, [7]),
            samples=2,
            draws=1,
            sharding=Sharding(make_mesh({"data": 2, "sequence": 4})),
        )
    scores = evaluate(spec, params, TASK, tight, [7], samples=2, draws=1)
    assert np.isfinite(scores[7].loss)
