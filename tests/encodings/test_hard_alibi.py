import numpy as np
import pytest

from ropejax.encodings import hard_alibi
from ropejax.tokens import tokens


def test_heads_see_as_far_back_as_their_number():
    where = tokens(6)
    got = np.asarray(hard_alibi(4, 3)(where, where))[0]
    i, j = np.indices((6, 6))
    for head in range(3):
        np.testing.assert_array_equal(got[head], (j <= i) & (i - j <= head))
    np.testing.assert_array_equal(got[3], j <= i)


@pytest.mark.parametrize("windowed", [0, 5])
def test_more_windows_than_heads_or_none_are_refused(windowed):
    with pytest.raises(ValueError, match="num_windowed must"):
        hard_alibi(4, windowed)
