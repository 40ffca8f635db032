"""Checks that hold what users write to the contracts, for their own tests.

`check_encoding(MyEncoding())` runs attention under an encoding in every way that the
library will: compiled, mapped, in half precision, with padding, decoding from a cache,
with keys stored in any order. It says which promise is broken. It knows no method by
name, so an encoding that passes works with everything else. `check_task(MyTask())`,
`check_positions(MyScheme())`, `check_mask(MyMask())`,
`check_normalizer(MyNormalizer())` and `check_token_shift(MyShift())` do the same for a
task's sampler, a position scheme, a mask, what stands in for the softmax, and what
projections take from the tokens before.
"""

from ropejax.testing.checks import check_description, check_encoding, variants
from ropejax.testing.masks import check_mask
from ropejax.testing.normalizers import check_normalizer
from ropejax.testing.positions import check_positions
from ropejax.testing.running import DIMS, Inputs, example, run
from ropejax.testing.tasks import check_task
from ropejax.testing.token_shifts import check_token_shift

__all__ = [
    "DIMS",
    "Inputs",
    "check_description",
    "check_encoding",
    "check_mask",
    "check_normalizer",
    "check_positions",
    "check_task",
    "check_token_shift",
    "example",
    "run",
    "variants",
]
