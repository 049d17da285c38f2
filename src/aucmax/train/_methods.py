"""From a method's name to its loss, optimizer and stages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from aucmax.loss import (
    AUCLoss,
    AUCWithCrossEntropy,
    MulticlassAUCLoss,
    MultilabelAUCLoss,
    minmax_groups,
)
from aucmax.loss.base import SaddleLoss
from aucmax.loss.combined import saddle_part
from aucmax.loss.cross_entropy import CrossEntropy
from aucmax.optim import OAUC, PGA, IterateAverage, PPDAdaGrad
from aucmax.optim.staged import StagedOptimizer
from aucmax.stages import Plateau, Stage, geometric, polynomial
from aucmax.train._options import OPTIMIZERS, Options

BASELINES = ("sgd", "adagrad", "adamw")
SADDLE_LR = {"adagrad": 10.0, "adamw": 10.0}  # their steps do not grow with the gradient
LEARNING_RATES = {"adagrad": 0.01, "adamw": 1e-3}
STAGES = 4  # of 2000 * 3^(k-1) steps are the paper's 80,000


@dataclass
class Phase:
    """A loss, an optimizer and its stages, walked one after the other."""

    name: str
    loss: nn.Module
    optimizer: Optimizer
    stages: Sequence[Stage]
    plateau: Plateau | None = None
    restart: str = "last"
    returns: str = "last"  # the iterate that the method returns if nobody validates
    sets_lr: bool = True  # False leaves the step sizes of the caller's optimizer alone

    def __post_init__(self) -> None:
        own = self.optimizer
        self.average: StagedOptimizer | IterateAverage = (
            own if isinstance(own, StagedOptimizer) else IterateAverage(own)
        )

    @property
    def saddle(self) -> SaddleLoss | None:
        """The part of the loss that has the saddle variables, if there is one."""
        return saddle_part(self.loss)

    def modules(self) -> dict[str, Any]:
        """What has a state to save."""
        parts: dict[str, Any] = {"loss": self.loss, "optimizer": self.optimizer}
        if isinstance(self.average, IterateAverage):
            parts["average"] = self.average
        if self.plateau is not None:
            parts["plateau"] = self.plateau
        return parts


def make_phases(
    model: nn.Module, options: Options, task: str, prior: Any, capturable: bool
) -> list[Phase]:
    """Pre-training if it is asked for, then the method.

    Args:
        model: already on its device.
        options: those of the run.
        task: "binary", "multiclass" or "multilabel".
        prior: the share or shares of the batches; None if nobody knows.
        capturable: whether optimizers must count their steps on the device.
    """
    phases = []
    if options.pretrain:
        loss = CrossEntropy(task).to(options.device)
        optimizer = torch.optim.SGD(model.parameters(), lr=options.pretrain_lr)
        stage = Stage(index=0, lr=options.pretrain_lr, steps=options.pretrain, dual_samples=0)
        phases.append(Phase("pretrain", loss, optimizer, [stage]))
    return [*phases, _main_phase(model, options, task, prior, capturable)]


def _main_phase(
    model: nn.Module, options: Options, task: str, prior: Any, capturable: bool
) -> Phase:
    loss = (options.loss or _make_loss(options, task, prior)).to(options.device)
    if options.loss is None and any(p.dtype == torch.float64 for p in model.parameters()):
        loss = loss.double()
    lr = options.lr or LEARNING_RATES.get(options.method, 0.1)
    optimizer = options.optimizer or _make_optimizer(model, loss, options, lr, capturable)
    staged = isinstance(optimizer, StagedOptimizer)
    rule = options.stages if options.stages is not None else _rule(options, optimizer, lr)
    plateau = rule if isinstance(rule, Plateau) else None
    if plateau:
        plateau.begin_stage()
    stages = plateau.stages if plateau else cut(list(rule), options.steps)
    _check_stages(stages, optimizer, options)
    return Phase(
        name="custom" if options.optimizer else options.method,
        loss=loss,
        optimizer=optimizer,
        stages=stages,
        plateau=plateau,
        restart=options.restart or ("average" if staged else "last"),
        returns="average" if staged else "last",
        sets_lr=options.optimizer is None or options.stages is not None,
    )


def _make_loss(options: Options, task: str, prior: Any) -> nn.Module:
    """The method's, or of the objective that was asked for."""
    objective = options.objective or ("ce" if options.method in BASELINES else "auc")
    if objective == "ce":
        if options.loss_options:
            raise ValueError(
                f"loss_options must be empty for method {options.method!r}, cross-entropy has "
                f"none, found {dict(options.loss_options)}"
            )
        return CrossEntropy(task)
    if task != "binary" and prior is None:
        raise ValueError(f"labels must be given for a {task} task: their shares are its priors")
    kind: Any = {"binary": AUCLoss, "multiclass": MulticlassAUCLoss}.get(task, MultilabelAUCLoss)
    try:
        loss = kind(prior, **options.loss_options)
    except TypeError as error:
        raise ValueError(f"loss_options must fit {kind.__name__}: {error}") from None
    return AUCWithCrossEntropy(loss) if objective == "auc+ce" else loss


def _make_optimizer(
    model: nn.Module, loss: nn.Module, options: Options, lr: float, capturable: bool
) -> Optimizer:
    kind = OPTIMIZERS[options.method]
    groups = (
        minmax_groups(model, loss, saddle_lr=SADDLE_LR.get(options.method, 1.0))
        if saddle_part(loss)
        else [{"params": [*model.parameters(), *loss.parameters()]}]
    )
    given: dict[str, Any] = {"seed": options.seed} if options.method == "pga" else {}
    if capturable and options.method not in ("sgd", "adagrad"):
        given["capturable"] = True
    try:
        optimizer: Optimizer = kind(groups, lr=lr, **{**given, **options.optimizer_options})
    except TypeError as error:
        raise ValueError(f"optimizer_options must fit {kind.__name__}: {error}") from None
    return optimizer


def _check_stages(stages: Sequence[Stage], optimizer: Optimizer, options: Options) -> None:
    if isinstance(optimizer, PGA) and options.restart == "last":
        raise ValueError("restart must be 'average' for PGA, found 'last'")
    lemma = any(stage.M is not None and stage.steps is None for stage in stages)
    if lemma and (not isinstance(optimizer, PPDAdaGrad) or options.lipschitz is None):
        raise ValueError(
            f"lipschitz must be given, and method be 'ppd-adagrad', for stages that end by Lemma 3,"
            f" found {options.lipschitz!r} and {type(optimizer).__name__}"
        )


def _rule(options: Options, optimizer: Optimizer, lr: float) -> list[Stage]:
    """The stages that a method takes by itself, as long in all as ``steps``."""
    steps = options.steps
    if isinstance(optimizer, PGA):
        first = math.ceil(steps / sum(k**2 for k in range(1, 11)))
        return cut(polynomial(lr, first, stages=10), steps)
    if isinstance(optimizer, OAUC):
        return [Stage(index=1, lr=lr, steps=steps, dual_samples=0)]
    if isinstance(optimizer, StagedOptimizer):
        first = math.ceil(steps / sum(3**k for k in range(STAGES)))
        return cut(geometric(lr, first, factor=3, stages=STAGES), steps)
    if options.optimizer is not None:
        lr = optimizer.param_groups[0]["lr"]
        return [Stage(index=1, lr=float(lr), steps=steps, dual_samples=0)]
    parts = [steps - steps // 2, steps // 4, steps // 2 - steps // 4]  # the paper's 40k and 60k
    drops = [
        Stage(index=k + 1, lr=lr / 10**k, steps=n, dual_samples=0) for k, n in enumerate(parts)
    ]
    return [stage for stage in drops if stage.steps]


def cut(stages: list[Stage], steps: int) -> list[Stage]:
    """The stages' first ``steps`` steps."""
    kept, left = [], steps
    for stage in stages:
        if left == 0:
            break
        if stage.steps is not None:
            stage = replace(stage, steps=min(stage.steps, left))
            left -= stage.steps or 0
        kept.append(stage)
    if left and all(stage.steps is not None for stage in stages):
        raise ValueError(
            f"stages must have at least steps={steps} steps in all, found {steps - left}"
        )
    return kept
