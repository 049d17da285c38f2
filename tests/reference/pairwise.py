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


def pairwise_loss(
    name, scores, positive, negative, group=None, memory=None, shares=(1, 0), **options
):
    """Value and gradient of one column.

    ``memory`` holds (score, weight, group) of the last positives and of the last negatives,
    ``shares`` the largest false positive rate and the smallest true positive rate.
    """
    past = ([], []) if memory is None else memory
    s = [*scores, *(x[0] for part in past for x in part)]
    p = [*positive, *(x[1] for x in past[0]), *(0.0 for _ in past[1])]
    n = [*negative, *(0.0 for _ in past[0]), *(x[1] for x in past[1])]
    g = None if group is None else [*group, *(x[2] for part in past for x in part)]
    n = top_share(s, n, shares[0], g)
    p = top_share([-x for x in s], p, 1 - shares[1], g)
    rows = len(scores)
    halves = [(p, n)]
    if memory is not None:
        own = [float(k < rows) for k in range(len(s))]
        halves = [
            ([x * y for x, y in zip(p, own, strict=True)], n),
            (p, [x * y for x, y in zip(n, own, strict=True)]),
        ]
    found = [pair_sums(name, s, up, down, g, **options) for up, down in halves]
    found = [(total / mass, [x / mass for x in slope]) for total, mass, slope, _ in found if mass]
    if not found:
        return 0.0, [0.0 for _ in scores]
    gradients = [sum(x) / len(found) for x in zip(*(slope for _, slope in found), strict=True)]
    return sum(value for value, _ in found) / len(found), gradients[:rows]


class Memory:
    """The last scores of each class, as plain lists."""

    def __init__(self, size):
        self.size, self.rows = size, ([], [])

    def add(self, scores, positive, negative, group):
        for part, weight in zip(self.rows, (positive, negative), strict=True):
            rows = zip(scores, weight, group, strict=True)
            part.extend(row for row in rows if row[1] > 0)
            del part[: -self.size]
