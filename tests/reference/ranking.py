"""Partial AUC, the points of a threshold and the AUC within groups, by their definitions."""

import itertools

import numpy as np

from reference import auc as of_pairs


def rates(scores, target, weight):
    """The corners of the ROC curve, one threshold after the other, from (0, 0)."""
    points = [(0.0, 0.0)]
    for threshold in sorted(set(scores), reverse=True):
        above = scores >= threshold
        points.append(
            tuple(weight[above & (target == k)].sum() / weight[target == k].sum() for k in (0, 1))
        )
    return points


def partial_auc(scores, target, max_fpr, min_tpr, weight):
    """The area between the curve, the line TPR = min_tpr and FPR = max_fpr, as a polygon.

    Every segment of the curve is cut where it meets the lines; what is left is a trapezoid.
    """
    area, points = 0.0, rates(scores, target, weight)
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        cuts = [0.0, 1.0]
        if x1 > x0:
            cuts.append((max_fpr - x0) / (x1 - x0))
        if y1 > y0:
            cuts.append((min_tpr - y0) / (y1 - y0))
        cuts = sorted(c for c in cuts if 0 <= c <= 1)
        for a, b in itertools.pairwise(cuts):
            middle = (a + b) / 2
            x, y = x0 + middle * (x1 - x0), y0 + middle * (y1 - y0)
            if x <= max_fpr and y >= min_tpr:
                area += (b - a) * (x1 - x0) * (y - min_tpr)
    return area


def tpr_at_fpr(scores, target, fpr, weight):
    return max(tpr for x, tpr in rates(scores, target, weight) if x <= fpr * (1 + 1e-12))


def precision_at(scores, target, room, weight):
    """Fill the room from the highest score down, tied rows in the same part."""
    hits, left = 0.0, room
    for score in sorted(set(scores[weight > 0]), reverse=True):
        tied = scores == score
        part = min(1.0, max(0.0, left) / weight[tied].sum())
        hits += part * weight[tied & (target == 1)].sum()
        left -= part * weight[tied].sum()
    return hits / room


def grouped_auc(scores, target, group, weight, mean):
    """Every pair of every group."""
    won, pairs = [], []
    for each in sorted(set(group)):
        rows = (group == each) & (weight > 0)
        if len(set(target[rows])) == 2:
            up, down = (weight[rows & (target == k)].sum() for k in (1, 0))
            won.append(of_pairs.auc(scores[rows], target[rows], weight[rows]))
            pairs.append(up * down)
    return np.mean(won) if mean else np.average(won, weights=pairs)
