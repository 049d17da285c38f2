"""Any classifier that keeps to scikit-learn's ways, as one of several models."""

from __future__ import annotations

import time
import warnings
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from aucmax.judge.peers import one_hot
from aucmax.tables.encoder import Encoded
from aucmax.tables.ensemble.base import CrossFitted, LeftOutError, Scores, Setting, TableModel
from aucmax.tables.ensemble.cross_fit import cross_fit
from aucmax.tables.folds import Folds
from aucmax.tables.scoring import Rows

NEVER = 1e-4
"""Added to probabilities before their logarithm is taken: order is kept, 0 is no infinity."""

WIDE = 1000
"""Columns from which on they come as a sparse matrix."""


class Classifier:
    """A fitted one, which takes numbers and a column of ones and zeros for each code."""

    def __init__(self, estimator: Any, cardinalities: list[int]) -> None:
        self.estimator, self.cardinalities = estimator, cardinalities

    def score(self, rows: Encoded) -> Scores:
        """Log-odds, of several classes log-probabilities; else what decides."""
        columns = columns_of(rows, self.cardinalities)
        if not hasattr(self.estimator, "predict_proba"):
            decision = np.asarray(self.estimator.decision_function(columns), np.float64)
            return decision.reshape(len(decision), -1)
        logs = np.log(np.asarray(self.estimator.predict_proba(columns), np.float64) + NEVER)
        return logs[:, 1:] - logs[:, :1] if logs.shape[1] == 2 else logs


class Other(TableModel):
    """The mean of a classifier's fits to all folds."""

    kind: ClassVar[str] = "other"

    def __init__(self, name: str, fits: list[Classifier]) -> None:
        self.name, self.fits = name, fits

    def score(self, rows: Encoded, fold: int | None = None) -> Scores:
        """Raw scores of rows."""
        fits = self.fits if fold is None else [self.fits[fold]]
        return np.asarray(np.mean([fit.score(rows) for fit in fits], axis=0))

    def to_plain(self) -> NoReturn:
        """It cannot be."""
        raise ValueError(f"{self._cannot('saved')}, or keep it with joblib yourself")

    @classmethod
    def from_plain(cls, about: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """None was ever saved."""
        raise ValueError("a model file holds no classifiers of other libraries")

    def as_module(self) -> NoReturn:
        """It cannot be."""
        raise ValueError(self._cannot("exported"))

    def _cannot(self, how: str) -> str:
        return (
            f"{self.name} cannot be {how}, as only its own library knows what is in it: fit "
            f"without it in models"
        )


def columns_of(rows: Encoded, cardinalities: list[int]) -> Any:
    """Numbers, then for each code a column that is 1 where it is."""
    columns = one_hot(*rows, cardinalities)
    return columns if columns.shape[1] > WIDE else columns.toarray()


def fit_other(rows: Rows, folds: Folds, setting: Setting, estimator: Any) -> CrossFitted:
    """Fit a copy of a classifier to each fold.

    Raises:
        LeftOutError: if it cannot cope with the rows, or there is too little time.
    """
    from sklearn.base import clone
    from sklearn.utils.validation import has_fit_parameter

    began, name = time.monotonic(), type(estimator).__name__
    takes_weight = has_fit_parameter(estimator, "sample_weight")
    if rows.weight is not None and not takes_weight:
        warnings.warn(f"{name} takes no weights of rows: to it all count alike", stacklevel=2)

    def train(part: Rows) -> Classifier:
        copy = clone(estimator)
        free = [
            key
            for key, value in copy.get_params().items()
            if f"__{key}".endswith("__random_state") and value is None
        ]
        copy.set_params(**dict.fromkeys(free, setting.seed))
        weight = {"sample_weight": part.weight} if part.weight is not None and takes_weight else {}
        try:
            copy.fit(columns_of(part.encoded, setting.cardinalities), part.classes, **weight)
        except ValueError as error:
            raise LeftOutError(f"{name} cannot be fitted: {str(error).splitlines()[0]}") from error
        return Classifier(copy, setting.cardinalities)

    with threadpool_limits(torch.get_num_threads()):
        fits, scores = cross_fit(train, rows, folds, setting)
    return CrossFitted(Other(name, fits), scores, time.monotonic() - began)
