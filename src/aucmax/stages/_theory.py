"""The stages of Theorems 2 and 3."""

from __future__ import annotations

import math
from typing import Literal, get_args

from aucmax import checks
from aucmax.stages._stage import FEWEST_DUAL_SAMPLES, Stage, round_up

Algorithm = Literal["ppd-sg", "ppd-adagrad"]
ALGORITHMS = get_args(Algorithm)


def theory(
    algorithm: Algorithm = "ppd-sg",
    *,
    mu: float,
    L: float,
    sigma: float,
    p: float,
    lr: float,
    stages: int,
    lipschitz: float | None = None,
    G: float | None = None,
    d: int | None = None,
) -> list[Stage]:
    r"""The stages for which the paper proves its convergence rates.

    With the rate :math:`r = \frac{\mu / L}{5 + \mu / L}` and
    :math:`C = \frac{2}{e \ln (1 / \max(p, 1 - p))}`, Theorem 2 (``"ppd-sg"``) sets

    .. math::

        \eta_k = \eta_0 e^{-(k-1) r}, \qquad
        T_k = \frac{\max(2, 16 \tilde L^2)}{L \eta_0} e^{(k-1) r}, \qquad
        m_k = \frac{2 (\sigma^2 + C) L}{p (1-p) G^2 \eta_0 \max(2, 16 \tilde L^2)} e^{k r},

    and Theorem 3 (``"ppd-adagrad"``), with :math:`c = 1 / \sqrt{d + 3}`,

    .. math::

        \eta_k = \eta_0 e^{-(k-1) r / 2}, \qquad
        M_k = \frac{4 c}{L \eta_0} e^{(k-1) r / 2}, \qquad
        m_k = \frac{2 (\sigma^2 + C)}{p (1-p)\, \eta_0^2\, (d + 3)} e^{k r},

    where the stage ends at the stopping time of Lemma 3: ``steps`` is None and ``M`` is
    :math:`M_k`. Counts are rounded up. :math:`T_k` counts the points of the stage's average, so
    ``steps`` is :math:`T_k - 1`; it is at least 1, and ``dual_samples`` at least 2, one sample for
    each class. The theorems ask for :math:`\gamma` as in :func:`theory_gamma` and for as many
    stages as :func:`theory_stages` says.

    The constants are those of the paper's :math:`F`: the loss with ``normalize=False``.

    Args:
        algorithm: ``"ppd-sg"`` or ``"ppd-adagrad"``.
        mu: :math:`\mu`, the PL constant of :math:`\phi`, at most ``L``.
        L: the smoothness of :math:`\phi`.
        sigma: :math:`\sigma`, bound on the scores' standard deviation within each class.
        p: the probability of a positive.
        lr: :math:`\eta_0`.
        stages: :math:`K`, how many stages.
        lipschitz: :math:`\tilde L`, Lipschitz constant of the score in the weights; PPD-SG only
            (PPD-AdaGrad's stopping time asks for it).
        G: bound on the norm of the stochastic gradient; PPD-SG only.
        d: number of the model's parameters; PPD-AdaGrad only.

    Differences from the paper:
        The theorems print :math:`\max(p, 1-p)^{1 / \ln(1 / \max(p, 1-p))}` for the factor
        :math:`1/e` of :math:`C`; the two are equal. The proof of Lemma 2 bounds the mean of
        :math:`1/N` by :math:`1 / \mathbb{E} N`, with :math:`N` the samples of a class among
        :math:`m_k`; the true mean is larger, by less than a factor of two and vanishingly so as
        :math:`m_k` grows. The numbers here are the printed ones.

    Example:
        >>> from aucmax.stages import theory
        >>> for stage in theory(
        ...     "ppd-sg", mu=1, L=1, lipschitz=1, G=1, sigma=0.5, p=0.5, lr=0.1, stages=3
        ... ):
        ...     print(f"{stage.lr:.4f} {stage.steps} {stage.dual_samples}")
        0.1000 159 8
        0.0846 189 10
        0.0717 223 11
    """
    checks.choice("algorithm", algorithm, ALGORITHMS)
    rate = _rate(mu, L)
    sigma = checks.non_negative("sigma", sigma)
    p = checks.share("p", p)
    lr = checks.positive("lr", lr)
    stages = checks.count("stages", stages)
    one_class = -2 / (math.e * math.log1p(-min(p, 1 - p)))  # C: m samples may miss a class
    dual_variance = 2 * (sigma**2 + one_class) / (p * (1 - p))
    rule = []
    if algorithm == "ppd-sg":  # Theorem 2
        coupling = max(2, 16 * checks.positive("lipschitz", lipschitz) ** 2)
        G = checks.positive("G", G)
        for k in range(1, stages + 1):
            eta = lr * math.exp(-(k - 1) * rate)
            points = round_up(coupling / (L * lr) * math.exp((k - 1) * rate))
            samples = round_up(dual_variance * L / (G**2 * lr * coupling) * math.exp(k * rate))
            steps = max(1, points - 1)  # Alg. 2, line 4: t = 1, ..., T_k - 1
            rule.append(Stage(k, eta, steps, max(FEWEST_DUAL_SAMPLES, samples)))
        return rule
    d = checks.count("d", d)
    c = 1 / math.sqrt(d + 3)
    for k in range(1, stages + 1):  # Theorem 3
        eta = lr * math.exp(-(k - 1) / 2 * rate)
        M = 4 * c / (L * lr) * math.exp((k - 1) / 2 * rate)
        samples = round_up(dual_variance / (lr**2 * (d + 3)) * math.exp(k * rate))
        rule.append(Stage(k, eta, None, max(FEWEST_DUAL_SAMPLES, samples), M))
    return rule


def theory_gamma(L: float) -> float:
    r"""The prox parameter of Theorems 2 and 3, :math:`\gamma = 1 / (2 L)`.

    Args:
        L: the smoothness of :math:`\phi`, for the loss with ``normalize=False``.

    Example:
        >>> from aucmax.stages import theory_gamma
        >>> theory_gamma(L=4.0)
        0.125
    """
    return 1 / (2 * checks.positive("L", L))


def theory_stages(
    algorithm: Algorithm = "ppd-sg",
    *,
    mu: float,
    L: float,
    lr: float,
    epsilon: float,
    initial_gap: float,
    G: float | None = None,
    d: int | None = None,
) -> int:
    r"""The fewest stages after which the expected gap of :math:`\phi` is at most ``epsilon``.

    The smallest :math:`K \ge 1` with

    .. math::

        K \ge \Bigl(\frac{5 L}{\mu} + 1\Bigr)
        \max\Bigl(\ln \frac{2 \Delta_0}{\epsilon},\ \ln K + \ln \frac{B}{\epsilon}\Bigr),
        \qquad
        B = \frac{48\, G^2 \eta_0}{5} \text{ (PPD-SG)}, \quad
        B = \frac{3\, \eta_0^2 L (d + 3)}{5} \text{ (PPD-AdaGrad)}.

    The constants are those of the loss with ``normalize=False``.

    Args:
        algorithm: ``"ppd-sg"`` or ``"ppd-adagrad"``.
        mu: :math:`\mu`, the PL constant of :math:`\phi`, at most ``L``.
        L: the smoothness of :math:`\phi`.
        lr: :math:`\eta_0`.
        epsilon: :math:`\epsilon`, the gap :math:`\mathbb{E} \phi(\bar v_K) - \min \phi` wanted.
        initial_gap: :math:`\Delta_0`, a bound on the gap at the start.
        G: bound on the norm of the stochastic gradient; PPD-SG only.
        d: number of the model's parameters; PPD-AdaGrad only.

    Differences from the paper:
        Theorem 3 prints :math:`B = \eta_0^2 L / (5 c^2)`. Its proof loses a factor of three where
        :math:`\eta_j / M_j` is put into :math:`\frac{6}{5 c} \sum_j \eta_j / M_j`: since
        :math:`\eta_j / M_j = \frac{\eta_0^2 L}{4 c} e^{-(j-1) r}`, the sum's factor is
        :math:`\frac{3\, \eta_0^2 L}{10\, c^2}`, not :math:`\frac{\eta_0^2 L}{10\, c^2}`. From the
        printed number of stages the proof gives a gap of 2 ``epsilon`` only.

    Example:
        >>> from aucmax.stages import theory_stages
        >>> theory_stages("ppd-sg", mu=1, L=1, lr=0.1, epsilon=0.01, initial_gap=1, G=1)
        51
    """
    checks.choice("algorithm", algorithm, ALGORITHMS)
    rate = _rate(mu, L)
    lr = checks.positive("lr", lr)
    epsilon = checks.positive("epsilon", epsilon)
    start = checks.positive("initial_gap", initial_gap)
    if algorithm == "ppd-sg":
        noise = 48 * checks.positive("G", G) ** 2 * lr / 5
    else:
        noise = 3 * lr**2 * L * (checks.count("d", d) + 3) / 5
    # What K must reach grows with K, so the climb from 1 never passes the smallest K that does.
    stages = 1
    while stages < (needed := math.log(max(2 * start, stages * noise) / epsilon) / rate):
        stages = math.ceil(needed)
    return stages


def _rate(mu: float, L: float) -> float:
    """The exponent by which the theorems shrink the gap from stage to stage."""
    L = checks.positive("L", L)
    mu = checks.number("mu", mu, f"above 0 and at most L = {L:g}", lambda x: 0 < x <= L)
    return (mu / L) / (5 + mu / L)
