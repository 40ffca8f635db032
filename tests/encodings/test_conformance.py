"""Every encoding of the catalogue, with default settings, keeps the contract."""

import jax
import jax.numpy as jnp
import pytest

from ropejax import testing
from ropejax.encodings import ENCODINGS, Encoding
from ropejax.tokens import tokens


@pytest.mark.parametrize("name", ENCODINGS)
def test_encoding_keeps_the_contract(name):
    testing.check_encoding(ENCODINGS[name]())
