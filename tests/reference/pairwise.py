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


def top_share(scores, weight, share, group=None):
    """The weight of the highest scores that make up a share of the weight, group by group."""
    kept = [0.0 for _ in scores]
    for name in set(group) if group is not None else {None}:
        rows = [k for k in range(len(scores)) if group is None or group[k] == name]
        room = share * sum(weight[k] for k in rows)
        for k in sorted(rows, key=lambda k: -scores[k]):  # which keeps the order of ties
            kept[k] = min(weight[k], max(room, 0.0))
            room -= weight[k]
    return kept


def pairwise_loss(name, scores, positive, negative, group=None, shares=(1, 0), **options):
    """Value and gradient of one column.

    ``shares`` are the largest false positive rate and the smallest true positive rate.
    """
    n = top_share(scores, negative, shares[0], group)
    p = top_share([-x for x in scores], positive, 1 - shares[1], group)
    total, mass, slope, _ = pair_sums(name, scores, p, n, group, **options)
    if not mass:
        return 0.0, [0.0 for _ in scores]
    return total / mass, [x / mass for x in slope]
