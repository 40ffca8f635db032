"""The table of engines tells the truth, and "auto" keeps to it."""

import dataclasses
import itertools
import re
import warnings

import jax
import jax.numpy as jnp
import pytest

from experiments.catalogue import engines as table
from ropejax import masks
from ropejax.attention import (
    Choice,
    Request,
    Softmax,
    api,
    attend,
    choose,
    explain,
)
from ropejax.attention.capabilities import ENGINES, FACTOR_ERROR, obstacle
from ropejax.attention.choice import decide
from ropejax.attention.windows import Reach, as_window
from ropejax.encodings import ALiBi, Encoding, PoPE, ReRoPE, Rotary
from ropejax.tokens import tokens
from tests.attention import cases
from tests.attention.test_blockwise import MASKS

GPU = Request(Rotary(), masks.Causal(), platform="gpu", dtype="bfloat16")


def answer(request, **changes):
    return decide("auto", dataclasses.replace(request, **changes))


def test_a_request_is_served_if_no_part_of_it_has_an_obstacle():
    """What the page says of parts is what holds for every combination of them."""
    every = itertools.product(
        table.encodings().values(),
        table.requests_by_mask().values(),
        table.normalizers().values(),
        table.COLUMNS.values(),
    )
    count = 0
    for encoding, masked, normalizer, (engine, changes) in every:
        plain = dataclasses.replace(masked, **changes)
        reach = as_window(plain.mask)
        one_sided = reach is not None and reach.after == 0
        parts = [
            plain,
            dataclasses.replace(
                plain, encoding=encoding, mask=masks.Causal() if one_sided else None
            ),
            dataclasses.replace(plain, normalizer=normalizer),
        ]
        whole = dataclasses.replace(plain, encoding=encoding, normalizer=normalizer)
        served = not any(obstacle(engine, part) for part in parts)
        assert served == (not obstacle(engine, whole)), whole
        count += 1
    assert count > 10_000


@pytest.mark.fast
def test_whatever_is_refused_is_refused_by_name_and_says_why():
    requests = [
        *table.requests_by_encoding(masks.Causal()).values(),
        *table.requests_by_mask().values(),
        *table.requests_by_normalizer().values(),
        *table.requests_by_wish().values(),
    ]
    refused = 0
    for request, (engine, changes) in itertools.product(
        requests, table.COLUMNS.values()
    ):
        request = dataclasses.replace(request, **changes)
        why = obstacle(engine, request)
        if not why:
            assert decide(engine, request) == (engine, "asked for by name")
            continue
        with pytest.raises(ValueError, match=f"^{re.escape(why)}") as error:
            decide(engine, request)
        remedy = str(error.value).split('"')[1]
        assert not obstacle(remedy, request)
        refused += 1
    assert refused > 100


NORMALIZERS = table.normalizers()


@pytest.mark.parametrize("name", NORMALIZERS)
def test_normalizers_are_served_blockwise_as_the_table_says(name):
    normalizer = NORMALIZERS[name]
    arrays = cases.case(Rotary(), 9).arrays
    run = lambda **settings: cases.jit(
        cases.attention(Rotary(), normalizer=normalizer, **settings)
    )(arrays)
    small = {"implementation": "blockwise", "block_q": 4, "block_k": 3}
    why = obstacle("blockwise", Request(Rotary(), normalizer=normalizer))
    if why:
        with pytest.raises(ValueError, match=f"{why}.*dense"):
            run(**small)
    else:
        cases.assert_close(run(**small), run(implementation="dense"))


def test_masks_are_served_blockwise_as_the_table_says():
    tested = {type(mask) for mask in MASKS.values()}
    by_mask = [
        request
        for request in table.requests_by_mask().values()
        if type(request.mask) not in tested
    ]
    arrays = cases.case(Encoding(), 9).arrays
    marked = {"marked": jnp.arange(9)[None] % 2}
    where = tokens(9, streams=marked)
    everything = [masks.Full() if r.mask is None else r.mask for r in by_mask]

    def run(arrays, **settings):
        return [
            cases.attention(Encoding(), where, mask, **settings)(arrays)
            for mask in everything
        ]

    wanted = cases.jit(lambda a: run(a, implementation="dense"))(arrays)
    small = {"implementation": "blockwise", "block_q": 4, "block_k": 3}
    got = cases.jit(lambda a: run(a, **small))(arrays)
    cases.assert_close(got, wanted)


def test_auto_takes_the_kernel_of_the_platform_where_it_serves():
    assert answer(GPU).implementation == "fused"
    assert answer(GPU, encoding=ALiBi()).implementation == "fused"
    assert answer(GPU, platform="tpu").implementation == "fused"
    short = answer(GPU, dtype="float32", num_queries=8, num_keys=8)
    assert short.implementation == "dense"
    for platform in ("cpu", "rocm"):
        assert answer(GPU, platform=platform).implementation == "blockwise"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"encoding": ReRoPE()}, "ReRoPE is more than one dot product"),
        ({"dtype": "float32"}, "fused serves bfloat16 and float16 here, got float32"),
        ({"mask": masks.Lambda(2, 8)}, "fused knows windows of indices only"),
        ({"mask": masks.Window(4, 4)}, "cuDNN has no keys after the query"),
        ({"segments": True}, "cuDNN's fused attention has no segments"),
        ({"aligned": False}, "give both sides the same Tokens"),
        ({"extras": ("dropout",)}, "fused does not do dropout"),
        ({"encoding": ALiBi(learned=True)}, "does not factor with a known bound"),
        ({"view_width": 320}, "320 channels a head are more than 256"),
        ({"view_width": 128, "widest": 124}, "128 channels a head are more than 124"),
        ({"widest": 0}, "Ampere generation or later"),
        ({"platform": "tpu", "one_device": False}, "jax.shard_map"),
        ({"platform": "tpu", "num_keys": 2000}, "multiples of 128 tokens, got 2000"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_auto_warns_where_a_platform_has_to_do_without_its_kernel(changes, why):
    with pytest.warns(UserWarning, match=f"{why}.*blockwise"):
        choice = answer(GPU, **changes)
    assert choice.implementation == "blockwise"
    assert why in choice.why


def test_a_factored_bias_ends_where_float32_sums_lose_its_digits():
    """For slopes up to one in bfloat16, at 2^22 2^-8 = 16,384 keys."""
    alibi = dataclasses.replace(GPU, encoding=ALiBi())
    assert 16384 * FACTOR_ERROR == 2.0**-8
    assert not obstacle("fused", dataclasses.replace(alibi, num_keys=16384))
    over = dataclasses.replace(alibi, num_keys=16385)
    assert "may be off by 0.0039" in obstacle("fused", over)
    gentle = dataclasses.replace(over, encoding=ALiBi(slopes=(0.5, 0.1)))
    assert not obstacle("fused", gentle)
    assert obstacle("fused", dataclasses.replace(gentle, dtype="float16"))


def test_explain_says_it_in_words():
    said = explain(dataclasses.replace(GPU, encoding=ReRoPE()))
    auto, dense, blockwise, fused, pallas = said.splitlines()
    assert auto.startswith("auto: blockwise, because 2048 queries x 2048 keys")
    assert (dense, blockwise) == ("dense: yes", "blockwise: yes")
    assert fused == "fused: no, ReRoPE is more than one dot product"
    assert pallas == "pallas: no, ReRoPE is more than one dot product"
    assert choose(
        "auto",
        num_queries=64,
        num_keys=64,
        encoding=Rotary(),
        normalizer=table.normalizers()["Softmax"],
        platform="gpu",
        dtype="bfloat16",
    ) == ("fused", "gpu has a kernel for it")


@pytest.mark.fast
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"platform": "cuda"}, "one of cpu, gpu, rocm, tpu, in lower case.*got 'cuda'"),
        ({"platform": "GPU"}, "platform must be one of .* got 'GPU'"),
        ({"dtype": jnp.bfloat16}, "dtype must be text, got .* for Request"),
        ({"dtype": "bf16"}, "dtype must name a floating-point type.* got 'bf16'"),
        ({"dtype": "int32"}, "dtype must name a floating-point type.* got 'int32'"),
        ({"extras": "dropout"}, "extras must be a tuple of text each, got 'dropout'"),
        ({"mask": "causal"}, "mask must be a mask of ropejax.masks.* got 'causal'"),
        ({"mask": masks.Causal}, "mask must be a mask of ropejax.masks, .* got <class"),
        ({"normalizer": Softmax}, "normalizer must be a Normalizer, got <class"),
        ({"encoding": "rope"}, "encoding must be a Encoding, got 'rope' for Request"),
        ({"num_queries": -4}, "num_queries must be positive, got -4"),
        ({"num_keys": 2.5}, "num_keys must be a whole number, got 2.5"),
    ],
    ids=str,
)
def test_what_cannot_be_asked_is_refused(wrong, message):
    """By `explain` and by `choose`, which people ask; none of them guesses."""
    with pytest.raises(ValueError, match=message):
        explain(Request(**({"encoding": Rotary()} | wrong)))
    if "extras" in wrong:
        return
    given = {"num_queries": 4, "num_keys": 4, "encoding": Rotary()}
    with pytest.raises(ValueError, match=message):
        choose("auto", **(given | {"normalizer": Softmax()} | wrong))


def test_windows_are_recognized_through_combinations():
    assert as_window(None) == as_window(masks.Full()) == Reach()
    assert as_window(masks.Causal()) == Reach(None, 0)
    both = masks.Window(7, 3) & masks.Causal() & masks.Window(9)
    assert as_window(both) == Reach(7, 0)
    for mask in (masks.Causal() | masks.Prefix(3), ~masks.Causal(), lambda q, k: True):
        assert as_window(mask) is None
    assert as_window(masks.Causal() & masks.Prefix(3)) is None


@pytest.mark.fast
def test_only_what_is_known_beforehand_is_asked_of_an_engine():
    """The tables hold for arrays too: `attend` makes such a request of its own."""
    x, where = jnp.ones((1, 4, 2, 8)), tokens(4)

    def run(engine):
        given = {"encoding": Rotary(), "query": where, "key": where}
        return jax.eval_shape(
            lambda x: attend(x, x, x, **given, implementation=engine), x
        )

    for engine in ENGINES:
        if obstacle(engine, Request(Rotary())):
            with pytest.raises(ValueError, match=engine):
                run(engine)
        else:
            assert run(engine).shape == x.shape
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run("auto")


@pytest.mark.fast
def test_a_request_is_read_off_the_arguments_of_attend(monkeypatch):
    """What `attend` asks for on a GPU, with the platform pretended."""
    asked = []
    monkeypatch.setattr(api, "current_platform", lambda: "gpu")
    monkeypatch.setattr(api, "decide", lambda _, request: _dense(asked, request))
    x, where = jnp.ones((1, 4, 2, 8), jnp.bfloat16), tokens(4)
    dims = cases.DIMS._replace(num_heads=2, head_dim=8)
    layer = PoPE().init_layer(jax.random.key(0), dims)
    params = PoPE().prepare({}, layer, where, where, dims)

    def run(query, key, x=x, **settings):
        jax.eval_shape(
            lambda x: attend(
                x,
                x,
                x,
                encoding=PoPE(),
                params=params,
                query=query,
                key=key,
                **settings,
            ),
            x,
        )
        return asked.pop()

    plain = run(where, where.replace(features=()))
    assert plain.aligned
    assert plain.consecutive_positions
    assert plain.plain_positions
    assert plain.dtype == "bfloat16"
    assert (plain.num_queries, plain.view_width, plain.value_width) == (4, 16, 8)
    assert not plain.padding
    assert not plain.segments
    assert not plain.extras
    assert run(where, tokens(4)).aligned, "known values are compared"
    assert not run(tokens(4, offset=1), where).aligned
    assert not run(where.permuted(jnp.arange(4)), where).aligned
    padded = tokens(4, valid=jnp.ones((1, 4), bool), segments=jnp.zeros((1, 4), int))
    assert run(padded, padded).padding
    assert run(padded, padded).segments
    between = tokens(4, positions=jnp.arange(4.0)[None])
    assert not run(between, between).plain_positions
    for none in (0.0, -1e-6):  # kernels divide by it
        (wish,) = run(where, where, scale=none).extras
        assert wish == f"a scale as near zero as {none}"
    wishes = run(
        where,
        where,
        x=jnp.ones((1, 4, 2, 8)),
        row_scale=jnp.ones((1, 4, 1)),
        scale=jnp.ones((1, 2, 1, 1)),
        dropout_rate=0.1,
        rng=jax.random.key(0),
    )
    assert wishes.dtype == "float32"
    assert len(wishes.extras) == 3
    assert not run(where, where, dropout_rate=0.1).extras, "no rng, no dropout"


def _dense(asked, request):
    asked.append(request)
    return Choice("dense", "a test")
