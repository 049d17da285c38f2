"""The losses: the AUC's saddle objectives, losses on pairs and lists, and the likelihood.

:mod:`aucmax.loss.saddle` has the mathematics as pure functions.
"""

from typing import Any

from aucmax.loss.average_precision import AveragePrecisionLoss
from aucmax.loss.base import Loss, LossSum
from aucmax.loss.combine import minmax_groups, saddle_part
from aucmax.loss.cross_entropy import CrossEntropy
from aucmax.loss.grouped import GroupedAUCLoss
from aucmax.loss.multi import MulticlassAUCLoss, MultilabelAUCLoss
from aucmax.loss.pairwise import PairwiseAUCLoss, RankingLoss
from aucmax.loss.partial import PartialAUCLoss
from aucmax.loss.prior import StreamingPrior
from aucmax.loss.saddle import AUCLoss, SaddleLoss

__all__ = [
    "AUCLoss",
    "AveragePrecisionLoss",
    "CrossEntropy",
    "GroupedAUCLoss",
    "Loss",
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


_MOVED = {
    "objective": "saddle",
    **dict.fromkeys(("pairs", "ranking", "surrogates"), "pairwise"),
    **dict.fromkeys(("binary", "combined", "groups", "multiclass", "multilabel"), ""),
}
"""Modules of 0.2, and those that have what was in them; "" is this one."""


def __getattr__(name: str) -> Any:
    if name in _MOVED:
        place = f"aucmax.loss.{_MOVED[name]}".rstrip(".")
        raise ImportError(f"aucmax.loss.{name} has moved: import from {place}")
    if name == "AUCWithCrossEntropy":
        raise ImportError(
            "AUCWithCrossEntropy(auc, weight=0.5) is a sum now: auc + 0.5 * CrossEntropy(), or "
            "CrossEntropy('multiclass') for several classes; in fit, objective='auc+0.5*ce'"
        )
    raise AttributeError(f"module 'aucmax.loss' has no attribute {name!r}")
