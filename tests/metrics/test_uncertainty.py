"""Intervals and paired tests: against DeLong's formulas, the bootstrap, and what 0.2 gave."""

import math
import warnings
from statistics import NormalDist

import numpy as np
import pytest
import torch
from curve_cases import cases, rows
from hypothesis import example, given
from hypothesis import strategies as st
from metric_infos import INFOS
from recorded import CLUSTERED, RECORDED, draw
from reference import auc as reference

from aucmax import metrics
from aucmax.metrics import compare, grouped_auc, hand_till, interval, roc_auc

GROUPS = np.arange(480) // 12  # of the rows below
OF_ROWS = {info.name: info for info in INFOS if not info.grouped}


def close(value):
    return pytest.approx(value, rel=1e-11, abs=1e-12)


@pytest.fixture(scope="module")
def drawn():
    """Scores of two models that have much in common, labels and weights."""
    random = np.random.default_rng(0)
    y, shared = np.arange(480) % 4 == 0, random.standard_normal(480)
    a, b = (0.6 * shared + 0.8 * random.standard_normal(480) + g * y for g in (1.2, 1.0))
    return a, b, y, random.lognormal(0, 0.5, 480)


# What 0.2 gave


@pytest.mark.parametrize("name", RECORDED)
def test_results_are_those_of_old_functions(name):
    (a, b, y, w, group), tables = draw()
    a, b, y = tables if name == "hand_till" else (a, b, y)
    within = {"rank_within": group} if name.startswith("grouped") else {}
    for weight, (of_interval, of_test) in zip(
        (None, w), (RECORDED[name][:2], RECORDED[name][2:]), strict=True
    ):
        found = interval(a, y, name, weight=weight, **within)
        assert found[:4] == pytest.approx(of_interval, rel=5e-15, abs=5e-15)
        test = compare(a, b, y, name, weight=weight, **within)
        expected = test.difference, test.standard_error, test.p_value
        assert expected == pytest.approx(of_test, rel=5e-14, abs=5e-15)


@pytest.mark.parametrize("name", CLUSTERED)
@pytest.mark.filterwarnings("ignore:groups are clusters")
def test_results_of_clusters_are_those_of_old_functions(name):
    (a, _, y, _, group), (table, _, classes) = draw()
    rows = (a, y) if name == "roc_auc" else (table, classes)
    found = interval(*rows, name, groups=group)
    assert found[:4] == pytest.approx(CLUSTERED[name], rel=5e-15, abs=5e-15)


# DeLong


@given(rows(least=2))
def test_standard_error_is_delongs(case):
    x, y = case
    result = interval(x, y)
    assert result.value == result.auc == roc_auc(x, y)
    assert result.standard_error**2 == close(reference.delong_variance(x, y))


def test_variance_has_relative_precision():
    rng = np.random.default_rng(1)
    y = rng.random(500) < 0.2
    x = np.round(rng.standard_normal(500) + 4 * y, 1)
    expected = reference.delong_variance(x, y)
    assert interval(x, y).standard_error ** 2 == pytest.approx(expected, rel=1e-12)


@given(rows(), st.floats(0.01, 0.999))
def test_interval_holds_value(case, level):
    x, y = case
    result = interval(x, y, level=level)
    assert 0 <= result.low <= result.auc <= result.high <= 1
    assert result.low < result.high
    assert result.level == level
    wider = interval(x, y, level=(1 + level) / 2)
    assert wider.low <= result.low
    assert wider.high >= result.high


@given(rows())
def test_interval_mirrors(case):
    x, y = case
    result = interval(x, y)
    for mirrored in (interval(-x, y), interval(x, ~y)):
        assert mirrored.low == close(1 - result.high)
        assert mirrored.high == close(1 - result.low)
        assert mirrored.standard_error == close(result.standard_error)


def test_interval_formula():
    rng = np.random.default_rng(3)
    y = np.arange(60) < 20
    x = rng.standard_normal(60) + y
    auc, low, high, error, level = interval(x, y, level=0.9)
    sigma = math.sqrt((20 * error**2 + auc * (1 - auc) / 20) / 21)
    half = 1.6448536269514722 * sigma / (auc * (1 - auc))
    logits = [math.log(p / (1 - p)) for p in (low, auc, high)]
    assert np.diff(logits) == pytest.approx([half, half])
    assert level == 0.9


def test_intervals_of_separated_classes():
    x, y = np.arange(110.0), np.arange(110) >= 100
    edge = 0.025**0.1  # Clopper and Pearson's for ten of ten
    assert interval(x, y) == (1.0, pytest.approx(edge), 1.0, 0.0, 0.95)
    assert interval(-x, y)[:3] == (0.0, 0.0, pytest.approx(1 - edge))
    for name, info in OF_ROWS.items():
        if info.function is not metrics.precision_at:
            low, high = interval(x, y, name)[1:3]
            two_way = info.options.get("min_tpr")
            assert low / high == pytest.approx(0.025 ** (1 / 7) if two_way else edge)
    found = interval(x, y, "precision_at@k=10")
    assert found[:3] == (1.0, pytest.approx(edge), 1.0)
    found = interval(x, y, "precision_at@k=20")  # at most half of them can be positive
    assert found[:3] == (0.5, pytest.approx(edge / 2), 0.5)


@given(st.integers(0, 2**32 - 1))
def test_separated_classes_with_weights_are_at_the_edge(seed):
    """A value of one may be a rounding below: the interval must not fall to [0, 1]."""
    rng = np.random.default_rng(seed)
    y, w = np.arange(40) >= 25, rng.lognormal(0, 1, 40)
    for name in ("roc_auc", "partial_auc@0.3", "average_precision"):
        found = interval(np.arange(40), y, name, weight=w)
        assert found.low >= 0.024 * found.high
    group = np.arange(40) % 5
    assert interval(np.arange(40), y, weight=w, rank_within=group).low > 0.02


def test_ties_and_single_rows():
    equal = interval(np.zeros(40), np.arange(40) < 10)
    assert (equal.auc, equal.standard_error) == (0.5, 0.0)
    assert equal.low < 0.47 < 0.53 < equal.high
    single = interval([1.0, 0.0, 2.0], [1, 0, 0])
    assert (single.auc, single.standard_error) == (0.5, 0.5)
    extreme = interval(np.arange(300_000), np.arange(300_000) == 1)
    assert 0 <= extreme.low < extreme.auc < extreme.high <= 1


@given(rows(columns=2, least=2))
def test_paired_test_matches_covariances(case):
    a, b, y = case
    test = compare(a, torch.tensor(b), y)
    assert (test.auc_a, test.auc_b) == (roc_auc(a, y), roc_auc(b, y))
    assert test.difference == test.auc_a - test.auc_b
    own = reference.delong_variance(a, y) + reference.delong_variance(b, y)
    variance = own - 2 * reference.delong_covariance(a, b, y)
    if variance > 1e-9:  # not zero but for rounding
        assert test.standard_error**2 == close(variance)
    assert test.p_value == pytest.approx(2 * NormalDist().cdf(-abs(test.z)), abs=1e-12)
    if test.difference:
        assert test.z == close(test.difference / test.standard_error)


def test_paired_test_of_opposite_scores():
    x, y = np.arange(20.0), np.arange(20) >= 10
    test = compare(x, -x, y)
    assert test[:3] == (1.0, 0.0, 1.0)
    assert test.z == pytest.approx(math.sqrt(10))
    assert 0.001 < test.p_value < 0.002
    single = compare([1.0, 0.0], [0.0, 1.0], [1, 0])
    assert (single.z, single.difference) == (1.0, 1.0)


@given(cases())
def test_weighted_interval(case):
    x, y, w = case
    found = interval(x, y, weight=w)
    assert found.auc == close(roc_auc(x, y, w))
    assert found.low <= found.auc <= found.high
    assert interval(x, y, weight=1e300 * w) == close(found)
    assert interval(x, y, weight=np.full(len(x), 7.0)) == close(interval(x, y))
    two = np.stack([-x, x], axis=1)
    assert interval(two, y, "hand_till", weight=w) == close(found)


@given(st.integers(0, 2**32 - 1), st.booleans(), st.booleans())
@example(2342, False, False)  # separated classes, whose curve has rounding errors
def test_partial_auc_of_full_range_is_delongs(seed, ties, weighted):
    random = np.random.default_rng(seed)
    y = np.arange(random.integers(5, 40)) % 4 == 0
    a, b = random.standard_normal((2, len(y))) + y
    a, b = (a.round(), b.round()) if ties else (a, b)
    w = random.random(len(y)) + 0.1 if weighted else None
    group = random.integers(0, 6, len(y))
    for groups in (None, group):
        options = {"weight": w, "groups": groups}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = interval(a, y, "partial_auc@1.0", **options)
            assert found == pytest.approx(interval(a, y, **options), rel=1e-9, abs=1e-12)
            found = compare(a, b, y, "partial_auc@1.0", **options)
            assert found == pytest.approx(compare(a, b, y, **options), rel=1e-9, abs=1e-12)


def test_threshold_errors_by_hand():
    """Ranked from the top: one negative is flagged, of six, and two or three of four positives."""
    y = np.array([1, 0, 1, 1, 0, 1, 0, 0, 0, 0])
    x = -np.arange(10.0)
    of_negatives, of_positives = 1 / 6 * 5 / 6 / 5, 1 / 2 * 1 / 2 / 3
    found = interval(x, y, "tpr_at_fpr@0.2")
    assert found.value == 0.75
    # From 0.2 - 1 / 6 to 0.2 + 1 / 6 the line by (0, 1 / 4), (1 / 6, 3 / 4), (1 / 3, 1) rises:
    slope = (1 - (0.25 + 0.5 * (0.2 - 1 / 6) * 6)) / (1 / 3)
    assert found.standard_error**2 == close(0.75 * 0.25 / 3 + slope**2 * of_negatives)
    found = interval(x, y, "precision_at@k=3")
    assert found.value == pytest.approx(2 / 3)
    step = math.hypot(6 * math.sqrt(of_negatives), 4 * math.sqrt(of_positives))
    local = (3 - 1) / (2 * step)  # hits from place 1.5 to place 4.5
    expected = (4 / 3 * (1 - local)) ** 2 * of_positives + (6 / 3 * local) ** 2 * of_negatives
    assert found.standard_error**2 == close(expected)


# Against the bootstrap


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", OF_ROWS)
def test_errors_match_bootstrap(drawn, name, weighted):
    """Rows of each class are drawn again, each with its weight."""
    info, (a, b, y, w) = OF_ROWS[name], drawn
    if "k" in info.options:
        w = w / w.mean()  # a count is of weight: drawn rows have as much but for chance
    random, classes = np.random.default_rng(1), [np.flatnonzero(y), np.flatnonzero(~y)]
    values = []
    for _ in range(150):
        again = np.concatenate([random.choice(part, len(part)) for part in classes])
        weight = w[again] if weighted else None
        values.append([info.value(x[again], y[again], weight=weight) for x in (a, b)])
    first, second = np.array(values).T
    weight = w if weighted else None
    found = info.interval(a, y, weight=weight)
    assert found.value == pytest.approx(info.value(a, y, weight=weight), rel=1e-12)
    assert found.standard_error == pytest.approx(first.std(), rel=0.2)
    test = info.compare(a, b, y, weight=weight)
    assert test.standard_error == pytest.approx((first - second).std(), rel=0.25)
    assert test.difference == pytest.approx(found.value - info.value(b, y, weight=weight))
    assert test.z == pytest.approx(test.difference / test.standard_error)
    assert test.p_value == pytest.approx(2 * NormalDist().cdf(-abs(test.z)))


def again_by_cluster(random, group):
    """Draw clusters again; return their rows, and a new number for each cluster drawn."""
    clusters = np.unique(group)
    rows = [np.flatnonzero(group == g) for g in random.choice(clusters, len(clusters))]
    return np.concatenate(rows), np.repeat(np.arange(len(rows)), [len(x) for x in rows])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", [*OF_ROWS, "hand_till"])
def test_clustered_errors_match_bootstrap_of_clusters(drawn, name, weighted):
    """Clusters of one label each, some of which are easier."""
    _, _, _, w = drawn
    random = np.random.default_rng(2)
    group = np.arange(480) // 6
    y = (group % 3 == 0).astype(int)
    shared = random.standard_normal(80)[group]
    a, b = (y * 1.2 + 0.8 * shared + 0.7 * random.standard_normal(480) for _ in range(2))
    metric = OF_ROWS[name].value if name in OF_ROWS else hand_till
    if name == "hand_till":
        y = np.where(group % 3 == 1, 2, y)
        a, b = (np.stack([-x, 0 * x + 0.5, x + (y == 2)], axis=1) for x in (a, b))
    if name == "precision_at@k=60":
        w = w / w.mean()
    values, weight = [], w if weighted else None
    by_label = [np.where(y == k, group, -1) for k in np.unique(y)]
    for _ in range(200):
        parts = [again_by_cluster(random, g[g >= 0])[0] for g in by_label]
        rows = np.concatenate(
            [np.flatnonzero(g >= 0)[part] for g, part in zip(by_label, parts, strict=True)]
        )
        weights = {"weight": w[rows]} if weighted else {}
        values.append([metric(x[rows], y[rows], **weights) for x in (a, b)])
    first, second = np.array(values).T
    found = interval(a, y, name, weight=weight, groups=group)
    apart = interval(a, y, name, weight=weight)
    assert found.value == apart.value
    assert found.standard_error == pytest.approx(first.std(), rel=0.25)
    assert found.standard_error > 1.1 * apart.standard_error
    assert found.high - found.low > 1.05 * (apart.high - apart.low)
    test = compare(a, b, y, name, weight=weight, groups=group)
    assert test.standard_error == pytest.approx((first - second).std(), rel=0.25)


@pytest.mark.parametrize("name", [*OF_ROWS, "hand_till"])
@pytest.mark.filterwarnings("ignore:groups are clusters")
def test_clustered_errors_of_both_labels_match_bootstrap(name):
    """Clusters whose positives and negatives lie high or low together, which mostly cancels."""
    random = np.random.default_rng(3)
    y, group = np.arange(960) % 4 == 0, np.arange(960) // 12
    x = y + 0.8 * random.standard_normal(80)[group] + 0.6 * random.standard_normal(960)
    metric = OF_ROWS[name].value if name in OF_ROWS else hand_till
    x = np.stack([-x, x], axis=1) if name == "hand_till" else x
    values = []
    for _ in range(200):
        rows, _ = again_by_cluster(random, group)
        values.append(metric(x[rows], y[rows]))
    found = interval(x, y, name, groups=group)
    assert found.standard_error == pytest.approx(np.std(values), rel=0.2)


@pytest.mark.parametrize("mean", [False, True])
def test_errors_within_groups_match_bootstrap(drawn, mean):
    """Of groups; of clusters of groups; of clusters of rows across the same groups."""
    a, b, y, w = drawn
    random = np.random.default_rng(2)
    a = a + random.standard_normal(40)[GROUPS] * y  # some groups are easier
    name = "grouped_auc@mean" if mean else "grouped_auc"
    wards = GROUPS // 2
    values = {"groups": [], "wards": []}
    for _ in range(200):
        rows, group = again_by_cluster(random, GROUPS)
        pair = [grouped_auc(x[rows], y[rows], group, w[rows], mean=mean) for x in (a, b)]
        values["groups"].append(pair)
        rows, ward = again_by_cluster(random, wards)
        group = 40 * ward + GROUPS[rows]
        pair = [grouped_auc(x[rows], y[rows], group, w[rows], mean=mean) for x in (a, b)]
        values["wards"].append(pair)
    for clusters, pairs in ((None, values["groups"]), (wards, values["wards"])):
        first, second = np.array(pairs).T
        found = interval(a, y, name, weight=w, groups=clusters, rank_within=GROUPS)
        assert found.value == grouped_auc(a, y, GROUPS, w, mean=mean)
        assert found.standard_error == pytest.approx(first.std(), rel=0.2)
        test = compare(a, b, y, name, weight=w, groups=clusters, rank_within=GROUPS)
        assert test.standard_error == pytest.approx((first - second).std(), rel=0.2)


@pytest.mark.parametrize("mean", [False, True])
def test_errors_of_clusters_across_groups_match_bootstrap(drawn, mean):
    """Patients who are ranked within a few hospitals, which stay the same."""
    _, _, _, w = drawn
    random = np.random.default_rng(4)
    patient, hospital = np.arange(480) // 4, np.arange(480) // 4 % 3
    y = random.random(480) < np.array([0.2, 0.5, 0.4])[hospital]
    a, b = (
        y * np.array([0.5, 1.0, 2.0])[hospital]
        + random.standard_normal(120)[patient]
        + random.standard_normal(480)
        + 9 * hospital
        for _ in range(2)
    )
    values = []
    for _ in range(300):
        rows, _ = again_by_cluster(random, patient)
        values.append(
            [grouped_auc(x[rows], y[rows], hospital[rows], w[rows], mean=mean) for x in (a, b)]
        )
    first, second = np.array(values).T
    name = "grouped_auc@mean" if mean else "grouped_auc"
    options = {"weight": w, "groups": patient, "rank_within": hospital}
    found = interval(a, y, name, **options)
    assert found.value == grouped_auc(a, y, hospital, w, mean=mean)
    assert found.standard_error == pytest.approx(first.std(), rel=0.15)
    test = compare(a, b, y, name, **options)
    assert test.standard_error == pytest.approx((first - second).std(), rel=0.15)


# Clusters and groups


def test_rank_within_is_the_grouped_auc(drawn):
    a, b, y, _ = drawn
    assert interval(a, y, rank_within=GROUPS) == interval(a, y, "grouped_auc", rank_within=GROUPS)
    found = compare(a, b, y, rank_within=GROUPS)
    assert found == compare(a, b, y, "grouped_auc", rank_within=torch.tensor(GROUPS))
    with pytest.raises(ValueError, match=r"rank_within must .* no groups for 'grouped_auc'"):
        interval(a, y, "grouped_auc")
    with pytest.raises(ValueError, match=r"rank_within must .* found groups for 'partial_auc@0.1'"):
        compare(a, b, y, "partial_auc@0.1", rank_within=GROUPS)


def test_clusters_that_hold_both_labels_are_warned_of(drawn, recwarn):
    """As groups were in 0.2, within which rows were ranked."""
    a, b, y, _ = drawn
    interval(a, y, groups=GROUPS, rank_within=GROUPS)
    interval(a, y, groups=np.where(y, 500, np.arange(480) // 2))
    assert not recwarn.list
    for call in (
        lambda: interval(a, y, groups=GROUPS),
        lambda: compare(a, b, y, "average_precision", groups=GROUPS),
    ):
        with pytest.warns(UserWarning, match="40 of 40 hold both labels: .*rank_within") as caught:
            call()
        assert len(caught) == 1
        assert caught[0].filename == __file__


def test_single_clusters_have_wide_intervals(drawn):
    found = interval([0.1, 0.2, 0.3, 0.25, 0.9], [0, 0, 0, 1, 1], groups=[1, 2, 3, 4, 4])
    assert found.standard_error == pytest.approx(math.sqrt(found.value * (1 - found.value)))
    assert found.high - found.low > 0.9
    a, b, y, _ = drawn
    found = interval(a, y, rank_within=np.zeros(480))
    assert found.high - found.low > 0.8
    assert compare(a, b, y, rank_within=np.zeros(480)).p_value > 0.9


# Coverage; benchmarks/metric_coverage.py has more


@pytest.mark.parametrize("positives", [1, 2, 4, 7])
def test_coverage_with_few_positives(positives):
    """Wide enough at every AUC, where one row of a class has no variance and 1 has none either."""
    rng, y = np.random.default_rng(positives), np.arange(100) < positives
    for auc in (0.5, 0.9, 0.99):
        shift = math.sqrt(2) * NormalDist().inv_cdf(auc)
        draws = rng.standard_normal((300, 100)) + shift * y
        intervals = [interval(x, y) for x in draws]
        assert np.mean([x.low <= auc <= x.high for x in intervals]) >= 0.93
        assert min(x.high - x.low for x in intervals) > 0.1


def test_coverage_of_clusters():
    """Of 30 patients with 8 rows of one class each, where rows would seem to tell much more."""
    random, group = np.random.default_rng(0), np.arange(240) // 8
    y, truth = group % 3 == 0, NormalDist().cdf(1 / 2)  # a difference of 1, of deviation 2
    held = np.zeros(2)
    for _ in range(300):
        scores = y + random.standard_normal(30)[group] + random.standard_normal(240)
        for k, clusters in enumerate((group, None)):
            found = interval(scores, y, groups=clusters)
            held[k] += found.low <= truth <= found.high
    assert held[0] / 300 > 0.92
    assert held[1] / 300 < 0.8


def test_two_way_interval_may_begin_at_zero():
    """The curve reaches a TPR of 0.3 up to an FPR of 0.1 by chance alone."""
    random, y = np.random.default_rng(0), np.arange(330) < 30
    found = [
        interval(random.standard_normal(330) + 0.74 * y, y, "partial_auc@0.1,0.3")
        for _ in range(100)
    ]
    assert np.mean([x.low == 0 for x in found]) > 0.93
    assert sum(x.value > 0 for x in found) > 30


# No answer


def test_undefined_values_have_no_interval():
    x, y = np.arange(4.0), np.arange(4) % 2
    with pytest.warns(UserWarning, match="k is 9 rows of 4"):
        assert math.isnan(interval(x, y, "precision_at@k=9").low)
    with pytest.warns(UserWarning, match="no group has both"):
        assert math.isnan(interval(x, y, rank_within=y).low)
    with pytest.warns(UserWarning, match="no group has both"):
        assert math.isnan(compare(x, x, y, rank_within=y).p_value)


def test_errors_under_no_grad_and_inference_mode(drawn):
    a, b, y, _ = drawn
    expected = compare(a, b, y, "average_precision")
    for context in (torch.no_grad(), torch.inference_mode()):
        with context:
            scores = torch.tensor(a) * 1, torch.tensor(b) * 1
            assert compare(*scores, torch.tensor(y), "average_precision") == expected
