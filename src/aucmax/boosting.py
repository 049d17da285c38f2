r"""AUC, partial AUC and ranking within groups as custom objectives of LightGBM and XGBoost.

:class:`AUCObjective` gives either library the gradient and the curvature of a loss on pairs, and
:class:`AUCMetric` evaluates by the AUC. Both take what the libraries pass in their own training
functions and in their scikit-learn estimators, with weights and groups of rows::

    lightgbm.train({"objective": AUCObjective(), "metric": "none"}, data, feval=AUCMetric())
    lightgbm.LGBMClassifier(objective=AUCObjective())
    xgboost.train({}, data, obj=AUCObjective(), custom_metric=AUCMetric())
    xgboost.XGBClassifier(objective=AUCObjective(), eval_metric=AUCMetric())

Neither library is imported here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aucmax import checks
from aucmax.loss.pairwise import Surrogate, as_rates, pair_means, top_share
from aucmax.metrics import grouped_auc, partial_auc, roc_auc
from aucmax.row_groups import number_groups

Floats = NDArray[np.float64]

STEEP = 0.1
"""The curvature of a logistic pair is at least this share of its slope."""
OUTSIDE = 0.1
"""The curvature of rows that do not count, as a share of the mean over those that do."""


class AUCObjective:
    r"""Gradient and curvature of a surrogate of the AUC over all pairs of training rows.

    With S the positives, T the negatives, :math:`\phi` a surrogate, and :math:`W_\pm` the weights
    of the classes, :math:`W = W_+ + W_-`, the objective in the scores s is

    .. math::

        \frac{W_+ W_-}{W} \operatorname*{mean}_{i \in S,\, j \in T} \phi(c (s_i - s_j)).

    The factor makes gradients those of the libraries' own logistic loss in size: at the start
    :math:`-\phi'(0)` times :math:`y - p`. So learning rates and the least sum of curvatures in a
    leaf mean what they are used to mean, with one difference: rows of the rarer class have the
    larger curvature, as under ``is_unbalance`` or ``scale_pos_weight``.

    A pair's second derivative counts twice for each of its rows, since both move at once and
    :math:`(d_i - d_j)^2 \le 2 d_i^2 + 2 d_j^2`: trees take Newton's steps on an upper bound. A
    surrogate whose second derivative is zero or negative somewhere (hinge, sigmoid, generalized)
    has its slope in the place of it, :math:`c^2 |\phi'|`, over the margin for the hinge; for the
    logistic a tenth of that is the least.

    For the partial AUC, T is the top ``max_fpr`` share of the negatives by score, and S the lowest
    ``1 - min_tpr`` share of the positives; rows tied on a boundary count in part. Rows outside of
    them have no gradient, but a tenth of the mean curvature: else a leaf would carry them along
    with a single positive, all the way to the top. Small shares need small learning rates and many
    trees. With groups, only pairs within a group count, and S and T are shares of each group.
    Hinges and the square cost O(N log N) by one sort; the others go through all pairs.

    Pairs do not see an offset of all scores: predictions are raw scores around zero that rank and
    are no log-odds (:func:`aucmax.judge.calibration.fit_platt` makes probabilities of them).

    Args:
        surrogate: "squared_hinge", "hinge", "square", "logistic", "sigmoid" or "generalized".
        margin: by how much positives should outrank negatives; of the hinges and the square.
        scale: c, the factor of a difference of scores.
        q: of the generalized surrogate.
        max_fpr: the largest false positive rate that counts, in (0, 1].
        min_tpr: the smallest true positive rate that counts, in [0, 1).
        group: of each training row, integers or texts. None: that of the library's data, if it has
            been given one, as sizes of groups of rows one after the other.

    Raises:
        ValueError: when called, if labels are not 0 and 1, or no group has both.

    Example:
        >>> import numpy as np
        >>> from aucmax.boosting import AUCObjective
        >>> gradient, curvature = AUCObjective()(np.array([1, 0, 0, 0]), np.zeros(4))
        >>> gradient, curvature  # as the libraries call it
        (array([-1.5,  0.5,  0.5,  0.5]), array([3., 1., 1., 1.]))
    """

    def __init__(
        self,
        surrogate: str = "squared_hinge",
        *,
        margin: float = 1.0,
        scale: float = 1.0,
        q: float = 0.7,
        max_fpr: float = 1.0,
        min_tpr: float = 0.0,
        group: Any = None,
    ) -> None:
        self.surrogate = Surrogate(surrogate, margin, scale, q)
        self.max_fpr, self.min_tpr = as_rates(max_fpr, min_tpr)
        self.group = None if group is None else number_groups(group).numpy()

    def __call__(
        self, first: Any, second: Any, sample_weight: Any = None, group: Any = None
    ) -> tuple[Floats, Floats]:
        """Return gradient and curvature of each row; the libraries call it.

        Args:
            first: scores, or labels where scikit-learn's estimators call.
            second: the library's data, or scores where scikit-learn's estimators call.
            sample_weight: of each row, where there is no data to ask.
            group: sizes of groups, where there is no data to ask.
        """
        rows = _read(first, second, sample_weight, group, self.group)
        weight = 1.0 if rows.weight is None else rows.weight
        positives, negatives = weight * rows.labels, weight * (1.0 - rows.labels)
        p = _hardest(-rows.scores, positives, 1.0 - self.min_tpr, rows.group)
        n = _hardest(rows.scores, negatives, self.max_fpr, rows.group)
        name, scale = self.surrogate.name, self.surrogate.scale
        curved = name in ("squared_hinge", "square", "logistic")
        s = rows.scores[None]
        means = pair_means(s, p[None], n[None], rows.group, self.surrogate, curved)
        gradient = means.gradient[0]
        if not means.mass[0] > 0:
            among = "target" if rows.group is None else "target, in some group,"
            raise ValueError(
                f"{among} must hold both classes, found weights {positives.sum():g} of positives "
                f"and {negatives.sum():g} of negatives"
            )
        steps = np.abs(gradient) * scale / (self.surrogate.margin if name == "hinge" else 1.0)
        curvature = means.curvature[0] if curved else steps
        if name == "logistic":
            curvature = np.maximum(curvature, STEEP * steps)
        unit = positives.sum() * negatives.sum() / (positives.sum() + negatives.sum())
        curvature = 2.0 * unit * curvature
        outside = np.zeros_like(curvature)
        for inside, of_class in ((p, positives), (n, negatives)):
            if inside is not of_class:
                mean = curvature[inside > 0].sum() / inside.sum()
                outside += OUTSIDE * mean * (of_class - inside)
        return unit * gradient, curvature + outside

    def __repr__(self) -> str:
        options = {**vars(self.surrogate), "max_fpr": self.max_fpr, "min_tpr": self.min_tpr}
        said = [repr(options.pop("name")), *(f"{name}={x:g}" for name, x in options.items())]
        said += [] if self.group is None else ["group=..."]
        return f"AUCObjective({', '.join(said)})"


class AUCMetric:
    """The AUC, whole, in part or within groups, to evaluate and to stop by.

    It is :func:`aucmax.metrics.roc_auc` or :func:`aucmax.metrics.partial_auc`; where the library's
    data has groups, :func:`aucmax.metrics.grouped_auc`. Its name begins with "auc", by which
    XGBoost's early stopping knows that more is better.

    Args:
        max_fpr: the largest false positive rate that counts, in (0, 1].
        min_tpr: the smallest true positive rate that counts, in [0, 1).

    Example:
        >>> import numpy as np
        >>> from aucmax.boosting import AUCMetric
        >>> AUCMetric(max_fpr=0.5)(np.array([0, 0, 1, 1]), np.array([0.1, 0.4, 0.35, 0.8]))
        0.25
    """

    def __init__(self, *, max_fpr: float = 1.0, min_tpr: float = 0.0) -> None:
        self.max_fpr, self.min_tpr = as_rates(max_fpr, min_tpr)
        self.whole = self.max_fpr == 1 and self.min_tpr == 0
        low = f" above {self.min_tpr:g}" if self.min_tpr else ""
        self.__name__ = "auc" if self.whole else f"auc@{self.max_fpr:g}{low}"

    def __call__(self, first: Any, second: Any, sample_weight: Any = None, group: Any = ...) -> Any:
        """Return what the library expects: name, value, and for LightGBM that more is better.

        Arguments as those of :class:`AUCObjective`; XGBoost's estimators, which know no groups,
        expect the value alone.
        """
        rows = _read(first, second, sample_weight, None if group is ... else group, None)
        s, y, weight = rows.scores, rows.labels, rows.weight
        if not self.whole and rows.group is not None:
            raise ValueError(
                f"max_fpr and min_tpr must be 1 and 0 for data with groups, "
                f"found {self.max_fpr:g} and {self.min_tpr:g}"
            )
        if rows.group is not None:
            value = grouped_auc(s, y, rows.group, weight=weight)
        elif self.whole:
            value = roc_auc(s, y, weight=weight)
        else:
            value = partial_auc(s, y, max_fpr=self.max_fpr, min_tpr=self.min_tpr, weight=weight)
        if not hasattr(second, "get_label") and group is ...:
            return value
        of_xgboost = type(second).__module__.startswith("xgboost")
        return (self.__name__, value) if of_xgboost else (self.__name__, value, True)

    def __repr__(self) -> str:
        return f"AUCMetric(max_fpr={self.max_fpr:g}, min_tpr={self.min_tpr:g})"


class _Rows(NamedTuple):
    """The rows of a library's data."""

    scores: Floats
    labels: Floats
    weight: Floats | None
    group: NDArray[np.int64] | None


def _read(first: Any, second: Any, weight: Any, sizes: Any, group: Any) -> _Rows:
    """Return scores, labels, weights and groups, checked, however the library passes them.

    Its own training functions call with scores and data, its scikit-learn estimators with labels
    and scores.
    """
    labels, scores = first, second
    if hasattr(second, "get_label"):
        labels, scores = second.get_label(), first
        weight, sizes = second.get_weight(), second.get_group()
    labels, scores = (np.asarray(x, np.float64) for x in (labels, scores))
    n = len(scores)
    if scores.ndim != 1 or labels.shape != (n,):
        raise ValueError(
            f"a row must have one score and one label, found scores of shape {scores.shape} and "
            f"labels of shape {labels.shape}"
        )
    checks.check_finite("scores", scores, hint="; lower the learning rate")
    checks.check_labels(labels)
    sizes = None if sizes is None or len(sizes) == 0 else np.asarray(sizes, np.int64)
    if group is None and sizes is not None:
        group = np.repeat(np.arange(len(sizes)), sizes)
    if group is not None and len(group) != n:
        raise ValueError(f"group must have an entry for each of {n} rows, found {len(group)}")
    if weight is None or len(weight) == 0:
        return _Rows(scores, labels, None, group)
    weight = np.asarray(weight, np.float64)
    if sizes is not None and len(weight) == len(sizes) != n:  # XGBoost weighs groups
        weight = np.repeat(weight, sizes)
    if weight.shape != (n,):
        raise ValueError(f"weight must have an entry for each of {n} rows, found {weight.size}")
    checks.check_weights(weight)
    return _Rows(scores, labels, weight, group)


def _hardest(keys: Floats, weight: Floats, share: float, group: NDArray[np.int64] | None) -> Floats:
    """Return the part of each row's weight in the top share of its group; ties share alike."""
    if share == 1:
        return weight
    kept = top_share(keys[None], weight[None], share, group)[0]
    tied = np.unique(keys, return_inverse=True)[1]
    if group is not None:
        tied = np.unique(group * (tied.max() + 1) + tied, return_inverse=True)[1]
    inside = np.bincount(tied, kept) / np.maximum(np.bincount(tied, weight), 1e-300)
    return weight * inside[tied]
