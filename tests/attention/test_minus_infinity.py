"""A logit of minus infinity hides its key as a mask does, in whole rows too."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax import masks
from ropejax.attention import attend
from ropejax.attention.temperature import AdaptiveTemperature
from ropejax.attention.unit_rows import UnitRows
from ropejax.attention.whole_row import Entmax
from ropejax.encodings import Encoding
from ropejax.tokens import tokens
from tests.attention import cases

LENGTH = 6


class GivenLogits(Encoding):
    """Adds the parameter, an array `[1, 1, T, S]`, wherever blocks lie."""

    def bias(self, params, query, key, scale):
        i, j = query.index[:, None, :, None], key.index[:, None, None, :]
        return params["bias"][0, 0][i, j]


@pytest.mark.parametrize(
    "normalizer", [AdaptiveTemperature(), Entmax(), UnitRows()], ids=str
)
def test_low_logits_hide_keys_as_a_mask_does(normalizer):
    bias = np.zeros((LENGTH, LENGTH), np.float32)
    bias[:, 1], bias[2], bias[5] = -np.inf, -np.inf, np.finfo(np.float32).min
    bias = jnp.asarray(bias)
    hidden = bias < 0
    rng = np.random.default_rng(0)
    q, k, v = (3 * cases.normal(rng, 1, LENGTH, 2, 4) for _ in range(3))
    row_scale = -1 - cases.normal(rng, 1, LENGTH, 1) ** 2

    def shown(query, key):
        i, j = query.index[:, None, :, None], key.index[:, None, None, :]
        return (j <= i) & ~hidden[i, j]

    def run(mask, bias, **settings):
        def loss(q, row_scale):
            out = attend(
                q,
                k,
                v,
                encoding=GivenLogits(),
                params={"bias": bias[None, None]},
                query=tokens(LENGTH),
                key=tokens(LENGTH),
                mask=mask,
                row_scale=row_scale,
                normalizer=normalizer,
                **settings,
            )
            return (out**2).sum(), out

        graded = jax.value_and_grad(loss, (0, 1), has_aux=True)
        return cases.jit(graded)(q, row_scale)

    wanted = run(shown, jnp.zeros_like(bias), implementation="dense")
    settings = [{"implementation": "dense"}]
    if not isinstance(normalizer, UnitRows):
        blocks = {"block_q": 3, "block_k": 2}
        settings.append({"implementation": "blockwise", **blocks})
    for engine in settings:
        cases.assert_close(run(masks.Causal(), bias, **engine), wanted, 5e-5)
