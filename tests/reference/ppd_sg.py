"""PPD-SG, Algorithm 2."""

from typing import NamedTuple

import numpy as np


class Step(NamedTuple):
    """After one optimizer step: the iterate, and the average of the stage so far."""

    v: np.ndarray
    alpha: np.ndarray
    average: np.ndarray


class StageEnd(NamedTuple):
    """After one stage: its average, and where the next stage begins."""

    average: np.ndarray
    v: np.ndarray
    alpha: np.ndarray


def run(grad, v0, alpha0, stages, gamma, restart="average"):
    """Walk the stages and return the list of every Step and the list of every StageEnd.

    grad(v, alpha, batch) gives the pair (g_v, g_alpha). A stage is (lr, batches, dual): one batch
    per optimizer step, and dual(average) for alpha at the stage's end, or None to let alpha go on.

    restart="average" is Algorithm 2. With "last" the average becomes the reference only: the
    iterate goes on from where it is, and the next stage's average starts there.
    """
    v, alpha, reference = v0, alpha0, v0  # line 1
    steps, ends = [], []
    for lr, batches, dual in stages:  # line 2
        points = [v]  # line 3: v_0^k
        for batch in batches:  # line 4: t = 1, ..., T_k - 1
            g_v, g_alpha = grad(v, alpha, batch)  # line 5
            v = v - lr * (g_v + (v - reference) / gamma)  # line 6
            alpha = alpha + lr * g_alpha  # line 7
            points.append(v)
            steps.append(Step(v, alpha, np.mean(points, axis=0)))
        average = np.mean(points, axis=0)  # line 10: v_0^k, ..., v_{T_k - 1}^k
        if dual is not None:
            alpha = dual(average)  # lines 11 and 12
        reference = average  # line 3 of the next stage
        if restart == "average":
            v = average
        ends.append(StageEnd(average, v, alpha))
    return steps, ends
