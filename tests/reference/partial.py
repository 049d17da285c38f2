"""The partial AUC's square surrogate: over pairs, and as a saddle objective with thresholds."""

import numpy as np

from .objective import pairwise_risk, sigmoid


def top_share(scores, weight, share):
    """How much of each row is among the top share of the weight; tied rows alike."""
    inside, left = np.zeros(len(scores)), share * weight.sum()
    for score in sorted(set(scores), reverse=True):
        tied = scores == score
        part = min(1.0, max(left, 0.0) / weight[tied].sum())
        inside[tied] = part
        left -= weight[tied].sum()
    return inside


def members(scores, y, max_fpr, min_tpr, weight=None):
    """How much of each row counts: positives in S, negatives in T."""
    weight = np.ones(len(y)) if weight is None else weight
    inside, positive, negative = np.zeros(len(y)), y == 1, y == 0
    inside[positive] = top_share(-scores[positive], weight[positive], 1 - min_tpr)
    inside[negative] = top_share(scores[negative], weight[negative], max_fpr)
    return inside


def partial_risk(h, scores, y, margin, max_fpr, min_tpr, weight=None):
    """Mean of (m - h(x+) + h(x-))^2 over S x T, and its gradient in h."""
    weight = np.ones(len(y)) if weight is None else weight
    counted = weight * members(scores, y, max_fpr, min_tpr, weight)
    return pairwise_risk(h, y, margin, counted)


def centred(scores, y, inside, weight=None):
    """The sigmoid of scores minus the mean score of T, and the centre's slope in each score."""
    weight = np.ones(len(y)) if weight is None else weight
    of_t = weight * inside * (y == 0)
    slope = of_t / of_t.sum()
    return sigmoid(scores - slope @ scores), slope


def saddle(h, y, inside, point, p, margin, max_fpr, min_tpr, weight=None):
    """The objective of a batch at any a, b, alpha: means over S and T, by the prior if whole."""
    a, b, alpha = point
    weight = np.ones(len(y)) if weight is None else weight
    in_s, in_t = weight * inside * (y == 1), weight * inside * (y == 0)
    in_s = in_s / (in_s.sum() if min_tpr > 0 else p * weight.sum())
    in_t = in_t / (in_t.sum() if max_fpr < 1 else (1 - p) * weight.sum())
    value = in_s @ ((h - a) ** 2 - 2 * (margin + alpha) * h)
    value += in_t @ ((h - b) ** 2 + 2 * (margin + alpha) * h)
    return margin**2 + value - alpha**2
