"""The kinds of models that an ensemble is made of: one table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aucmax import checks
from aucmax.tables.ensemble.base import CrossFitted, Setting
from aucmax.tables.ensemble.boosting import Boosting, fit_boosting
from aucmax.tables.ensemble.cross_fit import Refitted, keep, kept
from aucmax.tables.ensemble.forest import Forest, fit_forest
from aucmax.tables.ensemble.linear import Logistic, fit_logistic
from aucmax.tables.ensemble.others import fit_other
from aucmax.tables.folds import Folds
from aucmax.tables.scoring import Rows

NETWORKS = ("network", "ce-network")
"""Those that train networks: on the objective asked for, and on cross-entropy."""
FITS: dict[str, Callable[[Rows, Folds, Setting], CrossFitted]] = {
    "logistic": fit_logistic,
    "boosting": fit_boosting,
    "forest": fit_forest,
}
"""How the others are fitted."""
KINDS: dict[str, type[Refitted]] = {kind.kind: kind for kind in (Boosting, Forest, Logistic)}
"""Which class a kind is, as a model file names it."""
QUALITIES = {
    "fast": ("network",),
    "good": ("logistic", "boosting", "forest", *NETWORKS),
    "best": ("logistic", "boosting", "forest", *NETWORKS),
}
"""The models of each quality."""


def check_models(models: Sequence[Any]) -> None:
    """Raise unless they are names of models and scikit-learn's classifiers."""
    if isinstance(models, str) or not isinstance(models, Sequence) or not models:
        raise ValueError(f"models must be a list of names and classifiers, found {models!r}")
    for model in models:
        if isinstance(model, str):
            checks.choice("models", model, (*NETWORKS, *FITS))
        elif isinstance(model, type) or not (
            hasattr(model, "fit")
            and (hasattr(model, "predict_proba") or hasattr(model, "decision_function"))
        ):
            raise ValueError(
                f"models must be names ({', '.join((*NETWORKS, *FITS))}) and scikit-learn's "
                f"classifiers, found {model!r}"
            )
    names = [model for model in models if isinstance(model, str)]
    if len(set(names)) < len(names):
        raise ValueError(f"models must name each once, found {', '.join(names)}")


def fit_model(kind: Any, rows: Rows, folds: Folds, setting: Setting) -> CrossFitted:
    """Fit a model of a kind, or a classifier of the caller's, to all folds.

    One that was done when its training was stopped is found in ``setting.work``.
    """
    if isinstance(kind, str):
        if setting.work is not None and (done := kept(KINDS[kind], setting.work)) is not None:
            return done
        fitted = FITS[kind](rows, folds, setting)
        if setting.work is not None:
            keep(fitted, setting.work)
        return fitted
    return fit_other(rows, folds, setting, kind)
