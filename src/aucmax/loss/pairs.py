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

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from aucmax import checks
from aucmax.loss import _pairs_gpu
from aucmax.loss.surrogates import DEGREES, curvature, value_and_slope
from aucmax.loss.surrogates import Surrogate as Surrogate

LIST = 1 << 16
"""Pairs that are worked on at a time as a list."""

TABLE = 64, 256
"""Positives and negatives whose pairs are worked on at a time as a table: it fits the cache."""

MANY = 1 << 10
"""Pairs of a segment from which on tables cost less than lists."""


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


@np.errstate(over="ignore", invalid="ignore")  # infinity is an answer, and the caller looks
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
    segments: Any = None
    work = _by_running_sums if surrogate.name in DEGREES else _by_blocks
    if group is not None or work is _by_blocks:
        segments = _Segments(group, scores.size // rows, rows)
        scores, positive, negative = (x.reshape(-1) for x in (scores, positive, negative))
    terms, gradient, curve = work(scores, positive, negative, segments, surrogate, curved)
    if segments is None:
        mass = positive.sum(-1) * negative.sum(-1)
    else:
        mass = segments.sum(positive) * segments.sum(negative)
        mass = mass.reshape(*shape[:-1], -1).sum(-1)
    sums = terms.reshape(shape).sum(-1)
    return PairSums(sums, mass, gradient.reshape(shape), curve.reshape(shape if curved else 0))


class _Segments:
    """Rows whose pairs count together: those of a group in one of the columns, laid end to end."""

    def __init__(self, group: Any, columns: int, rows: int) -> None:
        groups, of_rows = 1, np.zeros(rows, np.int64)
        if group is not None:
            names, of_rows = np.unique(group, return_inverse=True)
            groups = len(names)
        self.count = columns * groups
        self.of_rows = (of_rows + groups * np.arange(columns)[:, None]).reshape(-1)
        self.sizes = np.bincount(self.of_rows, minlength=self.count)

    def sum(self, x: Any) -> Any:
        """The sum of each."""
        return np.bincount(self.of_rows, x, self.count)

    def in_turn(self, rows: Any) -> Any:
        """Rows segment by segment, those of one in the order that they had."""
        kind = np.uint16 if self.count <= 1 << 16 else np.int64  # NumPy sorts short ones in O(n)
        return rows[self.of_rows[rows].astype(kind).argsort(kind="stable")]

    def tables(self, positives: Any, negatives: Any) -> Iterator[tuple[Any, Any]]:
        """Rows of either class of which all pairs count, from segments with many pairs."""
        p, n, many = self._pairs(positives, negatives)
        p_ends, n_ends = p.cumsum(), n.cumsum()
        for k in np.flatnonzero(many):
            for a in range(p_ends[k] - p[k], p_ends[k], TABLE[0]):
                i = positives[a : min(a + TABLE[0], p_ends[k])]
                for b in range(n_ends[k] - n[k], n_ends[k], TABLE[1]):
                    yield i, negatives[b : min(b + TABLE[1], n_ends[k])]

    def lists(self, positives: Any, negatives: Any) -> Iterator[tuple[Any, Any]]:
        """The rows of pair after pair, from the other segments: groups are small, but many."""
        *_, many = self._pairs(positives, negatives)
        positives, negatives = (x[~many[self.of_rows[x]]] for x in (positives, negatives))
        _, sizes, _ = self._pairs(positives, negatives)
        # Pairs are numbered positive by positive: those of one from start to end, with the
        # negatives from first on.
        of_positives = self.of_rows[positives]
        first = (sizes.cumsum() - sizes)[of_positives]
        end = sizes[of_positives].cumsum()
        start = end - sizes[of_positives]
        pairs = int(end[-1]) if len(end) else 0
        for low in range(0, pairs, LIST):
            high = min(low + LIST, pairs)
            one, other = end.searchsorted((low, high - 1), "right")
            inside = slice(one, other + 1)
            counts = np.minimum(end[inside], high) - np.maximum(start[inside], low)
            number = np.repeat((first - start)[inside], counts) + np.arange(low, high)
            yield np.repeat(positives[inside], counts), negatives[number]

    def _pairs(self, positives: Any, negatives: Any) -> tuple[Any, Any, Any]:
        """Rows of either class in each segment, and whether they make many pairs."""
        p, n = (np.bincount(self.of_rows[x], minlength=self.count) for x in (positives, negatives))
        return p, n, p * n >= MANY


def _by_running_sums(
    s: Any, p: Any, n: Any, segments: Any, surrogate: Surrogate, curved: bool
) -> tuple[Any, Any, Any]:
    """Terms of the sums, gradient and curvature by one sort, along the arrays' last axis."""
    degree, rows = DEGREES[surrogate.name], s.shape[-1]
    # Centred, so that an offset costs no digits, by whole numbers, so that ties remain ties.
    if segments is None:
        v = s - np.rint(s.sum(-1, keepdims=True) / rows)
    else:
        v = s - np.rint(segments.sum(s) / segments.sizes)[segments.of_rows]
    v *= surrogate.scale
    is_positive = p > 0.0
    v -= surrogate.margin * is_positive
    if surrogate.name == "square":  # whose pairs all count, in any order
        order = np.arange(s.size).reshape(s.shape)
    else:
        # Slope of the hinge and curvature jump at the margin: at a tie the negative comes first.
        exact = curved or degree == 1
        order = (np.where(is_positive, np.nextafter(v, np.inf), v) if exact else v).argsort(-1)
        if s.ndim > 1:
            order += rows * np.arange(len(s))[:, None]
    if segments is not None:
        order = segments.in_turn(order)
    x, p, n = v.take(order), p.take(order), n.take(order)

    up, all_up = _running_sums(p, x, segments)
    down, all_down = _running_sums(n, x, segments)
    if surrogate.name == "square":
        met_by_n, met_by_p = all_up, all_down
    else:  # a negative meets the positives before it, a positive the negatives behind it
        met_by_n, met_by_p = up, all_down - down
    slope, curve = np.empty(s.shape), np.zeros(s.shape if curved else 0)  # in v, over the degree
    if degree == 1:
        slope.put(order, n * met_by_n.real - p * met_by_p.real)
    else:
        short_p, short_n = met_by_p.real * x - met_by_p.imag, met_by_n.real * x - met_by_n.imag
        slope.put(order, p * short_p + n * short_n)
        if curved:
            curve.put(order, p * met_by_p.real + n * met_by_n.real)
            curve *= 2.0 * surrogate.scale**2
    return slope * v, slope * (degree * surrogate.scale), curve


def _running_sums(weight: Any, x: Any, segments: Any) -> tuple[Any, Any]:
    """Sums of weights and of weighted keys up to each row of its segment, and over all of it.

    They are the parts of one complex number, since NumPy then needs a single pass.
    """
    total = np.empty(x.shape, complex)
    total.real = weight
    np.multiply(weight, x, total.imag)
    total.cumsum(-1, out=total)
    if segments is None:
        return total, total[..., -1:]
    ends = total[segments.sizes.cumsum() - 1]
    starts = np.concatenate([[0.0], ends[:-1]])
    upto = total - np.repeat(starts, segments.sizes)
    return upto, np.repeat(ends - starts, segments.sizes)


def _by_blocks(
    s: Any, p: Any, n: Any, segments: Any, surrogate: Surrogate, curved: bool
) -> tuple[Any, Any, Any]:
    """Terms of the sums, gradient and curvature, one block of pairs after the other."""
    s = surrogate.scale * s
    terms, gradient, curve = np.zeros(len(s)), np.zeros(len(s)), np.zeros(len(s) if curved else 0)
    positives, negatives = (segments.in_turn(np.flatnonzero(x)) for x in (p, n))
    for i, j in segments.tables(positives, negatives):
        z = s[i, None] - s[j]
        value, slope = value_and_slope(z, surrogate)
        terms[i] += p[i] * (value @ n[j])
        gradient[i] += p[i] * (slope @ n[j])
        gradient[j] -= n[j] * (p[i] @ slope)
        if curved:
            bend = curvature(z, surrogate)
            curve[i] += p[i] * (bend @ n[j])
            curve[j] += n[j] * (p[i] @ bend)
    for i, j in segments.lists(positives, negatives):
        z, weight = s[i] - s[j], p[i] * n[j]
        value, slope = value_and_slope(z, surrogate)
        slope *= weight
        terms += np.bincount(i, value * weight, len(s))
        gradient += np.bincount(i, slope, len(s)) - np.bincount(j, slope, len(s))
        if curved:
            bend = curvature(z, surrogate) * weight
            curve += np.bincount(i, bend, len(s)) + np.bincount(j, bend, len(s))
    return terms, gradient * surrogate.scale, curve * surrogate.scale**2
