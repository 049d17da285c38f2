"""The record of an evaluation, and what is computed from its test rows, against scikit-learn."""

import math
from dataclasses import replace

import numpy as np
import pytest
from evaluations import make_classes, make_ensemble, make_evaluation, make_model, make_rows
from reference.auc import hanley_mcneil_variance
from scipy.stats import binomtest
from sklearn.metrics import auc as area_under
from sklearn.metrics import average_precision_score, recall_score, roc_auc_score, roc_curve

from aucmax import metrics
from aucmax.checkpoint import DamagedError
from aucmax.judge import binary
from aucmax.judge.evaluation import Evaluation, Part, compare_aucs
from aucmax.judge.interval import Interval, are_enough, rows_needed, wilson
from aucmax.judge.peers import compare
from aucmax.judge.threshold import Rule, thresholds_to_show
from aucmax.judge.training import Point, training


def rows_of(content):
    return Evaluation.from_dict(content).rows


# --- the record -----------------------------------------------------------------------------------


def same(one, other):
    """Whether two files' contents are, arrays by their bytes."""
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])
    return True


@pytest.mark.parametrize("make", [make_evaluation, make_classes])
def test_write_and_read_round_trip(make, tmp_path):
    evaluation = Evaluation.from_dict(make(**make_ensemble()))
    evaluation.write(tmp_path)
    assert sorted(x.name for x in tmp_path.iterdir()) == [
        "evaluation.json", "evaluation.safetensors",
    ]  # fmt: skip
    again = Evaluation.read(tmp_path)
    assert same(again.to_dict(), evaluation.to_dict())
    assert again.peers == evaluation.peers
    assert again.parts == evaluation.parts
    assert again.models == evaluation.models
    assert again.models[3].auc is None
    assert again.promised == evaluation.promised == Interval(0.87, 0.85, 0.89)
    assert again.doubtful == evaluation.doubtful
    given = make(**make_ensemble())
    assert same({name: again.to_dict()[name] for name in given}, given)


def test_missing_or_altered_evaluation_raises(tmp_path):
    with pytest.raises(ValueError, match="found no eval"):
        Evaluation.read(tmp_path)
    Evaluation.from_dict(make_evaluation()).write(tmp_path)
    path = tmp_path / "evaluation.json"
    path.write_text(path.read_text("utf-8").replace("logistic", "magic"), "utf-8")
    with pytest.raises(DamagedError, match="altered"):
        Evaluation.read(tmp_path)


def test_rates_match_sklearn():
    evaluation = Evaluation.from_dict(make_evaluation())
    p, y = evaluation.probability, evaluation.classes
    assert evaluation.average_precision == pytest.approx(average_precision_score(y, p))
    assert evaluation.recall == pytest.approx(recall_score(y, p >= 0.23))
    assert evaluation.specificity == pytest.approx(recall_score(1 - y, p < 0.23))
    several = Evaluation.from_dict(make_classes())
    assert several.recall is several.specificity is several.average_precision is None
    interval = Interval.of_auc(several.probability, several.classes)
    assert interval == several.auc
    assert several.rows.counts == several.parts["test"].counts


def test_part_without_counts(tmp_path):
    content = make_evaluation()
    del content["positives"]["train"]
    evaluation = Evaluation.from_dict(content)
    assert evaluation.parts["train"] == Part(6800)
    evaluation.write(tmp_path)
    assert Evaluation.read(tmp_path).parts == evaluation.parts


# --- its test rows --------------------------------------------------------------------------------


@pytest.mark.parametrize("weighed", [False, True])
def test_balanced_threshold_maximizes_balanced_accuracy(weighed):
    p, y = make_rows(300)
    weight = np.random.default_rng(1).uniform(0.1, 3, 300) if weighed else np.ones(300)

    def balanced(cut):
        return sum(np.average((p >= cut)[y == k] == k, weights=weight[y == k]) for k in (0, 1))

    cut = Rule("balanced").threshold(p, y, weight if weighed else None)
    assert balanced(cut) == pytest.approx(max(balanced(x) for x in p))
    assert cut not in p


@pytest.mark.parametrize("weighed", [False, True])
@pytest.mark.parametrize("share", [0.05, 0.5, 0.9, 1.0])
def test_recall_threshold_is_the_highest(weighed, share):
    p, y = make_rows(300)
    weight = np.random.default_rng(1).uniform(0.1, 3, 300) if weighed else np.ones(300)

    def recall(cut):
        return weight[(p >= cut) & (y == 1)].sum() / weight[y == 1].sum()

    cut = Rule.read(f"recall={share}").threshold(p, y, weight if weighed else None)
    assert recall(cut) >= share - 1e-9
    assert recall(p[p > cut].min() + 1e-12) < share


@pytest.mark.parametrize("weighed", [False, True])
def test_precision_threshold_is_the_lowest(weighed):
    p, y = make_rows(300)
    weight = np.random.default_rng(1).uniform(0.1, 3, 300) if weighed else np.ones(300)

    def precision(cut):
        return np.average(y[p >= cut] == 1, weights=weight[p >= cut])

    cut = Rule.read("precision=0.3").threshold(p, y, weight if weighed else None)
    assert precision(cut) >= 0.3
    assert max(precision(x) for x in p[p < cut]) < 0.3
    upside_down = Rule.read("precision=0.9")
    with pytest.warns(UserWarning, match=r"precision 0.9 is not reached on the 300 rows .* best"):
        cut = upside_down.threshold(1 - p, y)
    best = max(np.mean(y[1 - p >= x]) for x in 1 - p)
    assert np.mean(y[1 - p >= cut]) == pytest.approx(best)


def test_cost_threshold_balances_expected_costs():
    """Where the expected costs of flagging, 1 - p, and of not flagging, R p, are equal."""
    none = np.empty(0)
    assert Rule.read("cost=4").threshold(none, none) == pytest.approx(0.2)
    assert Rule.read("0.25").threshold(none, none) == Rule.read(0.25).threshold(none, none) == 0.25
    assert Rule.read("proba").threshold(none, none) == 0.5


@pytest.mark.parametrize(
    "wrong", ["", "best", "0", "1", 1.5, True, None, "cost=0", "cost=", "recall=2", "f1=0.5", "nan"]
)
def test_invalid_threshold_rule_raises(wrong):
    with pytest.raises(ValueError, match=r"^threshold must be .*'recall=S'.* found "):
        Rule.read(wrong)


def test_thresholds_to_show():
    rows = rows_of(make_evaluation())
    found = thresholds_to_show(rows.probability, rows.positive, rows.threshold)
    assert {0.5, 0.17, 0.048, 0.23} <= set(found)


def test_curves_match_sklearn():
    rows = rows_of(make_evaluation())
    found = binary.curves(rows)
    fpr, tpr, _ = roc_curve(rows.positive, rows.probability, drop_intermediate=False)
    assert np.abs(np.interp(fpr, found.fpr, found.tpr) - np.interp(fpr, fpr, tpr)).max() < 1e-9
    area = np.sum(np.diff(found.recall) * found.precision[1:])
    assert area == pytest.approx(average_precision_score(rows.positive, rows.probability), abs=2e-3)


def test_long_curve_is_thinned():
    p, y = make_rows(60_000)
    found = binary.curves(rows_of(make_evaluation(p, y)))
    assert len(found.fpr) < 4_000
    assert area_under(found.fpr, found.tpr) == pytest.approx(roc_auc_score(y, p), abs=1e-3)
    assert (found.fpr[-1], found.tpr[-1]) == (1, 1)


@pytest.mark.parametrize("hits", [0, 1, 7, 39, 40])
def test_wilson_matches_scipy(hits):
    low, high = wilson(np.array([float(hits)]), 40, 0.9)
    expected = binomtest(hits, 40).proportion_ci(0.9, "wilson")
    assert (low[0], high[0]) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_band_matches_wilson_of_both_rates():
    rows = rows_of(make_evaluation(*make_rows(200)))
    found, level = binary.curves(rows), math.sqrt(0.95)
    positives, negatives = int(rows.positive.sum()), int((~rows.positive).sum())
    for k in (0, len(found.fpr) // 3, len(found.fpr) - 1):
        hits, alarms = round(found.tpr[k] * positives), round(found.fpr[k] * negatives)
        up = binomtest(hits, positives).proportion_ci(level, "wilson")
        across = binomtest(alarms, negatives).proportion_ci(level, "wilson")
        band = (found.tpr_low[k], found.tpr_high[k], found.fpr_low[k], found.fpr_high[k])
        assert band == pytest.approx((up.low, up.high, across.low, across.high), abs=1e-12)


def test_calibration_groups_keep_ties_together():
    p, y = np.repeat([0.0, 0.3, 0.999], (340, 37, 23)), np.repeat([0, 1], (370, 30))
    found = binary.calibration_groups(rows_of(make_evaluation(p, y)))
    assert [(g.rows, g.positives) for g in found] == [(340, 0), (37, 7), (23, 23)]


def test_first_of_equal_evaluations_is_kept():
    record = {"valid_auc_last": 0.8, "valid_auc_average": 0.8}
    history = [{"step": 5, **record}, {"step": 9, **record}]
    assert training(history, "roc_auc").kept == (5, 0.8, "last")


def test_steady_point_is_kept():
    steady = Point(9, 0.7, "average")
    history = [{"step": 5, "valid_auc_average": 0.8}, {"step": 9, "valid_auc_average": 0.7}]
    evaluation = Evaluation.from_dict({**make_evaluation(history=history), "steady": None})
    assert evaluation.steady is None
    again = Evaluation.from_dict(replace(evaluation, steady=steady).to_dict())
    assert again.steady == steady
    assert training(history, "roc_auc", again.steady).kept == steady


def auc_with(**changes):
    return {"value": 0.8, "low": 0, "high": 1, "level": 0.95} | changes


REFUSED = {
    "one label": ({"labels": ["a"]}, "labels"),
    "threshold": ({"threshold": 1.5}, "threshold"),
    "one class": ({"classes": np.zeros(600, int)}, "classes"),
    "too many classes": ({"classes": np.arange(600)}, "classes"),
    "other rows": ({"classes": np.zeros(5, int)}, "probability"),
    "above 1": ({"probability": np.full(600, 2.0)}, "probability"),
    "nan": ({"probability": np.full(600, math.nan)}, "probability"),
    "rows of a part": ({"rows": {"test": 5}}, "parts"),
    "positives of a part": ({"positives": {"test": 5}}, "parts"),
    "auc": ({"auc": auc_with(value=math.nan)}, "auc.value"),
    "level": ({"auc": auc_with(level=1)}, "auc.level"),
    "promise": ({"promised": auc_with(high=2)}, "promised.high"),
    "weights": ({"models": [make_model("a", 0.4)]}, "models"),
}
REFUSED_OF_SEVERAL = {
    "label twice": ({"labels": ["a", "b", "a"]}, "labels"),
    "labels": ({"labels": list("abcd")}, "probability"),
    "sum": ({"probability": np.full((600, 3), 0.5)}, "probability"),
    "missing class": ({"classes": np.arange(600) % 2}, "classes"),
    "counts of a part": ({"counts": {"test": [1, 2, 3]}}, "parts"),
}


@pytest.mark.parametrize(("changes", "name"), REFUSED.values(), ids=REFUSED)
def test_evaluation_that_cannot_be_right_raises(changes, name):
    with pytest.raises(ValueError, match=f"^{name} must"):
        Evaluation.from_dict(make_evaluation() | changes)


@pytest.mark.parametrize(("changes", "name"), REFUSED_OF_SEVERAL.values(), ids=REFUSED_OF_SEVERAL)
def test_evaluation_of_several_classes_that_cannot_be_right_raises(changes, name):
    with pytest.raises(ValueError, match=f"^{name} must"):
        Evaluation.from_dict(make_classes() | changes)


# --- its training ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metric", "label"),
    [
        ("roc_auc", "AUC"),
        ("partial_auc@0.1,0.5", "partial AUC (FPR <= 0.1, TPR >= 0.5)"),
        ("my_gain", "my gain"),
    ],
)
def test_training_curve_of_any_metric(metric, label):
    key = {"roc_auc": "auc"}.get(metric, metric)
    history = [{"step": k, f"valid_{key}_last": k / 10, "valid_other_last": 1.0} for k in range(5)]
    scores = training(history, metric)
    assert (scores.label, scores.steps, scores.evaluations) == (label, 4, 5)
    assert scores.kept == (4, 0.4, "last")


# --- few rows of a class --------------------------------------------------------------------------


def with_few(positives, negatives=60, **changes):
    p = np.random.default_rng(positives).random(positives + negatives)
    return make_evaluation(p, np.repeat([1, 0], (positives, negatives)), threshold=0.5, **changes)


@pytest.mark.parametrize(("positives", "negatives"), [(9, 60), (60, 9), (1, 60)])
def test_few_rows_of_a_class_have_no_p_value(positives, negatives):
    """Whoever has written the file: of few rows the p value is not taken over."""
    content = with_few(positives, negatives)
    assert content["peers"][0]["p_value"] == 0.003
    evaluation = Evaluation.from_dict(content)
    assert not evaluation.is_enough
    assert [peer.p_value for peer in evaluation.peers] == [None]
    truth = content["classes"]
    peer = compare("other", 1 - content["probability"], truth, content["probability"])
    assert peer.p_value is None
    assert compare_aucs(1.0, 0.0, peer.p_value) == "same"


def test_ten_rows_of_every_class_have_a_p_value():
    evaluation = Evaluation.from_dict(with_few(10, 10))
    assert evaluation.is_enough
    assert [peer.p_value for peer in evaluation.peers] == [0.003]
    scores, truth = evaluation.probability, evaluation.classes
    peer = compare("other", 1 - scores, truth, scores, metric="average_precision")
    assert peer.p_value == metrics.compare(scores, 1 - scores, truth).p_value
    assert peer.score == pytest.approx(average_precision_score(truth, 1 - scores))
    assert not are_enough([50, 9, 50])


@pytest.mark.parametrize("middle", [0.5, 0.62, 0.9])
@pytest.mark.parametrize("counts", [(5, 100), (100, 5), (7, 7), (30, 4, 12)])
def test_rows_needed_match_hanley_mcneil(counts, middle):
    """The fewest whose variance is small enough, but for the rounding to two digits."""
    few, more, *_ = sorted(counts)
    needed = rows_needed(Interval(0.99, middle - 0.1, middle + 0.1), counts, half_width=0.1)

    def half_width(rows):
        both = (hanley_mcneil_variance(a, rows, rows * more / few) for a in (middle, 1 - middle))
        return 1.959964 * math.sqrt(max(both))

    assert half_width(needed) <= 0.1
    assert half_width(needed - (1 if needed < 100 else 10)) > 0.1


def test_rows_needed_reach_the_half_width():
    """Exponential scores, of which Hanley and McNeil's formula is that of the truth."""
    auc = 0.8
    needed = rows_needed(Interval(auc, auc - 0.1, auc + 0.1), (5, 50))
    rng, y = np.random.default_rng(0), np.arange(11 * needed) < needed
    widths = []
    for _ in range(20):
        x = rng.exponential(size=11 * needed) * np.where(y, auc / (1 - auc), 1)
        widths.append(np.diff(metrics.interval(x, y)[1:3]).item() / 2)
    assert np.mean(widths) == pytest.approx(0.05, abs=0.005)
