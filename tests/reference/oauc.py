"""OAUC: the primal-dual method of Ying, Wen and Lyu (2016), without its projections."""

from typing import NamedTuple

import numpy as np


class Step(NamedTuple):
    """After one optimizer step: the iterate, and the averages of the points left behind."""

    v: np.ndarray
    alpha: np.ndarray
    average: np.ndarray
    alpha_average: np.ndarray


def run(grad, v0, alpha0, batches, lr):
    """Walk the batches with step lr / sqrt(t) and return the list of every Step.

    The average after step t weighs each of v_1, ..., v_t, the points where the gradients were
    taken, by its step size; v_{t+1}, where the step leads, is not in it.
    """
    v, alpha = v0, alpha0
    steps, points, alpha_points, sizes = [], [], [], []
    for t, batch in enumerate(batches, start=1):
        g_v, g_alpha = grad(v, alpha, batch)
        points.append(v)
        alpha_points.append(alpha)
        sizes.append(lr / np.sqrt(t))
        v = v - sizes[-1] * g_v
        alpha = alpha + sizes[-1] * g_alpha
        average = np.average(points, axis=0, weights=sizes)
        alpha_average = np.average(alpha_points, axis=0, weights=sizes)
        steps.append(Step(v, alpha, average, alpha_average))
    return steps
