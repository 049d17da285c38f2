"""Cross-entropy, the baseline, with the same shapes, weights and checks as the AUC losses."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from aucmax import checks
from aucmax.loss._inputs import (
    check_binary_shapes,
    check_binary_values,
    check_classes,
    check_table,
    check_tensors,
    computable,
    flatten,
    known_labels,
)
from aucmax.loss.base import Loss

TASKS = ("binary", "multiclass", "multilabel")


class CrossEntropy(Loss):
    r"""The negative log-likelihood of the labels under the sigmoid or softmax of the scores.

    Args:
        task: "binary", "multiclass" or "multilabel".

    Shape:
        As :class:`aucmax.AUCLoss`, :class:`aucmax.MulticlassAUCLoss` and
        :class:`aucmax.MultilabelAUCLoss` take them: labels that are missing (NaN) count nothing,
        and with weights it is :math:`\sum w_i l_i / \sum w_i`.

    Example:
        >>> import torch
        >>> from aucmax.loss import CrossEntropy
        >>> loss = CrossEntropy("binary")
        >>> round(loss(torch.zeros(4), torch.tensor([0, 1, 0, 0])).item(), 4)  # log 2
        0.6931
    """

    is_likelihood = True

    def __init__(self, task: str = "binary") -> None:
        super().__init__()
        self.task = checks.choice("task", task, TASKS)

    def forward(
        self,
        scores: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        *,
        group: Tensor | None = None,
        index: Tensor | None = None,
    ) -> Tensor:
        """The weighted mean over the batch; to a mean over rows, groups are nothing."""
        check_tensors(scores, target)
        exact, look = scores.to(computable(scores.dtype)), checks.host_readable(scores)
        if self.task == "multilabel":
            check_table(exact, exact.shape[-1])
            labels, known = known_labels(exact, target, weight, look)
            each = functional.binary_cross_entropy_with_logits(exact, labels, reduction="none")
            mass = known.sum(0)  # of each label, over the rows that know it
            per_label = (known * each).sum(0) / mass.clamp(min=torch.finfo(mass.dtype).tiny)
            return per_label.mean()
        if self.task == "binary":
            check_binary_shapes(scores, target, weight)
            labels = flatten(target, exact.dtype)
            if look:
                weights = None if weight is None else flatten(weight, exact.dtype)
                check_binary_values(exact.detach(), labels, weights)
            each = functional.binary_cross_entropy_with_logits(
                exact.reshape(-1), labels, reduction="none"
            )
        else:
            check_classes(scores, target, weight, look)
            each = functional.cross_entropy(exact, target.long(), reduction="none")
        if weight is None:
            return each.mean()
        weight = weight.reshape(-1).to(each.dtype)
        return (weight * each).sum() / weight.sum()

    def extra_repr(self) -> str:
        """Show the task."""
        return f"task={self.task!r}"
