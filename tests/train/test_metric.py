"""Models are chosen, stopped and reported by any metric of the table, or a function."""

import math
import pickle

import pytest
import torch
from fit_data import binary, fit, linear, multiclass, multilabel
from sklearn.metrics import average_precision_score

import aucmax
from aucmax import metrics
from aucmax.train.metrics import METRICS, Scored, find_metric, metric_in_records

X, Y = binary()
VALID = binary(seed=1)


def smallest_gap(scores, target, weight=None):
    """A metric of one's own: how far the lowest positive lies above the highest negative."""
    assert scores.shape == target.shape
    return scores[target == 1].min() - scores[target == 0].max()  # a tensor is as good as a number


def test_weights_are_chosen_by_the_metric():
    options = {"steps": 60, "eval_every": 3, "lr": 0.5}
    for metric, key in (("average_precision", "average_precision"), (smallest_gap, "smallest_gap")):
        result = fit(linear(), (X, Y), VALID, metric=metric, **options)
        at = {r["step"]: r[f"valid_{key}_{result.iterate}"] for r in result.history}
        everything = [r[f"valid_{key}_{x}"] for r in result.history for x in ("last", "average")]
        assert result.score == max(everything)
        assert at[result.step] == result.score
        assert (result.metric, math.isnan(result.auc)) == (key, True)
        assert aucmax.evaluate(result.model, VALID, metric=metric) == result.score
        assert not [k for k in result.history[0] if "auc" in k]
    chosen = fit(linear(), (X, Y), VALID, metric="average_precision", **options)
    with torch.no_grad():
        scores = chosen.model(VALID[0]).flatten().numpy()
    assert chosen.score == pytest.approx(average_precision_score(VALID[1].numpy(), scores))


def test_the_auc_keeps_its_names():
    result = fit(linear(), (X, Y), VALID, steps=4)
    assert result.score == result.auc == aucmax.evaluate(result.model, VALID)
    assert result.metric == "roc_auc"
    assert {"train_auc_last", "valid_auc_average"} <= {*result.history[-1]}


def test_training_stops_and_says_so_by_the_metric(capfd, tmp_path):
    options = {"steps": 400, "eval_every": 2, "lr": 1.0, "patience": 2, "progress": True}
    result = fit(linear(), (X, Y), VALID, metric="average_precision", out=tmp_path, **options)
    assert result.reason == "no better validation average precision in 2 evaluations"
    shown = capfd.readouterr().err
    assert "valid average precision last 0." in shown
    assert f"validation average precision {result.score:.4f}" in shown
    assert "AUC" not in shown
    again = fit(linear(), (X, Y), VALID, metric="average_precision", out=tmp_path, **options)
    assert again.score == result.score
    with pytest.raises(ValueError, match="metric \\('average_precision' there, 'roc_auc' now\\)"):
        fit(linear(), (X, Y), VALID, out=tmp_path, **options)


def test_several_classes_and_labels():
    """The mean over the classes, each against the rest; over the labels, of rows that know them."""
    metric = METRICS["average_precision"]
    _, y = multiclass()
    scores = torch.randn(len(y), 3, generator=torch.Generator().manual_seed(0))
    one_hot = torch.nn.functional.one_hot(y.long(), 3).numpy()
    expected = average_precision_score(one_hot, scores.double().softmax(-1).numpy())
    assert metric(Scored(scores, y, None), "multiclass") == pytest.approx(expected)
    _, y = multilabel()
    scores = torch.randn(y.shape, generator=torch.Generator().manual_seed(0))
    known = ~y.isnan()
    expected = [
        average_precision_score(y[known[:, j], j].numpy(), scores[known[:, j], j].numpy())
        for j in range(y.shape[1])
    ]
    assert metric(Scored(scores, y, None), "multilabel") == pytest.approx(sum(expected) / 3)


def test_a_function_of_the_table_is_its_row_and_others_have_names_of_their_own():
    result = fit(linear(), (X, Y), VALID, steps=4, metric=aucmax.metrics.roc_auc)
    assert result.auc == result.score == result.history[-1][f"valid_auc_{result.iterate}"]

    def auc(*_):
        return 0.0

    with pytest.raises(ValueError, match="a name of its own, found a function named 'auc'"):
        fit(linear(), (X, Y), VALID, steps=4, metric=auc)


@pytest.mark.parametrize(("call", "metric"), [(fit, "accuracy"), (aucmax.evaluate, 3)])
def test_unknown_metric_is_named(call, metric):
    with pytest.raises(ValueError, match=f"^metric .*found {metric!r}"):
        call(linear(), (X, Y), metric=metric)


NUMBERED = {
    "partial_auc@0.1": ("partial AUC (FPR <= 0.1)", metrics.partial_auc, {"max_fpr": 0.1}),
    "partial_auc@.3,0.2": (
        "partial AUC (FPR <= 0.3, TPR >= 0.2)",
        metrics.partial_auc,
        {"max_fpr": 0.3, "min_tpr": 0.2},
    ),
    "tpr_at_fpr@0.05": ("TPR (FPR <= 0.05)", metrics.tpr_at_fpr, {"fpr": 0.05}),
    "precision_at@0.1": ("precision (top 0.1)", metrics.precision_at, {"share": 0.1}),
    "precision_at@k=7": ("precision (top 7)", metrics.precision_at, {"k": 7}),
}


@pytest.mark.parametrize("name", NUMBERED)
def test_a_name_carries_numbers(name):
    label, function, numbers = NUMBERED[name]
    metric = find_metric(name)
    assert metric.label == label
    assert find_metric(metric.name).name == find_metric(metric).name == metric.name
    assert pickle.loads(pickle.dumps(metric)).name == metric.name
    generator = torch.Generator().manual_seed(0)
    scores, weight = torch.randn(len(Y), generator=generator), torch.rand(len(Y)) + 0.1
    expected = function(scores, Y, **numbers, weight=weight)
    assert metric(Scored(scores[:, None], Y, weight), "binary") == expected
    other = torch.randn(len(Y), generator=generator)
    test = metrics.compare(scores, other, Y, name, weight=weight)
    assert metric.test(scores, other, Y, weight, torch.zeros(len(Y))) == test
    classes, table = torch.arange(90) % 3, torch.randn(90, 3, generator=generator)
    share = table.double().softmax(-1)
    of_classes = [function(share[:, k], (classes == k).long(), **numbers) for k in range(3)]
    assert metric(Scored(table, classes, None), "multiclass") == pytest.approx(sum(of_classes) / 3)


def test_records_of_old_names_are_read():
    metric = metric_in_records("precision_at@7")
    assert (metric.name, metric.label) == ("precision_at@7", "precision (top 7)")
    assert metric.history_key("valid", "last") == "valid_precision_at@7_last"
    scores = torch.arange(float(len(Y)))
    assert metric(Scored(scores, Y, None), "binary") == metrics.precision_at(scores, Y, k=7)


def test_training_by_a_metric_with_a_number():
    result = fit(linear(), (X, Y), VALID, steps=8, eval_every=4, metric="partial_auc@0.2")
    assert result.metric == "partial_auc@0.2"
    assert result.history[-1][f"valid_partial_auc@0.2_{result.iterate}"] <= 0.2
    scores = result.model(VALID[0]).detach()
    assert result.score == pytest.approx(metrics.partial_auc(scores, VALID[1], max_fpr=0.2))


@pytest.mark.parametrize(
    ("metric", "name"),
    [
        ("partial_auc", "max_fpr"),
        (metrics.partial_auc, "partial_auc"),
        ("partial_auc@2", "max_fpr"),
        ("partial_auc@0.1,1", "min_tpr"),
        ("partial_auc@0.1,0.1,0.1", "partial_auc"),
        ("tpr_at_fpr@-1", "fpr"),
        ("precision_at@0.0", "share"),
        ("precision_at@7", "precision_at@k=7"),
        ("hand_till", "roc_auc"),
        ("roc_auc@0.1", "roc_auc"),
    ],
)
def test_wrong_number_is_named(metric, name):
    with pytest.raises(ValueError, match=rf"\b{name}\b"):
        find_metric(metric)


def test_pairs_within_groups():
    generator = torch.Generator().manual_seed(0)
    _, y = multilabel()
    scores, group = torch.randn(y.shape, generator=generator), torch.arange(len(y)) % 7
    metric = find_metric("grouped_auc")
    expected = []
    for label in range(y.shape[1]):
        known = ~y[:, label].isnan()
        columns = (x[known] for x in (scores[:, label], y[:, label], group))
        expected.append(metrics.grouped_auc(*columns))
    found = metric(Scored(scores, y, None, group), "multilabel")
    assert found == pytest.approx(sum(expected) / len(expected))
    a, b = scores[:, 0], scores[:, 1]
    labels = y[:, 0].nan_to_num()
    expected = metrics.compare(a, b, labels, rank_within=group)
    assert metric.test(a, b, labels, None, group) == expected
    assert METRICS["roc_auc"].test(a, b, labels, None, group) == metrics.compare(a, b, labels)
    assert find_metric(smallest_gap).test(a, b, labels) is None
    with pytest.raises(ValueError, match="rows must have groups for the metric grouped_auc, found"):
        metric(Scored(scores[:, 0], y[:, 0].nan_to_num(), None), "binary")


@pytest.mark.parametrize("wrong", [lambda scores: 0.5, lambda a, b, *, weight: 0.5, dict.fromkeys])
def test_a_function_of_other_arguments_is_named(wrong):
    with pytest.raises(ValueError, match=r"^metric must be a function of scores, labels and wei"):
        fit(linear(), (X, Y), VALID, metric=wrong, steps=4)


def test_a_metric_that_is_never_a_number_ends_at_the_first_evaluation():
    def broken(scores, target, weight=None):
        return math.nan

    with pytest.raises(ValueError, match="metric must give a number, found nan of broken at the f"):
        fit(linear(), (X, Y), VALID, metric=broken, steps=4)
