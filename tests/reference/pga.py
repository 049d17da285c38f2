"""PGA, Algorithm 1."""

from typing import NamedTuple

import numpy as np


class Step(NamedTuple):
    """After one optimizer step: the iterate, and the averages of the stage so far."""

    v: np.ndarray
    alpha: np.ndarray
    average: np.ndarray
    alpha_average: np.ndarray


class StageEnd(NamedTuple):
    """After one stage: its averages, where the next stage begins."""

    v: np.ndarray
    alpha: np.ndarray


def project(x, radius):
    """The point nearest to x in the ball around zero."""
    norm = np.linalg.norm(x)
    return x if norm <= radius else x * (radius / norm)


def run(grad, v0, alpha0, stages, gamma, R1, R2):
    """Walk the stages and return the list of every Step and the list of every StageEnd.

    grad(v, alpha, batch) gives the pair (g_v, g_alpha). A stage is (lr, batches), one batch per
    optimizer step. Lines 11 and 12, the uniform draw among the StageEnds, are left to the caller.
    """
    v, alpha = v0, alpha0  # line 1
    steps, ends = [], []
    for lr, batches in stages:  # line 2
        reference = v  # line 3: v_0^k
        v_points, alpha_points = [], []
        for batch in batches:  # line 4: t = 1, ..., T_k
            g_v, g_alpha = grad(v, alpha, batch)  # line 5
            v = project(v - lr * (g_v + (v - reference) / gamma), R1)  # line 6
            alpha = project(alpha + lr * g_alpha, R2)  # line 7
            v_points.append(v)
            alpha_points.append(alpha)
            averages = np.mean(v_points, axis=0), np.mean(alpha_points, axis=0)
            steps.append(Step(v, alpha, *averages))
        v, alpha = averages  # line 9, and line 3 of the next stage
        ends.append(StageEnd(v, alpha))
    return steps, ends
