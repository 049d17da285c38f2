"""The AUC losses: modules that hold the saddle variables a, b and alpha.

:mod:`aucmax.loss.objective` has the mathematics as pure functions.
"""

from aucmax.loss.base import SaddleLoss
from aucmax.loss.binary import AUCLoss
from aucmax.loss.combined import AUCWithCrossEntropy, saddle_part
from aucmax.loss.cross_entropy import CrossEntropy
from aucmax.loss.groups import minmax_groups
from aucmax.loss.multiclass import MulticlassAUCLoss
from aucmax.loss.multilabel import MultilabelAUCLoss
from aucmax.loss.prior import StreamingPrior

__all__ = [
    "AUCLoss",
    "AUCWithCrossEntropy",
    "CrossEntropy",
    "MulticlassAUCLoss",
    "MultilabelAUCLoss",
    "SaddleLoss",
    "StreamingPrior",
    "minmax_groups",
    "saddle_part",
]
