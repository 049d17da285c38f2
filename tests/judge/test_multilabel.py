"""Several labels that a row may have at once, each judged by the rows that know it."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from aucmax.judge.multilabel import evaluate_labels, read_evaluation


def test_labels_match_sklearn_on_known_rows(tmp_path):
    random = np.random.default_rng(0)
    target = (random.uniform(size=(60, 2)) < 0.4).astype(np.float32)
    target[random.uniform(size=(60, 2)) < 0.3] = np.nan
    scores, weight = random.normal(size=(60, 2)), random.uniform(0.5, 2, size=60)
    judged = evaluate_labels(
        ["a", "b"], scores, 1 / (1 + np.exp(-scores)), target, thresholds=[0.5, 0.6],
        counts={"train": [5, 6, 7, 8]}, rows={"fit": 20, "test": 60}, weight=weight,
        group=np.arange(60), weight_column="w",
    )  # fmt: skip
    judged.write(tmp_path)
    for found in (judged, read_evaluation(tmp_path)):
        assert [x.parts["train"].counts for x in found.by_label] == [(7, 5), (8, 6)]
        assert [x.threshold for x in found.by_label] == [0.5, 0.6]
        for k, x in enumerate(found.by_label):
            known = ~np.isnan(target[:, k])
            rows = target[known, k], scores[known, k]
            auc = roc_auc_score(*rows, sample_weight=weight[known])
            assert x.auc.value == pytest.approx(auc)
            precision = average_precision_score(*rows, sample_weight=weight[known])
            assert x.average_precision == pytest.approx(precision)
            assert sum(x.parts["test"].counts) == known.sum()
        assert found.mean_auc == pytest.approx(np.mean([x.auc.value for x in found.by_label]))
        assert [x.target for x in found.best_first] in (["a", "b"], ["b", "a"])
        assert found.best_first[0].auc.value >= found.best_first[1].auc.value
        assert found.rows == {"fit": 20, "test": 60}
