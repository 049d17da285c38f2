"""Running estimates of p and p (1 - p), Algorithm 4: as printed, and the unbiased one."""

import numpy as np


class PaperPrior:
    """Algorithm 4, word for word; begun from two labels as in the paper's commented lines."""

    def __init__(self, first, second):
        # T+ and T- count z_-2 and z_-1; p(1-p) begins at their sample variance.
        self.t_pos = first + second
        self.t_neg = 2 - self.t_pos
        self.p = self.t_pos / (self.t_pos + self.t_neg)
        self.y_bar = (first + second) / 2
        self.pq = (first - self.y_bar) ** 2 + (second - self.y_bar) ** 2
        self.j = 0

    def update(self, labels):
        labels = np.asarray(labels)
        j, m = self.j, len(labels)
        self.t_neg += np.sum(labels == 0)  # Alg. 4, line 1
        self.t_pos += np.sum(labels == 1)
        self.p = self.t_pos / (self.t_pos + self.t_neg)  # Alg. 4, line 2
        self.y_bar = ((j + 2) * self.y_bar + np.sum(labels)) / (j + m + 2)
        # y_bar already holds the labels it is subtracted from: this is where the bias comes from.
        self.pq = ((j + 1) * self.pq + np.sum((labels - self.y_bar) ** 2)) / (j + m + 1)
        self.j = j + m


class UnbiasedPrior:
    """p^ = T+ / n and n/(n-1) p^ (1 - p^), from counts begun at one pseudo-label of each class.

    With weights the counts are sums of weights, and 1/n becomes sum w^2 / (sum w)^2.
    """

    def __init__(self, pseudo_labels=1.0):
        self.t_pos = self.t_neg = pseudo_labels
        self.squares = 2 * pseudo_labels  # the pseudo-labels weigh one

    def update(self, labels, weight=None):
        labels = np.asarray(labels)
        weight = np.ones(len(labels)) if weight is None else np.asarray(weight)
        self.t_pos += weight[labels == 1].sum()
        self.t_neg += weight[labels == 0].sum()
        self.squares += (weight**2).sum()

    @property
    def p(self):
        return self.t_pos / (self.t_pos + self.t_neg)

    @property
    def pq(self):
        return self.p * (1 - self.p) / (1 - self.squares / (self.t_pos + self.t_neg) ** 2)
