"""AUC, DeLong's variance and Hand and Till's M by their definitions, over all pairs."""

import numpy as np


def wins(scores, target):
    """One row per positive, one column per negative: 1 if the positive is above, 1/2 for a tie."""
    scores, target = np.asarray(scores), np.asarray(target)
    up, down = scores[target == 1][:, None], scores[target == 0][None, :]
    return (up > down) + (up == down) / 2


def auc(scores, target, weight=None):
    weight = np.ones(len(scores)) if weight is None else np.asarray(weight, dtype=float)
    target = np.asarray(target)
    pairs = np.outer(weight[target == 1], weight[target == 0])
    return (wins(scores, target) * pairs).sum() / pairs.sum()


def covariance(x, y):
    """Sample covariance of two lists of numbers."""
    return ((x - x.mean()) * (y - y.mean())).sum() / (len(x) - 1)


def delong_covariance(a, b, target):
    """DeLong, DeLong and Clarke-Pearson (1988): the covariance of the AUCs of scores a and b."""
    wins_a, wins_b = wins(a, target), wins(b, target)
    positives, negatives = wins_a.shape
    s10 = covariance(wins_a.mean(axis=1), wins_b.mean(axis=1))
    s01 = covariance(wins_a.mean(axis=0), wins_b.mean(axis=0))
    return s10 / positives + s01 / negatives


def delong_variance(scores, target):
    return delong_covariance(scores, scores, target)


def hand_till(scores, target):
    """Hand and Till (2001): the mean over pairs {i, j} of (A(i|j) + A(j|i)) / 2."""
    scores, target = np.asarray(scores), np.asarray(target)
    c = scores.shape[1]

    def separability(i, j):
        both = (target == i) | (target == j)
        return auc(scores[both, i], (target[both] == i).astype(int))

    pairs = [(i, j) for i in range(c) for j in range(i)]
    return sum(separability(i, j) + separability(j, i) for i, j in pairs) / (c * (c - 1))


def hanley_mcneil_variance(auc, positives, negatives):
    """Hanley and McNeil (1982), equation 1, with Q1 and Q2 of exponential scores (equation 2)."""
    q1, q2 = auc / (2 - auc), 2 * auc**2 / (1 + auc)
    total = auc * (1 - auc) + (positives - 1) * (q1 - auc**2) + (negatives - 1) * (q2 - auc**2)
    return total / (positives * negatives)
