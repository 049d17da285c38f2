"""Ranking within groups: the pairwise risk, and the saddle objective with a, b, alpha per group."""

import numpy as np


def pairwise_risk(h, y, group, margin, weight=None):
    """Mean of (m - h(x+) + h(x-))^2 over all pairs within groups, and its gradient in h.

    A weighted pair counts as much as the product of its two weights.
    """
    weight = np.ones(len(h)) if weight is None else weight
    risk, gradient, total = 0.0, np.zeros(len(h)), 0.0
    for i in np.flatnonzero(y == 1):
        for j in np.flatnonzero((y == 0) & (group == group[i])):
            pair_weight = weight[i] * weight[j]
            shortfall = margin - h[i] + h[j]
            risk += pair_weight * shortfall**2
            gradient[i] -= pair_weight * 2 * shortfall
            gradient[j] += pair_weight * 2 * shortfall
            total += pair_weight
    return risk / total, gradient / total


def batch_loss(h, y, group, a, b, alpha, positives, negatives, margin, weight=None, prior=None):
    """m^2 + n / (sum P N) times the weighted mean of F, which is 0 in groups of one class.

    With a prior, positives weigh as much more as they are rarer in the batch than in the data.
    """
    weight = np.ones(len(h)) if weight is None else weight
    share = positives.sum() / (positives + negatives).sum()
    prior = share if prior is None else prior
    n = (positives + negatives).sum()
    total = 0.0
    for i, g in enumerate(group):
        w = weight[i] * (share / prior if y[i] == 1 else (1 - share) / (1 - prior))
        if positives[g] * negatives[g] == 0:
            continue
        if y[i] == 1:
            F = negatives[g] * ((h[i] - a[g]) ** 2 - 2 * (margin + alpha[g]) * h[i])
            F -= negatives[g] * alpha[g] ** 2 / 2
        else:
            F = positives[g] * ((h[i] - b[g]) ** 2 + 2 * (margin + alpha[g]) * h[i])
            F -= positives[g] * alpha[g] ** 2 / 2
        total += w * F
    return margin**2 + n / (positives * negatives).sum() * total / weight.sum()


def optimal_a_b_alpha(h, y, group, groups, weight=None):
    """Class means of each group and their difference; NaN where a group lacks a class."""
    weight = np.ones(len(h)) if weight is None else weight
    a, b = np.full(groups, np.nan), np.full(groups, np.nan)
    for g in range(groups):
        ones, zeros = (group == g) & (y == 1), (group == g) & (y == 0)
        if weight[ones].sum() > 0 and weight[zeros].sum() > 0:
            a[g] = np.average(h[ones], weights=weight[ones])
            b[g] = np.average(h[zeros], weights=weight[zeros])
    return a, b, b - a
