"""The pairwise loss: the mean over pairs of a positive and a negative."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from aucmax import checks
from aucmax.loss import _pairs_gpu
from aucmax.loss._inputs import (
    as_rates,
    check_binary_shapes,
    check_binary_values,
    check_row_numbers,
    check_tensors,
    computable,
    flatten,
)
from aucmax.loss.memory import ScoreMemory
from aucmax.loss.pairs import pair_sums, pair_sums_of_arrays
from aucmax.loss.ranking import RankingLoss, with_gradient
from aucmax.loss.surrogates import Surrogate


class PairwiseAUCLoss(RankingLoss):
    r"""The mean over the batch's pairs of a surrogate of their ranking.

    .. math::

        \frac{\sum_{i: y_i = 1} \sum_{j: y_j = 0} w_i w_j\, \phi(c\,(s_i - s_j))}
             {\sum_{i: y_i = 1} \sum_{j: y_j = 0} w_i w_j}

    with c the ``scale`` and :math:`\phi` one of

    =================  ==========================================================================
    "squared_hinge"    :math:`(m - z)_+^2`, m the ``margin``
    "hinge"            :math:`(m - z)_+`
    "square"           :math:`(m - z)^2`, whose saddle form is :class:`AUCLoss` with scores as h
    "logistic"         :math:`-\log \sigma(z)`
    "sigmoid"          :math:`1 - \sigma(z)`
    "generalized"      :math:`(1 - \sigma(z)^q) / q`, between the sigmoid (q = 1) and the logistic
    =================  ==========================================================================

    It is minimized like any loss; there are no saddle variables. With groups the pairs are those
    within one, and the mean is over all of them. A batch without a pair has the value zero and a
    gradient of zeros. Under a process group the pairs are those of all ranks' rows.

    The first three cost one sort, O(N log N), the others O(N^2) operations in blocks; memory is
    O(N) for all. A GPU is never waited for, and takes up to some ten thousand rows pair by pair,
    which is faster there: 128 in a single launch.

    With a ``memory`` of M, batches that hold few of a class are compared with the last M scores of
    each class as well. The value is the mean of two means over pairs: the batch's positives against
    all negatives, and all positives against the batch's negatives; if one has no pair, it is the
    other. The gradient reaches the batch alone. The memory is written after each training batch,
    saved with the module, and has no part in evaluation mode. Its scores are those of the model
    as it was: let it span few steps, or the steps be small.

    With ``max_fpr`` or ``min_tpr`` it is the partial AUC that counts: only the negatives with the
    highest scores, ``max_fpr`` of their weight, and only the positives with the lowest,
    ``1 - min_tpr`` of theirs, each group having its own. The row at the boundary counts in part; of
    rows that tie there, those count first that come first. The selection is a constant to the
    gradient. Begin from a model that ranks already, see :class:`PartialAUCLoss`.

    Args:
        surrogate: :math:`\phi`.
        margin: m, by how much positives should outrank negatives; the last three know none.
        scale: c, which sets what difference of scores is a large one.
        q: of the generalized surrogate, in (0, 1].
        memory: M; 0 for none.
        max_fpr: the share of negatives that count, in (0, 1].
        min_tpr: the share of positives that do not, in [0, 1).
        debug: check values on accelerators too, at the price of a synchronization per call.

    Shape:
        scores (N,), (N, 1) or (N, L); target 0 or 1 of shape (N,) or (N, L), there with NaN where
        missing, or integer classes (N,) for (N, L) scores, each compared with the rest; the value
        is the mean over the L columns. weight (N,) or the shape of target; group (N,) integers.
        Returns a scalar, in float32 or better.

    Example:
        >>> import torch, aucmax
        >>> model = torch.nn.Linear(5, 1)
        >>> loss = aucmax.PairwiseAUCLoss(memory=64)
        >>> optimizer = torch.optim.AdamW(model.parameters())
        >>> x, y = torch.randn(8, 5), torch.tensor([1, 0, 0, 0, 1, 0, 0, 0])
        >>> loss(model(x), y).backward()
        >>> optimizer.step()
        >>> pairs = aucmax.PairwiseAUCLoss()
        >>> pairs(torch.tensor([2.0, 0.5, 1.5]), torch.tensor([1, 0, 0])).item()  # (0 + 0.25) / 2
        0.125
    """

    def __init__(
        self,
        surrogate: str = "squared_hinge",
        *,
        margin: float = 1.0,
        scale: float = 1.0,
        q: float = 0.7,
        memory: int = 0,
        max_fpr: float = 1.0,
        min_tpr: float = 0.0,
        debug: bool = False,
    ) -> None:
        super().__init__(debug)
        self.surrogate = Surrogate(surrogate, margin, scale, q)
        self.max_fpr, self.min_tpr = as_rates(max_fpr, min_tpr)
        size = checks.count("memory", memory, 0)
        self.memory = ScoreMemory(size) if size else None

    def forward(
        self,
        scores: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        *,
        group: Tensor | None = None,
        index: Tensor | None = None,
    ) -> Tensor:
        """The mean over the pairs of one batch; row numbers are not needed."""
        if self._is_plain(scores, target):
            if _pairs_gpu.takes_mean(scores):
                return self._by_kernel(scores, target, weight, group)
            if group is None and checks.host_readable(scores):
                return self._on_cpu(scores, target, weight)
        rows = self._compared(scores, target, weight, group, index)
        with torch.no_grad():
            batch = (rows.scores.detach(), rows.positive, rows.negative, rows.group)
            value, gradient = self._value_and_gradient(*batch)
            if self.memory is not None and self.training:
                self.memory.add(*batch)
        return with_gradient(rows.scores, value, gradient)

    def _is_plain(self, scores: Tensor, target: Tensor) -> bool:
        """Whether there is one column, and nothing but its own pairs."""
        check_tensors(scores, target)
        return (
            scores.shape in (target.shape, (*target.shape, 1))
            and scores.numel() == scores.shape[:1].numel() > 0
            and not self._joins_ranks
            and self.max_fpr == 1.0
            and self.min_tpr == 0.0
            and (self.memory is None or not self.training)
        )

    def _by_kernel(
        self, scores: Tensor, target: Tensor, weight: Tensor | None, group: Tensor | None
    ) -> Tensor:
        """The same in one launch for few rows."""
        check_binary_shapes(scores, target, weight)
        check_row_numbers("group", group, len(scores))
        if self.debug and checks.synchronizable():
            weights = None if weight is None else flatten(weight, torch.float32)
            flat, labels = (flatten(x, torch.float32) for x in (scores, target))
            check_binary_values(flat, labels, weights, zero_weights=True)
        found = _pairs_gpu.pair_mean(scores, target, weight, group, self.surrogate)
        return with_gradient(scores, *found)

    @np.errstate(over="ignore")  # infinity is an answer, and the caller looks
    def _on_cpu(self, scores: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        """The same with few operations: on a batch of a few hundred they are what costs."""
        check_binary_shapes(scores, target, weight)
        dtype = computable(scores.dtype)
        flat, labels = flatten(scores, dtype), flatten(target, dtype)
        weights = None if weight is None else flatten(weight, dtype)
        check_binary_values(flat, labels, weights, zero_weights=True)
        s, p = (x.numpy().astype(np.float64) for x in (flat, labels))
        n = 1.0 - p
        if weights is not None:
            p, n = p * weights.numpy(), n * weights.numpy()
        sums, mass, gradient, _ = pair_sums_of_arrays(s, p, n, None, self.surrogate)
        share = 1.0 / mass if mass > 0.0 else 0.0
        value, in_scores = (
            torch.from_numpy(np.asarray(x * share, flat.numpy().dtype)) for x in (sums, gradient)
        )
        in_scores = in_scores if scores.ndim == 1 else in_scores[:, None]
        return with_gradient(scores, value, in_scores)

    def _value_and_gradient(
        self, s: Tensor, p: Tensor, n: Tensor, group: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The loss and its gradient in the batch's scores, (L, rows)."""
        columns, rows = s.shape
        memory = self.memory if self.training else None
        if memory is not None:
            s, p, n, group = memory.joined(s, p, n, group)
        # Products of weights may leave the range of single precision; a mean knows no scale.
        tiny = torch.finfo(s.dtype).tiny
        p, n = (x / x.amax(1, keepdim=True).clamp(min=tiny) for x in (p, n))
        if self.max_fpr < 1.0:
            n = top_share(s, n, self.max_fpr, group)
        if self.min_tpr > 0.0:
            p = top_share(-s, p, 1.0 - self.min_tpr, group)
        if memory is not None:  # the batch's positives with all, and all with its negatives
            own = torch.arange(s.shape[1], device=s.device) < rows
            pairs = (s, s), (p * own, p), (n, n * own)
            s, p, n = (torch.stack(x, 1).flatten(0, 1) for x in pairs)
        sums, mass, gradient = self._sums(s, p, n, group)
        counts = (mass > 0).to(mass.dtype).view(columns, -1)
        share = counts / counts.sum(1, keepdim=True).clamp(min=1.0) / columns
        share = share.view(-1) / mass.clamp(min=tiny)
        gradient = (gradient * share[:, None])[:, :rows]
        return (sums * share).sum(), gradient.view(columns, -1, rows).sum(1)

    def _sums(
        self, s: Tensor, p: Tensor, n: Tensor, group: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """:func:`pair_sums`, also where each column has groups of its own, as with a memory."""
        if group is None or group.ndim == 1:
            return pair_sums(s, p, n, group, self.surrogate)
        columns = zip(*(x.chunk(len(group)) for x in (s, p, n)), group, strict=True)
        found = [pair_sums(a, b, c, own, self.surrogate) for a, b, c, own in columns]
        sums, mass, gradient = (torch.cat(x) for x in zip(*found, strict=True))
        return sums, mass, gradient

    def extra_repr(self) -> str:
        """Show the options that matter."""
        text = str(self.surrogate)
        if self.max_fpr < 1.0 or self.min_tpr > 0.0:
            text += f", max_fpr={self.max_fpr:g}, min_tpr={self.min_tpr:g}"
        return text


def top_share(scores: Tensor, weight: Tensor, share: float, group: Tensor | None) -> Tensor:
    """The weight of the rows with the highest scores that make up a share of the whole weight.

    The row at the boundary keeps a part of its weight, all after it none; each column and each
    group has a boundary of its own.

    Args:
        scores: shape (L, n).
        weight: likewise.
        share: in (0, 1].
        group: of shape (n,) or (L, n).

    Example:
        >>> import torch
        >>> from aucmax.loss.pairwise import top_share
        >>> top_share(torch.tensor([[3.0, 1.0, 2.0]]), torch.ones(1, 3), 0.5, None)
        tensor([[1.0000, 0.0000, 0.5000]])
    """
    columns, rows = scores.shape
    order = scores.argsort(dim=1, descending=True, stable=True)
    first = order.new_zeros(columns, 1)
    last = first + rows
    if group is not None:
        ranked, by_group = group.expand_as(order).gather(1, order).sort(dim=1, stable=True)
        order = order.gather(1, by_group)
        first, last = (torch.searchsorted(ranked, ranked, right=x) for x in (False, True))
    w = weight.gather(1, order).double()
    total = torch.cat([w.new_zeros(columns, 1), w.cumsum(1)], 1)
    begun = total.gather(1, first)
    room = share * (total.gather(1, last) - begun) - (total[:, :-1] - begun)
    # What rounding leaves of a share that is full would be a row, and its pairs a mean.
    room = room.where(room > 1e-12 * total[:, -1:], 0.0)
    kept = room.minimum(w).to(weight.dtype)
    return torch.zeros_like(weight).scatter(1, order, kept)
