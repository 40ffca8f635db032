"""The model: an oracle in numpy, loops against spelled-out layers, who sees whom."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.encodings import ENCODINGS, Dims, Encoding
from ropejax.masks import Causal, Chunked, Global, Marked, Prefix, Window
from ropejax.nn import (
    BlockSettings,
    LayerKind,
    LayerNorm,
    LinearReadout,
    TransformerSpec,
)
from ropejax.nn.transformer import symbol_vectors
from ropejax.positions import Placement, Randomized, count_real

DIMS = Dims(num_heads=2, num_kv_heads=2, head_dim=4, embed_dim=8, num_layers=2)
SETTINGS = BlockSettings(mlp_dim=16, dropout=0.0)


def make(encoding=None, mask=None, **changes):
    kind = LayerKind(encoding or Encoding(), mask)
    spec = TransformerSpec(5, 3, DIMS, SETTINGS, (kind,))
    return dataclasses.replace(spec, **changes)


def random_params(spec, rng):
    """Initial parameters with every bias and gain moved off its neutral value."""
    leaves, tree = jax.tree.flatten(spec.init(rng))
    keys = jax.random.split(rng, len(leaves))
    moved = [
        leaf + 0.3 * jax.random.normal(key, leaf.shape)
        for leaf, key in zip(leaves, keys, strict=True)
    ]
    return jax.tree.unflatten(tree, moved)


def numpy_model(params, tokens, pre_norm, output_norm=False, scale=0.5, cap=np.inf):
    """The paper's encoder without positions, in float64, layer by layer.

    Norms stand elsewhere if asked for, products of queries and keys and logits have
    another scale and a cap, and embeddings a norm if there are parameters for it.
    """
    params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)

    def norm(x, p):
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
        return x * p["scale"] + p.get("bias", 0)

    def attention(x, p):
        q, k, v = (
            np.einsum("bld,dnh->blnh", x, p[name]["kernel"])
            for name in ("query", "key", "value")
        )
        logits = np.einsum("btnh,bsnh->bnts", q, k) * scale
        weights = np.exp(logits - logits.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        out = np.einsum("bnts,bsnh->btnh", weights, v)
        return np.einsum("btnh,nhd->btd", out, p["out"]["kernel"])

    def mlp(x, p):
        hidden = np.maximum(x @ p["mlp_in"]["kernel"] + p["mlp_in"]["bias"], 0)
        return hidden @ p["mlp_out"]["kernel"] + p["mlp_out"]["bias"]

    x = params["embedding"][tokens] * np.sqrt(8)
    if "embedding_norm" in params:
        x = norm(x, params["embedding_norm"])
    for at in range(2):
        p = jax.tree.map(lambda leaf, at=at: leaf[at], params["layers"]["kind_0"])
        attend = lambda x, p=p: attention(x, p["attention"])
        for name, part in (("attention", attend), ("mlp", lambda x, p=p: mlp(x, p))):
            out = part(norm(x, p[f"{name}_norm"]) if pre_norm else x)
            x = x + (norm(out, p[f"{name}_output_norm"]) if output_norm else out)
            x = x if pre_norm or output_norm else norm(x, p[f"{name}_norm"])
    if pre_norm or output_norm:
        x = norm(x, params["final_norm"])
    logits = x @ params["readout"]["kernel"] + params["readout"]["bias"]
    return logits if cap == np.inf else cap * np.tanh(logits / cap)


@pytest.mark.fast
@pytest.mark.parametrize("pre_norm", [False, True])
@pytest.mark.parametrize("scan_layers", [False, True])
def test_model_equals_the_paper_written_out_in_numpy(rng, pre_norm, scan_layers):
    settings = dataclasses.replace(SETTINGS, pre_norm=pre_norm)
    spec = make(settings=settings, scan_layers=scan_layers)
    params = random_params(spec, rng)
    tokens = jax.random.randint(rng, (2, 6), 0, 5)
    out = jax.jit(lambda params: spec.bind(params)(tokens, Placement()))(params)
    np.testing.assert_allclose(
        out, numpy_model(params, np.asarray(tokens), pre_norm), rtol=2e-4, atol=2e-4
    )


@pytest.mark.fast
@pytest.mark.parametrize("pre_norm", [False, True])
def test_norms_of_what_parts_return_stand_as_written_out_in_numpy(rng, pre_norm):
    """As in Gemma 2 or OLMo 2; with a soft cap, a scale, and normalized embeddings."""
    settings = dataclasses.replace(
        SETTINGS,
        pre_norm=pre_norm,
        output_norm=True,
        attention_scale=0.3,
        norm=LayerNorm(bias=pre_norm),
    )
    spec = make(
        settings=settings, readout=LinearReadout(cap=2.0), embedding_norm=pre_norm
    )
    params = random_params(spec, rng)
    layer = params["layers"]["kind_0"]
    assert ("bias" in layer["mlp_output_norm"]) == pre_norm
    assert ("mlp_norm" in layer) == pre_norm
    tokens = jax.random.randint(rng, (2, 6), 0, 5)
    out = jax.jit(lambda params: spec.bind(params)(tokens, Placement()))(params)
    wanted = numpy_model(params, np.asarray(tokens), pre_norm, True, 0.3, 2.0)
    assert np.abs(wanted).max() > 1
    np.testing.assert_allclose(out, wanted, rtol=2e-4, atol=2e-4)


def test_a_draw_a_layer_gives_each_layer_its_own_positions(rng):
    """Swapping two layers' draws matters; a shared draw equals two equal ones."""
    spec = make(ENCODINGS["rope"]())
    params = random_params(spec, rng)
    tokens = jax.random.randint(rng, (1, 6), 0, 5)
    lengths = jnp.array([6])
    scheme = Randomized(max_position=50, per_layer=True)
    placement = scheme(rng, lengths, num_tokens=6, num_layers=2)
    run = jax.jit(lambda placement: spec.bind(params)(tokens, placement))
    swapped = dataclasses.replace(placement, positions=placement.positions[::-1])
    assert np.abs(run(placement) - run(swapped)).max() > 1e-3
    first = placement.positions[0]
    twice = dataclasses.replace(placement, positions=jnp.stack([first, first]))
    np.testing.assert_allclose(run(twice), run(Placement(positions=first)), atol=1e-6)


@pytest.mark.fast
def test_causal_model_passes_no_gradient_from_later_tokens(rng):
    spec = make(mask=Causal(), dims=DIMS._replace(causal=True))
    params = random_params(spec, rng)
    tokens = jnp.array([[0, 1, 2, 3, 4, 0]])
    later = tokens.at[0, 4:].set(jnp.array([1, 2]))
    run = jax.jit(lambda tokens: spec.bind(params)(tokens, Placement()))
    np.testing.assert_array_equal(run(tokens)[:, :4], run(later)[:, :4])
    assert np.abs(run(tokens)[:, 4:] - run(later)[:, 4:]).min() > 0


@pytest.mark.fast
def test_padding_tokens_are_seen_by_nobody(rng):
    spec = make(ENCODINGS["rope"]())
    params = random_params(spec, rng)
    tokens = jax.random.randint(rng, (1, 6), 0, 5)
    valid = jnp.arange(6)[None] < 4
    run = jax.jit(
        lambda tokens, valid=None: spec.bind(params)(tokens, Placement(), valid=valid)
    )
    other = tokens.at[0, 4:].set((tokens[0, 4:] + 1) % 5)
    np.testing.assert_array_equal(run(tokens, valid)[:, :4], run(other, valid)[:, :4])
    np.testing.assert_allclose(
        run(tokens, valid)[:, :4], run(tokens[:, :4]), rtol=1e-5, atol=1e-5
    )


@pytest.mark.fast
def test_a_pattern_alternates_kinds_of_layers(rng):
    """Kinds rope, none over four layers: the loop equals the layers spelled out."""
    pattern = (LayerKind(ENCODINGS["rope"]()), LayerKind(Encoding()))
    spec = make(pattern=pattern, dims=DIMS._replace(num_layers=4))
    params = random_params(spec, rng)
    tokens = jax.random.randint(rng, (1, 6), 0, 5)
    looped = spec.bind(params)(tokens, Placement())
    spelled = dataclasses.replace(spec, scan_layers=False)
    np.testing.assert_allclose(
        looped, spelled.bind(params)(tokens, Placement()), rtol=1e-5, atol=1e-5
    )
    reverse = dataclasses.replace(spec, pattern=pattern[::-1])
    assert np.abs(looped - reverse.bind(params)(tokens, Placement())).max() > 1e-3


@pytest.mark.fast
def test_dropout_is_off_without_a_key_and_on_with_one(rng):
    spec = make(settings=dataclasses.replace(SETTINGS, dropout=0.5))
    params = spec.init(rng)
    tokens = jax.random.randint(rng, (1, 6), 0, 5)
    model = spec.bind(params)
    without = make().bind(params)(tokens, Placement())
    np.testing.assert_array_equal(model(tokens, Placement()), without)
    one, two = (model(tokens, Placement(), rng=jax.random.key(at)) for at in (1, 2))
    assert np.abs(one - two).max() > 1e-3


@pytest.mark.fast
def test_bfloat16_stays_near_float32(rng):
    spec = make(ENCODINGS["rope"]())
    params = random_params(spec, rng)
    tokens = jax.random.randint(rng, (2, 6), 0, 5)
    half = make(
        ENCODINGS["rope"](),
        settings=dataclasses.replace(SETTINGS, dtype=jnp.dtype("bfloat16")),
    )
    full, low = (s.bind(params)(tokens, Placement()) for s in (spec, half))
    assert low.dtype == jnp.float32
    # bfloat16 has 8 bits of precision; norms keep activations near one.
    np.testing.assert_allclose(low, full, atol=0.15)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dims": DIMS._replace(num_kv_heads=3)}, "num_kv_heads=3"),
        ({"dims": DIMS._replace(num_layers=3), "pattern": (LayerKind(Encoding()),) * 2},
         "does not fill"),
        ({"dims": DIMS._replace(embed_dim=0)}, "embed_dim"),
        ({"settings": dataclasses.replace(SETTINGS, dropout=1.0)}, "dropout"),
        ({"settings": dataclasses.replace(SETTINGS, mlp_dim=0)}, "mlp_dim"),
        ({"num_outputs": 0}, "num_outputs"),
    ],
)  # fmt: skip
def test_sizes_that_do_not_fit_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        make(**change)


@pytest.mark.fast
def test_odd_head_width_is_refused_when_the_model_is_described():
    """Fault B12: width 40 with 8 heads makes heads of 5."""
    with pytest.raises(ValueError, match="5"):
        make(ENCODINGS["rope"](), dims=Dims(8, 8, 5, 40, 2))


@pytest.mark.parametrize(
    "name",
    [
        "none",
        "sinusoidal",
        "learned",
        "rope",
        "xpos",
        "alibi",
        "t5",
        "kerple",
        "sandwich",
        "log_scale",
    ],
)
@pytest.mark.parametrize("given", [False, True], ids=["by-flag", "with-positions"])
def test_left_padding_changes_no_logit(rng, name, given):
    """Fault B07: a prompt alone, and behind padding of any symbol."""
    known = {"log_scale": {"train_length": 2}}.get(name, {})
    dims = DIMS._replace(causal=True)
    kind = LayerKind(ENCODINGS[name](**known), Causal())
    spec = TransformerSpec(5, 3, dims, SETTINGS, (kind,))
    model = spec.bind(random_params(spec, rng))
    alone = model(jnp.array([[1, 2, 4]]), Placement())
    valid = jnp.array([[False, False, True, True, True]])
    where = Placement(positions=count_real(valid), by_place=True)
    where = where if given else Placement()
    run = jax.jit(lambda x: model(x, where, valid=valid, left_padded=True))
    for pad in (0, 3):
        padded = run(jnp.array([[pad, pad, 1, 2, 4]]))
        np.testing.assert_allclose(padded[:, 2:], alone, atol=1e-5)


@pytest.mark.parametrize("size", [7, 300])
@pytest.mark.parametrize("symbol", [-1, "size"])
def test_symbols_that_are_none_never_pass(size, symbol):
    """Fault B15: known ones are refused, traced ones show as NaN, and no other does."""
    symbol = size if symbol == "size" else symbol
    table = jnp.ones((size, 4))
    tokens = jnp.array([[0, symbol, size - 1]])
    with pytest.raises(ValueError, match=f"symbols must lie in 0 .. {size - 1}"):
        symbol_vectors(table, tokens)
    rows = jax.jit(symbol_vectors)(table, tokens)
    np.testing.assert_array_equal(jnp.isnan(rows).all(-1), [[False, True, False]])


@pytest.mark.fast
def test_a_causal_model_whose_mask_looks_ahead_is_refused():
    """It would read its own answers, and decode others than it was trained to give."""
    dims = Dims(2, 2, 4, 8, num_layers=1, causal=True)
    of = lambda mask: TransformerSpec(
        6,
        6,
        dims,
        BlockSettings(mlp_dim=8, dropout=0.0),
        (LayerKind(Encoding(), mask),),
    )
    for mask, message in (
        (None, r"mask=None token 0 sees token 1; give each LayerKind a causal mask"),
        (Prefix(3) | Causal(), "token 0 sees token 1"),
        (Window(4, 2), "token 0 sees token 1"),
        (Causal() | Global(at=(50,)), "token 0 sees token 50"),
    ):
        with pytest.raises(ValueError, match=message):
            of(mask)
    marked = Causal() | Marked("prompt")  # of which rows say what they show
    for mask in (Causal(), Window.sliding(3), Chunked(4), Global(2) & Causal(), marked):
        assert of(mask).pattern[0].mask == mask
    dims = dims._replace(causal=False)
    assert of(None).pattern[0].mask is None
