"""What a person would use otherwise, on the same rows."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aucmax import metrics
from aucmax.tables.columns import Columns
from aucmax.tables.encoder import Encoded, TableEncoder


def compare(
    train: Columns,
    classes: NDArray[np.int64],
    test: Columns,
    truth: NDArray[np.int64],
    ours: NDArray[np.float64],
) -> tuple[list[dict[str, Any]], list[str]]:
    """Test AUC of logistic regression and gradient boosting, and DeLong's paired test against ours.

    Of several classes, Hand and Till's AUC and the same test, carried over to it.

    Args:
        train: the rows that our model was given.
        classes: of those rows.
        test: rows that none has seen.
        truth: their classes.
        ours: our scores of them, (N,), or probabilities of several classes, (N, c).

    Returns:
        A row for each, and notes: one that cannot cope with the table is left out.
    """
    encoder = TableEncoder().fit(train)
    inputs = encoder.transform(train), encoder.transform(test)
    found, notes = [], []
    for name, fit in (("logistic regression", _logistic), ("gradient boosting", _boosting)):
        began = time.perf_counter()
        try:
            scores = fit(*inputs, encoder.cardinalities, classes)
        except (ValueError, MemoryError) as error:
            notes.append(f"not compared with {name}: {str(error).splitlines()[0]}")
            continue
        about = against(name, scores, truth, ours)
        found.append({**about, "seconds": round(time.perf_counter() - began, 3)})
    return found, notes


def against(
    name: str, scores: NDArray[np.float64], truth: NDArray[np.int64], ours: NDArray[np.float64]
) -> dict[str, Any]:
    """AUC of another's scores with its interval, and how likely the difference to ours is."""
    several = ours.ndim == 2
    judge = metrics.hand_till_interval if several else metrics.roc_auc_interval
    paired = metrics.hand_till_test if several else metrics.delong_test
    found = judge(scores, truth)
    about = {"name": name, "auc": found.auc, "low": found.low, "high": found.high}
    return {**about, "p_value": paired(ours, scores, truth).p_value}


def _logistic(
    train: Encoded, test: Encoded, cardinalities: list[int], classes: NDArray[np.int64]
) -> NDArray[np.float64]:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(max_iter=1000).fit(one_hot(train, cardinalities), classes)
    return _scores(model, one_hot(test, cardinalities))


def _boosting(
    train: Encoded, test: Encoded, cardinalities: list[int], classes: NDArray[np.int64]
) -> NDArray[np.float64]:
    from sklearn.ensemble import HistGradientBoostingClassifier

    is_category = [False] * train.numeric.shape[1] + [True] * len(cardinalities)
    model = HistGradientBoostingClassifier(categorical_features=is_category, random_state=0)

    def columns(table: Encoded) -> NDArray[Any]:  # it takes at most 255 categories
        return np.concatenate([table.numeric, table.categorical.clip(max=254)], axis=1)

    model.fit(columns(train), classes)
    return _scores(model, columns(test))


def _scores(model: Any, table: Any) -> NDArray[np.float64]:
    """Log-odds, or the probabilities of several classes."""
    several = len(model.classes_) > 2
    found: NDArray[np.float64] = (model.predict_proba if several else model.decision_function)(
        table
    )
    return found


def one_hot(table: Encoded, cardinalities: list[int]) -> Any:
    """Numbers, and categories as a sparse matrix of ones."""
    from scipy import sparse

    rows = len(table.numeric)
    codes = [
        sparse.csr_array((np.ones(rows), (np.arange(rows), table.categorical[:, i])), (rows, n))
        for i, n in enumerate(cardinalities)
    ]
    return sparse.hstack([sparse.csr_array(table.numeric.astype(np.float64)), *codes], "csr")
