r"""Exact ranking metrics: AUC with its interval and its test, Hand and Till's M, average precision.

Scores are raw outputs of a model: tensors of any device and real dtype, NumPy arrays or lists.
They are compared in the precision they came in, and pairs are counted in integers: no tie is made
or lost, and a tied pair counts one half. A weight counts a row as often as it says. Without rows of
both classes the answer is ``nan``, with a ``UserWarning``; wrong input is a ``ValueError``.
"""

from __future__ import annotations

import math
import warnings
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from aucmax.checks import check_finite, check_labels, check_number, check_weights
from aucmax.distributed import carried, concat_over_ranks, world_size
from aucmax.metrics import _on_device

__all__ = [
    "AUCInterval",
    "DeLongTest",
    "ROCCurve",
    "StreamingAUC",
    "average_precision",
    "delong_test",
    "hand_till",
    "hand_till_interval",
    "hand_till_test",
    "roc_auc",
    "roc_auc_interval",
    "roc_curve",
]

Values: TypeAlias = Tensor | npt.ArrayLike
Array: TypeAlias = Any  # a NumPy array, or a tensor on a GPU where the code reads the same
Floats: TypeAlias = npt.NDArray[np.float64]


class AUCInterval(NamedTuple):
    """An AUC, its confidence interval and DeLong's standard error."""

    auc: float
    low: float
    high: float
    standard_error: float
    level: float


class DeLongTest(NamedTuple):
    """Two AUCs, their difference a - b, and how surprising that is if the truth is zero."""

    auc_a: float
    auc_b: float
    difference: float
    standard_error: float
    z: float
    p_value: float


class ROCCurve(NamedTuple):
    """The points of a ROC curve, from (0, 0) at an infinite threshold to (1, 1)."""

    fpr: Floats
    tpr: Floats
    thresholds: Floats


def roc_auc(scores: Values, target: Values, weight: Values | None = None) -> float:
    r"""The probability that a random positive scores above a random negative.

    .. math::
        \mathrm{AUC} = \frac{1}{n_+ n_-} \sum_{i: y_i = 1} \sum_{j: y_j = 0}
            \Bigl(\mathbb{1}[s_i > s_j] + \tfrac12 \mathbb{1}[s_i = s_j]\Bigr),

    each pair multiplied by :math:`w_i w_j` if weights are given. On the CPU the classes are sorted
    apart and one is looked up in the other; on the GPU, if all arguments are there, one sort of all
    scores tells: :math:`O(n \log n)` both.

    Args:
        scores: Raw scores, (N,) or (N, 1).
        target: Labels 0 and 1, one per score.
        weight: Finite weights of at least 0, one per score.

    Example:
        >>> roc_auc([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1])
        0.75
    """
    there = _on_gpu(scores, target, weight)
    found = None if there is None else _on_device.roc_auc(*there)
    if found is not None and not math.isnan(found.auc):  # else it is said below what is wrong
        return found.auc
    x, positive, w = _rows(scores, target, weight)
    if not _both_classes(positive):
        return math.nan
    if w is None:
        return _auc(*_split(x, positive))
    hits, alarms, _ = _sweep(x, positive, w)
    area = np.diff(alarms, prepend=0) @ (hits - np.diff(hits, prepend=0) / 2)
    return min(1.0, float(area / hits[-1] / alarms[-1]))


def roc_auc_interval(scores: Values, target: Values, level: float = 0.95) -> AUCInterval:
    r"""The AUC with DeLong's standard error and a confidence interval (``level`` in (0, 1)).

    A positive's *placement* :math:`p_i` is the share of negatives below it, a negative's
    :math:`q_j` the share of positives above it. Both have the mean :math:`\hat\theta`, the AUC, and
    DeLong's variance is :math:`V = S_p^2 / n_+ + S_q^2 / n_-` with their sample variances.

    :math:`V` tends to be too small if a class has few rows, down to zero if they are placed alike.
    What holds for any data is Hoeffding's bound: the AUC is a mean over all ways to form
    :math:`k = \min(n_+, n_-)` disjoint pairs, so its variance is :math:`\theta (1 - \theta) / k` at
    most. With B for that at :math:`\hat\theta`, V has the weight of k rows here and B that of one:

    .. math::
        \operatorname{logit}\hat\theta \pm z_{(1 + \mathrm{level})/2}
        \frac{\sigma}{\hat\theta (1 - \hat\theta)}, \qquad \sigma^2 = \frac{k V + B}{k + 1}.

    At :math:`\hat\theta = 1` all of the k disjoint pairs are won, which has probability
    :math:`\theta^k` at most. The interval is then :math:`[(\tfrac{1 - \mathrm{level}}{2})^{1/k},
    1]`, Clopper and Pearson's for k wins out of k (mirrored at 0). So the width is never zero. The
    standard error is :math:`\sqrt V`, or :math:`\sqrt B` if a class has one row.

    Example:
        >>> auc, low, high, *_ = roc_auc_interval([0.1, 0.4, 0.35, 0.8, 0.9], [0, 0, 1, 1, 1])
        >>> print(f"{auc:.3f} [{low:.3f}, {high:.3f}]")
        0.833 [0.136, 0.994]
    """
    level = check_number("level", level, "a number strictly between 0 and 1", lambda x: 0 < x < 1)
    ((auc, wins, losses),) = _placed(target, scores=scores)
    if math.isnan(auc):
        return AUCInterval(math.nan, math.nan, math.nan, math.nan, level)
    k = min(len(wins), len(losses))
    bound = auc * (1 - auc) / k
    variance = _delong_variance(wins, losses) if k > 1 else bound
    low, high = _logit_interval(auc, (k * variance + bound) / (k + 1), k, level)
    return AUCInterval(auc, low, high, math.sqrt(variance), level)


def delong_test(scores_a: Values, scores_b: Values, target: Values) -> DeLongTest:
    r"""Tests whether two models that score the same rows have the same AUC (DeLong et al., 1988).

    With placements as in :func:`roc_auc_interval`, the variance of the difference of the AUCs is
    :math:`S_{p^a - p^b}^2 / n_+ + S_{q^a - q^b}^2 / n_-`, that is, :math:`V_a + V_b - 2 C_{ab}`;
    :math:`z` is the difference over its root and the p-value is two-sided. If this variance is zero
    although the AUCs differ, or a class has one row, the largest value that it can have while the
    truth is zero, :math:`1 / \min(n_+, n_-)`, takes its place. Equal AUCs have z = 0 and p = 1.
    Arguments as in :func:`roc_auc`, with the scores of two models, row by row.

    Example:
        >>> test = delong_test([0.1, 0.4, 0.35, 0.8], [0.1, 0.2, 0.35, 0.8], [0, 0, 1, 1])
        >>> print(f"{test.difference:.2f}, p = {test.p_value:.2f}")
        -0.25, p = 0.48
    """
    a, b = _placed(target, scores_a=scores_a, scores_b=scores_b)
    (auc_a, wins_a, losses_a), (auc_b, wins_b, losses_b) = a, b
    if math.isnan(auc_a):
        return DeLongTest(*[math.nan] * 6)
    k = min(len(wins_a), len(losses_a))
    error = math.sqrt(_delong_variance(wins_a - wins_b, losses_a - losses_b)) if k > 1 else 0.0
    return _compared(auc_a, auc_b, error, k)


def _compared(auc_a: float, auc_b: float, error: float, k: int) -> DeLongTest:
    """The test; where no error could be estimated, the largest that k rows of a class allow."""
    difference = auc_a - auc_b
    if difference == 0:
        return DeLongTest(auc_a, auc_b, 0.0, error, z=0.0, p_value=1.0)
    error = error or math.sqrt(1 / k)
    z = difference / error
    return DeLongTest(auc_a, auc_b, difference, error, z, math.erfc(abs(z) / math.sqrt(2)))


def hand_till(scores: Values, target: Values, weight: Values | None = None) -> float:
    r"""Hand and Till's M (2001), the AUC of c classes, whatever their frequencies.

    .. math::
        M = \frac{1}{c (c - 1)} \sum_{i \ne j} \hat A(i \mid j),

    where :math:`\hat A(i \mid j)` is the AUC of column i with class i as positives, j as negatives.
    A column is compared between rows, so pass what the model ranks by: for a model trained with
    :class:`aucmax.MulticlassAUCLoss` and its softmax link, ``scores.double().softmax(-1)``.
    Softmax is not monotone in a column, and a constant added to a row of raw scores changes M.

    Args:
        scores: Scores after the link, (N, c), one column per class.
        target: Classes 0 to c - 1, one per row.
        weight: Finite weights of at least 0, one per row.

    Example:
        >>> hand_till([[2, 1, 0], [1, 3, 0], [0, 1, 2], [0, 2, 1]], [0, 1, 2, 2])
        1.0
    """
    table, classes = _table(scores, target)
    rows = _by_class(table, classes)
    if not rows:
        return math.nan
    pairs = _ordered_pairs(len(rows))
    if weight is not None:
        return _weighted_hand_till(table, classes, _column(weight, "weight", len(table)), pairs)
    return math.fsum(_auc(rows[i][:, i], rows[j][:, i]) for i, j in pairs) / len(pairs)


def hand_till_interval(scores: Values, target: Values, level: float = 0.95) -> AUCInterval:
    r"""Hand and Till's M with its standard error and a confidence interval.

    DeLong's variance, carried over: M is a mean of AUCs, so a row's placements in all of them add
    up to one number. With :math:`S_k^2` for the sample variance of these in class k,
    :math:`V = \sum_k S_k^2 / n_k`. The interval is made of V as in :func:`roc_auc_interval`, with
    the rows of the smallest class for k: the bounds on an AUC's variance hold for their mean too.

    Args:
        scores: Scores after the link, (N, c), one column per class.
        target: Classes 0 to c - 1, one per row.
        level: In (0, 1).

    Example:
        >>> scores = [[0.7, 0.2, 0.1], [0.3, 0.6, 0.1], [0.4, 0.5, 0.1], [0.2, 0.3, 0.5]]
        >>> found = hand_till_interval(scores * 5, [0, 1, 0, 2] * 5)
        >>> print(f"{found.auc:.3f} [{found.low:.3f}, {found.high:.3f}]")
        1.000 [0.478, 1.000]
    """
    level = check_number("level", level, "a number strictly between 0 and 1", lambda x: 0 < x < 1)
    rows = _by_class(*_table(scores, target))
    if not rows:
        return AUCInterval(math.nan, math.nan, math.nan, math.nan, level)
    auc, parts = _class_placements(rows)
    k = min(map(len, parts))
    bound = auc * (1 - auc) / k
    variance = _variance_of_means(parts) if k > 1 else bound
    low, high = _logit_interval(auc, (k * variance + bound) / (k + 1), k, level)
    return AUCInterval(auc, low, high, math.sqrt(variance), level)


def hand_till_test(scores_a: Values, scores_b: Values, target: Values) -> DeLongTest:
    """Tests whether two models that score the same rows have the same M.

    As :func:`delong_test`, with the variance of :func:`hand_till_interval`.

    Args:
        scores_a: Scores after the link, (N, c).
        scores_b: Those of another model, row by row.
        target: Classes 0 to c - 1, one per row.

    Example:
        >>> a = [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]] * 9
        >>> b = [[0.4, 0.3, 0.3], [0.3, 0.3, 0.4], [0.2, 0.2, 0.6]] * 9
        >>> test = hand_till_test(a, b, [0, 1, 2] * 9)
        >>> print(f"{test.difference:.3f}, p = {test.p_value:.2f}")
        0.083, p = 0.80
    """
    tables = _table(scores_a, target, "scores_a"), _table(scores_b, target, "scores_b")
    columns = [table.shape[1] for table, _ in tables]
    if columns[0] != columns[1]:
        raise ValueError(
            f"scores_b must have the {columns[0]} columns of scores_a, found {columns[1]}"
        )
    a = _by_class(*tables[0])
    b = _by_class(*tables[1]) if a else []
    if not a:
        return DeLongTest(*[math.nan] * 6)
    (auc_a, parts_a), (auc_b, parts_b) = _class_placements(a), _class_placements(b)
    differences = [x - y for x, y in zip(parts_a, parts_b, strict=True)]
    k = min(map(len, differences))
    error = math.sqrt(_variance_of_means(differences)) if k > 1 else 0.0
    return _compared(auc_a, auc_b, error, k)


def _table(scores: Values, target: Values, name: str = "scores") -> tuple[Array, Array]:
    """Scores (N, c) and classes of the rows."""
    table = _array(scores, name)
    if table.ndim != 2 or table.shape[1] < 2 or not len(table):
        raise ValueError(f"{name} must have shape (N, c) with c >= 2, found {table.shape}")
    classes, count = _column(target, "target", len(table)), table.shape[1]
    if wrong := set(classes.tolist()) - set(range(count)):
        raise ValueError(
            f"target must hold the classes 0 to {count - 1} only, found {sorted(wrong)[:5]}"
        )
    return table, classes


def _by_class(table: Array, classes: Array) -> list[Array]:
    """The rows of each class; none at all, and a warning, if a class has none."""
    rows = [table[classes == k] for k in range(table.shape[1])]
    if absent := [k for k, part in enumerate(rows) if not len(part)]:
        warnings.warn(f"the result is nan: target lacks class {absent}", UserWarning, stacklevel=3)
        return []
    return rows


def _ordered_pairs(count: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(count) for j in range(count) if i != j]


def _class_placements(rows: list[Array]) -> tuple[float, list[Floats]]:
    """M, and of each class's rows the placements in all pairs, added up as M adds up the AUCs."""
    pairs = _ordered_pairs(len(rows))
    parts, aucs = [np.zeros(len(part)) for part in rows], []
    for i, j in pairs:
        auc, wins, losses = _placements(rows[i][:, i], rows[j][:, i])
        parts[i] += wins / (2 * len(rows[j]) * len(pairs))
        parts[j] += losses / (2 * len(rows[i]) * len(pairs))
        aucs.append(auc)
    return math.fsum(aucs) / len(pairs), parts


def _variance_of_means(parts: list[Floats]) -> float:
    """Of the sum of the parts' means; values that are all equal give exactly zero."""
    return math.fsum(float(np.var(part - part[0], ddof=1)) / len(part) for part in parts)


def _weighted_hand_till(
    table: Array, classes: Array, weight: Array, pairs: list[tuple[int, int]]
) -> float:
    aucs = []
    for i, j in pairs:
        rows = (classes == i) | (classes == j)
        aucs.append(roc_auc(table[rows, i], classes[rows] == i, weight[rows]))
    return math.fsum(aucs) / len(aucs)


def average_precision(scores: Values, target: Values, weight: Values | None = None) -> float:
    r"""The mean of precision over the recall gained, :math:`\sum_k (R_k - R_{k-1}) P_k`.

    Precision :math:`P_k` and recall :math:`R_k` are those of the rows at or above the k-th highest
    distinct score. Scores at random get the share of positives. Arguments as in :func:`roc_auc`.

    Example:
        >>> round(average_precision([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]), 4)
        0.8333
    """
    x, positive, w = _rows(scores, target, weight)
    if not _both_classes(positive):
        return math.nan
    hits, alarms, _ = _sweep(x, positive, w)
    precision, recall = hits / (hits + alarms), hits / hits[-1]
    return float(np.diff(recall, prepend=0) @ precision)


def roc_curve(scores: Values, target: Values, weight: Values | None = None) -> ROCCurve:
    r"""The true positive rate against the false positive rate.

    These are :math:`P(s \ge t \mid y = 1)` and :math:`P(s \ge t \mid y = 0)` for the threshold t at
    infinity and at each distinct score, the highest first; ``nan`` if the class is absent.
    Arguments as in :func:`roc_auc`, which is the area under the curve.

    Example:
        >>> print(*roc_curve([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]))
        [0.  0.  0.5 0.5 1. ] [0.  0.5 0.5 1.  1. ] [ inf 0.8  0.4  0.35 0.1 ]
    """
    x, positive, w = _rows(scores, target, weight)
    _both_classes(positive)
    hits, alarms, thresholds = _sweep(x, positive, w)
    fpr, tpr = (np.append(0, sums) / (sums[-1] or math.nan) for sums in (alarms, hits))
    return ROCCurve(fpr, tpr, np.append(math.inf, thresholds))


class StreamingAUC:
    """The exact AUC of batches that come one at a time, over all ranks of a process group.

    Each row is kept in 24 bytes of host memory; nothing of the graph or of a GPU is held. The AUC
    is that of all ranks' rows together, no average: a rank may lack a class, or have no rows.

    Example:
        >>> metric = StreamingAUC()
        >>> metric.update([0.1, 0.4], [0, 0])
        >>> metric.update([0.35, 0.8], [1, 1])
        >>> metric.compute()
        0.75
    """

    def __init__(self) -> None:
        self.reset()

    def update(self, scores: Values, target: Values, weight: Values | None = None) -> None:
        """Adds a batch, with arguments as for :func:`roc_auc`; it may be of one class or empty."""
        x, positive, w = _rows(scores, target, weight)
        kept = x.astype(np.float64)
        with np.errstate(invalid="ignore"):  # the way back may leave the integers' range
            if not (kept.astype(x.dtype) == x).all():
                raise ValueError(f"scores must fit float64, found {x.dtype} values it would round")
        self._batches.append(np.stack([kept, positive, np.ones(len(x)) if w is None else w], 1))

    def compute(self) -> float:
        """The AUC of all rows so far, of all ranks; a collective call in a process group."""
        table = torch.from_numpy(np.concatenate([np.empty((0, 3)), *self._batches]))
        if world_size() > 1:
            table = carried(table)
        x, y, w = concat_over_ranks(table).cpu().numpy().T
        return roc_auc(x, y, None if (w == 1).all() else w)

    def reset(self) -> None:
        """Forgets all rows."""
        self._batches: list[Floats] = []


def _auc(positive: Array, negative: Array) -> float:
    """The share of pairs won; twice their number is an integer, since a tie counts one half."""
    few, many = sorted((positive, negative), key=len)
    ranked, settled, pairs = np.sort(few), 0, len(few) * len(many)
    if many.dtype.char in "fd" and _screening_pays(few, many):
        settled, many = _screen(ranked, many)
    twice = settled + int(_twice_below(ranked, np.sort(many)).sum())
    return (twice if few is positive else 2 * pairs - twice) / (2 * pairs)


def _screening_pays(few: Array, many: Array) -> bool:
    """Whether a screen is likely to take less time than the sorting that it saves."""
    return len(many) > 5000 and len(many) > 4 * len(few)


def _screen(
    few: Array, many: Array, cells: int | None = None, block: int = 2**16
) -> tuple[int, Array]:
    """Settles most pairs without sorting ``many``, which is what takes the time.

    A grid over ``few`` (sorted) keeps the order between its cells, so a value in a cell without any
    of ``few`` needs no comparison. Returns twice the pairs won against these, and the other values.
    If a sample says that those are most, as with ties, nothing is settled. Values are looked up in
    blocks that stay in the cache.
    """
    cells = cells or 1 << min((16 * len(few)).bit_length(), 24)
    span = min(max(float(few[-1]) - float(few[0]), 1e-30), 1e38)
    scale = few.dtype.type(cells / span)

    def cell(x: Array) -> Array:
        with np.errstate(over="ignore"):
            place = (x - few[0]) * scale
        return np.clip(place, 0, cells - 1, out=place).astype(np.int32)

    own = cell(few)
    above = np.bincount(own, minlength=cells).astype(np.int32)
    np.subtract(len(few), np.cumsum(above, out=above), out=above)
    above[own] = -1  # a cell of few, where only a comparison tells
    if np.mean(above[cell(many[:: 1 + len(many) // 4096])] < 0) > 0.5:
        return 0, many
    settled, left = 0, []
    for start in range(0, len(many), block):
        part = many[start : start + block]
        won = above[cell(part)]
        left.append(part.compress(won < 0))
        settled += int(won.sum(dtype=np.int64)) + len(left[-1])  # without the -1 of those left
    return 2 * settled, np.concatenate(left)


def _twice_below(x: Array, others: Array) -> Array:
    """Twice the number of ``others`` (sorted) below each ``x``."""
    lookup = np.searchsorted
    return lookup(others, x, side="left") + lookup(others, x, side="right")


def _placed(target: Values, **scores: Values) -> list[tuple[float, Array, Array]]:
    """The placements in each of some models' scores; nan, and a warning, if a class is missing."""
    there = [_on_gpu(values, target, None) for values in scores.values()]
    found = [None if given is None else _on_device.placements(*given[:2]) for given in there]
    done = [each for each in found if each is not None]
    if len(done) == len(scores):
        (_, positives), wins, losses = done[0]
        _warn_of_one_class(len(wins) + len(losses), positives, depth=4)
        return [(auc, wins, losses) for (auc, _), wins, losses in done]
    rows = [_rows(values, target, name=name) for name, values in scores.items()]
    if not _both_classes(rows[0][1], depth=4):
        return [(math.nan, np.empty(0), np.empty(0)) for _ in rows]
    return [_placements(*_split(x, positive)) for x, positive, _ in rows]


def _placements(positive: Array, negative: Array) -> tuple[float, Array, Array]:
    """The AUC, twice the negatives below each positive, twice the positives above each negative."""
    up, down = np.argsort(positive), np.argsort(negative)
    ups, downs = positive[up], negative[down]
    wins, losses = np.empty_like(up), np.empty_like(down)
    wins[up] = _twice_below(ups, downs)  # sorted values are looked up in neighbouring memory
    losses[down] = 2 * len(ups) - _twice_below(downs, ups)
    return int(wins.sum()) / (2 * len(ups) * len(downs)), wins, losses


def _delong_variance(wins: Array, losses: Array) -> float:
    """DeLong's variance; placements that are all equal give exactly zero, without rounding."""
    m, n = len(wins), len(losses)
    s_wins, s_losses = (_variance(counts - counts[0]) for counts in (wins, losses))
    return s_wins / (4 * n * n * m) + s_losses / (4 * m * m * n)


def _variance(x: Array) -> float:
    return float(x.double().var() if isinstance(x, Tensor) else np.var(x, ddof=1))


def _logit_interval(auc: float, variance: float, k: int, level: float) -> tuple[float, float]:
    tail = (1 - level) / 2
    if auc in (0, 1):
        edge = tail ** (1 / k)
        return (edge, 1.0) if auc else (0.0, 1 - edge)
    from statistics import NormalDist  # here, for it takes longer to import than the rest

    centre = math.log(auc / (1 - auc))
    half = -NormalDist().inv_cdf(tail) * math.sqrt(variance) / (auc * (1 - auc))
    low, high = ((1 + math.tanh((centre + side) / 2)) / 2 for side in (-half, half))
    return min(low, auc), max(high, auc)


def _sweep(x: Array, positive: Array, weight: Array | None) -> tuple[Floats, Floats, Floats]:
    """The weight of positives and of negatives at or above each distinct score, highest first."""
    order = np.argsort(x)[::-1]
    ranked, hit = x[order], positive[order]
    last = np.flatnonzero(np.append(ranked[1:] != ranked[:-1], True))  # of each run of ties
    w = np.ones(len(x)) if weight is None else weight[order] / weight.max()
    hits, alarms = (np.cumsum(np.where(side, w, 0.0))[last] for side in (hit, ~hit))
    return hits, alarms, ranked[last].astype(np.float64)


def _rows(
    scores: Values, target: Values, weight: Values | None = None, name: str = "scores"
) -> tuple[Array, Array, Array]:
    """The scores, which rows are positive, and the weights; rows of weight zero are gone."""
    x = _column(scores, name)
    y = _column(target, "target", len(x))
    check_labels(y)
    if weight is None or not len(x):
        return x, y == 1, None
    w = _column(weight, "weight", len(x)).astype(np.float64)
    check_weights(w)
    return x[w > 0], y[w > 0] == 1, w[w > 0]


def _on_gpu(
    scores: Values, target: Values, weight: Values | None
) -> tuple[Tensor, Tensor, Tensor | None] | None:
    """Tensors of shape (N,), if all that is given is on a GPU and fits together."""
    given = [scores, target] if weight is None else [scores, target, weight]
    if not all(isinstance(v, Tensor) and v.is_cuda and v.numel() for v in given):
        return None
    tensors = [_widened(v) for v in given if isinstance(v, Tensor)]
    x, y, *w = (v[:, 0] if v.shape[1:] == (1,) else v for v in tensors)
    if x.ndim != 1 or not x.is_floating_point() or any(v.shape != x.shape for v in (y, *w)):
        return None
    return x, y, w[0] if w else None


def _column(values: Values, name: str, rows: int | None = None) -> Array:
    array = _array(values, name)
    array = array[:, 0] if array.shape[1:] == (1,) else array
    if array.ndim != 1:
        raise ValueError(f"{name} must have shape (N,) or (N, 1), found {array.shape}")
    if rows not in (None, len(array)):
        raise ValueError(f"{name} must have one row per score, found {len(array)} for {rows}")
    return array


def _array(values: Values, name: str) -> Array:
    array = np.asarray(_widened(values).numpy(force=True) if isinstance(values, Tensor) else values)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} must hold real numbers, found dtype {array.dtype}")
    check_finite(name, array)
    return array


def _widened(x: Tensor) -> Tensor:
    """Without bfloat16, which NumPy lacks; float32 holds every type this small exactly."""
    return x.detach().float() if x.itemsize < 4 else x.detach()


def _both_classes(positive: Array, depth: int = 3) -> bool:
    """Whether both classes have rows; if not, warns the one who called the public function."""
    return _warn_of_one_class(len(positive), int(np.count_nonzero(positive)), depth + 1)


def _warn_of_one_class(rows: int, positives: int, depth: int) -> bool:
    if not rows:
        raise ValueError("scores must have at least one row, found none")
    if one_class := positives in (0, rows):
        found = f"target has {positives} positives and {rows - positives} negatives"
        warnings.warn(f"the result is nan: {found}", UserWarning, stacklevel=depth)
    return not one_class


def _split(x: Array, positive: Array) -> tuple[Array, Array]:
    return x[np.where(positive)], x[np.where(~positive)]  # several times as fast as a mask
