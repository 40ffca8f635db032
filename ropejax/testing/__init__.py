"""Checks that hold a position encoding to the contract, for its author's own tests.

`check_encoding(MyEncoding())` runs attention under an encoding in every way that the
library will: compiled, mapped, in half precision, with padding, decoding from a cache,
with keys stored in any order. It says which promise is broken. It knows no method by
name, so an encoding that passes works with everything else.
"""

from ropejax.testing.checks import check_description as check_description
from ropejax.testing.checks import check_encoding as check_encoding
from ropejax.testing.checks import variants as variants
from ropejax.testing.running import DIMS as DIMS
from ropejax.testing.running import Inputs as Inputs
from ropejax.testing.running import example as example
from ropejax.testing.running import run as run
