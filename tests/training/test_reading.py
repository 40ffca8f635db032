"""What a scheme says and no encoding of the model reads is refused, with a remedy."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

from ropejax.encodings import (
    ENCODINGS,
    ALiBi,
    AxialRotary,
    Dims,
    Encoding,
    Learned,
    LogScale,
    Rotary,
    Sinusoidal,
    compose,
)
from ropejax.nn import LayerKind
from ropejax.positions import (
    Abacus,
    Consecutive,
    Coupled,
    CoupledLevels,
    Randomized,
    Shifted,
)
from ropejax.training.reading import check_read, needed, reads
from tests.training.tiny import tiny_recipe

pytestmark = pytest.mark.fast

DIMS = Dims(2, 2, 8, 16, 2, causal=True)
LAYERS = Randomized(64, per_layer=True)
ONE_AXIS = (("positions", (1, 4), "int32"),)
DISTANCES = (("distances", (1, 4), "int32"),)
TWO_AXES = (("positions", (1, 4, 2), "int32"),)
DIGIT = Learned(stream="digit")
# By content, or by the order of tokens.
WITHOUT_POSITIONS = {
    *("none", "grape_m", "repo", "log_scale", "soft_cap"),
    *("cope", "fox", "cable", "wall", "path"),
}


@dataclasses.dataclass(frozen=True)
class Model:
    """As much of a model as is looked at."""

    encodings: tuple[Encoding, ...]
    dims: Dims = DIMS

    @property
    def pattern(self):
        return tuple(map(LayerKind, self.encodings))


def check(scheme, *encodings):
    check_read(scheme, Model(encodings), 4, what="rows of 4 tokens")


@pytest.mark.parametrize("name", ENCODINGS)
def test_what_encodings_read_is_found_by_tracing(name):
    encoding = ENCODINGS[name]()
    found = reads(encoding, DIMS, ONE_AXIS)
    assert bool(found.before) == encoding.has_embed
    assert (found.before | found.layers == {"positions"}) == (
        name not in WITHOUT_POSITIONS
    )
    assert not (found.before and found.layers)
    if encoding.by_distance and name not in WITHOUT_POSITIONS:
        assert reads(encoding, DIMS, DISTANCES).layers == {"distances"}


@pytest.mark.parametrize("name", ENCODINGS)
def test_several_axes_are_read_by_axial_rotations_and_refused_by_others(name):
    """A position on one of them alone would be another scheme's than was asked for."""
    encoding = ENCODINGS[name]()
    if name in WITHOUT_POSITIONS:
        assert not any(reads(encoding, DIMS, TWO_AXES))
    elif name in ("rope_2d", "rope_mixed"):
        assert reads(encoding, DIMS, TWO_AXES).layers == {"positions"}
    else:
        with pytest.raises(ValueError, match="axis|axes|table of positions"):
            reads(encoding, DIMS, TWO_AXES)


@pytest.mark.parametrize(
    ("encoding", "read"),
    [
        (Sinusoidal(), r"\(Sinusoidal.*: once, before the layers\)"),
        (Learned(), r"\(Learned.*: once, before the layers\)"),
        (compose(Learned(), LogScale()), r"\(.*: once, before the layers\)"),
        (Encoding(), r"\(No encoding.*\): draws"),
    ],
)
def test_draws_for_each_layer_must_be_read_in_layers(encoding, read):
    message = f"rows of 4 tokens, .* no layer reads positions {read}.*per_layer=False"
    with pytest.raises(ValueError, match=message):
        check(LAYERS, encoding)
    with pytest.raises(ValueError, match=message):
        check(Abacus(base=LAYERS), compose(first=encoding, digit=DIGIT))
    check(Randomized(64), encoding)


def test_one_part_or_one_kind_of_layer_that_reads_them_is_enough():
    check(LAYERS, Rotary())
    check(LAYERS, compose(Sinusoidal(), Rotary()))
    check(LAYERS, Sinusoidal(), Rotary())
    check(Randomized(64, distances=True, per_layer=True), ALiBi())


def test_distances_need_encodings_by_distance():
    scheme = Randomized(64, distances=True)
    check(scheme, Encoding())
    with pytest.raises(ValueError, match="RoPE is no function of distances; give pos"):
        check(scheme, Rotary())


@pytest.mark.parametrize(
    ("scheme", "encoding", "message"),
    [
        (Abacus(), Rotary(), r"its digit \(RoPE\).*Learned\(stream='digit'\)"),
        (Abacus(), Encoding(), r"no encoding reads .*, its digit \(No encoding\)"),
        (Abacus(base=Coupled()), Rotary(), r"its digit \(RoPE\)"),
        (
            Coupled(),
            LogScale(),
            "coupled positions say of each token .*such as Learned",
        ),
        (CoupledLevels(base=Shifted()), ALiBi(), "its digit and its operand"),
        (CoupledLevels(), ALiBi(), "ALiBi: distances are taken of .* on one axis"),
        (CoupledLevels(), Encoding(), "the scheme would change nothing"),
    ],
)
def test_what_a_scheme_says_beside_order_must_be_read(scheme, encoding, message):
    with pytest.raises(ValueError, match=f"rows of 4 tokens.*{message}"):
        check(scheme, encoding)


@pytest.mark.parametrize(
    ("scheme", "encoding"),
    [
        (Consecutive(), Encoding()),
        (Randomized(64), Encoding()),
        (Abacus(), DIGIT),
        (Abacus(base=LAYERS), compose(Rotary(), DIGIT)),
        (Coupled(), Learned()),
        (CoupledLevels(), AxialRotary()),
        (CoupledLevels(), Learned(stream="operand")),
        (CoupledLevels(base=Consecutive()), DIGIT),
    ],
)
def test_what_is_read_is_accepted(scheme, encoding):
    check(scheme, encoding)


def test_recipes_are_checked():
    with pytest.raises(ValueError, match="batches of 3 symbols are 6 tokens, .*layer"):
        tiny_recipe(encoding="sinusoidal", positions=LAYERS)
    with pytest.raises(ValueError, match=r"its digit \(RoPE\)"):
        tiny_recipe(positions=Abacus(digits=(0, 1)))


def test_dependence_is_followed_through_calls_and_not_through_loops():
    inner = jax.jit(lambda a, b: (a + 1, b * 2))
    once = jax.make_jaxpr(lambda a, b: inner(a, b))(1.0, 2.0).jaxpr
    assert [needed(once, [at]) for at in (0, 1)] == [{0}, {1}]

    def loop(a, b):
        return jax.lax.fori_loop(0, 3, lambda _, c: (c[0] + 1, c[1]), (a, b))

    twice = jax.make_jaxpr(loop)(jnp.float32(1), jnp.float32(2)).jaxpr
    assert needed(twice, [0]) >= {0}
