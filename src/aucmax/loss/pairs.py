r"""Sums over pairs of a positive and a negative, with their gradient, never all pairs in memory.

For scores s, weights p of the rows as positives and n as negatives,

.. math:: \sum_{i,j} p_i n_j\, \phi(c (s_i - s_j))

over the pairs of a column within a group. The square, the squared hinge and the hinge cost one
sort, O(N log N): with :math:`v_i = c s_i - m` for positives and :math:`v_j = c s_j` for negatives a
pair falls short of the margin by :math:`v_j - v_i`. In ascending order of v it does if its negative
comes later, so running sums over the other class give each row's gradient. In v the sum is
homogeneous: by Euler's theorem it is the gradient's product with v over the degree. The other
surrogates are no polynomials, and their pairs are gone through in blocks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from aucmax import checks
from aucmax.loss import _pairs_gpu
from aucmax.loss.surrogates import DEGREES, curvature, value_and_slope
from aucmax.loss.surrogates import Surrogate as Surrogate

BLOCK = 1 << 16
"""Pairs that are worked on at a time, and so bound the memory."""


def pair_sums(
    scores: Tensor, positive: Tensor, negative: Tensor, group: Tensor | None, surrogate: Surrogate
) -> tuple[Tensor, Tensor, Tensor]:
    """The sum over pairs, their mass and the sum's gradient, in each of L columns.

    Args:
        scores: shape (L, n), without a graph.
        positive: each row's weight as a positive, shape (L, n), 0 for all others.
        negative: likewise; no row has both.
        group: integers of shape (n,): only pairs within one count.
        surrogate: what a pair costs.

    Returns:
        The sums, shape (L,); the sums of the pairs' weights, shape (L,); the sums' gradient in the
        scores, shape (L, n). On an accelerator nothing is waited for.

    Example:
        >>> import torch
        >>> from aucmax.loss.pairs import Surrogate, pair_sums
        >>> scores, positive = torch.tensor([[2.0, 0.5, 1.0]]), torch.tensor([[1.0, 0.0, 0.0]])
        >>> pair_sums(scores, positive, 1 - positive, None, Surrogate("square"))
        (tensor([0.2500]), tensor([2.]), tensor([[ 1., -1.,  0.]]))
    """
    if not checks.host_readable(scores):
        return _pairs_gpu.pair_sums(scores, positive, negative, group, surrogate)
    rows = None if group is None else group.numpy()
    s, p, n = (x.numpy().astype(np.float64, copy=False) for x in (scores, positive, negative))
    found = pair_sums_of_arrays(s, p, n, rows, surrogate)
    sums, mass, gradient, _ = (torch.from_numpy(x).to(scores.dtype) for x in found)
    return sums, mass, gradient


class PairSums(NamedTuple):
    """Of each column: sum over pairs, mass of the pairs, gradient, diagonal of the Hessian."""

    sums: Any
    mass: Any
    gradient: Any
    curvature: Any


def pair_sums_of_arrays(
    scores: Any,
    positive: Any,
    negative: Any,
    group: Any,
    surrogate: Surrogate,
    curved: bool = False,
) -> PairSums:
    """:func:`pair_sums` of NumPy arrays in float64, and with ``curved`` its curvature.

    That is the diagonal of the Hessian in the scores, which of a hinge is zero; without ``curved``
    it is empty. A single column may come with one dimension; its sums then have none.

    Example:
        >>> import numpy as np
        >>> from aucmax.loss.pairs import Surrogate, pair_sums_of_arrays
        >>> scores, positive = np.array([2.0, 0.5, 1.0]), np.array([1.0, 0.0, 0.0])
        >>> given = (scores, positive, 1 - positive, None, Surrogate("square"))
        >>> pair_sums_of_arrays(*given, curved=True).curvature
        array([4., 2., 2.])
    """
    shape, rows = scores.shape, scores.shape[-1]
    columns = scores.size // rows
    of_rows, count = None, 1
    if group is not None:
        names, of_rows = np.unique(group, return_inverse=True)
        count = len(names)
    if columns > 1:
        of_rows = np.zeros(rows, np.int64) if of_rows is None else of_rows
        of_rows = (of_rows + count * np.arange(columns)[:, None]).reshape(-1)
    segments = _Segments(of_rows, columns * count, scores.size)
    s, p, n = (x.reshape(-1) for x in (scores, positive, negative))
    work = _by_running_sums if surrogate.name in DEGREES else _by_blocks
    each, gradient, curve = work(s, p, n, segments, surrogate, curved)
    found = each, segments.sum(p) * segments.sum(n)
    sums, mass = (x.reshape(*shape[:-1], -1).sum(-1) for x in found)
    return PairSums(sums, mass, gradient.reshape(shape), curve.reshape(shape if curved else 0))


class _Segments:
    """The rows whose pairs count together: those of one group in one column."""

    def __init__(self, of_rows: Any, count: int, rows: int) -> None:
        self.of_rows, self.count = of_rows, count  # None: all rows are of one
        self.sizes = np.array([rows]) if of_rows is None else np.bincount(of_rows, minlength=count)
        self.ends = self.sizes.cumsum()

    def sum(self, x: Any) -> Any:
        """The sum of each segment."""
        if self.of_rows is None:
            return x.sum(keepdims=True)
        return np.bincount(self.of_rows, x, self.count)

    def centred(self, x: Any) -> Any:
        """Distances to the segment's mean, rounded so that ties of scores on a grid remain ties."""
        means = np.rint(self.sum(x) / self.sizes)
        return x - (means if self.of_rows is None else means[self.of_rows])

    def order(self, keys: Any) -> Any:
        """The rows segment by segment, within one by ascending keys."""
        order = keys.argsort()
        if self.of_rows is None:
            return order
        short = np.uint16 if self.count <= 1 << 16 else np.int64  # NumPy sorts short ones in O(n)
        return order[self.of_rows.astype(short)[order].argsort(kind="stable")]


def _by_running_sums(
    s: Any, p: Any, n: Any, segments: _Segments, surrogate: Surrogate, curved: bool
) -> tuple[Any, Any, Any]:
    """The sum of each segment, the gradient and the curvature of each row, by one sort."""
    degree, rows = DEGREES[surrogate.name], len(s)
    v = segments.centred(s)  # else an offset of the scores would cost digits
    v *= surrogate.scale
    v -= surrogate.margin * (p > 0)
    order = segments.order(v)
    x, p, n = v[order], p[order], n[order]
    total = np.zeros((4, rows + 1))  # at k stands the sum over the first k rows of the order
    total[0, 1:], total[2, 1:] = p, n
    np.multiply(p, x, total[1, 1:])
    np.multiply(n, x, total[3, 1:])
    np.cumsum(total, axis=1, out=total)

    first: Any = [0]
    last: Any = [rows]
    if segments.of_rows is not None:
        sizes, ends = segments.sizes, segments.ends
        first, last = np.repeat(ends - sizes, sizes), np.repeat(ends, sizes)
    # A negative meets its segment's positives before some row, a positive the negatives since one.
    before, since = last, first
    if surrogate.name != "square":
        before = since = slice(1, None)
        if (
            curved or degree == 1
        ):  # which jump at the margin, where the key of one meets the other's
            before, since = _beside_ties(x, segments.ends)
    p_mass, p_sum = total[:2, before] - total[:2, first]
    n_mass, n_sum = total[2:, last] - total[2:, since]

    gradient, curve = np.empty(rows), np.zeros(rows if curved else 0)
    if degree == 1:
        gradient[order] = n * p_mass - p * n_mass
    else:
        gradient[order] = 2.0 * (n * (p_mass * x - p_sum) + p * (n_mass * x - n_sum))
        if curved:
            curve[order] = 2.0 * surrogate.scale**2 * (n * p_mass + p * n_mass)
    each = segments.sum(gradient * v) / degree
    gradient *= surrogate.scale
    return each, gradient, curve


def _beside_ties(x: Any, ends: Any) -> tuple[Any, Any]:
    """Where the run of equal keys that each row belongs to begins, and where it has ended."""
    fresh = np.ones(len(x), bool)
    np.not_equal(x[1:], x[:-1], fresh[1:])
    fresh[ends[:-1]] = True
    begins = np.flatnonzero(fresh)
    lengths = np.diff(begins, append=len(x))
    return np.repeat(begins, lengths), np.repeat(begins + lengths, lengths)


def _by_blocks(
    s: Any, p: Any, n: Any, segments: _Segments, surrogate: Surrogate, curved: bool
) -> tuple[Any, Any, Any]:
    """The sum of each segment, the gradient and the curvature of each row, pair after pair."""
    of_rows = np.zeros(len(s), np.intp) if segments.of_rows is None else segments.of_rows
    positives, negatives = (
        rows[of_rows[rows].argsort(kind="stable")] for rows in map(np.flatnonzero, (p, n))
    )
    sizes = np.bincount(of_rows[negatives], minlength=segments.count)
    # Pairs are numbered positive by positive: those of one from start to end, with the negatives
    # from first on.
    first = (sizes.cumsum() - sizes)[of_rows[positives]]
    end = sizes[of_rows[positives]].cumsum()
    start = end - sizes[of_rows[positives]]
    value, gradient, curve = np.zeros(len(s)), np.zeros(len(s)), np.zeros(len(s) if curved else 0)
    pairs = int(end[-1]) if len(end) else 0
    for low in range(0, pairs, BLOCK):
        high = min(low + BLOCK, pairs)
        one, other = end.searchsorted((low, high - 1), "right")
        inside = slice(one, other + 1)
        counts = np.minimum(end[inside], high) - np.maximum(start[inside], low)
        i = np.repeat(positives[inside], counts)
        j = negatives[np.repeat((first - start)[inside], counts) + np.arange(low, high)]
        z = surrogate.scale * (s[i] - s[j])
        weight = p[i] * n[j]
        phi, slope = value_and_slope(z, surrogate)
        slope *= surrogate.scale * weight
        value += np.bincount(i, phi * weight, len(s))
        gradient += np.bincount(i, slope, len(s)) - np.bincount(j, slope, len(s))
        if curved:
            bend = curvature(z, surrogate) * (surrogate.scale**2 * weight)
            curve += np.bincount(i, bend, len(s)) + np.bincount(j, bend, len(s))
    return segments.sum(value), gradient, curve
