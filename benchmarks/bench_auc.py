"""The AUC of a million scores, 10 % of them positive, against scikit-learn's and torchmetrics'."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch
from _timing import against, alternate
from sklearn.metrics import roc_auc_score
from torchmetrics.functional.classification import binary_auroc

from aucmax.metrics import roc_auc, roc_auc_interval


def measure(rows: int = 1_000_000) -> dict[str, Any]:
    """Seconds and ratios of the AUC, of its interval, and of the weighted AUC."""
    rng = np.random.default_rng(0)
    target = (rng.random(rows) < 0.1).astype(np.int64)
    scores = (rng.standard_normal(rows) + target).astype(np.float32)
    weight = rng.random(rows)
    if abs(roc_auc(scores, target) - roc_auc_score(target, scores)) > 1e-12:
        raise AssertionError("roc_auc differs from scikit-learn")
    probabilities, classes = torch.from_numpy(scores).sigmoid(), torch.from_numpy(target)
    plain = {
        "roc_auc_score": lambda: roc_auc_score(target, scores),
        "roc_auc": lambda: roc_auc(scores, target),
        "roc_auc_interval": lambda: roc_auc_interval(scores, target),
        "torchmetrics": lambda: binary_auroc(probabilities, classes, thresholds=None),
    }
    weighted = {
        "roc_auc_score": lambda: roc_auc_score(target, scores, sample_weight=weight),
        "roc_auc": lambda: roc_auc(scores, target, weight),
    }
    return {
        f"N = {rows:,}": against("roc_auc_score", alternate(plain, rounds=9)),
        f"N = {rows:,}, weighted": against("roc_auc_score", alternate(weighted, rounds=7)),
    }


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
