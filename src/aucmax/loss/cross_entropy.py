"""Cross-entropy and its variants, the baselines, with the AUC losses' shapes and checks."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from aucmax import checks
from aucmax.loss.base import (
    Loss,
    as_index,
    check_binary_shapes,
    check_class_shapes,
    check_tensors,
    computable,
    flatten,
    known_labels,
)

TASKS = ("binary", "multiclass", "multilabel")


class CrossEntropy(Loss):
    r"""The negative log-likelihood of the labels under the sigmoid or softmax of the scores.

    Three variants that users compare with are options of it, alone or together. With
    :math:`p_k` the probability of class k out of c (c = 2 for each label of "multilabel") and y
    the label, a row's loss is

    .. math::

        \sum_k t_k (1 - p_k)^\gamma \, \frac{1 - p_k^q}{q}, \qquad
        t_k = (1 - \varepsilon) \mathbb{I}[k = y] + \frac{\varepsilon}{c},

    where the fraction is :math:`-\log p_k` for q = 0. The cost is that of torch's own.

    Args:
        task: "binary", "multiclass" or "multilabel".
        smoothing: :math:`\varepsilon` in [0, 1), label smoothing: how much of each label is spread
            over all classes.
        focus: :math:`\gamma \ge 0`, the focal loss: rows that are right already count less.
        q: in [0, 1], generalized cross-entropy: up to the absolute error (1), which wrong labels
            cannot pull as far.

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
        >>> robust = CrossEntropy("binary", q=0.7)
        >>> round(robust(torch.zeros(4), torch.tensor([0, 1, 0, 0])).item(), 4)  # (1 - .5^.7) / .7
        0.5492
    """

    is_likelihood = True

    def __init__(
        self,
        task: str = "binary",
        *,
        smoothing: float = 0.0,
        focus: float = 0.0,
        q: float = 0.0,
    ) -> None:
        super().__init__()
        self.task = checks.choice("task", task, TASKS)
        self.smoothing = checks.number("smoothing", smoothing, "in [0, 1)", lambda x: 0 <= x < 1)
        self.focus = checks.non_negative("focus", focus)
        self.q = checks.number("q", q, "in [0, 1]", lambda x: 0 <= x <= 1)

    def forward(
        self,
        scores: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        *,
        group: Tensor | None = None,
        index: Tensor | None = None,
    ) -> Tensor:
        """Return the weighted mean over the batch; groups do not matter to it."""
        check_tensors(scores, target)
        exact = scores.to(computable(scores.dtype))
        if self.task == "multiclass":
            check_class_shapes(scores, target, weight)
            known = None if weight is None else flatten(weight, exact.dtype)
            self.check_values(exact.detach(), target, known, classes=exact.shape[1])
            each = self._of_classes(exact, as_index(target, exact.shape[1]))
        elif self.task == "binary":
            check_binary_shapes(scores, target, weight)
            labels = flatten(target, exact.dtype)
            known = None if weight is None else flatten(weight, exact.dtype)
            self.check_values(exact.detach(), labels, known)
            each = self._of_labels(exact.reshape(-1), labels)
        else:
            labels, known = known_labels(exact, target, weight)
            self.check_values(exact.detach(), labels, weight)
            each = self._of_labels(exact, labels)
        if known is None:
            return each.mean()
        # For each label the mean over the rows that know it.
        mass = known.sum(0).clamp(min=torch.finfo(known.dtype).tiny)
        return ((known * each).sum(0) / mass).mean()

    def _of_labels(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of each label 0 or 1."""
        likely = labels
        if self.smoothing:
            likely = labels.lerp(torch.full_like(labels, 0.5), self.smoothing)
        if self.focus == self.q == 0:
            return functional.binary_cross_entropy_with_logits(scores, likely, reduction="none")
        of_one = self._of_probability(functional.logsigmoid(scores))
        of_zero = self._of_probability(functional.logsigmoid(-scores))
        return likely * of_one + (1.0 - likely) * of_zero

    def _of_classes(self, scores: Tensor, target: Tensor) -> Tensor:
        """Return the loss of each row's class."""
        if self.focus == self.q == 0:
            return functional.cross_entropy(
                scores, target, reduction="none", label_smoothing=self.smoothing
            )
        every = self._of_probability(scores.log_softmax(-1))
        own = every.gather(1, target[:, None]).squeeze(1)
        return (1.0 - self.smoothing) * own + self.smoothing * every.mean(1)

    def _of_probability(self, log_p: Tensor) -> Tensor:
        """Return what a class of that probability costs."""
        cost = -torch.expm1(self.q * log_p) / self.q if self.q else -log_p
        if self.focus:
            # At p = 1 a root has no slope: it is kept off zero.
            missing = (-torch.expm1(log_p)).clamp_min(torch.finfo(log_p.dtype).tiny)
            cost = missing.pow(self.focus) * cost
        return cost

    def extra_repr(self) -> str:
        """Show the task, and the options that are at work."""
        options = {"smoothing": self.smoothing, "focus": self.focus, "q": self.q}
        used = [f"{name}={value:g}" for name, value in options.items() if value]
        return ", ".join([f"task={self.task!r}", *used])
