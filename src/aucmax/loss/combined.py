"""The AUC objective and cross-entropy together."""

from __future__ import annotations

from torch import nn

from aucmax.loss.base import LossSum, SaddleLoss
from aucmax.loss.binary import AUCLoss
from aucmax.loss.cross_entropy import CrossEntropy
from aucmax.loss.multiclass import MulticlassAUCLoss


class AUCWithCrossEntropy(LossSum):
    r"""An AUC loss plus the cross-entropy of an affine map of the same scores.

    .. math::

        L_{AUC}(s) + \lambda\, CE(|c| \cdot s + d),

    with the scale c and the shift d learned, so that neither part asks the other's scale of the
    scores: the AUC objective wants a margin of one, a likelihood whatever the classes' overlap
    says. Cross-entropy has strong gradients where the ranking is far off, the AUC objective where
    it counts. For several classes d has one entry per class, and with the softmax link, which
    compares the classes' scores, there is none.

    Args:
        auc: an :class:`AUCLoss` or :class:`MulticlassAUCLoss`, which the scores reach unchanged.
        weight: :math:`\lambda`, how much cross-entropy counts.

    Shape:
        As those of ``auc``.

    Example:
        >>> import torch, aucmax
        >>> model = torch.nn.Linear(5, 1)
        >>> loss = aucmax.AUCWithCrossEntropy(aucmax.AUCLoss(0.25, link="identity"))
        >>> optimizer = torch.optim.AdamW(aucmax.minmax_groups(model, loss), lr=1e-3)
        >>> x, y = torch.randn(8, 5), torch.tensor([1, 0, 0, 0, 1, 0, 0, 0])
        >>> loss(model(x), y).backward()
        >>> optimizer.step()
    """

    def __init__(self, auc: SaddleLoss, weight: float = 1.0) -> None:
        if not isinstance(auc, (AUCLoss, MulticlassAUCLoss)):
            raise ValueError(
                f"auc must be an AUCLoss or a MulticlassAUCLoss, found {type(auc).__name__}"
            )
        task = "binary" if isinstance(auc, AUCLoss) else "multiclass"
        super().__init__({"auc": auc, "cross_entropy": CrossEntropy(task)}, (1.0, weight))


def saddle_part(loss: nn.Module) -> SaddleLoss | None:
    """The part of a loss that holds a, b and alpha, if it has one.

    Example:
        >>> from aucmax.loss import AUCLoss, AUCWithCrossEntropy, CrossEntropy, saddle_part
        >>> auc = AUCLoss(0.1)
        >>> saddle_part(AUCWithCrossEntropy(auc)) is auc, saddle_part(CrossEntropy())
        (True, None)
    """
    parts = loss.parts.values() if isinstance(loss, LossSum) else [loss]
    return next((part for part in parts if isinstance(part, SaddleLoss)), None)
