"""A smooth average precision, with running estimates for each positive of the training data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from aucmax import checks
from aucmax.loss._inputs import as_shares
from aucmax.loss.ranking import Compared, RankingLoss, with_gradient
from aucmax.loss.surrogates import Surrogate, value_and_slope

BLOCK = 1 << 16
"""Pairs that are worked on at a time on the CPU, where they fit the cache."""
BLOCK_ON_DEVICE = 1 << 24
"""Pairs that are worked on at a time elsewhere: few launches, some hundred megabytes."""


class AveragePrecisionLoss(RankingLoss):
    r"""One minus a smooth average precision (SOAP, Qi et al. 2021).

    The precision at a positive i is the share of positives among the rows that score at least as
    high. With a surrogate :math:`\phi` in place of that comparison,

    .. math::

        u_i = E_j\, \phi(c (s_i - s_j)), \qquad u_i^+ = E_j\, \phi(c (s_i - s_j))\, [y_j = 1],
        \qquad L = 1 - \operatorname*{mean}_{i: y_i = 1} \frac{u_i^+}{u_i},

    the expectations over all rows j of the data. Average precision depends on the share p of
    positives, so the class means of a batch are joined by the data's p, whatever the batch's own:
    :math:`u_i^+ = p\, E_j[\phi \mid y_j = 1]`, and
    :math:`u_i = u_i^+ + (1 - p)\, E_j[\phi \mid y_j = 0]`.

    A ratio of two means over a small batch is biased. So while it trains, the loss keeps running
    means of :math:`u_i` and :math:`u_i^+` for each positive, found by its row number; the first
    time it comes, those of its batch. The value is the formula's at the running means, and the
    gradient takes them as constants: a pair has the weight
    :math:`(u_i^+ - u_i [y_j = 1]) / u_i^2`. Without row numbers, and in evaluation mode, all
    is the batch's own: then the loss is a plain function of the scores and that its gradient.

    Weights multiply: a pair counts :math:`w_i w_j`. Positives without a negative in the batch, or
    in their group of it, are left out; where none is left the loss is zero, with zero gradient.
    A step costs O(positives x rows) on the CPU and O(rows x rows) elsewhere, where positives cannot
    be told from the others without waiting; memory is linear in the rows.

    Args:
        prior: p, the share of positives **in the data**, not in the batches; a sequence for
            several labels or classes. None: the batch's share.
        rows: of the training data; ``index`` is below it. None: no running means.
        columns: how many scores a row has: several labels, classes, members of an ensemble.
        decay: how much of a running mean is kept when its row comes again, in [0, 1).
        surrogate: :math:`\phi`, one of those of :class:`PairwiseAUCLoss`. The sigmoid is nearest to
            the comparison that it stands for; where a hinge is zero, so is nearly u, and the
            gradient, which has it in the denominator, is out of bounds.
        margin: of the hinges and the square.
        scale: c, what scores are multiplied by.
        q: of the generalized surrogate.
        debug: check values on accelerators too, at the price of a synchronization per call.

    Shape:
        scores (N,) or (N, 1), raw, with a target of N labels; or (N, L) with a target (N, L) of
        labels, NaN where missing, or (N,) of classes, each against the rest. weight (N,) or that of
        target; group and index (N,), integers. Returns a scalar, in float32 or better.

    Example:
        >>> import torch, aucmax
        >>> x, y = torch.randn(100, 5), torch.arange(100) % 10 == 0
        >>> model, loss = torch.nn.Linear(5, 1), aucmax.AveragePrecisionLoss(prior=0.1, rows=100)
        >>> batch = torch.arange(0, 100, 5)  # row numbers, half of them positives
        >>> loss(model(x[batch]), y[batch], index=batch).backward()
    """

    needs_index = True
    estimates: Tensor
    priors: Tensor

    def __init__(
        self,
        prior: float | Sequence[float] | Tensor | None = None,
        *,
        rows: int | None = None,
        columns: int = 1,
        decay: float = 0.5,
        surrogate: str = "sigmoid",
        margin: float = 1.0,
        scale: float = 1.0,
        q: float = 0.7,
        debug: bool = False,
    ) -> None:
        super().__init__(debug)
        self.surrogate = Surrogate(surrogate, margin, scale, q)
        self.columns = checks.count("columns", columns)
        self.rows = 0 if rows is None else checks.count("rows", rows)
        self.follows_batches = self.rows > 0
        self.decay = checks.number("decay", decay, "a number in [0, 1)", lambda x: 0 <= x < 1)
        self.by_batch = prior is None
        if prior is not None:
            several = isinstance(prior, Sequence | Tensor) and not isinstance(prior, str)
            shares = as_shares(prior, "prior") if several else [checks.share("prior", prior)]  # type: ignore[arg-type]
            if self.columns % len(shares):
                raise ValueError(
                    f"prior must be one share, or one for each of columns={self.columns}, "
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
        """The value of one batch, differentiable in the scores."""
        batch = self._compared(scores, target, weight, group, index)
        self._check_places(batch)
        value, gradient = self._value_and_gradient(batch)
        return with_gradient(batch.scores, value, gradient)

    def _check_places(self, batch: Compared) -> None:
        """Raise unless what is kept for columns and rows has a place for those of the batch."""
        if len(batch.scores) != self.columns and (self.rows or not self.by_batch):
            raise ValueError(
                f"scores must be of {self.columns} columns, as columns= says, "
                f"found {len(batch.scores)}"
            )
        if self.rows and batch.rows is not None and checks.host_readable(batch.rows):
            low, high = (int(x) for x in batch.rows.aminmax())
            if low < 0 or high >= self.rows:
                raise ValueError(
                    f"index must hold row numbers below rows={self.rows}, found {low} to {high}"
                )

    @torch.no_grad()
    def _value_and_gradient(self, batch: Compared) -> tuple[Tensor, Tensor]:
        """The mean of the columns' values, and its gradient in the scores; the state moves on."""
        scores, weight = batch.scores, torch.zeros_like(batch.scores)
        value, gradient = torch.zeros_like(scores[:, 0]), torch.zeros_like(scores)
        index = None if batch.rows is None else batch.rows.long()
        remembers = self.training and self.rows > 0 and index is not None
        before = self.estimates[:, :, index] if remembers else None
        after = None if before is None else torch.zeros_like(before)
        for column, anchors in _blocks(batch.positive):
            known = None if before is None else before[:, column, anchors]
            counts, estimates, pull = self._block(batch, column, anchors, known)
            value[column] += (counts * (1.0 - estimates[1] / estimates[0])).sum(-1)
            gradient[column] -= pull.sum(-2)
            gradient[column, anchors] += pull.sum(-1)
            weight[column, anchors] = counts
            if after is not None:
                after[:, column, anchors] = estimates.to(after.dtype)
        if index is not None and before is not None and after is not None:
            self._remember(index, weight > 0, after - before)
        mass = weight.sum(-1).clamp(min=torch.finfo(weight.dtype).tiny) * len(scores)
        return (value / mass).sum(), gradient / mass[:, None]

    def _block(
        self, batch: Compared, column: slice, anchors: Tensor, known: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Of some rows: what each counts, u and u+ to go by, the derivative in each difference."""
        s, positive, negative = (x[column] for x in batch[:3])
        counts, tiny = positive[:, anchors], torch.finfo(s.dtype).tiny
        z = self.surrogate.scale * (s[:, anchors, None] - s[:, None])
        loss, slope = value_and_slope(z, self.surrogate)
        p, n = positive[:, None], negative[:, None]
        if batch.group is not None:
            same = batch.group[anchors, None] == batch.group
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
        """Move the estimates of those rows that counted, if what they move by is finite.

        Of a row that is there several times the last copy is heeded: one change for each place
        leaves the result to no order of additions.
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
            options.append(f"prior={shares[0] if len({*shares}) == 1 else ' '.join(shares)}")
        if self.rows:
            options += [f"rows={self.rows}", f"columns={self.columns}", f"decay={self.decay:g}"]
        return ", ".join(options)


def _blocks(positive: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Columns and rows that cover all positives: no other row, where that is known for nothing."""
    columns, n = positive.shape
    if checks.host_readable(positive):
        for column in range(columns):
            for anchors in torch.split(positive[column].nonzero()[:, 0], max(1, BLOCK // n)):
                yield slice(column, column + 1), anchors
    else:
        size = max(1, BLOCK_ON_DEVICE // (n * columns))
        for anchors in torch.split(torch.arange(n, device=positive.device), size):
            yield slice(None), anchors
