"""Training: the one loop that the classifier, the command line and the experiments call."""

from aucmax.train._evaluate import evaluate
from aucmax.train._fit import fit
from aucmax.train._result import Candidate, DivergedError, FitResult
from aucmax.train._sweep import Outcome, Sweep, sweep

__all__ = [
    "Candidate",
    "DivergedError",
    "FitResult",
    "Outcome",
    "Sweep",
    "evaluate",
    "fit",
    "sweep",
]
