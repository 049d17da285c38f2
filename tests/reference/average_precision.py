"""Average precision with running estimates for each positive (SOAP), pair by pair."""

import math

import numpy as np


def squared_hinge(z, margin=1.0):
    """Value and slope."""
    return max(margin - z, 0.0) ** 2, -2.0 * max(margin - z, 0.0)


def logistic(z):
    """Value and slope."""
    return math.log1p(math.exp(-z)), -1.0 / (1.0 + math.exp(z))


class RunningAveragePrecision:
    """One column of scores; ``known`` has u and u+ by row number."""

    def __init__(self, phi, prior=None, decay=0.5):
        self.phi, self.prior, self.decay, self.known = phi, prior, decay, {}

    def step(self, scores, y, weight=None, group=None, index=None):
        """Value and gradient of a batch, after which the estimates are those of this batch."""
        n = len(scores)
        weight = np.ones(n) if weight is None else weight
        group = np.zeros(n) if group is None else group
        value, gradient, total, new = 0.0, np.zeros(n), 0.0, {}
        for i in range(n):
            others = [j for j in range(n) if group[j] == group[i]]
            positives = sum(weight[j] for j in others if y[j] == 1)
            negatives = sum(weight[j] for j in others if y[j] == 0)
            if y[i] != 1 or weight[i] == 0 or negatives == 0:
                continue
            p = positives / (positives + negatives) if self.prior is None else self.prior
            # How much each row counts in the mean over all rows.
            share = {
                j: weight[j] * (p / positives if y[j] == 1 else (1 - p) / negatives)
                for j in others
                if not math.isnan(y[j])
            }
            pairs = {j: self.phi(scores[i] - scores[j]) for j in share}
            u = sum(share[j] * pairs[j][0] for j in share)
            u_plus = sum(share[j] * pairs[j][0] for j in share if y[j] == 1)
            if index is not None and index[i] in self.known:
                old_u, old_u_plus = self.known[index[i]]
                u = self.decay * old_u + (1 - self.decay) * u
                u_plus = self.decay * old_u_plus + (1 - self.decay) * u_plus
            if index is not None:
                new[index[i]] = u, u_plus  # of several copies of a row the last one
            total += weight[i]
            value += weight[i] * (1 - u_plus / u)
            for j in share:
                pull = weight[i] * share[j] * (u_plus - u * (y[j] == 1)) / u**2 * pairs[j][1]
                gradient[i] += pull
                gradient[j] -= pull
        self.known |= new
        return (value / total, gradient / total) if total else (0.0, gradient)
