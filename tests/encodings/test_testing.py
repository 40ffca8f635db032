"""The public checks find the faults that they are there for."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import pytest

from ropejax import testing
from ropejax.encodings import ALiBi, Encoding, PaTH, compose
from ropejax.encodings.heads import per_head, weighted_sum
from ropejax.tokens import relative_positions, tokens


@dataclasses.dataclass(frozen=True)
class Sound(Encoding):
    """A bias by the distance's root: what the faults below start from."""

    title: ClassVar[str] = "Sound"
    summary: ClassVar[str] = "a bias by the root of the distance"

    def init_layer(self, rng, dims):
        return {"slopes": jnp.ones(dims.num_heads)}

    def bias(self, params, query, key, scale):
        distance = jnp.abs(relative_positions(query, key).astype(jnp.float32))
        return -per_head(params["slopes"]) * jnp.sqrt(distance + 1)[:, None]


class ArrayIndex(Sound):
    """Takes positions from the array, not from the tokens."""

    def bias(self, params, query, key, scale):
        distance = jnp.abs(jnp.arange(query.length)[:, None] - jnp.arange(key.length))
        return -per_head(params["slopes"]) * distance[None, None].astype(jnp.float32)


class NotFinite(Sound):
    """Has an infinite gradient at distance zero."""

    def bias(self, params, query, key, scale):
        distance = jnp.abs(relative_positions(query, key).astype(jnp.float32))
        exponent = per_head(params["slopes"])
        return -jnp.exp(exponent * jnp.log(distance[:, None]))


class Leaking(Sound):
    """Looks at all keys, the future among them."""

    def keys(self, params, k, key):
        return (k + k.mean(axis=1, keepdims=True),)


class Absolute(Sound):
    """Claims to be shift invariant, and is not."""

    def bias(self, params, query, key, scale):
        place = jnp.sin(query.positions.astype(jnp.float32))[:, None, :, None]
        return (
            per_head(params["slopes"]) * place * super().bias(params, query, key, scale)
        )


class FirstRow(Sound):
    """Uses the positions of the first row for all."""

    def bias(self, params, query, key, scale):
        query, key = (t.replace(positions=t.positions[:1]) for t in (query, key))
        return super().bias(params, query, key, scale)


class Modest(Sound):
    """Says that shifts matter, though they do not."""

    shift_invariant: ClassVar[bool] = False


class Skipping(PaTH):
    """Says that what a mask hides in between does not count, though it does."""

    carry_skips_hidden: ClassVar[bool] = True


class TalkingHeads(Sound):
    """Mixes the weights of heads after the softmax, and does not say so."""

    mixes_heads: ClassVar[bool] = True

    def init_layer(self, rng, dims):
        heads = dims.num_heads
        mixed = jax.random.normal(rng, (heads, heads))
        return super().init_layer(rng, dims) | {"mixed": mixed}

    def mix(self, params, weights, v, query, key):
        return weighted_sum(jnp.einsum("bnts,nm->bmts", weights, params["mixed"]), v)


class Headless(Sound):
    """Forgets the axis of heads."""

    def bias(self, params, query, key, scale):
        return super().bias(params, query, key, scale)[:, 0]


class TwoSlopes(Sound):
    """A bias by the distance on each of two axes."""

    num_axes: ClassVar[int] = 2

    def bias(self, params, query, key, scale):
        steps = sum(
            (axis + 1) * jnp.abs(relative_positions(query, key, axis=axis))
            for axis in range(2)
        )
        return -per_head(params["slopes"]) * steps.astype(jnp.float32)[:, None]


class FirstAxisMoves(TwoSlopes):
    """Looks at where the query is on the second axis, and does not say so."""

    def bias(self, params, query, key, scale):
        place = jnp.sin(query.positions[..., 1].astype(jnp.float32))
        bias = super().bias(params, query, key, scale)
        return bias * place[:, None, :, None]


class Nameless(Sound):
    title: ClassVar[str] = ""


def test_a_sound_encoding_passes():
    testing.check_encoding(Sound())


def test_one_of_several_axes_is_given_them():
    testing.check_encoding(TwoSlopes())


@pytest.mark.parametrize(
    ("faulty", "message"),
    [
        (ArrayIndex(), "differs|changes"),
        (NotFinite(), "gradients of layer are not all finite"),
        (Leaking(), "depend on . of later tokens"),
        (Absolute(), "change results"),
        (FirstRow(), "depends on the positions of another"),
        (Modest(), "change nothing: it is shift_invariant"),
        (Skipping(), "keys in blocks differ .* carry_skips_hidden: True"),
        (TalkingHeads(), r"keys in blocks differ from all at once \(mix of heads"),
        (FirstAxisMoves(), "change results"),
        (Nameless(), "has no title"),
    ],
)
def test_a_fault_is_named(faulty, message):
    with pytest.raises(AssertionError, match=message):
        testing.check_encoding(faulty)


def test_a_bias_without_the_axis_of_heads_is_refused():
    """It would take rows for heads, where there are as many."""
    wanted = (
        r"Headless.bias must return \[B=2, N=4, T=8, S=8\].* got \[2, 8, 8\]; .*None"
    )
    with pytest.raises(ValueError, match=wanted):
        testing.check_encoding(Headless())
    composed = (
        r"Headless.bias must return \[B, N, T=8, S=8\], each or 1, got \[1, 8, 8\]"
    )
    with pytest.raises(ValueError, match=composed):
        testing.run(
            compose(Headless(), ALiBi()),
            testing.example(compose(Headless(), ALiBi())),
            tokens(8),
        )


@dataclasses.dataclass(frozen=True)
class Turned(Encoding):
    """Returns outputs as they are laid out within other libraries."""

    def outputs(self, params, out, query):
        return jnp.swapaxes(out, 1, 2)


@dataclasses.dataclass(frozen=True)
class Bare(Encoding):
    """Forgets that views are a tuple: the first row would be the first view."""

    def queries(self, params, q, query):
        return q


@dataclasses.dataclass(frozen=True)
class Hiding(Encoding):
    """Takes a bias for a mask: visible keys would get one nat more."""

    def bias(self, params, query, key, scale):
        return (key.index[:, None] <= query.index[..., None])[:, None]


@pytest.mark.parametrize(
    ("faulty", "message"),
    [
        (Turned(), r"outputs must return \[B=2, T=8, N=4, H\], got \[2, 4, 8, 8\]"),
        (Bare(), r"queries must return a tuple of views, .* \(x,\)"),
        (Hiding(), "bias must return numbers, got booleans"),
    ],
)
@pytest.mark.parametrize("engine", ["dense", "blockwise"])
def test_what_hooks_must_not_return_is_refused_by_every_engine(faulty, message, engine):
    with pytest.raises(ValueError, match=message):
        testing.run(faulty, testing.example(faulty), tokens(8), implementation=engine)


def test_variants_change_one_setting_and_skip_what_is_refused():
    others = list(testing.variants(ALiBi()))
    assert ALiBi(tie_break=True) in others
    assert ALiBi(learned=True) in others
    assert all(other != ALiBi() for other in others)
    assert not any(other.two_sided for other in others)


def test_example_depends_on_its_key_alone():
    one, same, other = (
        testing.example(Encoding(), jax.random.key(seed)) for seed in (1, 1, 2)
    )
    assert (one["q"] == same["q"]).all()
    assert (one["q"] != other["q"]).any()
