"""The AUC objective and cross-entropy together."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from aucmax import checks
from aucmax.loss.base import SaddleLoss
from aucmax.loss.binary import AUCLoss
from aucmax.loss.cross_entropy import CrossEntropy
from aucmax.loss.multiclass import MulticlassAUCLoss


class AUCWithCrossEntropy(nn.Module):
    r"""An AUC loss plus the cross-entropy of an affine map of the same scores.

    .. math::

        L_{AUC}(s) + \lambda\, CE(c \cdot s + d),

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
        super().__init__()
        if not isinstance(auc, (AUCLoss, MulticlassAUCLoss)):
            raise ValueError(
                f"auc must be an AUCLoss or a MulticlassAUCLoss, found {type(auc).__name__}"
            )
        self.auc = auc
        self.weight = checks.positive("weight", weight)
        self.cross_entropy = CrossEntropy("binary" if isinstance(auc, AUCLoss) else "multiclass")
        self.scale = nn.Parameter(torch.ones(1))
        size = len(auc.priors) if isinstance(auc, MulticlassAUCLoss) else 1
        # Under a softmax scores of classes are compared already: a shift would undo that.
        self.shift = None if auc.link == "softmax" else nn.Parameter(torch.zeros(size))

    def extra_repr(self) -> str:
        """Show the weight."""
        return f"weight={self.weight:g}"

    def forward(self, scores: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """The objective of one batch."""
        mapped = scores * self.scale
        mapped = mapped if self.shift is None else mapped + self.shift
        likely = self.cross_entropy(mapped, target, weight)
        total: Tensor = self.auc(scores, target, weight) + self.weight * likely
        return total


def saddle_part(loss: nn.Module) -> SaddleLoss | None:
    """The part of a loss that holds a, b and alpha, if it has one.

    Example:
        >>> from aucmax.loss import AUCLoss, AUCWithCrossEntropy, CrossEntropy, saddle_part
        >>> auc = AUCLoss(0.1)
        >>> saddle_part(AUCWithCrossEntropy(auc)) is auc, saddle_part(CrossEntropy())
        (True, None)
    """
    inner = loss.auc if isinstance(loss, AUCWithCrossEntropy) else loss
    return inner if isinstance(inner, SaddleLoss) else None
