"""The losses: the AUC's saddle objectives, losses on pairs and lists, and the likelihood.

:mod:`aucmax.loss.objective` has the mathematics as pure functions.
"""

from aucmax.loss.average_precision import AveragePrecisionLoss
from aucmax.loss.base import LossSum, SaddleLoss
from aucmax.loss.binary import AUCLoss
from aucmax.loss.combined import AUCWithCrossEntropy, saddle_part
from aucmax.loss.cross_entropy import CrossEntropy
from aucmax.loss.grouped import GroupedAUCLoss
from aucmax.loss.groups import minmax_groups
from aucmax.loss.multiclass import MulticlassAUCLoss
from aucmax.loss.multilabel import MultilabelAUCLoss
from aucmax.loss.pairwise import PairwiseAUCLoss, RankingLoss
from aucmax.loss.partial import PartialAUCLoss
from aucmax.loss.prior import StreamingPrior

__all__ = [
    "AUCLoss",
    "AUCWithCrossEntropy",
    "AveragePrecisionLoss",
    "CrossEntropy",
    "GroupedAUCLoss",
    "LossSum",
    "MulticlassAUCLoss",
    "MultilabelAUCLoss",
    "PairwiseAUCLoss",
    "PartialAUCLoss",
    "RankingLoss",
    "SaddleLoss",
    "StreamingPrior",
    "minmax_groups",
    "saddle_part",
]
