"""The public checks find the faults that they are there for."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import pytest

from ropejax import testing
from ropejax.encodings import ALiBi, Encoding, PaTH
from ropejax.encodings.heads import per_head
from ropejax.tokens import relative_positions


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


class Nameless(Sound):
    title: ClassVar[str] = ""


def test_a_sound_encoding_passes():
    testing.check_encoding(Sound())


@pytest.mark.parametrize(
    ("faulty", "message"),
    [
        (ArrayIndex(), "differs|changes"),
        (NotFinite(), "finite"),
        (Leaking(), "depend on . of later tokens"),
        (Absolute(), "change results"),
        (FirstRow(), "depends on the positions of another"),
        (Modest(), "change nothing: it is shift_invariant"),
        (Skipping(), "keys in blocks differ .* carry_skips_hidden: True"),
        (Nameless(), "has no title"),
    ],
)
def test_a_fault_is_named(faulty, message):
    with pytest.raises(AssertionError, match=message):
        testing.check_encoding(faulty)


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
