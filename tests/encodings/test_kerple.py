import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from ropejax.attention import attend
from ropejax.encodings import Kerple, WeightedKerple
from ropejax.tokens import tokens
from tests.encodings.additive_cases import assert_golden, dims, load

CASE = "kerple_H4_L17"


def bias(encoding, layer, length=17):
    where = tokens(length)
    params = encoding.prepare({}, layer, where, where, dims(4, 4))
    return encoding.bias(params, where, where, 1.0)[0]


@pytest.mark.parametrize("kernel", ["log", "power"])
def test_kernels_equal_the_official_code(kernel):
    golden = load(CASE)
    params = {name: jnp.asarray(golden[f"{kernel}_{name}"]) for name in "ap"}
    got = np.tril(bias(Kerple(kernel=kernel), params))
    assert_golden(CASE, got, golden[f"{kernel}_bias"])


def test_weight_kernel_equals_the_official_code():
    golden = load(CASE)
    params = {name: jnp.asarray(golden[f"w_bias_{name}"]) for name in "ap"}
    params |= {f"weight_{name}": jnp.asarray(golden[f"w_wei_{name}"]) for name in "ap"}
    encoding, where = WeightedKerple(), tokens(17)
    params = encoding.prepare({}, params, where, where, dims(4, 4))
    assert encoding.bias(params, where, where, 1.0) is None
    got = encoding.logits(params, jnp.asarray(golden["x"]), where, where)
    visible = np.tri(17, dtype=bool)
    assert_golden(
        CASE, np.where(visible, got, 0), np.where(visible, golden["w_out"], 0)
    )


@pytest.mark.parametrize(
    ("p", "a", "wanted"),
    [
        (
            1.0,
            1.0,
            [0, -0.693147181, -1.098612289, -1.386294361, -1.609437912, -1.791759469],
        ),
        (
            2.0,
            0.5,
            [0, -0.810930216, -1.386294361, -1.832581464, -2.197224577, -2.505525937],
        ),
    ],
)
def test_logarithmic_kernel_of_known_parameters(p, a, wanted):
    got = bias(Kerple(), {"p": jnp.array([p]), "a": jnp.array([a])}, 6)
    np.testing.assert_allclose(got[0, :, 0], wanted, atol=1e-6)
    np.testing.assert_allclose(got[0, 0], wanted, atol=1e-6)


@pytest.mark.parametrize("kernel", ["log", "power"])
@pytest.mark.parametrize("raw", [-0.5, -1e6, 0.0, 1e3, 1e38, np.inf])
def test_kernel_stays_a_penalty_wherever_parameters_go(kernel, raw):
    """Fault B09: unconstrained coefficients turn negative in training."""
    encoding = Kerple(kernel=kernel)
    params = {"p": jnp.array([raw]), "a": jnp.array([raw])}

    def total(params):
        return bias(encoding, params)[0, -1].sum()

    got = bias(encoding, params)[0, :, 0]
    assert jnp.isfinite(got).all()
    assert got[0] == 0
    assert (jnp.diff(got) <= 0).all()
    assert all(jnp.isfinite(g).all() for g in jax.grad(total)(params).values())


@pytest.mark.parametrize("kernel", ["log", "power"])
def test_parameters_out_of_range_come_back_but_go_no_further(kernel):
    """Descent on the bias drives parameters up; on its negative, down."""
    encoding, layer = (
        Kerple(kernel=kernel),
        {"a": jnp.array([-0.2]), "p": jnp.array([-0.2])},
    )

    @jax.jit
    def gradients(params, sign):
        return jax.grad(lambda p: sign * bias(encoding, p)[0, -1].sum())(params)

    assert all(g[0] < 0 for g in gradients(layer, 1.0).values())
    assert all(g[0] == 0 for g in gradients(layer, -1.0).values())
    optimizer = optax.sgd(1e-3)
    state = optimizer.init(layer)
    for _ in range(30):
        updates, state = optimizer.update(gradients(layer, -1.0), state)
        layer = optax.apply_updates(layer, updates)
    np.testing.assert_allclose(layer["a"], -0.2)
    for _ in range(600):
        updates, state = optimizer.update(gradients(layer, 1.0), state)
        layer = optax.apply_updates(layer, updates)
    assert min(float(x[0]) for x in layer.values()) > 0.01


@pytest.mark.fast
def test_the_steepest_kernel_still_prefers_the_nearest_key():
    """However far all keys are, they are no hidden ones, whose rows are zeros."""
    where = tokens(2, positions=[[0, 1]])
    far = tokens(1, positions=[[2**31 - 1]])
    value = jnp.array([[[[1.0]], [[2.0]]]])
    for kernel in ("log", "power"):
        encoding, layer = (
            Kerple(kernel=kernel),
            {name: jnp.array([1e30]) for name in "ap"},
        )
        params = encoding.prepare({}, layer, far, where, dims(4, 1))
        shared = {"encoding": encoding, "params": params, "query": far, "key": where}
        assert float(attend(value[:, :1], value, value, **shared)[0, 0, 0, 0]) >= 1


def test_initial_parameters_lie_in_their_ranges():
    layer = Kerple().init_layer(jax.random.key(0), dims(64, 4))
    assert 0 <= float(layer["a"].min()) < float(layer["a"].max()) <= 1
    assert 1.5 < float(layer["p"].max()) <= 2


def test_an_unknown_kernel_is_refused():
    with pytest.raises(ValueError, match="Did you mean 'power'"):
        Kerple(kernel="powr")
