"""Metrics by name."""

import pytest

from aucmax import metrics
from aucmax.metrics.named import METRICS, read_name, write_name

NAMES = {
    "roc_auc": ("roc_auc", {}),
    "partial_auc@0.1": ("partial_auc", {"max_fpr": 0.1}),
    "partial_auc@.10,0.5": ("partial_auc", {"max_fpr": 0.1, "min_tpr": 0.5}),
    "partial_auc@min_tpr=0.5,max_fpr=0.1": ("partial_auc", {"max_fpr": 0.1, "min_tpr": 0.5}),
    "tpr_at_fpr@0": ("tpr_at_fpr", {"fpr": 0}),
    "precision_at@0.1": ("precision_at", {"share": 0.1}),
    "precision_at@1.0": ("precision_at", {"share": 1.0}),
    "precision_at@k=50": ("precision_at", {"k": 50}),
    "grouped_auc@mean": ("grouped_auc", {"mean": True}),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_gives_function_and_options(name):
    assert read_name(name) == NAMES[name]
    assert list(read_name(name)[1]) == list(NAMES[name][1])
    assert read_name(write_name(*read_name(name))) == NAMES[name]


def test_names_are_written_one_way():
    assert write_name(*read_name("partial_auc@.10,0.50")) == "partial_auc@0.1,0.5"
    assert write_name(*read_name("partial_auc@min_tpr=.5")) == "partial_auc@min_tpr=0.5"
    assert write_name(*read_name("precision_at@k=5")) == "precision_at@k=5"


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        ("accuracy", "metric must be one of roc_auc, .*hand_till, found 'accuracy'"),
        (metrics.roc_auc, "metric must be one of"),
        ("roc_auc@0.1", "metric must be written roc_auc, found 'roc_auc@0.1'"),
        ("partial_auc", r"partial_auc@MAX_FPR\[,MIN_TPR\].* max_fpr is missing"),
        ("partial_auc@2", "max_fpr must be a number above 0"),
        ("partial_auc@0.1,1", "min_tpr must be a number"),
        ("partial_auc@0.1,0.1,0.1", "must be written partial_auc@"),
        ("partial_auc@0.1,max_fpr=0.1", "must be written partial_auc@"),
        ("partial_auc@low", "max_fpr must be a number above 0 and at most 1, found 'low'"),
        ("tpr_at_fpr@-1", "fpr must be a number from 0 to 1"),
        ("precision_at@0.0", "share must be a number above 0"),
        ("precision_at@100", "a number of rows is written precision_at@k=100"),
        ("precision_at@1", "a number of rows is written precision_at@k=1"),
        ("precision_at@k=0", "k must be an integer >= 1"),
        ("precision_at@k=0.5", "k must be an integer >= 1"),
        ("precision_at@k=5,share=0.1", "either k, in rows, or share"),
        ("grouped_auc@median", "must be written grouped_auc"),
    ],
)
def test_wrong_names_say_what_is_right(metric, said):
    with pytest.raises(ValueError, match=said):
        read_name(metric)


def test_each_metric_is_public():
    assert all(getattr(metrics, name) is row.function for name, row in METRICS.items())


@pytest.mark.parametrize("name", METRICS)
def test_old_functions_name_the_new_ones(name):
    test = "delong_test" if name == "roc_auc" else f"{name}_test"
    with pytest.raises(ImportError, match=rf"interval\(scores, target, .*{name}|rank_within"):
        getattr(metrics, f"{name}_interval")
    with pytest.raises(ImportError, match=rf"compare\(a, b, target, .*{name}|rank_within"):
        getattr(metrics, test)
    with pytest.raises(AttributeError, match="accuracy_interval"):
        _ = metrics.accuracy_interval
