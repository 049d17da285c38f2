"""PPD-AdaGrad: Algorithm 2 with the inner loop of Algorithm 3, and the stopping time of Lemma 3."""

from typing import NamedTuple

import numpy as np

from .ppd_sg import StageEnd


class Step(NamedTuple):
    """After one optimizer step: the iterate, the stage's average so far, and the norms s_t."""

    v: np.ndarray
    alpha: np.ndarray
    average: np.ndarray
    norms: np.ndarray


def run(grad, v0, alpha0, stages, gamma, delta, restart="average"):
    """Walk the stages and return the list of every Step and the list of every StageEnd.

    grad, stages and restart are those of ppd_sg.run. Algorithm 3 counts from u_1 = u_0^k, so its
    T_k - 1 steps give u_2, ..., u_{T_k}, and a stage's average covers u_1, ..., u_{T_k}: the
    starting point and every iterate since, as in PPD-SG.

    The paper has one v_0^k, the stage's reference, which is also where the stage starts. With
    restart="last" the two part: the prox term pulls to the reference, the average of the stage
    before, and the centre u_0^k of the dual averaging is the iterate at the stage's start.
    """
    v, alpha, reference = v0, alpha0, v0
    steps, ends = [], []
    for lr, batches, dual in stages:
        u0 = u = np.concatenate([v, alpha])  # Alg. 3, line 4: u_0^k = [v_0^k; alpha_0^k]
        gradient_sum, square_sum = np.zeros(len(u)), np.zeros(len(u))
        points = [v]
        for batch in batches:  # Alg. 3, line 1
            g_v, g_alpha = grad(v, alpha, batch)  # Alg. 3, line 2
            g = np.concatenate([g_v + (v - reference) / gamma, -g_alpha])  # Alg. 3, line 3
            gradient_sum = gradient_sum + g
            square_sum = square_sum + g**2
            norms = np.sqrt(square_sum)  # Alg. 3, line 3: s_t
            H = delta + norms  # Alg. 3, line 4
            u = u0 - lr * gradient_sum / H  # Alg. 3, line 5: the arg min, solved
            v, alpha = u[: len(v)], u[len(v) :]
            points.append(v)
            steps.append(Step(v, alpha, np.mean(points, axis=0), norms))
        average = np.mean(points, axis=0)  # Alg. 2, line 10
        if dual is not None:
            alpha = dual(average)  # Alg. 2, lines 11 and 12
        reference = average
        if restart == "average":
            v = average
        ends.append(StageEnd(average, v, alpha))
    return steps, ends


def stopping_time_reached(tau, norms, M, delta, lipschitz, c):
    """Whether a stage may end after tau gradients with these coordinate norms, Lemma 3."""
    largest = delta + np.max(norms)
    coordinates = len(norms)  # d + 3: w, a, b and alpha
    distance = largest * max(1, 8 * lipschitz**2) / c
    noise = 2 * c * (np.sum(norms) + coordinates * largest)
    return tau >= M * max(distance, noise)
