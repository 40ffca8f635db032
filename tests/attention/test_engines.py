"""Every encoding of the catalogue gives the same under both engines, gradients too."""

import pytest

from ropejax.attention import choose
from ropejax.attention.normalizers import Softmax
from ropejax.encodings import ENCODINGS, Encoding
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


HOOKS = sorted(
    name
    for name, hook in vars(Encoding).items()
    if callable(hook) and not name.startswith("_")
)
FLAGS = sorted(name for name in vars(Encoding) if name.startswith("has_"))


def first_of_each_kind():
    """Returns one encoding for each different set of hooks and flags, by name.

    Methods that differ in a table of frequencies only share the code that an engine
    sees, so the dearer tests need one of them.
    """
    kinds = {}
    for name, encoding in ENCODINGS.items():
        hooks = tuple(getattr(encoding, hook) for hook in HOOKS)
        flags = tuple(getattr(encoding(), flag) for flag in FLAGS)
        kinds.setdefault((hooks, flags), name)
    return list(kinds.values())


FIRST = first_of_each_kind()
OTHERS = [name for name in ENCODINGS if name not in FIRST]


LENGTHS = (1, 7, 129)


@pytest.mark.parametrize("name", ENCODINGS)
def test_outputs_and_gradients_at_1_7_and_129_tokens_against_float64(name):
    encoding = ENCODINGS[name]()
    made = {length: cases.case(encoding, length) for length in LENGTHS}

    def run(**settings):
        exact = settings["implementation"] == "dense"
        results = {}
        for length, case in made.items():
            small = {"block_q": 4, "block_k": 3} if length < 32 and not exact else {}
            run = cases.attention(encoding, return_lse=True, **(settings | small))
            compute = cases.exactly if exact else cases.computed
            results[length] = compute(run, case)
        return results

    got, wanted = in_both(encoding, run)
    for length in LENGTHS:
        tolerances = 2e-6, SUMS_OF_GATES.get(name, 1e-5)
        cases.assert_same(got[length], wanted[length], *tolerances)


SUMS_OF_GATES = {"fox": 3e-5, "cable": 3e-5}
"""Their gradients are sums over tokens of sums over pairs, whose terms cancel.

Rounding adds up with them, dense or blockwise, to 1.5e-5 at 129 tokens and 1.2e-4 at
1,000, where the log-sum-exp has a gradient (a tenth of that where it has none).
"""


KINKS = {"dape": 3e-5}
"""Of half a million pairs one, query 932 and key 131, meets a leaky ReLU at its kink.

There two roundings see different slopes: gradients of that query and that key differ by
1e-4 of the largest, and all others by less than 1e-6.
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", FIRST)
def test_gradients_at_1_7_and_1000_tokens_are_as_exact_as_dense(name):
    """Both against float64, by norms.

    Where float32 itself is less exact than 1e-5 (sums of a thousand gates), blockwise
    may not be worse than twice what dense is.
    """
    encoding = ENCODINGS[name]()
    for length in (1, 7, 1000):
        case = cases.case(encoding, length, batch=1)

        def run(case=case, **settings):
            run = cases.attention(encoding, return_lse=True, **settings)
            return cases.computed(run, case)

        got, dense = in_both(encoding, run)
        whole = cases.attention(encoding, return_lse=True, implementation="dense")
        exact = cases.exactly(whole, case)
        out, grads = cases.largest_errors(got, exact)
        _, dense_grads = cases.largest_errors(dense, exact)
        assert out <= 2e-6
        assert grads <= max(KINKS.get(name, 1e-5), 2 * dense_grads)
        assert grads <= 3e-4
