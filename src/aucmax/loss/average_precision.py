"""A smooth average precision, with running estimates for each positive of the training data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from aucmax import checks
from aucmax.loss.base import NO_DEBUG, as_shares
from aucmax.loss.pairwise import Columns, RankingLoss, Surrogate

BLOCK = 1 << 16
"""Pairs that are visited at a time on a CPU: their arrays fit the cache."""

BLOCK_ON_DEVICE = 1 << 24
"""Pairs that are visited at a time elsewhere: few launches, some hundred megabytes."""


class AveragePrecisionLoss(RankingLoss):
    r"""One minus a smooth average precision (SOAP, Qi et al. 2021).

    The precision at a positive i is the share of positives among the rows that score at least as
    high. With a surrogate :math:`\phi` in place of that comparison,

    .. math::

        u_i = E_j\, \phi(c (s_i - s_j)), \qquad u_i^+ = E_j\, \phi(c (s_i - s_j))\, [y_j = 1],
        \qquad L = 1 - \operatorname*{mean}_{i: y_i = 1} \frac{u_i^+}{u_i},

    the expectations over all rows j of the data. Average precision depends on the share p of
    positives in the data. So the class means of a batch are joined by that p, whatever the batch's
    own share: :math:`u_i^+ = p\, E_j[\phi \mid y_j = 1]`, and
    :math:`u_i = u_i^+ + (1 - p)\, E_j[\phi \mid y_j = 0]`.

    A ratio of two means over a small batch is biased. So in training the loss keeps running means
    of :math:`u_i` and :math:`u_i^+` for each positive, found by its row number ``index``. The first
    time a row comes they are those of its batch. The value is the formula's at the running means,
    and the gradient takes them as constants: a pair has the weight
    :math:`(u_i^+ - u_i [y_j = 1]) / u_i^2`. Without row numbers, and in evaluation mode, the means
    are the batch's own: then the loss is a plain function of the scores and that its gradient.

    Weights multiply: a pair counts :math:`w_i w_j`. Positives without a negative in the batch, or
    in their group of it, are left out; where none is left the loss is zero, with zero gradient.
    A step costs O(positives x rows) on the CPU and O(rows x rows) elsewhere, where finding the
    positives would be a wait; memory is linear in the rows. There is no second derivative.

    Args:
        data_prior: p, the share of positives **in the data**, not in the batches; a sequence for
            several labels or classes. None: the batch's share.
        rows: number of rows of the training data, above each ``index``. None: no running means.
        columns: number of scores of a row: of several labels, classes, or members of an ensemble.
        decay: how much of a running mean is kept when its row comes again, in [0, 1).
        surrogate: :math:`\phi`, one of those of :class:`PairwiseAUCLoss`. The sigmoid is nearest to
            the comparison that it stands for. Where a hinge is zero, u nearly is, and the gradient,
            which has it in the denominator, is unbounded.
        margin: of the hinges and the square.
        scale: c, the factor of a difference of scores.
        q: of the generalized surrogate.

    Shape:
        scores (N,) or (N, 1), raw, with a target of N labels; or (N, L) with a target (N, L) of
        labels, NaN where missing, or (N,) of classes, each against the rest. weight (N,) or that of
        target; group and index (N,), integers. Returns a scalar, in float32 or better.

    Example:
        >>> import torch, aucmax
        >>> x, y = torch.randn(100, 5), torch.arange(100) % 10 == 0
        >>> model = torch.nn.Linear(5, 1)
        >>> loss = aucmax.AveragePrecisionLoss(data_prior=0.1, rows=100)
        >>> batch = torch.arange(0, 100, 5)  # row numbers, half of them positives
        >>> loss(model(x[batch]), y[batch], index=batch).backward()
    """

    needs_index = True
    estimates: Tensor
    priors: Tensor

    @checks.without(debug=NO_DEBUG, prior="pass data_prior, the share of positives in the data")
    def __init__(
        self,
        data_prior: float | Sequence[float] | Tensor | None = None,
        *,
        rows: int | None = None,
        columns: int = 1,
        decay: float = 0.5,
        surrogate: str = "sigmoid",
        margin: float = 1.0,
        scale: float = 1.0,
        q: float = 0.7,
    ) -> None:
        super().__init__()
        self.surrogate = Surrogate(surrogate, margin, scale, q)
        self.columns = checks.count("columns", columns)
        self.rows = 0 if rows is None else checks.count("rows", rows)
        self.follows_batches = self.rows > 0
        self.decay = checks.number("decay", decay, "a number in [0, 1)", lambda x: 0 <= x < 1)
        self.by_batch = data_prior is None
        self._warned_of_index = False
        if data_prior is not None:
            several = isinstance(data_prior, Sequence | Tensor) and not isinstance(data_prior, str)
            shares = (
                as_shares(data_prior, "data_prior")  # type: ignore[arg-type]
                if several
                else [checks.share("data_prior", data_prior)]
            )
            if self.columns % len(shares):
                raise ValueError(
                    f"data_prior must be one share, or one for each of columns={self.columns}, "
                    f"found {len(shares)} shares"
                )
            shares = shares * (self.columns // len(shares))  # an ensemble's members share them
            self.register_buffer("priors", torch.tensor(shares, dtype=torch.float64))
        if rows is not None:
            # u and u+; zero until a row has come: a positive is compared with itself, too.
            unseen = torch.zeros(2, self.columns, self.rows, dtype=torch.float64)
            self.register_buffer("estimates", unseen)

    def forward(
        self,
        scores: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        *,
        group: Tensor | None = None,
        index: Tensor | None = None,
    ) -> Tensor:
        """Return the value of one batch, differentiable in the scores."""
        expected = self.rows and self.training and not checks.tracing()
        if index is None and expected and not self._warned_of_index:
            self._warned_of_index = True
            checks.warn(
                f"AveragePrecisionLoss(rows={self.rows}) is called without index: it takes each "
                f"batch by itself, without running means, which is biased for small batches; pass "
                f"the rows' numbers in the training data as index"
            )
        batch = self.columns_of(scores, target, weight, group, index, self.rows)
        if len(batch.scores) != self.columns and (self.rows or not self.by_batch):
            raise ValueError(
                f"scores must be of {self.columns} columns, as columns= says, "
                f"found {len(batch.scores)}"
            )
        return batch.as_loss(*self._value_and_gradient(batch))

    @torch.no_grad()
    def _value_and_gradient(self, batch: Columns) -> tuple[Tensor, Tensor]:
        """Return the mean over the columns and its gradient; move the running means."""
        scores, counted = batch.scores, torch.zeros_like(batch.scores)
        value, gradient = torch.zeros_like(scores[:, 0]), torch.zeros_like(scores)
        index = batch.index.long() if batch.index is not None and self.rows else None
        before = self.estimates[:, :, index] if self.training and index is not None else None
        after = None if before is None else torch.zeros_like(before)
        positive, negative = batch.labels, 1.0 - batch.labels
        if batch.weight is not None:
            positive, negative = batch.weight * positive, batch.weight * negative
        columns = scores, positive, negative
        for column, anchors in _blocks(positive):
            known = None if before is None else before[:, column, anchors]
            s, p, n = (x[column] for x in columns)
            counts, estimates, pull = self._block(s, p, n, batch.group, column, anchors, known)
            value[column] += (counts * (1.0 - estimates[1] / estimates[0])).sum(-1)
            gradient[column] -= pull.sum(-2)
            gradient[column, anchors] += pull.sum(-1)
            counted[column, anchors] = counts
            if after is not None:
                after[:, column, anchors] = estimates.to(after.dtype)
        if index is not None and before is not None and after is not None:
            self._remember(index, counted > 0, after - before)
        mass = counted.sum(-1).clamp(min=torch.finfo(counted.dtype).tiny) * len(scores)
        return (value / mass).sum(), gradient / mass[:, None]

    def _block(
        self,
        s: Tensor,
        positive: Tensor,
        negative: Tensor,
        group: Tensor | None,
        column: slice,
        anchors: Tensor,
        known: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Compare some rows, the anchors, with all others.

        Args:
            s: scores, (C, n).
            positive: each row's weight as a positive, likewise.
            negative: each row's weight as a negative, likewise.
            group: (n,), or None.
            column: which columns these are.
            anchors: (B,), their places in the batch.
            known: (2, C, B), their running means of u and u+, zero where there is none yet.

        Returns:
            What each anchor counts, (C, B); u and u+ to go by, (2, C, B); and the derivative in
            each difference of scores, (C, B, n).
        """
        counts, tiny = positive[:, anchors], torch.finfo(s.dtype).tiny
        z = self.surrogate.scale * (s[:, anchors, None] - s[:, None])
        loss, slope = self.surrogate.value_and_slope(z)
        p, n = positive[:, None], negative[:, None]
        if group is not None:
            same = group[anchors, None] == group
            p, n = p * same, n * same
        p_mass, n_mass = p.sum(-1), n.sum(-1)
        if self.by_batch:
            prior = p_mass / (p_mass + n_mass).clamp(min=tiny)
        else:
            prior = self.priors[column, None].to(s.dtype)
        p_unit, n_unit = prior / p_mass.clamp(min=tiny), (1.0 - prior) / n_mass.clamp(min=tiny)
        positives_above = p_unit * (p * loss).sum(-1)
        above = positives_above + n_unit * (n * loss).sum(-1)
        counts = counts * (n_mass > 0)

        estimates = torch.stack([above, positives_above])
        if known is not None:
            moved = self.decay * known + (1.0 - self.decay) * estimates
            estimates = torch.where(known[0] > 0, moved, estimates.to(known.dtype))
        estimates = torch.where(counts > 0, estimates, 1.0)
        u, precision = estimates[0], estimates[1] / estimates[0]
        of_p = (counts * p_unit * (precision - 1.0) / u).to(s.dtype)
        of_n = (counts * n_unit * precision / u).to(s.dtype)
        pull = slope * (of_p[..., None] * p + of_n[..., None] * n) * self.surrogate.scale
        return counts, estimates, pull

    def _remember(self, index: Tensor, counted: Tensor, change: Tensor) -> None:
        """Move the estimates of the rows that counted, if what they move by is finite.

        Of a row that is there several times the last copy is taken: with one change for each place
        the result does not depend on the order of additions.
        """
        numbers, order = torch.where(counted, index, -1).sort(dim=-1, stable=True)
        last = torch.ones_like(counted)
        last[:, :-1] = numbers[:, :-1] != numbers[:, 1:]
        last = torch.empty_like(last).scatter_(-1, order, last) & counted
        change = torch.where(last & change.isfinite().all(0), change, 0.0)
        if torch.compiler.is_compiling():
            self._keep("estimates", self.estimates.index_add(-1, index, change))
        else:  # without a copy of all rows
            self.estimates.index_add_(-1, index, change)

    def extra_repr(self) -> str:
        """Show the options that matter."""
        options = [str(self.surrogate)]
        if not self.by_batch and not self.priors.is_meta:
            shares = [f"{share:g}" for share in self.priors.tolist()]
            options.append(f"data_prior={shares[0] if len({*shares}) == 1 else ' '.join(shares)}")
        if self.rows:
            options += [f"rows={self.rows}", f"columns={self.columns}", f"decay={self.decay:g}"]
        return ", ".join(options)


def _blocks(positive: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yield columns and rows that cover all positives; on an eager CPU no others."""
    columns, n = positive.shape
    if checks.host_readable(positive):
        for column in range(columns):
            for anchors in torch.split(positive[column].nonzero()[:, 0], max(1, BLOCK // n)):
                yield slice(column, column + 1), anchors
    else:
        size = max(1, BLOCK_ON_DEVICE // (n * columns))
        for anchors in torch.split(torch.arange(n, device=positive.device), size):
            yield slice(None), anchors
