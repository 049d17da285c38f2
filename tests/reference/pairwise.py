"""Pairwise losses by the double loop over positives and negatives."""

import math


def sigma(z):
    return 1 / (1 + math.exp(-z)) if z >= 0 else math.exp(z) / (1 + math.exp(z))


def phi(name, z, margin=1.0, q=0.7):
    """Value, first and second derivative of a surrogate."""
    short, s = margin - z, sigma(z)
    if name == "squared_hinge":
        return max(short, 0.0) ** 2, -2 * max(short, 0.0), 2.0 * (short > 0)
    if name == "hinge":
        return max(short, 0.0), -1.0 * (short > 0), 0.0
    if name == "square":
        return short**2, -2 * short, 2.0
    if name == "logistic":
        return -math.log(s), s - 1, s * (1 - s)
    if name == "sigmoid":
        return 1 - s, -s * (1 - s), -s * (1 - s) * (1 - 2 * s)
    assert name == "generalized"
    return (1 - s**q) / q, -(s**q) * (1 - s), s**q * (1 - s) * (s - q * (1 - s))


def pair_sums(name, scores, positive, negative, group=None, margin=1.0, scale=1.0, q=0.7):
    """Sum over one column's pairs, their mass, gradient and diagonal of the Hessian."""
    rows = range(len(scores))
    total, mass, gradient, curvature = 0.0, 0.0, [0.0 for _ in rows], [0.0 for _ in rows]
    for i in rows:
        for j in rows:
            weight = positive[i] * negative[j]
            if weight == 0 or (group is not None and group[i] != group[j]):
                continue
            value, slope, bend = phi(name, scale * (scores[i] - scores[j]), margin, q)
            total += weight * value
            mass += weight
            gradient[i] += weight * scale * slope
            gradient[j] -= weight * scale * slope
            curvature[i] += weight * scale**2 * bend
            curvature[j] += weight * scale**2 * bend
    return total, mass, gradient, curvature
