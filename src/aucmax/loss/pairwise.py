r"""Losses over pairs of a positive and a negative, without a table of all pairs in memory.

With scores s, weights p of the rows as positives, n as negatives and a surrogate :math:`\phi` of
the 0-1 loss of a pair, the sum over pairs is

.. math:: \sum_{i,j} p_i n_j\, \phi(c\,(s_i - s_j))

and its gradient, of which :func:`pair_means` returns the means. The square and the hinges cost one
sort. With the margin m, :math:`v_i = c s_i - m` for positives and :math:`v_j = c s_j` for
negatives, a pair falls short of the margin by :math:`v_j - v_i`, and it does so if the negative
comes later in ascending order of v. So the gradient of the squared hinge in v is, for a negative,

.. math::

    2 n_j \sum_{i < j} p_i (v_j - v_i) = 2 n_j \sum_{k \le j} P_{k-1} (v_k - v_{k-1})

with P the running sum of p, and likewise for a positive with the negatives after it. As the sum is
homogeneous in v, it is half the scalar product of that gradient with v (Euler). The hinge takes P
itself. The square takes all pairs, which an order with all positives first gives. The other
surrogates are no polynomials: their pairs are visited in blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from aucmax import checks, distributed
from aucmax.loss.base import (
    NO_DEBUG,
    Loss,
    check_binary_shapes,
    check_class_shapes,
    check_row_numbers,
    check_tensors,
    computable,
    flatten,
    known_labels,
)

SURROGATES = ("squared_hinge", "hinge", "square", "logistic", "sigmoid", "generalized")

DEGREES = {"squared_hinge": 2, "hinge": 1, "square": 2}
"""Degrees of the surrogates that are polynomials in how far a pair falls short of the margin."""

BLOCK = 1 << 15
"""Pairs that are visited at a time on a CPU: their arrays fit the cache."""

BLOCK_ON_DEVICE = 1 << 22
"""Pairs that are visited at a time elsewhere: few launches, some hundred megabytes."""


def as_rates(max_fpr: float, min_tpr: float) -> tuple[float, float]:
    """Return the rates between which the partial AUC counts, checked."""
    return (
        checks.number("max_fpr", max_fpr, "a share in (0, 1]", lambda x: 0 < x <= 1),
        checks.number("min_tpr", min_tpr, "a share in [0, 1)", lambda x: 0 <= x < 1),
    )


# ---- Surrogates ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Surrogate:
    r"""A surrogate :math:`\phi` of the 0-1 loss of a pair, with its options.

    Args:
        name: one of :data:`SURROGATES`.
        margin: m of the hinges and the square.
        scale: c, the factor of the difference of a pair's scores.
        q: of the generalized surrogate, in (0, 1].

    Example:
        >>> import torch
        >>> from aucmax.loss.pairwise import Surrogate
        >>> surrogate = Surrogate("squared_hinge")
        >>> surrogate.value_and_slope(torch.tensor(0.5))
        (tensor(0.2500), tensor(-1.))
        >>> surrogate.curvature(torch.tensor(0.5))
        tensor(2.)
    """

    name: str = "squared_hinge"
    margin: float = 1.0
    scale: float = 1.0
    q: float = 0.7

    def __post_init__(self) -> None:
        checks.choice("surrogate", self.name, SURROGATES)
        object.__setattr__(self, "margin", checks.positive("margin", self.margin))
        object.__setattr__(self, "scale", checks.positive("scale", self.scale))
        q = checks.number("q", self.q, "a number in (0, 1]", lambda x: 0 < x <= 1)
        object.__setattr__(self, "q", q)

    def __str__(self) -> str:
        """Show the options that matter."""
        text = f"surrogate={self.name!r}, scale={self.scale:g}"
        if self.name == "generalized":
            return f"{text}, q={self.q:g}"
        return f"{text}, margin={self.margin:g}" if self.name in DEGREES else text

    def value_and_slope(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return phi(z) and its derivative; the hinge's slope at its corner is zero."""
        if self.name in DEGREES:
            short = self.margin - z
            if self.name == "square":
                return short * short, -2.0 * short
            short = short.clamp(min=0.0)
            if self.name == "squared_hinge":
                return short * short, -2.0 * short
            return short, -(short > 0.0).to(z.dtype)
        wrong = torch.sigmoid(-z)  # 1 - sigma(z) without cancellation
        if self.name == "sigmoid":
            return wrong, -wrong * torch.sigmoid(z)
        log_right = functional.logsigmoid(z)
        if self.name == "logistic":
            return -log_right, -wrong
        return -torch.expm1(self.q * log_right) / self.q, -torch.exp(self.q * log_right) * wrong

    def curvature(self, z: Tensor) -> Tensor:
        """Return the second derivative of phi at z; a sigmoid's has any sign."""
        if self.name == "hinge":
            return torch.zeros_like(z)
        if self.name == "square":
            return torch.full_like(z, 2.0)
        if self.name == "squared_hinge":
            return 2.0 * (z < self.margin).to(z.dtype)
        right, wrong = torch.sigmoid(z), torch.sigmoid(-z)
        if self.name == "logistic":
            return right * wrong
        if self.name == "sigmoid":
            return right * wrong * (1.0 - 2.0 * wrong)
        return right.pow(self.q) * wrong * (1.0 - (1.0 + self.q) * wrong)


# ---- Means over pairs ----------------------------------------------------------------------------


class PairMeans(NamedTuple):
    """The weighted mean over the pairs of each of L columns of n rows, and what follows from it.

    Attributes:
        value: (L,), zero for a column without a pair.
        gradient: (L, n), of the means in the scores.
        mass: (L,), the sums of the pairs' weights.
        curvature: (L, n), the diagonal of the means' Hessian, or None.
    """

    value: Any
    gradient: Any
    mass: Any
    curvature: Any


def pair_means(
    scores: Any,
    positive: Any,
    negative: Any,
    group: Any,
    surrogate: Surrogate,
    curved: bool = False,
) -> PairMeans:
    """Average a surrogate over the pairs of each column, with the gradient.

    The same lines take tensors and NumPy arrays: on an eager CPU operations on arrays cost half as
    much, and NumPy's sort a fifth. An accelerator is never waited for.

    Args:
        scores: shape (L, n), without a graph; arrays in double precision.
        positive: each row's weight as a positive, shape (L, n), 0 for all others.
        negative: likewise; no row has both.
        group: integers of shape (n,): only pairs within a group count.
        surrogate: what a pair costs; one of your own has a ``name`` that is not in
            :data:`DEGREES`, a ``scale`` and ``value_and_slope``.
        curved: whether to compute the curvature.

    Returns:
        Arrays for arrays, tensors for tensors; in the precision of the scores or better.

    Example:
        >>> import torch
        >>> from aucmax.loss.pairwise import Surrogate, pair_means
        >>> scores, positive = torch.tensor([[2.0, 0.5, 1.0]]), torch.tensor([[1.0, 0.0, 0.0]])
        >>> pair_means(scores, positive, 1 - positive, None, Surrogate("square")).gradient
        tensor([[ 0.5000, -0.5000,  0.0000]], dtype=torch.float64)
    """
    method = _by_sorting if surrogate.name in DEGREES else _in_blocks
    return method(scores, positive, negative, group, surrogate, curved)


def _by_sorting(
    s: Any, p: Any, n: Any, group: Any, surrogate: Surrogate, curved: bool
) -> PairMeans:
    """One sort and four running sums, in operations that arrays and tensors share."""
    xp: Any = np
    if isinstance(s, Tensor):
        xp, (s, p, n) = torch, (_exact(x) for x in (s, p, n))
    degree, (columns, rows) = DEGREES[surrogate.name], s.shape
    # In units of the scores: the sums are less by scale**degree. In place: of long columns new
    # memory takes more time than the arithmetic.
    v = xp.sign(p)
    v *= -surrogate.margin / surrogate.scale
    v += s
    if surrogate.name == "square":  # all pairs count, as if every negative came later
        order = (p == 0).argsort(-1)
    elif degree == 1 or curved:  # at a tie the negative comes first: no slope, no curvature
        order = xp.where(p > 0, xp.nextafter(v, xp.full_like(v, xp.inf)), v).argsort(-1)
    else:
        order = v.argsort(-1)
    first: Any = slice(0, 1)  # places of the first and the last row of each row's group
    last: Any = slice(-1, None)
    if group is not None:
        order, first, last = _side_by_side(order, group)
    if columns > 1:
        order = order + (xp.ones_like(order[:, :1]).cumsum(0) - 1) * rows
    v, p, n = v.take(order), p.take(order), n.take(order)
    # The weight of the positives up to each row of its group, and of the negatives after it.
    met = _running_sum(xp.concatenate((p, n)).reshape(2, columns, rows))
    if group is not None:
        met[0] -= (met[0] - p)[:, first]
    mass = (n * met[0][:, last]).sum(-1)
    share = (surrogate.scale**degree / (mass + (mass == 0)))[:, None]
    met[1] = met[1][:, last] - met[1]
    curvature = None
    if curved:
        curvature = xp.empty_like(v)
        each = share * (n * met[0] + p * met[1])
        curvature.reshape(-1)[order] = 2.0 * each if degree == 2 else 0.0 * each
    if degree == 2:  # times how much they fall short, gap by gap
        gap = xp.zeros_like(v)
        gap[:, 1:] = v[:, 1:] - v[:, :-1]
        met[0] -= p
        met[1] += n
        met *= gap
        met = _running_sum(met)
        if group is not None:
            met[0] -= met[0][:, first]
        met[1] = met[1][:, last] - met[1]
    n *= met[0]
    p *= met[1]
    n -= p
    n *= degree * share
    gradient = xp.empty_like(v)
    gradient.reshape(-1)[order] = n
    n *= v - v[:, :1]
    return PairMeans(n.sum(-1) / degree, gradient, mass, curvature)


def _tensor(x: Any) -> Tensor:
    """Return a tensor as it is, and an array as one."""
    return x if isinstance(x, Tensor) else torch.from_numpy(x)


def _exact(x: Tensor) -> Tensor:
    """Return ``x`` in double precision, where the device has it."""
    return x if x.device.type == "mps" else x.double()


def _running_sum(x: Any) -> Any:
    """Sum up along the last axis, in place; torch's takes a fifth of the time of NumPy's."""
    _tensor(x).cumsum_(-1)
    return x


def _side_by_side(order: Any, group: Any) -> tuple[Any, Any, Any]:
    """Bring the rows of each group together, in order.

    Returns:
        The order, (L, n), and the first and the last place of each place's group, (n,).
    """
    if not isinstance(order, Tensor):
        order, first, last = _side_by_side(torch.from_numpy(order), _tensor(group))
        return order.numpy(), first.numpy(), last.numpy()
    names, by_group = group[order].sort(dim=1, stable=True)
    edges = names[0, 1:] != names[0, :-1]  # every column has the same groups
    places = torch.arange(len(group), device=order.device)
    begins, ends = (functional.pad(edges, pad, value=True) for pad in ((1, 0), (0, 1)))
    first = torch.where(begins, places, 0).cummax(0).values
    last = torch.where(ends, places, len(group)).flip(0).cummin(0).values.flip(0)
    return order.gather(1, by_group), first, last


def _in_blocks(s: Any, p: Any, n: Any, group: Any, surrogate: Surrogate, curved: bool) -> PairMeans:
    """One block of pairs after the other, in torch operations."""
    if not isinstance(s, Tensor):
        s, p, n = (torch.from_numpy(x) for x in (s, p, n))
        group = None if group is None else _tensor(group)
        found = _in_blocks(s, p, n, group, surrogate, curved)
        return PairMeans(*(None if x is None else x.numpy() for x in found))
    s = surrogate.scale * (_exact(s) if s.is_cpu else s)
    p, n = p.to(s.dtype), n.to(s.dtype)
    value, mass = s.new_zeros(len(s)), s.new_zeros(len(s))
    gradient, curvature = torch.zeros_like(s), torch.zeros_like(s) if curved else None
    for columns, i, j, counts in _blocks(p, n, group):
        weight = p[columns][:, i, None] * n[columns][:, j]
        if counts is not None:
            weight *= counts
        z = s[columns][:, i, None] - s[columns][:, j]
        phi, slope = surrogate.value_and_slope(z)
        value[columns] += (phi * weight).sum((1, 2))
        mass[columns] += weight.sum((1, 2))
        slope *= weight
        gradient[columns].index_add_(1, i, slope.sum(2))
        of_j = slope.sum_to_size(len(slope), *j.shape).flatten(1)
        gradient[columns].index_add_(1, j.flatten(), of_j.neg())  # alpha=-1 takes far longer
        if curvature is not None:
            bend = weight * surrogate.curvature(z)
            curvature[columns].index_add_(1, i, bend.sum(2))
            of_j = bend.sum_to_size(len(bend), *j.shape).flatten(1)
            curvature[columns].index_add_(1, j.flatten(), of_j)
    share = 1.0 / (mass + (mass == 0))
    gradient *= surrogate.scale * share[:, None]
    if curvature is not None:
        curvature *= surrogate.scale**2 * share[:, None]
    return PairMeans(value * share, gradient, mass, curvature)


def _blocks(
    positive: Tensor, negative: Tensor, group: Tensor | None
) -> Iterator[tuple[slice, Tensor, Tensor, Tensor | None]]:
    """Yield blocks that cover all pairs once.

    On an eager CPU they hold rows of both classes, and of one group, alone. Elsewhere it would take
    a wait to find those, and every row is paired with every other.

    Yields:
        Columns; rows i, (B,); rows j for all of them, (1, W), or for each, (B, W); and which of
        these pairs count, or None for all.
    """
    columns, n = positive.shape
    if not checks.host_readable(positive):
        every = torch.arange(n, device=positive.device)
        for i in torch.split(every, max(1, BLOCK_ON_DEVICE // (columns * n))):
            yield slice(None), i, every[None], None if group is None else group[i, None] == group
        return
    for k in range(columns):
        ups, downs = (x[k].nonzero()[:, 0] for x in (positive, negative))
        if group is None:
            for i in torch.split(ups, max(1, BLOCK // max(1, len(downs)))):
                yield slice(k, k + 1), i, downs[None], None
            continue
        # Positives in the order of how many negatives they meet, so that a block is nearly full.
        names, by_group = group[downs].sort(stable=True)
        downs, own = downs[by_group], group[ups]
        first, end = (torch.searchsorted(names, own, right=right) for right in (False, True))
        count, order = (end - first).sort(stable=True)
        ups, first = ups[order], first[order]
        stop = len(ups)
        while stop > 0 and (width := int(count[stop - 1])) > 0:
            block = slice(max(0, stop - max(1, BLOCK // width)), stop)
            place = torch.arange(width, device=ups.device)
            counts = place < count[block, None]
            j = downs[(first[block, None] + place).clamp(max=len(downs) - 1)]
            yield slice(k, k + 1), ups[block], j, counts
            stop = block.start


def top_share(scores: Any, weight: Any, share: float, group: Any) -> Any:
    """Return the weight of the highest scores that make up a share of the whole weight.

    The row at the boundary keeps a part of its weight, all after it none; of rows that tie there,
    those count first that come first. Each column and each group has a boundary of its own.

    Args:
        scores: tensor or array of shape (L, n).
        weight: likewise.
        share: in (0, 1].
        group: integers of shape (n,), or None.

    Example:
        >>> import torch
        >>> from aucmax.loss.pairwise import top_share
        >>> top_share(torch.tensor([[3.0, 1.0, 2.0]]), torch.ones(1, 3), 0.5, None)
        tensor([[1.0000, 0.0000, 0.5000]])
    """
    if not isinstance(scores, Tensor):
        scores, weight = torch.from_numpy(scores), torch.from_numpy(weight)
        group = None if group is None else _tensor(group)
        return top_share(scores, weight, share, group).numpy()
    order = scores.argsort(dim=1, descending=True, stable=True)
    first: Any = slice(0, 1)
    last: Any = slice(-1, None)
    if group is not None:
        order, first, last = _side_by_side(order, group)
    w = _exact(weight.gather(1, order))
    upto = w.cumsum(1)
    before = upto - w
    start = before[:, first]
    room = share * (upto[:, last] - start) - (before - start)
    # What rounding leaves of a share that is full would be a row, and its pairs a mean.
    room = room.where(room > 1e-12 * upto[:, -1:], 0.0)
    return torch.empty_like(weight).scatter_(1, order, room.minimum(w).to(weight.dtype))


# ---- Losses --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Columns:
    """The n rows of a batch, those of all ranks, in L columns that are compared one by one.

    Attributes:
        scores: (L, n), in single precision or better, without a graph.
        labels: (L, n), 0 or 1.
        weight: (L, n), zero where the label is missing; None if all weigh one.
        group: (n,) integers; only rows of the same group are compared.
        index: (n,), their numbers in the training data.
        given: the scores as the loss was called with them.
        counts: how many of the rows each rank has, or None if they are all this rank's.
    """

    scores: Tensor
    labels: Tensor
    weight: Tensor | None
    group: Tensor | None
    index: Tensor | None
    given: Tensor
    counts: list[int] | None

    def as_loss(self, value: Any, gradient: Any) -> Tensor:
        """Return a value with its gradient (L, n) in the scores, as far as those are this rank's.

        With ranks the gradient is multiplied by their number: each computes the whole loss, and
        data-parallel training averages their gradients.
        """
        gradient = gradient.T
        if self.counts is not None:
            gradient = torch.as_tensor(gradient, device=self.scores.device)
            by_rank = torch.empty_like(gradient)
            by_rank[_turns(self.counts, gradient.device)] = gradient
            own = torch.split(by_rank, self.counts)[distributed.rank()]
            gradient = own * distributed.world_size()
        dtype, device = self.scores.dtype, self.scores.device
        gradient = torch.as_tensor(gradient.reshape(self.given.shape), dtype=dtype, device=device)
        loss: Tensor = torch.as_tensor(value, dtype=dtype, device=device)
        if checks.tracing():  # which takes no autograd functions of ours
            exact = self.given.to(dtype)
            loss = loss + ((exact - exact.detach()) * gradient).sum()
        else:
            loss = _WithGradient.apply(self.given, loss, gradient)  # type: ignore[no-untyped-call]
        return loss


class _WithGradient(torch.autograd.Function):
    """A value whose gradient is known."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, value: Tensor, gradient: Tensor) -> Tensor:
        ctx.save_for_backward(gradient)
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        if torch.is_grad_enabled():  # else the gradient would pass for a constant
            raise RuntimeError(
                "a loss on pairs has no second derivative: call backward without create_graph=True"
            )
        (gradient,) = ctx.saved_tensors
        return grad * gradient, None, None


def _interleaved(x: Tensor, counts: list[int]) -> Tensor:
    """Return every rank's rows in the order of a single process: a row of each rank in turn."""
    return distributed.concat_over_ranks(x, counts)[_turns(counts, x.device)]


def _turns(counts: list[int], device: torch.device) -> Tensor:
    keys = [torch.arange(n, device=device) * len(counts) + rank for rank, n in enumerate(counts)]
    return torch.cat(keys).argsort()


class RankingLoss(Loss):
    """A loss that compares the rows of a batch with each other.

    One score per row is one column. Several labels (target of the scores' shape (N, L), NaN where
    missing) and several classes (integers (N,), each class against the rest) are several columns,
    whose values are averaged. Under a process group the rows of all ranks are compared, unless
    ``across_ranks`` is False; in evaluation mode a rank compares its own, and waits for no other.

    Attributes:
        across_ranks: whether to compare the rows of all ranks in training.
    """

    compares_rows = True
    across_ranks = True

    def columns_of(
        self,
        scores: Tensor,
        target: Tensor,
        weight: Tensor | None,
        group: Tensor | None,
        index: Tensor | None,
        rows: int = 0,
    ) -> Columns:
        """Return a batch as columns, checked; under a process group with the rows of all ranks.

        Args:
            scores: and the others, as a loss is called with them.
            target: labels or classes.
            weight: of each row or label.
            group: of each row.
            index: of each row.
            rows: the number that ``index`` is below, or 0 if it does not matter.
        """
        check_tensors(scores, target)
        dtype = computable(scores.dtype)
        numbers: dict[str, Any] = {"index": (index, rows)} if rows and index is not None else {}
        if scores.ndim < 2 or scores.shape[1:] == (1,):
            check_binary_shapes(scores, target, weight)
            exact, labels = flatten(scores, dtype), flatten(target, dtype)
            known = None if weight is None else flatten(weight, dtype)
            self.check_values(exact, labels, known, zero_weights=True, **numbers)
        elif target.ndim == 1:
            check_class_shapes(scores, target, weight)
            exact, classes = scores.detach().to(dtype), scores.shape[1]
            known = None if weight is None else flatten(weight, dtype)[:, None].expand_as(exact)
            self.check_values(exact, target, known, classes=classes, zero_weights=True, **numbers)
            labels = (target[:, None] == torch.arange(classes, device=target.device)).to(dtype)
        else:
            exact = scores.detach().to(dtype)
            labels, known = known_labels(scores, target, weight)
            self.check_values(exact, labels, known, zero_weights=True, **numbers)
        check_row_numbers("group", group, len(exact))
        check_row_numbers("index", index, len(exact))
        counts = None
        if self.training and self.across_ranks and distributed.world_size() > 1:
            counts = distributed.row_counts(exact)
            exact, labels = _interleaved(exact, counts), _interleaved(labels, counts)
            known, group, index = (
                None if x is None else _interleaved(x, counts) for x in (known, group, index)
            )
        exact, labels = (x[None] if x.ndim == 1 else x.T for x in (exact, labels))
        if known is not None:
            known = known[None] if known.ndim == 1 else known.T
        return Columns(exact, labels, known, group, index, scores, counts)


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
    O(N) for all. An accelerator is never waited for. There is no second derivative.

    With ``max_fpr`` or ``min_tpr`` it is the partial AUC that counts: only the negatives with the
    highest scores, ``max_fpr`` of their weight, and only the positives with the lowest,
    ``1 - min_tpr`` of theirs, each group having its own. The row at the boundary counts in part; of
    rows that tie there, those count first that come first. The selection is a constant to the
    gradient. Begin from a model that ranks already, see :class:`PartialAUCLoss`.

    Args:
        surrogate: :math:`\phi`.
        margin: m, by how much positives should outrank negatives; the last three have none.
        scale: c, which sets what difference of scores is a large one.
        q: of the generalized surrogate, in (0, 1].
        max_fpr: the share of negatives that count, in (0, 1].
        min_tpr: the share of positives that do not, in [0, 1).

    Shape:
        scores (N,), (N, 1) or (N, L); target 0 or 1 of shape (N,) or (N, L), there with NaN where
        missing, or integer classes (N,) for (N, L) scores, each compared with the rest; the value
        is the mean over the L columns. weight (N,) or the shape of target; group (N,) integers.
        Returns a scalar, in float32 or better.

    Example:
        >>> import torch, aucmax
        >>> model = torch.nn.Linear(5, 1)
        >>> loss = aucmax.PairwiseAUCLoss("logistic")
        >>> optimizer = torch.optim.AdamW(model.parameters())
        >>> x, y = torch.randn(8, 5), torch.tensor([1, 0, 0, 0, 1, 0, 0, 0])
        >>> loss(model(x), y).backward()
        >>> optimizer.step()
        >>> pairs = aucmax.PairwiseAUCLoss()
        >>> pairs(torch.tensor([2.0, 0.5, 1.5]), torch.tensor([1, 0, 0])).item()  # (0 + 0.25) / 2
        0.125
    """

    @checks.without(debug=NO_DEBUG)
    def __init__(
        self,
        surrogate: str = "squared_hinge",
        *,
        margin: float = 1.0,
        scale: float = 1.0,
        q: float = 0.7,
        max_fpr: float = 1.0,
        min_tpr: float = 0.0,
    ) -> None:
        super().__init__()
        self.surrogate = Surrogate(surrogate, margin, scale, q)
        self.max_fpr, self.min_tpr = as_rates(max_fpr, min_tpr)

    def forward(
        self,
        scores: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        *,
        group: Tensor | None = None,
        index: Tensor | None = None,
    ) -> Tensor:
        """Return the mean over the pairs of one batch; row numbers are not needed."""
        batch = self.columns_of(scores, target, weight, group, index)
        s: Any = batch.scores
        y: Any = batch.labels
        w: Any = batch.weight
        xp: Any = torch
        if checks.host_readable(s):
            xp = np
            s, y = s.numpy().astype(np.float64), y.numpy().astype(np.float64)
            w = None if w is None else w.numpy().astype(np.float64)
        p, n = y, 1.0 - y
        if w is not None:  # a mean knows no scale, but products may underflow
            top = xp.amax(w, -1)[:, None]
            w = w / (top + (top == 0))
            p, n = w * p, w * n
        if self.max_fpr < 1.0:
            n = top_share(s, n, self.max_fpr, batch.group)
        if self.min_tpr > 0.0:
            p = top_share(-s, p, 1.0 - self.min_tpr, batch.group)
        value, gradient, *_ = pair_means(s, p, n, batch.group, self.surrogate)
        if len(s) == 1:
            return batch.as_loss(value[0], gradient)
        return batch.as_loss(value.mean(), gradient / len(s))

    def extra_repr(self) -> str:
        """Show the options that matter."""
        text = str(self.surrogate)
        if self.max_fpr < 1.0 or self.min_tpr > 0.0:
            text += f", max_fpr={self.max_fpr:g}, min_tpr={self.min_tpr:g}"
        return text
