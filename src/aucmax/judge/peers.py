"""What a person would use otherwise, on the same rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aucmax import metrics
from aucmax.data.labels import has_pairs
from aucmax.judge.evaluation import Peer, score_by
from aucmax.judge.interval import Interval, are_enough

Encoded = tuple[NDArray[np.float32], NDArray[np.int64]]
"""Columns of numbers (rows, n), and columns of categories as codes from 0 (rows, m)."""

RELIABLE_SHARE = 0.005
"""Share of the rarest class in training from which on gradient boosting is a reliable baseline.

With fewer rows of a class its default settings may rank far worse than tuned ones.
"""

Weights = tuple[NDArray[np.float64] | None, NDArray[np.float64] | None]


def compare_with_peers(
    train: Encoded,
    classes: NDArray[np.int64],
    test: Encoded,
    truth: NDArray[np.int64],
    cardinalities: Sequence[int],
    ours: NDArray[np.float64],
    weights: Weights = (None, None),
    metric: str = "roc_auc",
    group: NDArray[np.int64] | None = None,
) -> tuple[list[Peer], list[str]]:
    """Fit logistic regression and gradient boosting, and compare them with us on the test rows.

    Args:
        train: the rows that our model was given.
        classes: of those rows.
        test: rows that none has seen.
        truth: their classes.
        cardinalities: how many categories each column of codes has.
        ours: our scores of the test rows, (N,), or probabilities of several classes, (N, c).
        weights: of the rows of ``train`` and of ``test``.
        metric: the name of another one to compare them by.
        group: of the rows of ``test``, within which models are compared.

    Returns:
        The peers, and notes: one that cannot cope with the table is left out.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression

    def columns(numeric: NDArray[Any], codes: NDArray[Any]) -> NDArray[Any]:
        return np.concatenate([numeric, codes.clip(max=254)], axis=1)  # at most 255 categories

    logistic = LogisticRegression(max_iter=1000)
    is_category = [False] * train[0].shape[1] + [True] * len(cardinalities)
    boosting = HistGradientBoostingClassifier(categorical_features=is_category, random_state=0)
    models: dict[str, tuple[Any, Callable[..., Any]]] = {
        "logistic regression": (logistic, partial(one_hot, cardinalities=cardinalities)),
        "gradient boosting": (boosting, columns),
    }
    shares = np.bincount(classes, weights[0])
    is_rare = shares.min() < RELIABLE_SHARE * shares.sum()
    peers, notes = [], []
    for name, (model, table_of) in models.items():
        began = time.perf_counter()
        try:
            model.fit(table_of(*train), classes, sample_weight=weights[0])
            several = len(model.classes_) > 2
            score = model.predict_proba if several else model.decision_function
            scores = np.asarray(score(table_of(*test)))
        except (ValueError, MemoryError) as error:
            notes.append(f"not compared with {name}: {str(error).splitlines()[0]}")
            continue
        seconds = round(time.perf_counter() - began, 3)
        peer = compare(name, scores, truth, ours, seconds, weights[1], metric, group)
        peers.append(replace(peer, reliable=not (model is boosting and is_rare)))
    return peers, notes


def compare(
    name: str,
    scores: NDArray[np.float64],
    truth: NDArray[np.int64],
    ours: NDArray[np.float64],
    seconds: float | None = None,
    weight: NDArray[np.float64] | None = None,
    metric: str = "roc_auc",
    group: NDArray[np.int64] | None = None,
) -> Peer:
    """The AUC of a peer's scores, and how likely chance alone makes the difference to ours.

    The p value is that of DeLong's paired test; of several classes, of the same test carried over
    to Hand and Till's AUC; with groups and two classes, of the AUC within groups; None if a class
    has too few rows, or too few groups have both.
    """
    binary, within = ours.ndim == 1, None
    counts = np.bincount(truth, minlength=2).tolist()
    if binary and group is not None:
        within = Interval.of_grouped_auc(scores, truth, group, weight=weight)
        test = metrics.compare(ours, scores, truth, weight=weight, rank_within=group)
        counts.append(int(has_pairs(group, truth).sum()))
    else:
        of = "roc_auc" if binary else "hand_till"
        test = metrics.compare(ours, scores, truth, of, weight=weight)
    p_value = test.p_value if are_enough(counts) else None
    score = score_by(metric, scores, truth, weight) if binary else None
    auc = Interval.of_auc(scores, truth, weight=weight)
    return Peer(name, auc, p_value, seconds, score, within)


def one_hot(
    numeric: NDArray[np.float32], codes: NDArray[np.int64], cardinalities: Sequence[int]
) -> Any:
    """Numbers, and categories as a sparse matrix of ones."""
    from scipy import sparse

    rows, columns = len(numeric), codes.astype(np.int32)  # some models take no wider indices
    each = np.arange(rows, dtype=np.int32)
    ones = [
        sparse.csr_array((np.ones(rows), (each, columns[:, i])), (rows, n))
        for i, n in enumerate(cardinalities)
    ]
    return sparse.hstack([sparse.csr_array(numeric.astype(np.float64)), *ones], "csr")
