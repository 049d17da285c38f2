"""A running estimate of the share of positives (Algorithm 4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from aucmax import checks, distributed
from aucmax.loss.base import ExactState


class StreamingPrior(ExactState):
    r"""Running estimates of :math:`p` and :math:`p(1-p)` from the labels seen so far.

    With :math:`T_+` positives and :math:`T_-` negatives counted, :math:`n = T_+ + T_-`,

    .. math::

        \hat p = \frac{T_+}{n}, \qquad
        \widehat{p(1-p)} = \frac{n}{n-1}\, \hat p (1 - \hat p).

    Both counts begin at one, a pseudo-label of each class, so neither estimate is ever zero. With
    weights, :math:`T_\pm` are sums of weights and :math:`1/n` becomes
    :math:`\sum w_i^2 / (\sum w_i)^2`; the pseudo-labels weigh one, so let weights average one.

    Under a process group every rank must call :meth:`update` together: the counts are summed.

    Differences from the paper:
        The printed recursion for :math:`\widehat{p(1-p)}` adds
        :math:`(\mathbb{I}[y_i = 1] - \bar y)^2` with a mean :math:`\bar y` that already holds
        :math:`y_i`, which biases it low: about 0.90 of :math:`p(1-p)` after 20 labels. The
        factor :math:`n/(n-1)` removes that bias; what remains is the pseudo-labels' pull towards
        one half, which is strongest where positives are rare (:math:`p = 0.09`: 38 % high after
        20 labels, 6 % after 128, 0.8 % after 1,000) and vanishes as 1/n.

    Example:
        >>> import torch
        >>> from aucmax import StreamingPrior
        >>> prior = StreamingPrior()
        >>> prior.update(torch.tensor([1, 0, 0, 0, 0, 0, 0, 0]))
        >>> round(prior.p.item(), 3)  # (1 + 1) / (8 + 2)
        0.2
    """

    follows_batches = True
    positives: Tensor
    negatives: Tensor
    squares: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("positives", torch.tensor(1.0, dtype=torch.float64))
        self.register_buffer("negatives", torch.tensor(1.0, dtype=torch.float64))
        self.register_buffer("squares", torch.tensor(2.0, dtype=torch.float64))

    def estimates(self, read: Callable[[Tensor], Any]) -> tuple[Any, Any]:
        """Return the estimates of p and p (1 - p), of the counts as ``read`` gives them."""
        positives, negatives = read(self.positives), read(self.negatives)
        total = positives + negatives
        p_one_minus_p = positives * negatives / (total * total - read(self.squares))
        return positives / total, p_one_minus_p

    @property
    def p(self) -> Tensor:
        """The estimated share of positives, a scalar tensor."""
        p: Tensor = self.estimates(torch.Tensor.clone)[0]
        return p

    @property
    def p_one_minus_p(self) -> Tensor:
        """The unbiased estimate of p (1 - p), a scalar tensor."""
        p_one_minus_p: Tensor = self.estimates(torch.Tensor.clone)[1]
        return p_one_minus_p

    @torch.no_grad()
    def update(self, target: Tensor, weight: Tensor | None = None) -> None:
        """Count the labels of one more batch.

        Args:
            target: labels in {0, 1}, any shape and real or bool dtype.
            weight: one non-negative weight per label, of the same shape.
        """
        if not isinstance(target, Tensor):
            raise ValueError(f"target must be a tensor, found {type(target).__name__}")
        if weight is not None and not isinstance(weight, Tensor):
            raise ValueError(f"weight must be a tensor, found {type(weight).__name__}")
        labels = target.to(self.positives.dtype)
        if weight is not None and weight.shape != target.shape:
            raise ValueError(
                f"weight must have target's shape {tuple(target.shape)}, "
                f"found {tuple(weight.shape)}"
            )
        if checks.host_readable(target):
            checks.check_labels(labels.numpy())
            if weight is not None:
                checks.check_weights(weight.double().numpy())
        if weight is None:
            positives = labels.sum()
            total = squares = torch.full_like(positives, labels.numel())
        else:
            weight = weight.to(labels.dtype)
            positives, total = (weight * labels).sum(), weight.sum()
            squares = (weight * weight).sum()
        self.count(positives, total, squares)

    @torch.no_grad()
    def count(self, positives: Any, total: Any, squares: Any) -> None:
        """Add the sums of a checked batch: numbers, or tensors on the device of the counts.

        Args:
            positives: the weight of the positives.
            total: the weight of all rows.
            squares: the sum of squared weights.
        """
        counts: tuple[Any, ...] = positives, total - positives, squares
        if distributed.world_size() > 1:
            exact = [torch.as_tensor(x).to(self.positives) for x in counts]
            counts = distributed.sum_over_ranks(torch.stack(exact)).unbind()
        for name, x in zip(("positives", "negatives", "squares"), counts, strict=True):
            if torch.compiler.is_compiling():
                self._keep(name, getattr(self, name) + x)
            else:
                getattr(self, name).add_(x)

    def extra_repr(self) -> str:
        """Show the estimate and how many labels it rests on."""
        if self.positives.is_meta:
            return ""
        seen = self.positives + self.negatives - 2
        return f"p={self.p.item():.4g}, labels={seen.item():g}"
