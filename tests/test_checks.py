"""The checks of numbers: what every argument refuses, and where infinity is allowed."""

import math

import numpy as np
import pytest
import torch

from aucmax import checks

CHECKS = [checks.positive, checks.non_negative, checks.share, checks.count]
NO_NUMBERS = [True, False, np.True_, math.nan, "1", b"1", None, [1]]


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("value", [*NO_NUMBERS, -1, math.inf])
def test_what_is_no_number_of_the_kind_is_refused_by_name(check, value):
    with pytest.raises(ValueError, match=r"^lr must be an? .*, found "):
        check("lr", value)


@pytest.mark.parametrize("value", [0.5, np.float32(0.5), torch.tensor(0.5)])
def test_numbers_of_all_libraries_come_back_as_floats(value):
    for check in (checks.positive, checks.non_negative, checks.share):
        found = check("lr", value)
        assert type(found) is float
        assert found == 0.5


def test_infinity_passes_where_it_is_allowed():
    assert checks.positive("gamma", math.inf, infinite=True) == math.inf
    with pytest.raises(ValueError, match="gamma must be a number > 0, found -inf"):
        checks.positive("gamma", -math.inf, infinite=True)


def test_counts_have_a_least():
    assert type(checks.count("steps", np.int64(3))) is int
    assert checks.count("seed", 0, least=0) == 0
    with pytest.raises(ValueError, match="steps must be an integer >= 2, found 1"):
        checks.count("steps", 1, least=2)
    with pytest.raises(ValueError, match=r"steps must be an integer >= 1, found 2\.0"):
        checks.count("steps", 2.0)
