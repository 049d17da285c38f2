"""Models are chosen, stopped and reported by any metric of the table, or a function."""

import math

import pytest
import torch
from fit_data import binary, fit, linear, multiclass, multilabel
from sklearn.metrics import average_precision_score

import aucmax
from aucmax.train.metrics import METRICS, Scored

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


@pytest.mark.parametrize("metric", ["auc", "accuracy", 3])
def test_what_is_no_metric(metric):
    allowed = "metric must be one of 'roc_auc', 'average_precision' or a function"
    for call in (fit, aucmax.evaluate):
        with pytest.raises(ValueError, match=f"{allowed} .*found {metric!r}"):
            call(linear(), (X, Y), metric=metric)


@pytest.mark.parametrize("wrong", [lambda scores: 0.5, lambda a, b, *, weight: 0.5, dict.fromkeys])
def test_a_function_of_other_arguments_is_named(wrong):
    with pytest.raises(ValueError, match=r"^metric must be a function of scores, labels and wei"):
        fit(linear(), (X, Y), VALID, metric=wrong, steps=4)


def test_a_metric_that_is_never_a_number_ends_at_the_first_evaluation():
    def broken(scores, target, weight=None):
        return math.nan

    with pytest.raises(ValueError, match="metric must give a number, found nan of broken at the f"):
        fit(linear(), (X, Y), VALID, metric=broken, steps=4)
