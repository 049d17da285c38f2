"""The objective for boosting: shares, gradient and curvature by loops over rows and pairs."""

import numpy as np

from reference.pairwise import phi


def hardest(keys, weight, share, group):
    """The part of each weight in the top share of its group; rows tied at the boundary share it."""
    inside = np.zeros(len(keys))
    for i in range(len(keys)):
        mates = [j for j in range(len(keys)) if group[j] == group[i]]
        above = sum(weight[j] for j in mates if keys[j] > keys[i])
        tied = sum(weight[j] for j in mates if keys[j] == keys[i])
        room = share * sum(weight[j] for j in mates) - above
        inside[i] = weight[i] * min(max(room / tied, 0.0), 1.0) if tied else 0.0
    return inside


def gradient_and_curvature(
    name, scores, y, weight, group, margin=1.0, scale=1.0, max_fpr=1.0, min_tpr=0.0
):
    """Of W+ W- / W times the mean over pairs; None if there is no pair."""
    n = len(scores)
    positive, negative = weight * (y == 1), weight * (y == 0)
    unit = positive.sum() * negative.sum() / weight.sum()
    outside = positive, negative
    positive = hardest(-scores, positive, 1 - min_tpr, group)
    negative = hardest(scores, negative, max_fpr, group)
    outside = outside[0] - positive, outside[1] - negative
    gradient, hessian, slopes, mass = np.zeros(n), np.zeros(n), np.zeros(n), 0.0
    for i in range(n):
        for j in range(n):
            pair = positive[i] * negative[j] * (group[i] == group[j])
            _, slope, bend = phi(name, scale * (scores[i] - scores[j]), margin)
            mass += pair
            gradient[i] += pair * scale * slope
            gradient[j] -= pair * scale * slope
            for k in (i, j):
                hessian[k] += pair * scale**2 * bend
                slopes[k] += pair * scale**2 * abs(slope)
    if mass == 0:
        return None
    curvature = {
        "squared_hinge": hessian,
        "square": hessian,
        "logistic": np.maximum(hessian, 0.1 * slopes),
        "hinge": slopes / margin,
    }.get(name, slopes)
    means = [curvature[w > 0].sum() / w.sum() for w in (positive, negative)]
    curvature = curvature + 0.1 * (means[0] * outside[0] + means[1] * outside[1])
    return unit / mass * gradient, 2 * unit / mass * curvature
