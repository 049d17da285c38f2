"""The rules of practice, and PGA's."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from aucmax import checks
from aucmax.stages._stage import FEWEST_DUAL_SAMPLES, Stage, round_up


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

    The defaults follow the paper's experiments: four stages of :math:`2000 \cdot 3^{k-1}` steps are
    80,000 iterations, as in the authors' code, and 384 samples are three batches of 128. Stage k
    takes all of its :math:`T_k` steps; Algorithm 2 takes :math:`T_k - 1`.

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
    lr = checks.positive("lr", lr)
    steps = checks.count("steps", steps)
    factor = checks.number("factor", factor, "a finite number > 1", lambda q: 1 < q < math.inf)
    stages = checks.count("stages", stages)
    dual_samples = checks.count("dual_samples", dual_samples, least=FEWEST_DUAL_SAMPLES)
    return [
        Stage(
            index=k,
            lr=lr / factor ** (k - 1),
            steps=round_up(steps * factor ** (k - 1)),
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
        stages: how many stages.

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
        """What the running stage has been told: its best score and the reports without a gain."""
        return {"best": self._best, "reports_without_gain": self._reports_without_gain}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Go on with the reports of a saved stage."""
        self._best = float(state["best"])
        self._reports_without_gain = int(state["reports_without_gain"])

    def report(self, auc: float) -> bool:
        """Take note of a validation score and say whether the stage has saturated.

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
    patience = checks.count("patience", patience)
    min_gain = checks.number("min_gain", min_gain, "at least 0 and below 1", lambda x: 0 <= x < 1)
    timed = geometric(lr, 1, factor, stages=stages, dual_samples=dual_samples)
    return Plateau([replace(stage, steps=None) for stage in timed], patience, min_gain)
