r"""The stages of training and the rules for their step sizes: plain numbers.

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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, get_args

from aucmax import checks

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

FEWEST_DUAL_SAMPLES = 2  # the closed form of alpha needs a sample of each class


class HasParamGroups(Protocol):
    """The part of an optimizer that :meth:`Stage.set_lr` uses."""

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

    Example:
        >>> import torch
        >>> from aucmax.stages import Stage
        >>> optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
        >>> Stage(index=1, lr=0.1, steps=100, dual_samples=384).set_lr(optimizer)
        >>> optimizer.param_groups[0]["lr"]
        0.1
    """

    index: int
    lr: float
    steps: int | None
    dual_samples: int
    M: float | None = None

    def set_lr(self, optimizer: HasParamGroups) -> None:
        """Set the learning rate of the first parameter group, and scale the others with it.

        The groups keep the ratios of their learning rates; if the first one's is zero, all groups
        get the stage's. A learning rate that is a tensor is filled, so that a compiled step sees
        the new value.

        Example:
            >>> import torch
            >>> from aucmax.stages import Stage
            >>> w, a = torch.zeros(2, requires_grad=True), torch.zeros(1, requires_grad=True)
            >>> optimizer = torch.optim.SGD([{"params": w}, {"params": a, "lr": 1.0}], lr=0.5)
            >>> Stage(index=2, lr=0.25, steps=100, dual_samples=384).set_lr(optimizer)
            >>> [group["lr"] for group in optimizer.param_groups]
            [0.25, 0.5]
        """
        old = [float(group["lr"]) for group in optimizer.param_groups]
        for group, own in zip(optimizer.param_groups, old, strict=True):
            lr = self.lr if own == old[0] or old[0] == 0 else own * (self.lr / old[0])
            if hasattr(group["lr"], "fill_"):
                group["lr"].fill_(lr)
            else:
                group["lr"] = lr


def round_up(x: float) -> int:
    """Return the smallest integer not below ``x``, up to the rounding error of ``x``.

    ``100 * 1.1**2`` is 121.00000000000001 in floating point and means 121.
    """
    nearest = round(x)
    return nearest if math.isclose(x, nearest, rel_tol=1e-12) else math.ceil(x)


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
        T_k = \lceil T_0\, q^{k-1} \rceil, \qquad
        m_k = \lceil m_1\, q^{k-1} \rceil.

    Stage k averages :math:`T_k` points, its starting point included. So it takes :math:`T_k - 1`
    steps, as in Algorithms 2 and 3, and at least one. The defaults follow the paper's experiments:
    four stages with 2,000, 6,000, 18,000 and 54,000 points, and 384 samples, which are three
    batches of 128.

    Args:
        lr: :math:`\eta_0`, the first stage's learning rate.
        steps: :math:`T_0`, the points of the first stage: its optimizer steps and one.
        factor: :math:`q`, above 1.
        stages: number of stages.
        dual_samples: :math:`m_1`, fresh samples at the first stage's end, at least 2.

    Example:
        >>> from aucmax.stages import geometric
        >>> rule = geometric(lr=0.1, steps=2000, factor=3)
        >>> [stage.steps for stage in rule]
        [1999, 5999, 17999, 53999]
    """
    lr = checks.positive("lr", lr)
    steps = checks.count("steps", steps)
    factor = checks.number("factor", factor, "a finite number > 1", lambda q: 1 < q < math.inf)
    stages = checks.count("stages", stages)
    dual_samples = checks.count("dual_samples", dual_samples, least=FEWEST_DUAL_SAMPLES)
    return [
        Stage(
            index=k,
            lr=lr / factor ** (k - 1),
            steps=max(1, round_up(steps * factor ** (k - 1)) - 1),
            dual_samples=round_up(dual_samples * factor ** (k - 1)),
        )
        for k in range(1, stages + 1)
    ]


def polynomial(lr: float = 0.1, steps: int = 200, *, stages: int = 10) -> list[Stage]:
    r"""The step sizes of PGA (Algorithm 1, line 3).

    .. math::

        \eta_k = \eta_0 / k, \qquad T_k = T_0\, k^2.

    PGA averages its dual variable, so no stage asks for fresh samples. Ten stages of
    :math:`200\, k^2` steps are 77,000 iterations, near the 80,000 of the
    authors' code.

    Args:
        lr: :math:`\eta_0`, the first stage's learning rate.
        steps: :math:`T_0`, the first stage's optimizer steps.
        stages: number of stages.

    Example:
        >>> from aucmax.stages import polynomial
        >>> [(stage.lr, stage.steps) for stage in polynomial(lr=0.1, steps=200, stages=2)]
        [(0.1, 200), (0.05, 800)]
    """
    lr = checks.positive("lr", lr)
    steps = checks.count("steps", steps)
    stages = checks.count("stages", stages)
    return [
        Stage(index=k, lr=lr / k, steps=steps * k**2, dual_samples=0) for k in range(1, stages + 1)
    ]


class Plateau:
    """Stages that end when the validation score saturates; made by :func:`plateau`.

    Iterating gives the stages, always from the first. The caller trains in each one until
    :meth:`report` says that it has saturated, or moves on earlier if it likes.

    Example:
        >>> from aucmax.stages import Plateau, plateau
        >>> rule = plateau(lr=0.1, patience=1, stages=2)
        >>> isinstance(rule, Plateau), len(rule)
        (True, 2)
        >>> rule.report(0.8), rule.report(0.8)  # no better than before: the stage has saturated
        (False, True)
    """

    def __init__(self, stages: Sequence[Stage], patience: int, min_gain: float) -> None:
        self.stages = stages
        self.patience = patience
        self.min_gain = min_gain
        self.begin_stage()

    def __iter__(self) -> Iterator[Stage]:
        for stage in self.stages:
            self.begin_stage()
            yield stage

    def __len__(self) -> int:
        return len(self.stages)

    def begin_stage(self) -> None:
        """Forget the reports so far; iterating does it for every stage."""
        self._best = -math.inf
        self._reports_without_gain = 0

    def state_dict(self) -> dict[str, float]:
        """Return the running stage's best score and its number of reports without a gain."""
        return {"best": self._best, "reports_without_gain": self._reports_without_gain}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Load the reports of a saved stage."""
        self._best = float(state["best"])
        self._reports_without_gain = int(state["reports_without_gain"])

    def report(self, auc: float) -> bool:
        """Record a validation score and return True if the stage has saturated.

        Args:
            auc: the AUC on validation data, or any other finite number that should rise.

        Returns:
            True once ``patience`` reports in a row were not above the stage's best by more than
            ``min_gain``; the stage's first report counts as a gain.
        """
        auc = checks.number("auc", auc, "a finite number", math.isfinite)
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
        min_gain: a score must beat the stage's best by more than this to count as a gain.
        stages: number of stages.
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
    patience = checks.count("patience", patience)
    min_gain = checks.number("min_gain", min_gain, "at least 0 and below 1", lambda x: 0 <= x < 1)
    timed = geometric(lr, 1, factor, stages=stages, dual_samples=dual_samples)
    return Plateau([replace(stage, steps=None) for stage in timed], patience, min_gain)


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
    # The bound on K grows with K, so the iteration from 1 never passes the smallest valid K.
    stages = 1
    while stages < (needed := math.log(max(2 * start, stages * noise) / epsilon) / rate):
        stages = math.ceil(needed)
    return stages


def _rate(mu: float, L: float) -> float:
    """Return the exponent by which the theorems shrink the gap from stage to stage."""
    L = checks.positive("L", L)
    mu = checks.number("mu", mu, f"above 0 and at most L = {L:g}", lambda x: 0 < x <= L)
    return (mu / L) / (5 + mu / L)
