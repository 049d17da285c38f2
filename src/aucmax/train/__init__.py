"""Training: the one loop that the estimator, the command line and the experiments call."""

from aucmax.train._evaluate import evaluate
from aucmax.train._fit import fit
from aucmax.train._result import DivergedError, FitResult
from aucmax.train._sweep import sweep

__all__ = ["DivergedError", "FitResult", "evaluate", "fit", "sweep"]
