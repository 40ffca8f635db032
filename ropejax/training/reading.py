"""What a model's encodings read of a position scheme, found by tracing their hooks.

A scheme may say more of a token than where it is: another place in each layer, a place
on several axes, its place in a number. Where no encoding reads that, results are those
of a plainer scheme under another name, and nothing looks wrong. So it is refused.
"""

import functools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import Jaxpr, Literal, Var

from ropejax.encodings import Dims, Encoding
from ropejax.positions.base import Placement, PositionScheme
from ropejax.tokens import Tokens

_PLACES = ("positions", "distances")

_LOOPS = ("scan", "while", "cond")
"""Functions of functions that do not take and return what those inside do."""


class Reads(NamedTuple):
    """What is read of `positions`, `distances` and streams, each by its name.

    Attributes:
        before: by embeddings, once before the layers.
        layers: by the layers.
    """

    before: frozenset[str]
    layers: frozenset[str]


def check_read(
    scheme: PositionScheme, model: Any, num_tokens: int, *, what: str
) -> None:
    """Raises ValueError where a scheme says what no encoding of a model reads.

    Nothing is asked of positions on one axis that are the same in all layers, unless
    they follow from the symbols: a model without positions is a baseline for these.

    Args:
        scheme: where tokens are placed.
        model: how the model is made: a `TransformerSpec`, or another with `dims` and a
            `pattern` of encodings.
        num_tokens: tokens of some sequence.
        what: what they are of, for messages.
    """
    placing = f"{scheme.title.lower()} positions"
    encodings = {kind.encoding: None for kind in model.pattern}
    if hasattr(model, "cross"):
        encodings[model.cross] = None
    try:
        per_layer, asked, placed = said(scheme, num_tokens, model.dims.num_layers)
        if any(name == "distances" for name, *_ in placed):
            _check_distances(encodings)
        if not (per_layer or asked):
            return
        found = [reads(encoding, model.dims, placed) for encoding in encodings]
    except ValueError as error:
        raise ValueError(f"{what}, at {placing}: {error}") from None
    before, layers = (frozenset().union(*names) for names in zip(*found, strict=True))
    titles = " and ".join(dict.fromkeys(encoding.title for encoding in encodings))
    if per_layer and not layers & set(_PLACES):
        read = ": once, before the layers" if "positions" in before else ""
        raise ValueError(
            f"{what}, at {placing} that are drawn for each layer, but no layer reads "
            f"positions ({titles}{read}): draws of later layers would change nothing; "
            "set per_layer=False."
        )
    if asked and not asked & (before | layers):
        streams = " and ".join(f"its {name}" for name in sorted(asked - set(_PLACES)))
        raise ValueError(
            f"{what}, but no encoding reads what {placing} say of each token"
            f"{streams and ', ' + streams} ({titles}): the scheme would change "
            f"nothing; choose one that does, such as {_readers(asked)} (alone, or "
            "beside another in compose), or consecutive positions."
        )


def _check_distances(encodings: Iterable[Encoding]) -> None:
    for encoding in encodings:
        if not encoding.by_distance:
            raise ValueError(
                f"{encoding.title} is no function of distances; give positions instead "
                "(randomized positions: distances=False)."
            )


@functools.lru_cache(maxsize=256)
def said(
    scheme: PositionScheme, num_tokens: int, num_layers: int
) -> tuple[bool, frozenset[str], tuple]:
    """Returns what a scheme says of tokens in one layer, and what must be read of it.

    Args:
        scheme: where tokens are placed.
        num_tokens: tokens of a row.
        num_layers: layers of the model.

    Returns:
        True if it has draws for each layer; the names of which one must be read; and
        name, shape and type of each array.
    """

    def place(symbols, rng):
        lengths = jnp.full((1,), num_tokens, jnp.int32)
        given = {"num_tokens": num_tokens, "num_layers": num_layers}
        return scheme(rng, lengths, tokens=symbols, **given)

    symbols = jax.ShapeDtypeStruct((1, num_tokens), jnp.int32)
    rng = jax.eval_shape(lambda: jax.random.key(0))
    closed, placement = jax.make_jaxpr(place, return_shape=True)(symbols, rng)
    placed, streams, positions = [], set(), set()
    for at, (path, array) in enumerate(jax.tree_util.tree_leaves_with_path(placement)):
        name, shape = _name(path), array.shape
        if name == "order":
            continue
        if name not in _PLACES:
            streams.add(name)
        elif placement.per_layer:
            shape = shape[1:]
        # On several axes they may tell what streams do; on one, where a token is.
        if name == "positions" and (
            len(shape) == 3
            or (not placement.streams and 0 in needed(closed.jaxpr, [at]))
        ):
            positions.add(name)
        placed.append((name, shape, str(array.dtype)))
    return placement.per_layer, frozenset(streams | positions), tuple(placed)


def _name(path: Sequence[Any]) -> str:
    """The name of an array in a placement: its attribute's, or its stream's."""
    last = path[-1]
    return getattr(last, "name", None) or getattr(last, "key", None) or str(last)


@functools.lru_cache(maxsize=256)
def reads(encoding: Encoding, dims: Dims, placed: tuple) -> Reads:
    """Returns what an encoding's results depend on, of what a scheme says of tokens.

    Args:
        encoding: settings of the encoding.
        dims: sizes of the model.
        placed: name, shape and type of each array of one layer: `positions` or
            `distances`, and streams.

    Raises:
        ValueError: if the encoding cannot take positions of that kind.
    """
    arrays = {name: jax.ShapeDtypeStruct(shape, kind) for name, shape, kind in placed}
    length = placed[0][1][1] if placed else 1
    rng = jax.eval_shape(lambda: jax.random.key(0))
    params = jax.eval_shape(
        lambda rng: (encoding.init_shared(rng, dims), encoding.init_layer(rng, dims)),
        rng,
    )
    hidden = jax.ShapeDtypeStruct((1, length, dims.embed_dim), jnp.float32)
    heads = lambda n: jax.ShapeDtypeStruct((1, length, n, dims.head_dim), jnp.float32)
    inputs = hidden, heads(dims.num_heads), heads(dims.num_kv_heads)

    def before(arrays, params, inputs):
        return encoding.embed(params[0], inputs[0], _tokens(arrays, length))

    def layer(arrays, params, inputs):
        return _attended(encoding, dims, _tokens(arrays, length), params, inputs)

    try:
        return Reads(*(_used(call, arrays, params, inputs) for call in (before, layer)))
    except ValueError as error:
        named = encoding.title in str(error)
        raise ValueError(f"{'' if named else encoding.title + ': '}{error}") from None


def _tokens(arrays: dict[str, Any], length: int) -> Tokens:
    given = {name: arrays[name] for name in _PLACES if name in arrays}
    streams = {name: array for name, array in arrays.items() if name not in _PLACES}
    return Placement(**given, streams=streams or None).tokens(length)


def _attended(encoding: Encoding, dims: Dims, where: Tokens, params, inputs):
    """All hooks of a layer, in the order in which attention calls them."""
    x, q, k = inputs
    made = encoding.prepare(*params, where, where, dims)
    query = where.replace(features=encoding.query_features(made, x, q, where))
    key = where.replace(features=encoding.key_features(made, x, k, where)[0])
    q_views, k_views = encoding.queries(made, q, query), encoding.keys(made, k, key)
    state = encoding.init_carry(made, q_views, query)
    visible = jnp.ones((1, 1, query.length, key.length), bool)
    _, logits = encoding.score(made, state, q_views, k_views, query, key, visible, 1.0)
    values = encoding.values(made, k, key)
    return encoding.outputs(made, encoding.mix(made, logits, values, query, key), query)


def _used(call, arrays: dict[str, Any], *others) -> frozenset[str]:
    """The arrays by name that some result of a function depends on."""
    jaxpr = jax.make_jaxpr(call)(arrays, *others).jaxpr
    wanted = needed(jaxpr, range(len(jaxpr.outvars)))
    return frozenset(name for at, name in enumerate(sorted(arrays)) if at in wanted)


def needed(jaxpr: Jaxpr, outputs: Iterable[int]) -> set[int]:
    """Returns which inputs some outputs of a traced function depend on, by number.

    Loops are taken to need all that they are given.

    Args:
        jaxpr: the function.
        outputs: which outputs, by number.
    """
    wanted = _variables(jaxpr.outvars[at] for at in outputs)
    for equation in reversed(jaxpr.eqns):
        at = [n for n, out in enumerate(equation.outvars) if out in wanted]
        if at:
            inner = _inner(equation)
            count = range(len(equation.invars)) if inner is None else needed(inner, at)
            wanted |= _variables(equation.invars[n] for n in count)
    return {n for n, given in enumerate(jaxpr.invars) if given in wanted}


def _variables(atoms: Iterable[Any]) -> set[Var]:
    return {atom for atom in atoms if not isinstance(atom, Literal)}


def _inner(equation: Any) -> Jaxpr | None:
    """The function that an equation calls with its own inputs and outputs, or None."""
    if equation.primitive.name in _LOOPS:
        return None
    found = (getattr(value, "jaxpr", value) for value in equation.params.values())
    found = [value for value in found if isinstance(value, Jaxpr)]
    fits = len(found) == 1 and all(
        len(inside) == len(outside)
        for inside, outside in (
            (found[0].invars, equation.invars),
            (found[0].outvars, equation.outvars),
        )
    )
    return found[0] if fits else None


def _readers(names: frozenset[str]) -> str:
    streams = sorted(names - {"positions"})
    if streams:
        return " or ".join(f"Learned(stream={name!r})" for name in streams)
    return "Learned() or Rotary() for one axis, AxialRotary() for several"
