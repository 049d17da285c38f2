r"""The stages of training and the rules for their step sizes; plain numbers, no torch.

A stage :math:`k = 1, 2, \ldots` is a run of optimizer steps at one learning rate around one
reference point. A rule says how long each stage lasts, at which learning rate, and how many fresh
samples set the dual variable when it ends:

==================== ============================= ======================================
rule                 learning rate, length         meant for
==================== ============================= ======================================
:func:`geometric`    / 3, x 3 from stage to stage  practice (Section 5 of the paper)
:func:`polynomial`   / k, x k^2                    PGA (Algorithm 1)
:func:`theory`       Theorem 2 or Theorem 3        problems whose constants are known
:func:`plateau`      / 3 when validation saturates practice (Section 4.3)
==================== ============================= ======================================

Every rule checks its arguments when it is called and gives stages in order; all but
:func:`plateau` give a list, so the steps of a whole run are ``sum(stage.steps for stage in rule)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, Literal, Protocol

__all__ = [
    "Plateau",
    "Stage",
    "geometric",
    "plateau",
    "polynomial",
    "theory",
    "theory_gamma",
    "theory_stages",
]

Algorithm = Literal["ppd-sg", "ppd-adagrad"]

FEWEST_DUAL_SAMPLES = 2  # the closed form of alpha needs a sample of each class


class HasParamGroups(Protocol):
    """What :meth:`Stage.set_lr` needs of an optimizer."""

    param_groups: list[dict[str, Any]]


@dataclass(frozen=True)
class Stage:
    r"""One stage of training.

    Attributes:
        index: the stage's number :math:`k`, counted from 1.
        lr: the learning rate :math:`\eta_k`.
        steps: optimizer steps in the stage; None where the stage ends by another rule.
        dual_samples: fresh samples :math:`m_k` that set the dual variable when the stage ends;
            0 where the dual variable is averaged instead.
        M: the factor :math:`M_k` of the stopping time of Lemma 3; None elsewhere.
    """

    index: int
    lr: float
    steps: int | None
    dual_samples: int
    M: float | None = None

    def set_lr(self, optimizer: HasParamGroups) -> None:
        """Write the stage's learning rate into every parameter group of ``optimizer``.

        A learning rate that is a tensor is filled, so that a compiled step sees the new value.
        """
        for group in optimizer.param_groups:
            if hasattr(group["lr"], "fill_"):
                group["lr"].fill_(self.lr)
            else:
                group["lr"] = self.lr


def geometric(
    lr: float = 0.1,
    steps: int = 2000,
    factor: float = 3.0,
    *,
    stages: int = 4,
    dual_samples: int = 384,
) -> list[Stage]:
    r"""Learning rates that fall, and stages that grow, by a constant factor.

    .. math::

        \eta_k = \eta_0 / q^{k-1}, \qquad
        \text{steps}_k = \lceil T_0\, q^{k-1} \rceil, \qquad
        m_k = \lceil m_1\, q^{k-1} \rceil.

    The defaults are the paper's experiments: four stages of :math:`2000 \cdot 3^{k-1}` steps are
    its 80,000 iterations, and 384 samples are three of its batches of 128.

    Args:
        lr: :math:`\eta_0`, the first stage's learning rate.
        steps: :math:`T_0`, the first stage's optimizer steps.
        factor: :math:`q`, above 1.
        stages: how many stages.
        dual_samples: :math:`m_1`, fresh samples at the first stage's end, at least 2.

    Example:
        >>> from aucmax.stages import geometric
        >>> rule = geometric(lr=0.1, steps=2000, factor=3)
        >>> [stage.steps for stage in rule]
        [2000, 6000, 18000, 54000]
        >>> sum(stage.steps for stage in rule)
        80000
    """
    lr = _positive("lr", lr)
    steps = _count("steps", steps)
    factor = _number("factor", factor, "a finite number > 1", lambda q: 1 < q < math.inf)
    stages = _count("stages", stages)
    dual_samples = _count("dual_samples", dual_samples, least=FEWEST_DUAL_SAMPLES)
    return [
        Stage(
            index=k,
            lr=lr / factor ** (k - 1),
            steps=_round_up(steps * factor ** (k - 1)),
            dual_samples=_round_up(dual_samples * factor ** (k - 1)),
        )
        for k in range(1, stages + 1)
    ]


def polynomial(lr: float = 0.1, steps: int = 200, *, stages: int = 10) -> list[Stage]:
    r"""The step sizes of PGA (Algorithm 1, line 3).

    .. math::

        \eta_k = \eta_0 / k, \qquad T_k = T_0\, k^2.

    PGA averages its dual variable, so no stage asks for fresh samples. Ten stages of
    :math:`200\, k^2` steps are 77,000 iterations, near the paper's 80,000.

    Args:
        lr: :math:`\eta_0`, the first stage's learning rate.
        steps: :math:`T_0`, the first stage's optimizer steps.
        stages: how many stages.

    Example:
        >>> from aucmax.stages import polynomial
        >>> [(stage.lr, stage.steps) for stage in polynomial(lr=0.1, steps=200, stages=2)]
        [(0.1, 200), (0.05, 800)]
    """
    lr = _positive("lr", lr)
    steps = _count("steps", steps)
    stages = _count("stages", stages)
    return [
        Stage(index=k, lr=lr / k, steps=steps * k**2, dual_samples=0) for k in range(1, stages + 1)
    ]


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
    _check_algorithm(algorithm)
    rate = _rate(mu, L)
    sigma = _number("sigma", sigma, "a finite number >= 0", lambda s: 0 <= s < math.inf)
    p = _number("p", p, "strictly between 0 and 1", lambda p: 0 < p < 1)
    lr = _positive("lr", lr)
    stages = _count("stages", stages)
    one_class = -2 / (math.e * math.log1p(-min(p, 1 - p)))  # C: m samples may miss a class
    dual_variance = 2 * (sigma**2 + one_class) / (p * (1 - p))
    if algorithm == "ppd-sg":
        lipschitz, G = _positive("lipschitz", lipschitz), _positive("G", G)
        return [
            _theorem_2(k, rate, L, lipschitz, G, dual_variance, lr) for k in range(1, stages + 1)
        ]
    d = _count("d", d)
    return [_theorem_3(k, rate, L, d, dual_variance, lr) for k in range(1, stages + 1)]


def theory_gamma(L: float) -> float:
    r"""The prox parameter of Theorems 2 and 3, :math:`\gamma = 1 / (2 L)`.

    Args:
        L: the smoothness of :math:`\phi`, for the loss with ``normalize=False``.

    Example:
        >>> from aucmax.stages import theory_gamma
        >>> theory_gamma(L=4.0)
        0.125
    """
    return 1 / (2 * _positive("L", L))


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
    _check_algorithm(algorithm)
    rate = _rate(mu, L)
    lr = _positive("lr", lr)
    epsilon = _positive("epsilon", epsilon)
    start = _positive("initial_gap", initial_gap)
    if algorithm == "ppd-sg":
        noise = 48 * _positive("G", G) ** 2 * lr / 5
    else:
        noise = 3 * lr**2 * L * (_count("d", d) + 3) / 5
    # What K must reach grows with K, so the climb from 1 never passes the smallest K that does.
    stages = 1
    while stages < (needed := math.log(max(2 * start, stages * noise) / epsilon) / rate):
        stages = math.ceil(needed)
    return stages


class Plateau:
    """Stages that end when the validation AUC saturates; made by :func:`plateau`.

    Iterating gives the stages, always from the first. The caller trains in each one until
    :meth:`report` says that it has saturated, or moves on earlier if it likes.
    """

    def __init__(self, stages: Sequence[Stage], patience: int, min_gain: float) -> None:
        self.stages = stages
        self.patience = patience
        self.min_gain = min_gain
        self._begin_stage()

    def __iter__(self) -> Iterator[Stage]:
        for stage in self.stages:
            self._begin_stage()
            yield stage

    def __len__(self) -> int:
        return len(self.stages)

    def _begin_stage(self) -> None:
        self._best = -math.inf
        self._reports_without_gain = 0

    def report(self, auc: float) -> bool:
        """Take note of a validation AUC and say whether the stage has saturated.

        Args:
            auc: the AUC on validation data, between 0 and 1.

        Returns:
            True once ``patience`` reports in a row were not above the stage's best AUC by more
            than ``min_gain``; the stage's first report counts as a gain.
        """
        auc = _number("auc", auc, "between 0 and 1", lambda x: 0 <= x <= 1)
        if auc > self._best + self.min_gain:
            self._best = auc
            self._reports_without_gain = 0
        else:
            self._reports_without_gain += 1
        return self._reports_without_gain >= self.patience


def plateau(
    lr: float = 0.1,
    factor: float = 3.0,
    *,
    patience: int = 5,
    min_gain: float = 0.0,
    stages: int = 4,
    dual_samples: int = 384,
) -> Plateau:
    r"""Learning rates that fall by a constant factor when the validation AUC saturates.

    Stage :math:`k` has :math:`\eta_k = \eta_0 / q^{k-1}` and
    :math:`m_k = \lceil m_1\, q^{k-1} \rceil`. Its ``steps`` is None: it lasts until
    :meth:`Plateau.report` returns True.

    Args:
        lr: :math:`\eta_0`, the first stage's learning rate.
        factor: :math:`q`, above 1.
        patience: reports in a row without a gain that end a stage.
        min_gain: the AUC must beat the stage's best by more than this to count as a gain.
        stages: how many stages.
        dual_samples: :math:`m_1`, fresh samples at the first stage's end, at least 2.

    Example:
        >>> from aucmax.stages import plateau
        >>> validation = iter([0.70, 0.80, 0.80, 0.79, 0.85, 0.86, 0.86, 0.86])
        >>> def train_and_evaluate(lr):
        ...     return next(validation)
        >>> rule = plateau(lr=0.3, factor=3, patience=2, stages=2)
        >>> for stage in rule:
        ...     saturated = False
        ...     while not saturated:
        ...         auc = train_and_evaluate(stage.lr)
        ...         saturated = rule.report(auc)
        ...     print(f"stage {stage.index} ended at lr {stage.lr:.1f}, AUC {auc}")
        stage 1 ended at lr 0.3, AUC 0.79
        stage 2 ended at lr 0.1, AUC 0.86
    """
    patience = _count("patience", patience)
    min_gain = _number("min_gain", min_gain, "at least 0 and below 1", lambda x: 0 <= x < 1)
    timed = geometric(lr, 1, factor, stages=stages, dual_samples=dual_samples)
    return Plateau([replace(stage, steps=None) for stage in timed], patience, min_gain)


def _theorem_2(
    k: int, rate: float, L: float, lipschitz: float, G: float, dual_variance: float, lr: float
) -> Stage:
    """Stage ``k`` of PPD-SG as Theorem 2 sets it."""
    coupling = max(2, 16 * lipschitz**2)
    points = _round_up(coupling / (L * lr) * math.exp((k - 1) * rate))
    samples = _round_up(dual_variance * L / (G**2 * lr * coupling) * math.exp(k * rate))
    return Stage(
        index=k,
        lr=lr * math.exp(-(k - 1) * rate),
        steps=max(1, points - 1),  # Alg. 2, line 4: t = 1, ..., T_k - 1
        dual_samples=max(FEWEST_DUAL_SAMPLES, samples),
    )


def _theorem_3(k: int, rate: float, L: float, d: int, dual_variance: float, lr: float) -> Stage:
    """Stage ``k`` of PPD-AdaGrad as Theorem 3 sets it."""
    c = 1 / math.sqrt(d + 3)
    samples = _round_up(dual_variance / (lr**2 * (d + 3)) * math.exp(k * rate))
    return Stage(
        index=k,
        lr=lr * math.exp(-(k - 1) / 2 * rate),
        steps=None,
        dual_samples=max(FEWEST_DUAL_SAMPLES, samples),
        M=4 * c / (L * lr) * math.exp((k - 1) / 2 * rate),
    )


def _rate(mu: float, L: float) -> float:
    """The exponent by which the theorems shrink the gap from stage to stage."""
    L = _positive("L", L)
    mu = _number("mu", mu, f"above 0 and at most L = {L:g}", lambda x: 0 < x <= L)
    return (mu / L) / (5 + mu / L)


def _round_up(x: float) -> int:
    """The smallest integer not below ``x``, where ``x`` carries the noise of a few roundings.

    ``100 * 1.1**2`` is 121.00000000000001 in floating point and means 121.
    """
    nearest = round(x)
    return nearest if math.isclose(x, nearest, rel_tol=1e-12) else math.ceil(x)


def _number(name: str, value: object, allowed: str, test: Callable[[float], bool]) -> float:
    """Return ``value`` as a float if it is a real number that passes ``test``."""
    if not (isinstance(value, Real) and test(float(value))):
        raise ValueError(f"{name} must be {allowed}, found {value!r}")
    return float(value)


def _positive(name: str, value: object) -> float:
    return _number(name, value, "a finite number > 0", lambda x: 0 < x < math.inf)


def _count(name: str, value: object, least: int = 1) -> int:
    if not (isinstance(value, Integral) and int(value) >= least):
        raise ValueError(f"{name} must be an integer >= {least}, found {value!r}")
    return int(value)


def _check_algorithm(algorithm: str) -> None:
    if algorithm not in ("ppd-sg", "ppd-adagrad"):
        raise ValueError(f"algorithm must be 'ppd-sg' or 'ppd-adagrad', found {algorithm!r}")
