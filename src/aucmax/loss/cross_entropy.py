"""Cross-entropy, the baseline, with the same shapes, weights and checks as the AUC losses."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from aucmax.checks import host_readable
from aucmax.loss.base import (
    check_binary_shapes,
    check_binary_values,
    check_table,
    check_tensors,
    check_weight_shape,
    computable,
    flatten,
)
from aucmax.loss.multiclass import check_classes

TASKS = ("binary", "multiclass", "multilabel")


class CrossEntropy(nn.Module):
    r"""The negative log-likelihood of the labels under the sigmoid or softmax of the scores.

    Args:
        task: "binary", "multiclass" or "multilabel".

    Shape:
        As :class:`aucmax.AUCLoss`, :class:`aucmax.MulticlassAUCLoss` and
        :class:`aucmax.MultilabelAUCLoss` take them: labels that are missing (NaN) count nothing,
        and with weights it is :math:`\sum w_i l_i / \sum w_i`.
    """

    def __init__(self, task: str = "binary") -> None:
        super().__init__()
        if task not in TASKS:
            raise ValueError(f"task must be one of {', '.join(map(repr, TASKS))}, found {task!r}")
        self.task = task

    def forward(self, scores: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """The weighted mean over the batch."""
        check_tensors(scores, target)
        exact = scores.to(computable(scores.dtype))
        if self.task == "binary":
            check_binary_shapes(scores, target, weight)
            if host_readable(scores):
                weights = None if weight is None else flatten(weight, exact.dtype)
                check_binary_values(exact.detach(), flatten(target, exact.dtype), weights)
            each = functional.binary_cross_entropy_with_logits(
                exact.reshape(-1), target.reshape(-1).to(exact.dtype), reduction="none"
            )
        elif self.task == "multiclass":
            check_classes(scores, target, weight)
            each = functional.cross_entropy(exact, target.long(), reduction="none")
        else:
            return _of_known_labels(exact, target, weight)
        if weight is None:
            return each.mean()
        weight = weight.reshape(-1).to(each.dtype)
        return (weight * each).sum() / weight.sum()

    def extra_repr(self) -> str:
        """Show the task."""
        return f"task={self.task!r}"


def _of_known_labels(scores: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    """The mean of each label over the rows that know it, averaged over the labels."""
    check_table("scores", scores, scores.shape[-1])
    if target.shape != scores.shape:
        raise ValueError(
            f"target must have the shape of scores, {tuple(scores.shape)}, "
            f"found {tuple(target.shape)}"
        )
    labels = target.to(scores.dtype)
    known = (~labels.isnan()).to(scores.dtype)
    if weight is not None:
        check_weight_shape(weight, (len(scores),), tuple(scores.shape))
        weight = weight.detach().to(scores.dtype).reshape(len(scores), -1)
    if host_readable(scores):
        check_binary_values(scores.detach(), labels[known > 0], weight)
    if weight is not None:
        known = known * weight
    each = functional.binary_cross_entropy_with_logits(
        scores, labels.nan_to_num(), reduction="none"
    )
    mass = known.sum(0)
    per_label = (known * each).sum(0) / mass.clamp(min=torch.finfo(mass.dtype).tiny)
    return per_label.mean()
