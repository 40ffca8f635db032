"""Every encoding of the catalogue gives the same under both engines, gradients too."""

import jax
import pytest

from ropejax.attention import choose
from ropejax.attention.normalizers import Softmax
from ropejax.encodings import ENCODINGS
from tests.attention import cases


def in_both(encoding, run):
    """Returns what `run(settings)` gives blockwise and densely, or skips."""
    obstacle = getattr(encoding, "needs_whole_rows", False)
    if obstacle:
        with pytest.raises(ValueError, match="dense"):
            choose(
                "blockwise",
                num_queries=7,
                num_keys=7,
                encoding=encoding,
                normalizer=Softmax(),
            )
        pytest.skip(f"{encoding.title} is dense only, and refused elsewhere")
    return (
        run(implementation="blockwise", block_q=32, block_k=48),
        run(implementation="dense"),
    )


@pytest.mark.parametrize("name", ENCODINGS)
def test_outputs_and_gradients_at_129_tokens(name):
    encoding = ENCODINGS[name]()
    case = cases.case(encoding, 129)

    def run(**settings):
        run = cases.attention(encoding, return_lse=True, **settings)
        return cases.value_and_grads(run, case.cotangent)(case.arrays)

    cases.assert_same(*in_both(encoding, run))


@pytest.mark.parametrize("name", ENCODINGS)
def test_outputs_at_1_and_7_tokens(name):
    encoding = ENCODINGS[name]()
    arrays = [cases.case(encoding, length).arrays for length in (1, 7)]

    def run(**settings):
        settings |= {"block_q": 4, "block_k": 3}
        run = cases.attention(encoding, **settings)
        return jax.jit(lambda arrays: [run(a) for a in arrays])(arrays)

    for got, wanted in zip(*in_both(encoding, run), strict=True):
        cases.assert_close(got, wanted)


@pytest.mark.slow
@pytest.mark.parametrize("name", ENCODINGS)
def test_gradients_at_1_7_and_1000_tokens(name):
    encoding = ENCODINGS[name]()
    for length in (1, 7, 1000):
        case = cases.case(encoding, length, batch=1)

        def run(case=case, **settings):
            run = cases.attention(encoding, return_lse=True, **settings)
            return cases.value_and_grads(run, case.cotangent)(case.arrays)

        got, wanted = in_both(encoding, run)
        cases.assert_same(got, wanted, out_tolerance=5e-6, grad_tolerance=3e-5)
