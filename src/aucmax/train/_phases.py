"""What a run walks through: perhaps pre-training, then the method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from aucmax.loss import SaddleLoss, minmax_groups, saddle_part
from aucmax.optim import IterateAverage
from aucmax.optim.staged import StagedOptimizer
from aucmax.stages import Plateau, Stage
from aucmax.train.methods import METHODS, Method, cut, single
from aucmax.train.objectives import Known, make_loss
from aucmax.train.options import Options


@dataclass
class Phase:
    """A loss, an optimizer and its stages.

    Attributes:
        how: the row of its method.
        restart: where a stage begins: at the "average" of the one before, or at the "last" iterate.
        sets_lr: False leaves the step sizes of the user's optimizer alone.
    """

    name: str
    how: Method
    loss: nn.Module
    optimizer: Optimizer
    stages: Sequence[Stage]
    plateau: Plateau | None = None
    restart: str = "last"
    sets_lr: bool = True
    average: StagedOptimizer | IterateAverage = field(init=False)

    def __post_init__(self) -> None:
        own = self.optimizer
        self.average = own if isinstance(own, StagedOptimizer) else IterateAverage(own)

    @property
    def saddle(self) -> SaddleLoss | None:
        """The part of the loss that has the saddle variables, if there is one."""
        return saddle_part(self.loss)

    def parts(self) -> dict[str, Any]:
        """What has a state to save."""
        parts: dict[str, Any] = {"loss": self.loss, "optimizer": self.optimizer}
        if isinstance(self.average, IterateAverage):
            parts["average"] = self.average
        if self.plateau is not None:
            parts["plateau"] = self.plateau
        return parts


def make_phases(options: Options, known: Known) -> list[Phase]:
    """Pre-training if it is asked for, then the method.

    Args:
        options: those of the run; the model is on its device.
        known: what is known of the training data.
    """
    method = _method_phase(options, known)
    if not options.pretrain:
        return [method]
    loss = make_loss("ce", known, {}).to(options.where)
    optimizer = torch.optim.SGD(options.model.parameters(), lr=options.pretrain_lr)
    stage = Stage(index=0, lr=options.pretrain_lr, steps=options.pretrain, dual_samples=0)
    return [Phase("pretrain", METHODS["sgd"], loss, optimizer, [stage]), method]


def _method_phase(options: Options, known: Known) -> Phase:
    how, own = options.how, options.optimizer
    loss = _make_loss(options, known)
    lr = options.lr or how.lr
    optimizer = _make_optimizer(options, loss, lr) if own is None else own
    if own is not None and how.stages is single:
        lr = float(own.param_groups[0]["lr"])
    rule = how.stages(lr, options.steps) if options.stages is None else options.stages
    plateau = rule if isinstance(rule, Plateau) else None
    if plateau is not None:
        plateau.begin_stage()
    stages = cut(list(rule), options.steps) if plateau is None else plateau.stages
    if how.averages_stages and options.restart == "last":
        raise ValueError("restart must be 'average' for PGA, found 'last'")
    by_lemma = any(stage.M is not None and stage.steps is None for stage in stages)
    if by_lemma and (not how.lemma_3 or options.lipschitz is None):
        raise ValueError(
            f"lipschitz must be given, and method be 'ppd-adagrad', for stages that end by Lemma 3,"
            f" found {options.lipschitz!r} and {type(optimizer).__name__}"
        )
    return Phase(
        name=options.method if own is None else "custom",
        how=how,
        loss=loss,
        optimizer=optimizer,
        stages=stages,
        plateau=plateau,
        restart=options.restart or how.returns,
        sets_lr=own is None or options.stages is not None,
    )


def _make_loss(options: Options, known: Known) -> nn.Module:
    if options.loss is not None:
        return options.loss.to(options.where)
    objective = options.objective_name or options.how.objective
    loss = make_loss(objective, known, options.loss_options or {}).to(options.where)
    in_double = any(p.dtype == torch.float64 for p in options.model.parameters())
    return loss.double() if in_double else loss


def _make_optimizer(options: Options, loss: nn.Module, lr: float) -> Optimizer:
    how, model = options.how, options.model
    groups: Any = [{"params": [*model.parameters(), *loss.parameters()]}]
    if saddle := saddle_part(loss):
        # Where alpha begins at its limit, it and a and b are to follow the model slowly.
        begins_at_best = saddle.alpha_min is None or options.pretrain or options.loss is not None
        saddle_lr = how.saddle_lr if begins_at_best else 1.0
        groups = minmax_groups(model, loss, lr=lr, saddle_lr=lr * saddle_lr)
    on_gpu = options.where.type == "cuda"
    captured = on_gpu and options.cuda_graph is not False
    given = options.optimizer_options or {}
    arguments = {**how.options(options.seed, on_gpu, captured), **given}
    if "foreach" in given and "fused" not in given:
        arguments.pop("fused", None)
    make: Any = how.optimizer
    try:
        optimizer: Optimizer = make(groups, lr=lr, **arguments)
    except TypeError as error:
        raise ValueError(f"optimizer_options must fit {how.optimizer.__name__}: {error}") from None
    return optimizer
