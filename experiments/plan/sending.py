"""What devices send each other in a training step, by mesh axis.

Reckoned as the usual algorithms (rings) do it: of n devices, each sends 2 (n - 1) / n
of an array that is added up over them, half of that where it is gathered or scattered,
(n - 1) / n of its own part where parts are exchanged, and all of what is passed on.
Gradients of queries, keys and values are added up as one, and so are those that weights
of token shifts give to the same hidden states; a compiler that does not put their sums
together sends more of them a layer over the tensor axis. What the update of Muon sends
is in `experiments.plan.updating`.
"""

import collections
import math
from collections.abc import Iterator

import jax
import jax.numpy as jnp

from experiments.plan.axes import gathered_shares, mesh_axes, ring, spread_axes
from experiments.plan.updating import update_sent
from ropejax.nn import TransformerSpec
from ropejax.nn.token_shifts import Projections
from ropejax.sharding import MESH_AXES, Sharding
from ropejax.tokens import tokens
from ropejax.training.step import Recipe
from ropejax.typing import Params


def sent_bytes(
    recipe: Recipe, sharding: Sharding | None, num_tokens: int, params: Params
) -> dict[str, float]:
    """Returns the bytes that a device sends in a step, by mesh axis.

    Args:
        recipe: what is trained, and how.
        sharding: how it is spread over a mesh; None for one device.
        num_tokens: tokens a sequence, before any padding.
        params: shapes of the model's parameters.

    Raises:
        ValueError: if the sharding's rules leave it to the compiler what is sent.
    """
    if sharding is None:
        return {}
    check_known(sharding)
    sent: dict[str, float] = collections.defaultdict(float)
    parts = (
        _of_parameters(recipe, sharding, params),
        _of_activations(recipe, sharding, num_tokens),
        update_sent(recipe, sharding),
    )
    for axis, size in (entry for part in parts for entry in part):
        sent[axis] += size
    sizes = sharding.sizes
    return {axis: sent[axis] for axis in MESH_AXES if sizes[axis] > 1}


def check_known(sharding: Sharding) -> None:
    """Raises ValueError unless a table of axes says by itself what is sent.

    That is so where every mesh axis spreads rows, tokens, or heads and the MLP's width,
    and parameters are otherwise cut over axes of rows and tokens only, which gather
    them. In other cases the compiler chooses what to gather and what to add up.

    Args:
        sharding: a mesh and the table.
    """
    axes = lambda name: {
        axis for axis in sharding.rules.mesh_axes(name) if sharding.sizes[axis] > 1
    }
    data, heads = axes("batch") | axes("length"), axes("heads")
    reasons = [
        (
            axes(name) != heads,
            f"{name!r} is cut over other mesh axes than 'heads'",
        )
        for name in ("kv_heads", "mlp")
    ]
    reasons += [
        (
            bool(axes(name) & data),
            f"{name!r} is cut over a mesh axis of 'batch' or 'length'",
        )
        for name in ("heads", "vocab")
    ]
    reasons += [
        (
            not axes(name) <= data,
            f"{name!r} is cut over a mesh axis that neither 'batch' nor 'length' has",
        )
        for name in ("embed", "rest")
    ]
    idle = [a for a, n in sharding.sizes.items() if n > 1 and a not in data | heads]
    reasons += [
        (len(heads) > 1, "'heads' are cut over several mesh axes"),
        (bool(axes("layers")), "'layers' are cut"),
        (bool(idle), f"no rows, tokens or heads are spread over {idle}"),
    ]
    for holds, reason in reasons:
        if holds:
            raise ValueError(
                f"mesh.rules: {reason}, so it is the compiler's choice what devices "
                "compute and send each other, and a plan cannot tell it; leave that "
                "rule out of the plan."
            )


def _of_parameters(
    recipe: Recipe, sharding: Sharding, params: Params
) -> Iterator[tuple[str, float]]:
    """Weights gathered, and gradients added up: mesh axis and bytes, leaf by leaf.

    Loops and parts of a batch come one after the other, each with its own gathering and
    its own sum.
    """
    sizes = sharding.sizes
    data = spread_axes(sharding, "batch") + spread_axes(sharding, "length")
    loops = getattr(recipe.model, "loops", 1)
    placed = sharding.parameters(recipe.model, params)
    flat = jax.tree_util.tree_leaves_with_path
    for (path, leaf), (_, where) in zip(flat(params), flat(placed), strict=True):
        held = math.prod(where.shard_shape(leaf.shape)) * leaf.dtype.itemsize
        cut = mesh_axes(where.spec)
        in_layers = str(getattr(path[0], "key", "")) == "layers"
        times = recipe.accumulate * (loops if in_layers else 1)
        # Gathered forwards, those of layers again backwards; gradients are scattered.
        passes = 3 if in_layers else 2
        yield from (
            (axis, times * 2 * ring(sizes[axis]) * held)
            for axis in data
            if axis not in cut
        )
        for axis, share in gathered_shares([a for a in cut if a in data], sizes):
            yield axis, times * passes * share * held


def _of_activations(
    recipe: Recipe, sharding: Sharding, num_tokens: int
) -> Iterator[tuple[str, float]]:
    """Hidden states added up, keys and values sent: mesh axis and bytes."""
    model = recipe.model
    if not isinstance(model, TransformerSpec):
        return  # their rows alone are spread
    dims, settings, parts = model.dims, model.settings, sharding.length_parts
    places = _places(recipe, sharding, num_tokens)
    hidden = places * dims.embed_dim * settings.dtype.itemsize
    layers = dims.num_layers * model.loops
    # Two sums of hidden states a layer forwards, two backwards; computed again, the
    # second one is not needed. A gated unit has one of each, the only one its second.
    # And one for each table of symbols that is cut.
    sums = layers * (5 if settings.remat == "full" else 4)
    if settings.gated:
        sums = layers * 2
    for axis in spread_axes(sharding, "heads"):
        yield axis, sums * 2 * ring(sharding.sizes[axis]) * hidden
    for axis in spread_axes(sharding, "vocab"):
        tables = _cut_tables(recipe, sharding, axis)
        yield axis, tables * 2 * ring(sharding.sizes[axis]) * hidden
    heads = sharding.rules.parts("heads", sharding.sizes)
    again = settings.remat != "none"
    for axis in spread_axes(sharding, "length"):
        for kind in model.pattern:
            own = _TokenBytes(recipe, kind.encoding)
            once = _attention(sharding.sequence_form, parts, own, again)
            yield axis, layers / len(model.pattern) * once * places / heads
        shifted = _shifted(recipe, sharding, num_tokens) * places * parts / heads
        # Rows are gathered, to put padding last, and again to put it back, and their
        # gradients added up as often; in zigzag order, parts of rows are added up to
        # whole ones, and backwards once more, and each device shifts all tokens.
        passes = 2 if sharding.sequence_order == "zigzag" else 3
        yield axis, layers * (passes + again) * 2 * ring(parts) * shifted


def _shifted(recipe: Recipe, sharding: Sharding, num_tokens: int) -> float:
    """Bytes of what a token shift looks back at, of each token, all heads together.

    It computes in float32. The few tokens that neighbours hand over are left out.
    """
    dims, settings = recipe.model.dims, recipe.model.settings
    shift, length = settings.token_shift, sharding.padded_length(num_tokens)

    def state(rng, x, made):
        where = tokens(length, valid=jnp.ones((1, length), bool))
        return shift.shifted(shift.init_layer(rng, dims), x, made, where)[1]

    array = lambda *shape: jax.ShapeDtypeStruct((1, length, *shape), settings.dtype)
    widths = dims.head_dim, dims.head_dim, settings.value_width(dims)
    heads = dims.num_heads, dims.num_kv_heads, dims.num_kv_heads
    made = Projections(*map(array, heads, widths))
    x, rng = array(dims.embed_dim), jax.random.key(0)
    past = jax.eval_shape(state, rng, x, made)
    # What is kept for tokens to come are the last few of the same arrays.
    return sum(_float_bytes([one]) / one.shape[1] for one in jax.tree.leaves(past))


def received_bytes(recipe: Recipe, sharding: Sharding | None, num_tokens: int) -> float:
    """Returns the memory for what attention has of other devices' tokens.

    That is what the backward pass needs of it, of every layer unless layers are
    computed again, and one layer's on the way, with its gradients.

    Args:
        recipe: what is trained, and how.
        sharding: how it is spread over a mesh; None for one device.
        num_tokens: tokens a sequence, before any padding.
    """
    if sharding is None or sharding.length_parts == 1:
        return 0.0
    model, parts = recipe.model, sharding.length_parts
    layers = model.dims.num_layers * model.loops
    total = 0.0
    for kind in model.pattern:
        own = _TokenBytes(recipe, kind.encoding)
        kept, moving = {
            "ring": (0.0, 3 * own.around),
            "all_gather": ((parts - 1) * own.pair, parts * own.pair),
            "ulysses": (own.queries / 2, 2 * (own.queries + own.pair)),
        }[sharding.sequence_form]
        depth = layers if model.settings.remat == "none" else 1
        total += kept * depth / len(model.pattern) + moving / len(model.pattern)
    heads = sharding.rules.parts("heads", sharding.sizes)
    return total * _places(recipe, sharding, num_tokens) / heads


def _places(recipe: Recipe, sharding: Sharding, num_tokens: int) -> float:
    """How many tokens a device has, of all its rows."""
    rows = recipe.batch_size / sharding.rules.parts("batch", sharding.sizes)
    return rows * sharding.padded_length(num_tokens) / sharding.length_parts


class _TokenBytes:
    """Bytes of what attention has of each token, all heads together."""

    def __init__(self, recipe: Recipe, encoding):
        model, symbols = recipe.model, recipe.buckets[0]
        dims, dtype = model.dims, model.settings.dtype
        length = recipe.task.num_tokens(symbols)

        def made(rng, x, q, k, v):
            lengths = jnp.full((1,), symbols)
            batch = recipe.task.sample(rng, lengths, max_length=symbols)
            placement = recipe.positions(
                rng,
                batch.lengths,
                num_tokens=length,
                num_layers=dims.num_layers,
                tokens=recipe.task.placing_tokens(batch),
            )
            where = placement.tokens(length)
            shared = encoding.init_shared(rng, dims)
            layer = encoding.init_layer(rng, dims)
            params = encoding.prepare(shared, layer, where, where, dims)
            of_query = encoding.query_features(params, x, q, where)
            of_key, _ = encoding.key_features(params, x, k, where)
            where = where.replace(features=of_key)
            views = encoding.keys(params, k, where)
            return of_query, of_key, views, encoding.values(params, v, where)

        array = lambda *shape: jax.ShapeDtypeStruct((1, length, *shape), dtype)
        x, q = array(dims.embed_dim), array(dims.num_heads, dims.head_dim)
        k, rng = array(dims.num_kv_heads, dims.head_dim), jax.random.key(0)
        width = model.settings.value_width(dims)
        v, out = (array(n, width) for n in (dims.num_kv_heads, dims.num_heads))
        of_query, of_key, views, values = jax.eval_shape(made, rng, x, q, k, v)
        size = lambda tree: _float_bytes(tree) / length
        self.needs_entropy = model.settings.normalizer.needs_entropy
        self.views = size(views)
        self.pair = size((k, v))
        self.queries = size((q, out))  # what comes in, and what goes out
        self.features = size((of_query, of_key))
        self.key_features = size(of_key)
        self.around = size((views, values, of_key))


def _attention(form: str, parts: int, own: _TokenBytes, again: bool) -> float:
    """Bytes of a token that a layer's attention sends, forwards and backwards."""
    if form == "ring":
        # All the way round forwards, and again backwards with their gradients. Where
        # entropies are wanted, keys go around for them as well.
        once = (3 + again) * own.around
        if own.needs_entropy:
            once += (2 + again) * own.views + own.around
        return parts * once
    if form == "all_gather":
        return (2 + again) * (parts - 1) * (own.pair + own.key_features)
    exchanged = own.queries + own.pair + own.features
    return (2 + again) * ring(parts) * exchanged


def _cut_tables(recipe: Recipe, sharding: Sharding, axis: str) -> int:
    """How many of the embedding and the readout are cut over a mesh axis."""
    model = recipe.model
    width = model.dims.embed_dim
    cut = sharding.rules.spec
    specs = (
        cut(("vocab", "embed"), (number, width), sharding.sizes)
        for number in (model.num_symbols, model.num_outputs)
    )
    return sum(axis in mesh_axes(spec[:1]) for spec in specs)


def _float_bytes(tree) -> float:
    floats = (x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating))
    return float(sum(math.prod(x.shape) * x.dtype.itemsize for x in floats))
