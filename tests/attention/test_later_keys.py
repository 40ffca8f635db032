"""Methods that are undefined for later keys refuse every mask known to show one."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax import masks
from ropejax.attention import StickBreaking, attend
from ropejax.attention.later_keys import later_key_seen
from ropejax.encodings import Encoding
from ropejax.masks import Blocks, Causal, Full, Global, Marked, Not, Prefix, Window
from ropejax.tokens import tokens

LENGTH = 16


def attended(mask, query=None, key=None, **settings):
    query = tokens(LENGTH) if query is None else query
    key = tokens(LENGTH) if key is None else key
    q, k = (jnp.zeros((1, side.length, 2, 4)) for side in (query, key))
    return attend(
        q,
        k,
        k,
        encoding=Encoding(),
        normalizer=StickBreaking(),
        query=query,
        key=key,
        mask=mask,
        **settings,
    )


@dataclasses.dataclass(frozen=True)
class Past(masks.Mask):
    """A causal mask of a user's own, without a rule for blocks."""

    reach_after: int = 0

    def pairs(self, i, j):
        return j <= i + self.reach_after


LATER = [
    Causal() | Global(at=(5,)),
    Causal() | Global(at=(1,)),
    Window(None, 0) | masks.Dilated(2, 0, 3),
    Causal() | masks.Random(2, last=12),
    masks.Longformer(4, 2, 0),
    masks.PerHead((Causal(), Causal() | Global(at=(7,)))),
    Causal() | (Window(0, 4) & ~Window(0, 1)),
    Causal() | (Blocks(Window(0, 0), 3) & ~Blocks(Window(0, 0), 2)),
    Past(9),
    Full(),
    None,
]
EARLIER = [
    Causal(),
    masks.Lambda(2, 3),
    Window(None, 5) & ~Window(0, 5),  # its rule for blocks cannot tell
    Causal() & masks.Random(2, last=12),
    masks.PerHead((Causal(), masks.Chunked(4))),
    Past(),
    Not(Window(0, None)),
    Causal() | Global(at=(100,)),  # no token of these
    pytest.param(
        lambda query, key: jnp.ones((1, 1, query.length, key.length), bool),
        id="a function, of which nothing is known",
    ),
]


@pytest.mark.parametrize("mask", LATER, ids=str)
def test_a_mask_that_shows_a_later_key_is_refused(mask):
    with pytest.raises(ValueError, match=r"undefined for keys after.*masks.Causal"):
        attended(mask)
    seen = later_key_seen(mask, tokens(LENGTH), tokens(LENGTH))
    assert seen.key > seen.query
    if mask is not None:
        assert mask(tokens(LENGTH), tokens(LENGTH))[0, :, seen.query, seen.key].any()
    abstract = lambda **settings: attended(mask, tokens(LENGTH), **settings)
    with pytest.raises(ValueError, match=r"undefined for keys after"):
        jax.eval_shape(abstract)  # indices are traced here


@pytest.mark.parametrize("mask", EARLIER, ids=str)
def test_a_mask_of_earlier_keys_is_not(mask):
    assert later_key_seen(mask, tokens(LENGTH), tokens(LENGTH)) is None
    traced = []

    @jax.vmap
    def run(index):
        where = tokens(LENGTH).replace(index=index[None], consecutive_index=False)
        traced.append(later_key_seen(mask, where, where))
        return index

    run(jnp.arange(LENGTH)[None])
    assert traced == [None]


def test_what_is_known_of_tokens_counts():
    seen = later_key_seen
    late = tokens(4, offset=12)
    assert seen(None, tokens(1, offset=15), tokens(16)) is None
    assert seen(Full(), tokens(1, offset=14), tokens(16)) == (14, 15)
    assert seen(None, tokens(2, offset=16), tokens(16)) is None  # all keys are before
    assert seen(Causal() | Prefix(4), late, tokens(16)) is None
    assert seen(Causal() | Prefix(14), late, tokens(16)) == (12, 13)
    unfilled = tokens(16, valid=jnp.arange(16)[None] < 13)
    assert seen(Full(), tokens(1, offset=12), unfilled) is None
    apart = tokens(4, segments=jnp.arange(4)[None])
    assert seen(None, apart, apart) is None
    order = np.array([3, 0, 2, 1])
    assert seen(Causal(), tokens(4), tokens(4).permuted(order)) is None
    assert seen(Full(), tokens(4), tokens(4).permuted(order)) == (0, 3)
    beyond = masks.BigBird(8) & Causal()
    assert seen(beyond, tokens(16), tokens(16)) is None  # another check's affair


def test_marks_count_where_they_are_known():
    mask = Causal() | Marked("prefix")
    of = lambda marks: tokens(4, streams={"prefix": jnp.array([marks])})
    assert later_key_seen(mask, of([0] * 4), of([0] * 4)) is None
    assert later_key_seen(mask, of([1, 0, 0, 0]), of([1, 0, 0, 0])) is None
    assert later_key_seen(mask, of([0, 1, 0, 0]), of([0, 1, 0, 0])) == (0, 1)

    @jax.jit
    def traced(marks):
        where = tokens(4, streams={"prefix": marks})
        assert later_key_seen(mask, where, where) == (0, 1)  # it may be marked
        return marks

    traced(jnp.zeros((1, 4), jnp.int32))


def test_one_query_somewhere_may_be_the_last():
    @jax.jit
    def step(offset):
        assert later_key_seen(Full(), tokens(1, offset=offset), tokens(4)) is None
        return offset

    step(3)


def test_long_sequences_are_asked_in_part():
    """Linear in length where the rule for blocks tells, bounded where it cannot."""
    assert later_key_seen(Causal(), tokens(2**20), tokens(2**20)) is None
    assert later_key_seen(Past(), tokens(2**14), tokens(2**14)) is None
    assert later_key_seen(Past(1), tokens(2**14), tokens(2**14)) == (0, 1)
