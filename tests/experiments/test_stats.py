import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.stats import false_discovery_control, ttest_1samp, wilcoxon

stats = pytest.importorskip("experiments.stats", reason="the folder experiments is absent")
Difference, holm = stats.Difference, stats.holm

RATIO = 3 / 7
samples = st.lists(st.floats(-1, 1, width=32), min_size=2, max_size=12)


def draw(n, seed=0):
    return np.random.default_rng(seed).normal(0.3, 1, n)


@pytest.mark.parametrize("n", [2, 5, 30])
def test_paired_matches_scipy(n):
    d = draw(n)
    found, expected = Difference.paired(d, level=0.9), ttest_1samp(d, 0)
    interval = expected.confidence_interval(0.9)
    assert [found.value, found.p, found.low, found.high] == pytest.approx(
        [d.mean(), expected.pvalue, interval.low, interval.high], rel=1e-9
    )
    assert found.n == n


def test_resampled_with_ratio_zero_is_paired():
    a, b = Difference.resampled(draw(9), ratio=0), Difference.paired(draw(9))
    assert (a.value, a.low, a.high, a.p) == (b.value, b.low, b.high, b.p)


def test_resampled_matches_the_formula():
    found = Difference.resampled([0.01, 0.02, 0.03], ratio=RATIO)
    half = 4.302652729911275 * math.sqrt((1 / 3 + RATIO) * 1e-4)
    assert (found.low, found.high) == pytest.approx((0.02 - half, 0.02 + half))


@pytest.mark.parametrize("n", [1, 5, 6, 13])
@pytest.mark.parametrize("shift", [0.0, 0.8])
def test_signed_rank_p_matches_scipy(n, shift):
    d = draw(n, seed=n) + shift
    assert Difference.signed_rank(d).p == pytest.approx(wilcoxon(d, method="exact").pvalue)


@pytest.mark.parametrize("n", [6, 10, 15])
def test_signed_rank_interval_inverts_the_test(n):
    d, found = draw(n), Difference.signed_rank(draw(n))
    inside, outside = 1e-9, -1e-9
    for sign, end in ((1, found.low), (-1, found.high)):
        assert wilcoxon(d - end - sign * inside, method="exact").pvalue >= 0.05
        assert wilcoxon(d - end - sign * outside, method="exact").pvalue < 0.05


@example([0.0, 1.0, 1.0], 0.5)
@given(samples, st.sampled_from([0.5, 0.9, 0.95]))
def test_interval_excludes_zero_where_p_is_small(d, level):
    for found in (
        Difference.paired(d, level),
        Difference.resampled(d, RATIO, level),
        Difference.signed_rank(d, level),
    ):
        if abs(found.p - (1 - level)) > 1e-6:
            assert (found.low > 0 or found.high < 0) == (found.p < 1 - level)


def test_signed_rank_of_few_is_unbounded():
    found = Difference.signed_rank([1, 2, 3, 4, 5])
    assert (found.low, found.high) == (-math.inf, math.inf)
    assert found.value == 3


@pytest.mark.parametrize("make", [Difference.paired, Difference.signed_rank])
def test_degenerate_differences(make):
    assert math.isnan(make([]).value)
    assert make([0.0] * 8).p == 1
    assert make([0.0] * 8).low == 0
    assert make([0.1] * 8).p < 0.05
    assert make([0.1]).value == 0.1
    with pytest.raises(ValueError, match="differences"):
        make([0.1, math.nan])


@pytest.mark.parametrize(
    ("make", "shared"),
    [
        (Difference.paired, 0.0),
        (Difference.signed_rank, 0.0),
        (lambda d: Difference.resampled(d, RATIO), RATIO),
    ],
)
def test_intervals_cover_as_often_as_they_say(make, shared):
    # differences of splits share a component of variance ratio, those of data sets none
    rng, repeats, n = np.random.default_rng(7), 2000, 10
    common = math.sqrt(shared) * rng.normal(size=(repeats, 1))
    found = [make(d) for d in common + rng.normal(size=(repeats, n)) + 0.5]
    covered = np.mean([x.low <= 0.5 <= x.high for x in found])
    assert abs(covered - 0.95) < 4 * math.sqrt(0.95 * 0.05 / repeats) + 0.002  # discrete ranks


def test_plain_t_is_too_sure_of_repeated_splits():
    rng = np.random.default_rng(7)
    d = math.sqrt(RATIO) * rng.normal(size=(2000, 1)) + rng.normal(size=(2000, 10))
    assert np.mean([Difference.paired(x).p < 0.05 for x in d]) > 0.3


def test_holm_matches_the_definition():
    p = np.random.default_rng(0).uniform(0, 0.2, 7)
    corrected = np.empty(7)
    order = np.argsort(p)
    corrected[order] = np.minimum(1, np.maximum.accumulate(p[order] * np.arange(7, 0, -1)))
    assert holm(p) == pytest.approx(corrected)
    assert all(a >= b for a, b in zip(holm(p), false_discovery_control(p), strict=True))
    with_nan = holm([*p, math.nan])
    assert with_nan[:-1] == pytest.approx(corrected)
    assert math.isnan(with_nan[-1])


def test_holm_keeps_the_familywise_error():
    rng = np.random.default_rng(3)
    wrong = [min(holm(p)) < 0.05 for p in rng.uniform(size=(4000, 12))]
    assert np.mean(wrong) < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 4000)
