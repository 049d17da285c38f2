"""The objectives that models are trained on: one table.

To add one, write its loss in :mod:`aucmax.loss` and give it a row in :data:`OBJECTIVES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from torch import Tensor, nn

from aucmax.loss import AUCLoss, AUCWithCrossEntropy, MulticlassAUCLoss, MultilabelAUCLoss
from aucmax.loss.base import SaddleLoss
from aucmax.loss.combined import saddle_part
from aucmax.loss.cross_entropy import CrossEntropy

AUC_LOSSES: dict[str, Callable[..., SaddleLoss]] = {
    "binary": AUCLoss,
    "multiclass": MulticlassAUCLoss,
    "multilabel": MultilabelAUCLoss,
}


def auc(task: str, prior: Any, options: Mapping[str, Any]) -> SaddleLoss:
    """The paper's saddle objective, of which there is one for each task."""
    if task != "binary" and prior is None:
        raise ValueError(f"labels must be given for a {task} task: their shares are its priors")
    kind: Any = AUC_LOSSES[task]
    try:
        loss: SaddleLoss = kind(prior, **options)
    except TypeError as error:
        raise ValueError(f"loss_options must fit {kind.__name__}: {error}") from None
    return loss


def cross_entropy(task: str, prior: Any, options: Mapping[str, Any]) -> nn.Module:
    """The likelihood of the labels."""
    if options:
        raise ValueError(
            f"loss_options must be empty for cross-entropy, which has none, found {dict(options)}"
        )
    return CrossEntropy(task)


def auc_with_cross_entropy(task: str, prior: Any, options: Mapping[str, Any]) -> nn.Module:
    """The sum of the two; the options are those of the AUC's part."""
    return AUCWithCrossEntropy(auc(task, prior, options))


Maker = Callable[[str, Any, Mapping[str, Any]], nn.Module]
"""From task, prior and ``loss_options`` to a loss."""
Objective = Literal["auc+ce", "auc", "ce"]
OBJECTIVES: dict[str, Maker] = {
    "auc+ce": auc_with_cross_entropy,
    "auc": auc,
    "ce": cross_entropy,
}


class ModelWithLoss(nn.Module):
    """Model and loss as one module: what is compiled, captured and kept in step over ranks."""

    def __init__(self, model: nn.Module, loss: nn.Module) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, x: Any, y: Tensor, weight: Tensor | None = None) -> Tensor:
        """The loss of a batch.

        An ensemble gives several scores per row, one after the other: every member learns the
        row's label. Of scores that the rows do not divide, the loss says what is wrong.
        """
        scores = self.model(x)
        if len(scores) != len(y) and len(y) and len(scores) % len(y) == 0:
            repeats = len(scores) // len(y)
            if isinstance(saddle := saddle_part(self.loss), AUCLoss):
                saddle.repeats = repeats
            y = y.repeat_interleave(repeats, dim=0)
            weight = None if weight is None else weight.repeat_interleave(repeats, dim=0)
        value: Tensor = self.loss(scores, y) if weight is None else self.loss(scores, y, weight)
        return value
