"""The AUC losses: modules that hold the saddle variables a, b and alpha.

:mod:`aucmax.loss.objective` has the mathematics as pure functions.
"""

from aucmax.loss.binary import AUCLoss
from aucmax.loss.combined import AUCWithCrossEntropy
from aucmax.loss.groups import minmax_groups
from aucmax.loss.multiclass import MulticlassAUCLoss
from aucmax.loss.multilabel import MultilabelAUCLoss

__all__ = [
    "AUCLoss",
    "AUCWithCrossEntropy",
    "MulticlassAUCLoss",
    "MultilabelAUCLoss",
    "minmax_groups",
]
