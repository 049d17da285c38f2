"""What a person would use otherwise, on the same rows."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aucmax import metrics
from aucmax.data.tables import Columns, Encoded, TableEncoder


def compare(
    train: Columns,
    classes: NDArray[np.int64],
    test: Columns,
    truth: NDArray[np.int64],
    ours: NDArray[np.float64],
) -> list[dict[str, Any]]:
    """Test AUC of logistic regression and gradient boosting, and DeLong's paired test against ours.

    Args:
        train: the rows that our model was given.
        classes: of those rows.
        test: rows that none has seen.
        truth: their classes.
        ours: our scores of them.
    """
    encoder = TableEncoder().fit(train)
    inputs = encoder.transform(train), encoder.transform(test)
    found = []
    for name, fit in (("logistic regression", _logistic), ("gradient boosting", _boosting)):
        began = time.perf_counter()
        scores = fit(*inputs, encoder.cardinalities, classes)
        interval = metrics.roc_auc_interval(scores, truth)
        found.append(
            {
                "name": name,
                "auc": interval.auc,
                "low": interval.low,
                "high": interval.high,
                "p_value": metrics.delong_test(ours, scores, truth).p_value,
                "seconds": round(time.perf_counter() - began, 3),
            }
        )
    return found


def _logistic(
    train: Encoded, test: Encoded, cardinalities: list[int], classes: NDArray[np.int64]
) -> NDArray[np.float64]:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(max_iter=1000).fit(_one_hot(train, cardinalities), classes)
    scores: NDArray[np.float64] = model.decision_function(_one_hot(test, cardinalities))
    return scores


def _boosting(
    train: Encoded, test: Encoded, cardinalities: list[int], classes: NDArray[np.int64]
) -> NDArray[np.float64]:
    from sklearn.ensemble import HistGradientBoostingClassifier

    is_category = [False] * train.numeric.shape[1] + [True] * len(cardinalities)
    model = HistGradientBoostingClassifier(categorical_features=is_category, random_state=0)
    model.fit(np.concatenate(train, axis=1), classes)
    scores: NDArray[np.float64] = model.decision_function(np.concatenate(test, axis=1))
    return scores


def _one_hot(table: Encoded, cardinalities: list[int]) -> NDArray[np.float64]:
    codes = [np.eye(n)[table.categorical[:, i]] for i, n in enumerate(cardinalities)]
    return np.concatenate([table.numeric.astype(np.float64), *codes], axis=1)
