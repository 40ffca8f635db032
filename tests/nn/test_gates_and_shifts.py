"""Output gates and token shifts: what stands beside the encoding in attention.

Numbers of a layer against numpy in float64; then what must not matter (storage,
padding, packing, the way of applying layers), and what is refused.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from ropejax.encodings import ENCODINGS, Dims, Encoding, Forgetting
from ropejax.masks import Causal, Lambda
from ropejax.nn import BlockSettings, LayerKind, MultiHeadAttention, TransformerSpec
from ropejax.nn.block import Block
from ropejax.nn.decoder import cached_attention
from ropejax.nn.encoder_decoder import EncoderDecoderSpec
from ropejax.nn.memory import layer_with_memory
from ropejax.nn.output_gates import SigmoidGate
from ropejax.nn.query_key_norm import HeadRMSNorm
from ropejax.nn.token_shifts import KVShift, ShortConvolution
from ropejax.nn.weighting import Weighting
from ropejax.positions import Placement
from ropejax.sharding import Sharding, make_mesh
from ropejax.sharding.names import parameter_names
from ropejax.tokens import tokens as tokens_of
from tests.nn.moved_parameters import moved

DIMS = Dims(4, 2, 4, 8, 2, causal=True)
LENGTH = 7
GIVEN = {"shared": {}, "mask": Causal()}
PRO_SETTINGS = {
    "token_shift": KVShift(),
    "output_gate": SigmoidGate(norm=True),
    "qk_norm": HeadRMSNorm(),
}
SHIFTS = {"kv": KVShift(), "convolution": ShortConvolution()}


def layer_of(rng, encoding=None, **parts):
    """A layer's graph and its parameters, nowhere neutral, and hidden states."""
    encoding = Encoding() if encoding is None else encoding
    module = MultiHeadAttention(DIMS, encoding, rngs=nnx.Rngs(rng), **parts)
    graph, params = nnx.split(module)
    params = moved(nnx.to_pure_dict(params), rng)
    return graph, params, jax.random.normal(rng, (2, LENGTH, 8))


def spec_of(encoding="rope", **settings):
    settings = BlockSettings(8, dropout=0.0, pre_norm=True, **settings)
    kind = LayerKind(ENCODINGS[encoding](), Causal())
    return TransformerSpec(5, 3, DIMS, settings, (kind,))


# ---- numbers -------------------------------------------------------------------------


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def normed(x, gain):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * gain


def earlier(x, back):
    """What the token so many before has, zeros before the first."""
    return np.concatenate([np.zeros_like(x[:, :back]), x[:, : x.shape[1] - back]], 1)


def layer_in_numpy(params, x, shift, gate, qk_norm):
    """A causal layer without positions, in float64."""
    params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    x = np.float64(x)
    made = {
        name: np.einsum("bld,dnh->blnh", x, params[name]["kernel"])
        for name in ("query", "key", "value")
    }
    own = params.get("token_shift_params", {})
    for name, part in made.items():
        if isinstance(shift, KVShift) and name != "query":
            a = sigmoid(x @ own[name]["kernel"])[..., None]
            made[name] = a * earlier(part, 1) + (1 - a) * part
        if isinstance(shift, ShortConvolution):
            taps = own[name]
            out = sum(
                taps[len(taps) - 1 - back] * earlier(part, back)
                for back in range(len(taps))
            )
            out = out * sigmoid(out) if shift.activation == "silu" else out
            made[name] = out + part if shift.residual else out
    q, k, v = made.values()
    if qk_norm:
        gains = params["weighting_params"]["qk_norm"]
        q, k = normed(q, gains["query_gain"]), normed(k, gains["key_gain"])
    k, v = (np.repeat(part, 2, axis=2) for part in (k, v))
    logits = np.einsum("btnh,bsnh->bnts", q, k) / 2
    weights = np.where(np.tri(LENGTH), np.exp(logits), 0)
    weights /= weights.sum(-1, keepdims=True)
    out = np.einsum("bnts,bsnh->btnh", weights, v)
    if gate is not None:
        own = params["output_gate_params"]
        out = normed(out, own["gain"]) if gate.norm else out
        open_by = np.tensordot(x, own["kernel"], 1) + own.get("bias", 0)
        out = out * sigmoid(open_by[..., None] if gate.per_head else open_by)
    return np.einsum("bnts,bsnh->btnh", weights, v), np.einsum(
        "btnh,nhd->btd", out, params["out"]["kernel"]
    )


PRO = {
    "token_shift": KVShift(),
    "output_gate": SigmoidGate(norm=True),
    "weighting": Weighting(qk_norm=HeadRMSNorm()),
}


@pytest.mark.fast
@pytest.mark.parametrize(
    "parts",
    [
        PRO,
        {"output_gate": SigmoidGate()},
        {"output_gate": SigmoidGate(per_head=True, initial_bias=1.0)},
        {"token_shift": ShortConvolution()},
        {"token_shift": ShortConvolution(3, residual=False, activation="silu")},
    ],
    ids=["FoX Pro", "Qwen", "Qwen, of heads", "Canon", "DeltaNet"],
)
def test_a_layer_equals_attention_written_out_in_numpy(rng, parts):
    graph, params, x = layer_of(rng, **parts)
    run = lambda params: nnx.merge(graph, params)(x, tokens_of(LENGTH), **GIVEN)
    _, wanted = layer_in_numpy(
        params,
        x,
        parts.get("token_shift"),
        parts.get("output_gate"),
        "weighting" in parts,
    )
    np.testing.assert_allclose(jax.jit(run)(params), wanted, rtol=2e-5, atol=1e-5)


@pytest.mark.fast
def test_an_open_gate_is_no_gate_and_a_closed_one_says_nothing(rng):
    graphs = {
        bias: layer_of(rng, output_gate=SigmoidGate(initial_bias=bias))
        for bias in (60.0, -60.0)
    }
    plain, params, x = layer_of(rng)

    @jax.jit
    def run(params):
        wanted = nnx.merge(plain, params)(x, tokens_of(LENGTH), **GIVEN)
        found = []
        for graph, own, _ in graphs.values():
            own = {**params, "output_gate_params": own["output_gate_params"]}
            found.append(nnx.merge(graph, own)(x, tokens_of(LENGTH), **GIVEN))
        return wanted, found

    wanted, (opened, closed) = run(params)
    np.testing.assert_array_equal(opened, wanted)
    assert np.abs(closed).max() < 1e-20 < np.abs(wanted).min()


@pytest.mark.fast
def test_everything_else_starts_as_it_does_without(rng):
    plain = spec_of().init(rng)
    params = spec_of(**PRO_SETTINGS).init(rng)
    own = params["layers"]["kind_0"]["attention"]
    shift, gate = own.pop("token_shift_params"), own.pop("output_gate_params")
    own.pop("weighting_params")
    jax.tree.map(np.testing.assert_array_equal, params, plain)
    first, second = shift["key"]["kernel"]
    assert not np.allclose(first, second)
    assert set(gate) == {"kernel", "gain"}


# ---- storage, padding, packing -------------------------------------------------------


def test_neighbours_are_those_of_the_order_and_the_segment(rng):
    """Stored otherwise, padded anywhere or packed, tokens have the same outputs."""
    graph, params, x = layer_of(rng, token_shift=KVShift())
    order = np.array([3, 0, 6, 1, 5, 2, 4])
    gaps = np.array([0, 2, 3, 5, 7, 8, 10])
    valid = jnp.zeros((1, 11), bool).at[:, gaps].set(True)
    spread = jnp.full((2, 11, 8), 1e3).at[:, gaps].set(x)
    segments = jnp.array([[0] * 4 + [1] * 3])

    @jax.jit
    def run(params):
        layer = lambda x, where: nnx.merge(graph, params)(x, where, **GIVEN)
        whole = layer(x, tokens_of(LENGTH))
        stored = layer(x[:, order], tokens_of(LENGTH).permuted(order))
        among = tokens_of(11, valid=valid, positions=jnp.arange(11)[None])
        packed = tokens_of(LENGTH, segments=segments)
        mixed = layer(x[:, order], packed.permuted(order))
        alone = [layer(x[:, :4], tokens_of(4)), layer(x[:, 4:], tokens_of(3))]
        return (
            (stored, whole[:, order]),
            (layer(spread, among)[:, gaps], whole),
            (layer(x, packed), jnp.concatenate(alone, 1)),
            (mixed, jnp.concatenate(alone, 1)[:, order]),
            (whole[:, 4:], alone[1]),
        )

    *same, other = run(params)
    for found, wanted in same:
        np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert np.abs(other[0][:, 0] - other[1][:, 0]).max() > 1e-2


def test_padding_reaches_no_gradient_and_all_that_is_new_learns(rng):
    """Of each member of a population."""
    graph, params, x = layer_of(
        rng, token_shift=KVShift(), output_gate=SigmoidGate(norm=True)
    )
    padded = x.at[:, 5:].set(1e3)
    valid = jnp.arange(LENGTH)[None] < 5

    def losses(params):
        layer = nnx.merge(graph, params)
        out = layer(padded, tokens_of(LENGTH, valid=valid), **GIVEN)
        alone = layer(x[:, :5], tokens_of(5), **GIVEN)
        return jnp.stack([(out[:, :5] ** 2).sum(), (alone**2).sum()])

    two = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf + 0.1]), params)
    gradients = jax.jit(jax.vmap(jax.jacrev(losses)))(two)
    for leaf in jax.tree.leaves(gradients):
        np.testing.assert_allclose(leaf[:, 0], leaf[:, 1], rtol=1e-4, atol=1e-4)
    for part in ("token_shift_params", "output_gate_params"):
        for leaf in jax.tree.leaves(gradients[part]):
            assert (np.abs(leaf).reshape(2, -1).max(1) > 1e-3).all()


# ---- ways of applying layers ---------------------------------------------------------


@pytest.mark.parametrize(
    "shift", ["convolution", pytest.param("kv", marks=pytest.mark.slow)]
)
def test_decoding_with_a_cache_gives_the_logits_of_a_full_pass(rng, shift):
    """Prompts of unlike lengths at once, though a state is handed on."""
    spec = spec_of(token_shift=SHIFTS[shift], output_gate=SigmoidGate(norm=True))
    params = moved(spec.init(rng), rng)
    tokens = jax.random.randint(rng, (2, 6), 0, 5)

    @jax.jit
    def run(params):
        model, at = spec.bind(params), jnp.arange(2)
        assert not model.has_state(Placement())
        prompts = jnp.array([2, 4])
        logits, memory = model.start(tokens[:, :4], Placement(), prompts, capacity=6)
        full = model(tokens, Placement())
        found, wanted = [logits], [full[at, prompts - 1]]
        for places in (prompts, prompts + 1):
            logits, memory = model.step(memory, tokens[at, places], places)
            found.append(logits)
            wanted.append(full[at, places])
        return jnp.stack(found), jnp.stack(wanted)

    np.testing.assert_allclose(*run(params), atol=3e-5)


def test_a_rolling_cache_hands_on_what_it_no_longer_holds(rng):
    """Chunks and single tokens; FoX has a state of its own beside that of the shift."""
    graph, params, x = layer_of(rng, Forgetting(), token_shift=ShortConvolution())
    mask = Lambda(1, 2)

    @jax.jit
    def run(params):
        layer, found = nnx.merge(graph, params), []
        whole = layer(x, tokens_of(LENGTH), shared={}, mask=mask)
        empty, start = None, 0
        for size in (2, 1, 1, 1):
            where = tokens_of(size, offset=start)
            now = x[:, start : start + size]
            out, empty = cached_attention(
                layer, now, where, empty, shared={}, mask=mask, capacity=3
            )
            if start == 0:
                empty = dataclasses.replace(empty, sinks=1)
            found.append(out)
            start += size
        return jnp.concatenate(found, 1), whole[:, :start]

    np.testing.assert_allclose(*run(params), atol=1e-5)


def test_a_memory_of_the_whole_past_is_the_past(rng):
    parts = PRO_SETTINGS | {"token_shift": ShortConvolution()}
    settings = BlockSettings(8, dropout=0.0, pre_norm=True, **parts)
    block = Block(DIMS, settings, ENCODINGS["rope"](), rngs=nnx.Rngs(rng))
    graph, params = nnx.split(block)
    params = moved(nnx.to_pure_dict(params), rng)
    x = jax.random.normal(rng, (1, 6, 8))

    @jax.jit
    def run(params):
        block, memory, parts = nnx.merge(graph, params), None, []
        for start in (0, 2, 4):
            where = tokens_of(2, offset=start)
            out, memory = layer_with_memory(
                block, x[:, start : start + 2], where, memory, length=6, **GIVEN
            )
            parts.append(out)
        return jnp.concatenate(parts, 1), block(x, tokens_of(6), **GIVEN)

    np.testing.assert_allclose(*run(params), atol=2e-5)


@pytest.mark.parametrize(
    ("form", "sizes", "order"),
    [
        ("ring", {"sequence": 2, "tensor": 2}, [0, 1, 6, 7, 2, 3, 4, 5]),
        pytest.param("ulysses", {"sequence": 2}, range(8), marks=pytest.mark.slow),
        pytest.param("all_gather", {"sequence": 4}, range(8), marks=pytest.mark.slow),
    ],
)
def test_spread_over_devices_in_any_order_nothing_changes(rng, form, sizes, order):
    """Neighbours may be on other devices; zigzag order puts the halves apart."""
    spec = dataclasses.replace(
        spec_of(**PRO_SETTINGS | {"token_shift": ShortConvolution()}),
        dims=DIMS._replace(num_layers=1, num_kv_heads=4),
    )
    params = moved(spec.init(rng), rng)
    devices = jax.devices()[: math.prod(sizes.values())]
    sharding = Sharding(make_mesh(sizes, devices=devices), sequence_form=form)
    sharding.check(spec, 2)
    tokens = jax.random.randint(rng, (2, 8), 0, 5)[:, jnp.array(order)]
    placement = Placement(order=jnp.array(order))

    def run(spec, params):
        return jax.jit(lambda params: spec.bind(params)(tokens, placement))(params)

    placed = jax.device_put(params, sharding.parameters(spec, params))
    found, wanted = run(sharding.model(spec), placed), run(spec, params)
    np.testing.assert_allclose(found, wanted, atol=2e-5)


@pytest.mark.fast
def test_the_mesh_knows_the_heads_and_the_width_of_new_parameters():
    names = {}
    for shift in SHIFTS.values():
        gate = SigmoidGate(norm=True, initial_bias=0.0)
        spec = spec_of(token_shift=shift, output_gate=gate)
        params = jax.eval_shape(spec.init, jax.random.key(0))
        names |= parameter_names(spec, params)["layers"]["kind_0"]["attention"]
        if shift == KVShift():
            of_shift = {"kernel": ("layers", "embed", "heads")}
            assert names["token_shift_params"] == {"key": of_shift, "value": of_shift}
    taps = ("layers", None, "heads", None)
    made = dict.fromkeys(("query", "key", "value"), taps)
    assert names["token_shift_params"] == made
    assert names["output_gate_params"] == {
        "kernel": ("layers", "embed", "heads", None),
        "bias": ("layers", "heads", None),
        "gain": ("layers", "heads", None),
    }


def test_half_precision_is_close_and_what_is_kept_is_not_narrowed(rng):
    settings = PRO_SETTINGS | {"token_shift": ShortConvolution()}
    spec = spec_of(**settings)
    narrow = spec_of(**settings, dtype=jnp.dtype("bfloat16"), remat="full")
    params = moved(spec.init(rng), rng)
    tokens = jax.random.randint(rng, (2, 6), 0, 5)
    run = lambda spec: jax.jit(lambda p: spec.bind(p)(tokens, Placement()))(params)
    np.testing.assert_allclose(run(narrow), run(spec), atol=0.15)


# ---- refusals ------------------------------------------------------------------------


@pytest.mark.fast
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: dataclasses.replace(
                spec_of(token_shift=KVShift()), dims=DIMS._replace(causal=False)
            ),
            "KVShift looks at tokens before.*model.causal=True",
        ),
        (
            lambda: EncoderDecoderSpec(
                *(5, 3, 4, DIMS),
                BlockSettings(8, token_shift=ShortConvolution()),
                Encoding(),
            ),
            "ShortConvolution looks at tokens before",
        ),
        (
            lambda: spec_of(gated=True, token_shift=KVShift()),
            "token_shift=KVShift.* gated attention units replace",
        ),
        (
            lambda: spec_of(gated=True, output_gate=SigmoidGate()),
            "output_gate=SigmoidGate.* gated attention units replace",
        ),
        (lambda: ShortConvolution(1), "width must be at least 2.* got 1"),
        (lambda: ShortConvolution(activation="relu"), "activation"),
        (lambda: SigmoidGate(initial_bias=float("nan")), "initial_bias must be finite"),
        (lambda: SigmoidGate(epsilon=0.0), "epsilon must be positive"),
        (lambda: SigmoidGate(epsilon=1e-5), "does nothing without it; set norm=True"),
        (lambda: BlockSettings(8, output_gate=KVShift()), "output_gate must be a"),
    ],
)
def test_what_makes_no_sense_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.fast
def test_an_index_that_starts_anew_in_each_segment_has_no_neighbours(rng):
    graph, params, x = layer_of(rng, token_shift=KVShift())
    where = tokens_of(LENGTH, segments=jnp.array([[0] * 4 + [1] * 3]))
    where = where.replace(
        index=jnp.array([[0, 1, 2, 3, 0, 1, 2]]), consecutive_index=False
    )
    with pytest.raises(ValueError, match="KVShift sums over the tokens of a row"):
        nnx.merge(graph, params)(x, where, **GIVEN)
