"""The objective of Proposition 1, its gradients by hand, and two small scoring models.

Labels are 0 and 1 where the paper writes -1 and +1. The margin m replaces the 1 in 2 (1 + alpha).
"""

import numpy as np

# ---- The pairwise risk, problem (1) of the paper -----------------------------------------------


def pairwise_risk(h, y, margin, weight=None):
    """Mean of (m - h(x+) + h(x-))^2 over all pairs, and its gradient in h.

    A weighted pair counts as much as the product of its two weights.
    """
    weight = np.ones(len(h)) if weight is None else weight
    risk, gradient, total = 0.0, np.zeros(len(h)), 0.0
    for i in np.flatnonzero(y == 1):
        for j in np.flatnonzero(y == 0):
            pair_weight = weight[i] * weight[j]
            shortfall = margin - h[i] + h[j]
            risk += pair_weight * shortfall**2
            gradient[i] -= pair_weight * 2 * shortfall
            gradient[j] += pair_weight * 2 * shortfall
            total += pair_weight
    return risk / total, gradient / total


# ---- The saddle objective, Proposition 1 -------------------------------------------------------


def F(h, y, a, b, alpha, p, margin=1.0, pq=None):
    """One value per sample; pq is the estimate of p (1 - p) in the last term (Section 4.3)."""
    pq = p * (1 - p) if pq is None else pq
    positive, negative = (y == 1), (y == 0)
    return (
        (1 - p) * (h - a) ** 2 * positive
        + p * (h - b) ** 2 * negative
        + 2 * (margin + alpha) * (p * h * negative - (1 - p) * h * positive)
        - pq * alpha**2
    )


def batch_loss(h, y, a, b, alpha, p, margin, normalize, weight=None, pq=None):
    """The (weighted) mean of F; normalized, m^2 + F / (p (1 - p)), on the scale of the risk."""
    pq = p * (1 - p) if pq is None else pq
    mean = np.average(F(h, y, a, b, alpha, p, margin, pq), weights=weight)
    return margin**2 + mean / pq if normalize else mean


def batch_gradients(h, y, a, b, alpha, p, margin, normalize, weight=None, pq=None):
    """The derivatives of batch_loss in h (one per sample), a, b and alpha."""
    pq = p * (1 - p) if pq is None else pq
    positive, negative = (y == 1), (y == 0)
    weight = np.ones(len(h)) if weight is None else weight
    share = weight / weight.sum()
    if normalize:
        share = share / pq

    dF_dh = (
        2 * (1 - p) * (h - a) * positive
        + 2 * p * (h - b) * negative
        + 2 * (margin + alpha) * (p * negative - (1 - p) * positive)
    )
    dF_da = -2 * (1 - p) * (h - a) * positive
    dF_db = -2 * p * (h - b) * negative
    dF_dalpha = 2 * (p * h * negative - (1 - p) * h * positive) - 2 * pq * alpha
    return share * dF_dh, share @ dF_da, share @ dF_db, share @ dF_dalpha


def optimal_a_b_alpha(h, y, weight=None):
    """The saddle point in a, b, alpha for given scores: class means and their difference."""
    weight = np.ones(len(h)) if weight is None else weight
    a = np.average(h[y == 1], weights=weight[y == 1])
    b = np.average(h[y == 0], weights=weight[y == 0])
    return a, b, b - a


# ---- More than two classes, Section 4.3 --------------------------------------------------------


def class_pairs(classes):
    return [(i, j) for i in range(classes) for j in range(classes) if j != i]


def multiclass_pairwise_risk(h, y, margin, weight=None):
    """Mean over class pairs (i, j) of the pairwise risk of h_i, i positive and j negative.

    h holds a row per sample and a column per class. Returns the risk and its gradient in h.
    """
    weight = np.ones(len(h)) if weight is None else weight
    risk, gradient = 0.0, np.zeros(h.shape)
    pairs = class_pairs(h.shape[1])
    for i, j in pairs:
        rows = np.flatnonzero((y == i) | (y == j))
        is_i = (y[rows] == i).astype(int)
        pair_risk, pair_gradient = pairwise_risk(h[rows, i], is_i, margin, weight[rows])
        risk += pair_risk / len(pairs)
        gradient[rows, i] += pair_gradient / len(pairs)
    return risk, gradient


def multiclass_loss(h, y, a, b, alpha, priors, margin, normalize, weight=None):
    """Mean over class pairs and samples of F_ij, equation (5); a, b, alpha are c x c."""
    pairs = class_pairs(h.shape[1])
    loss = 0.0
    for i, j in pairs:
        p_i, p_j, h_i = priors[i], priors[j], h[:, i]
        F_ij = (
            p_j * (h_i - a[i, j]) ** 2 * (y == i)
            + p_i * (h_i - b[i, j]) ** 2 * (y == j)
            + 2 * (margin + alpha[i, j]) * (p_i * h_i * (y == j) - p_j * h_i * (y == i))
            - p_i * p_j * alpha[i, j] ** 2
        )
        mean = np.average(F_ij, weights=weight)
        loss += margin**2 + mean / (p_i * p_j) if normalize else mean
    return loss / len(pairs)


def multiclass_optimal_a_b_alpha(h, y, weight=None):
    """The saddle point in a, b, alpha for given scores; zeros on the unused diagonals."""
    classes = h.shape[1]
    weight = np.ones(len(h)) if weight is None else weight
    a, b = np.zeros((classes, classes)), np.zeros((classes, classes))
    for i, j in class_pairs(classes):
        a[i, j] = np.average(h[y == i, i], weights=weight[y == i])
        b[i, j] = np.average(h[y == j, i], weights=weight[y == j])
    return a, b, b - a


# ---- Scoring models h(w; x) in [0, 1], w a flat vector -----------------------------------------


def sigmoid(z):
    return (1 + np.tanh(z / 2)) / 2


class LinearSigmoid:
    """h = sigmoid(X u + c) with w = (u, c)."""

    def __init__(self, inputs):
        self.size = inputs + 1

    def h(self, w, X):
        return sigmoid(X @ w[:-1] + w[-1])

    def vjp(self, w, X, dh):
        """The gradient in w of sum_i dh_i h(w; x_i)."""
        h = self.h(w, X)
        dz = dh * h * (1 - h)
        return np.concatenate([X.T @ dz, [dz.sum()]])


class OneHidden:
    """h = sigmoid(tanh(X W' + c) u + e) with w = (W by rows, c, u, e), the order of torch."""

    def __init__(self, inputs, hidden):
        self.inputs, self.hidden = inputs, hidden
        self.size = hidden * inputs + hidden + hidden + 1

    def split(self, w):
        W, c, u, e = np.split(w, np.cumsum([self.hidden * self.inputs, self.hidden, self.hidden]))
        return W.reshape(self.hidden, self.inputs), c, u, e

    def h(self, w, X):
        W, c, u, e = self.split(w)
        return sigmoid(np.tanh(X @ W.T + c) @ u + e)

    def vjp(self, w, X, dh):
        """The gradient in w of sum_i dh_i h(w; x_i)."""
        W, c, u, e = self.split(w)
        activation = np.tanh(X @ W.T + c)
        h = sigmoid(activation @ u + e)
        dz = dh * h * (1 - h)
        d_hidden = np.outer(dz, u) * (1 - activation**2)
        dW = d_hidden.T @ X
        return np.concatenate([dW.ravel(), d_hidden.sum(0), activation.T @ dz, [dz.sum()]])


# ---- The oracles that the algorithms walk on, v = (w, a, b) ------------------------------------


def saddle_loss(model, v, alpha, X, y, p, margin=1.0, normalize=False, pq=None):
    w, a, b = v[:-2], v[-2], v[-1]
    return batch_loss(model.h(w, X), y, a, b, alpha[0], p, margin, normalize, pq=pq)


def saddle_gradient(model, v, alpha, X, y, p, margin=1.0, normalize=False, pq=None):
    """(g_v, g_alpha): the gradient of saddle_loss, both one-dimensional arrays."""
    w, a, b = v[:-2], v[-2], v[-1]
    dh, da, db, dalpha = batch_gradients(
        model.h(w, X), y, a, b, alpha[0], p, margin, normalize, pq=pq
    )
    return np.concatenate([model.vjp(w, X, dh), [da, db]]), np.array([dalpha])


def closed_form_dual(model, X, y):
    """A function of v that gives the alpha that is best for the scores of (X, y)."""

    def dual(v):
        *_, alpha = optimal_a_b_alpha(model.h(v[:-2], X), y)  # Alg. 2, line 12
        return np.array([alpha])

    return dual
