"""Train PyTorch models to maximize AUC: to rank positives above negatives on imbalanced data."""

from aucmax import metrics, stages
from aucmax.loss import AUCLoss, MulticlassAUCLoss, MultilabelAUCLoss, minmax_groups
from aucmax.optim import OAUC, PGA, PPDSG, PPDAdaGrad, averaged, update_batch_norm
from aucmax.prior import StreamingPrior

__version__ = "0.1.0"
__all__ = [
    "OAUC",
    "PGA",
    "PPDSG",
    "AUCLoss",
    "MulticlassAUCLoss",
    "MultilabelAUCLoss",
    "PPDAdaGrad",
    "StreamingPrior",
    "averaged",
    "metrics",
    "minmax_groups",
    "stages",
    "update_batch_norm",
]
