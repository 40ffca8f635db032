import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.encodings import Dims, Learned, Multiplicative, Sinusoidal, compose
from ropejax.encodings.distance_maps import Rectified
from ropejax.tokens import tokens

DIMS = Dims(num_heads=1, num_kv_heads=1, head_dim=4, embed_dim=4)


def table(rows):
    return {"table": jnp.asarray(np.random.default_rng(0).normal(size=(rows, 4)))}


def at(*positions):
    return tokens(len(positions), positions=jnp.array([positions]))


def test_rows_of_positions_are_added():
    shared, x = table(4), jnp.ones((1, 3, 4))
    got = Learned(max_position=4).embed(shared, x, at(3, 0, 2))
    wanted = 1 + np.asarray(shared["table"])[None, [3, 0, 2]]
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


@pytest.mark.fast
def test_a_grid_is_refused_with_the_remedy_that_works():
    cells = np.stack(np.divmod(np.arange(6), 3), axis=-1)
    grid = tokens(6, positions=cells[None])
    shared, x = {"row": table(2), "column": table(3)}, jnp.ones((1, 6, 4))
    for refused, name in ((Learned(2), "Learned"), (Sinusoidal(), "Sinusoidal")):
        remedy = rf'one axis.*\(1, 6, 2\).*compose\(row={name}\(stream="row"\), ...\)'
        with pytest.raises(ValueError, match=remedy):
            refused.embed(table(2), x, grid)
    axes = {"row": cells[None, :, 0], "column": cells[None, :, 1]}
    where = tokens(6, streams=axes)
    both = compose(row=Learned(2, stream="row"), column=Learned(3, stream="column"))
    rows, columns = (np.asarray(shared[axis]["table"]) for axis in axes)
    wanted = 1 + rows[cells[:, 0]] + columns[cells[:, 1]]
    np.testing.assert_allclose(both.embed(shared, x, where)[0], wanted, rtol=1e-6)
    waves = lambda side, encoding: encoding.embed({}, x, side)
    at_rows = waves(tokens(6, positions=axes["row"]), Sinusoidal())
    by_stream = waves(where, Sinusoidal(stream="row"))
    np.testing.assert_array_equal(by_stream, at_rows)


@pytest.mark.fast
def test_settings_of_numpys_kind_become_pythons_whose_powers_do_not_overflow():
    table = Learned(max_position=np.int32(65536), extension=np.float32(0.25))
    assert table.num_ids == 2**32
    assert table == Learned(max_position=65536, extension=0.25)
    kinds = {type(getattr(table, name)) for name in ("max_position", "extension")}
    assert kinds == {int, float}
    assert type(Rectified(np.int8(100)).window) is int


def test_rows_of_positions_multiply_as_one_plus_them():
    shared, x = table(4), jnp.full((1, 3, 4), 2.0)
    got = Multiplicative(max_position=4).embed(shared, x, at(3, 0, 2))
    wanted = 2 * (1 + np.asarray(shared["table"])[None, [3, 0, 2]])
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_initial_table_has_its_size_and_spread():
    shared = Learned(max_position=512).init_shared(jax.random.key(0), DIMS)
    assert shared["table"].shape == (512, 4)
    np.testing.assert_allclose(shared["table"].std(), 0.02, rtol=0.1)


@pytest.mark.parametrize("positions", [(3, 4, 100), (-5,), (4,)])
def test_positions_outside_the_table_are_refused(positions):
    length = len(positions)
    with pytest.raises(ValueError, match="leave the table's range 0 .. 3"):
        Learned(max_position=4).embed(
            table(4), jnp.zeros((1, length, 4)), at(*positions)
        )


def test_a_static_length_beyond_the_table_is_refused_when_traced():
    def embed(shared, x):
        return Learned(max_position=4).embed(shared, x, tokens(5))

    with pytest.raises(ValueError, match="5 consecutive positions do not fit"):
        jax.jit(embed)(table(4), jnp.zeros((1, 5, 4)))


def test_traced_positions_outside_the_table_give_nan_and_no_other_row():
    def embed(positions):
        where = tokens(4, positions=positions)
        return Learned(max_position=4).embed(table(4), jnp.zeros((1, 4, 4)), where)

    got = jax.jit(embed)(jnp.array([[0, 4, -1, 3]]))[0]
    np.testing.assert_array_equal(jnp.isnan(got).all(1), [False, True, True, False])
    np.testing.assert_allclose(got[3], table(4)["table"][3], rtol=1e-6)


def test_fractional_positions_are_refused():
    where = tokens(2, positions=jnp.array([[0.5, 1.0]]))
    with pytest.raises(ValueError, match="needs integers"):
        Learned(max_position=4).embed(table(4), jnp.zeros((1, 2, 4)), where)


def test_extension_keeps_trained_rows_and_adds_their_square():
    shared, alpha = table(5), 0.4
    learned = Learned(max_position=5)
    extended = dataclasses.replace(learned, extension=alpha)
    assert learned.position_limit == 5
    assert extended.position_limit == 25
    zeros = jnp.zeros((1, 25, 4))
    got = extended.embed(shared, zeros, tokens(25))[0]
    rows = np.asarray(shared["table"], np.float64)
    np.testing.assert_allclose(got[:5], rows, atol=1e-6)
    base = (rows - alpha * rows[0]) / (1 - alpha)
    wanted = [alpha * base[m // 5] + (1 - alpha) * base[m % 5] for m in range(25)]
    np.testing.assert_allclose(got, wanted, atol=1e-6)
    assert len(np.unique(np.round(got, 5), axis=0)) == 25
    with pytest.raises(ValueError, match="26 consecutive positions"):
        extended.embed(shared, jnp.zeros((1, 26, 4)), tokens(26))


@pytest.mark.parametrize("alpha", [0.5, 0.0, 1.0])
def test_an_extension_that_confuses_positions_is_refused(alpha):
    with pytest.raises(ValueError, match="extension must lie in 0 .. 1"):
        Learned(extension=alpha)
