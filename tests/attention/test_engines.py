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


def first_of_each_kind():
    """Returns one encoding for each different set of hooks, by name.

    Methods that differ in a table of frequencies only share the code that an engine
    sees, so the dearer tests need one of them; the slow ones take all.
    """
    kinds = {}
    for name, encoding in ENCODINGS.items():
        hooks = tuple(getattr(encoding, hook) for hook in HOOKS)
        kinds.setdefault(hooks, name)
    return list(kinds.values())


FIRST = first_of_each_kind()
OTHERS = [name for name in ENCODINGS if name not in FIRST]


@pytest.mark.parametrize("name", FIRST)
def test_outputs_and_gradients_at_129_tokens(name):
    encoding = ENCODINGS[name]()
    case = cases.case(encoding, 129)

    def run(**settings):
        run = cases.attention(encoding, return_lse=True, **settings)
        return cases.value_and_grads(run, case.cotangent)(case.arrays)

    cases.assert_same(*in_both(encoding, run))


def outputs(encoding, lengths):
    arrays = [cases.case(encoding, length).arrays for length in lengths]

    def run(**settings):
        if settings["implementation"] == "blockwise" and max(lengths) < 32:
            settings |= {"block_q": 4, "block_k": 3}
        run = cases.attention(encoding, **settings)
        return cases.jit(lambda arrays: [run(a) for a in arrays])(arrays)

    return in_both(encoding, run)


@pytest.mark.parametrize("name", FIRST)
def test_outputs_at_1_and_7_tokens(name):
    cases.assert_close(*outputs(ENCODINGS[name](), (1, 7)))


@pytest.mark.parametrize("name", OTHERS)
def test_outputs_at_129_tokens(name):
    cases.assert_close(*outputs(ENCODINGS[name](), (129,)))


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
