"""The training methods: one table of what each builds and how it trains."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch.optim.optimizer import Optimizer

from aucmax.optim import OAUC, PGA, PPDSG, PPDAdaGrad
from aucmax.optim.staged import StagedOptimizer
from aucmax.stages import Stage, geometric, polynomial


def tripled(lr: float, steps: int) -> list[Stage]:
    """Return four stages, each a third of the step size and three times as long (Alg. 2, 3)."""
    first = math.ceil(steps / (1 + 3 + 9 + 27))
    return cut(geometric(lr, first, factor=3, stages=4), steps)


def growing(lr: float, steps: int) -> list[Stage]:
    """Return ten stages, the k-th of them k^2 times as long as the first (Algorithm 1)."""
    first = math.ceil(steps / sum(k**2 for k in range(1, 11)))
    return cut(polynomial(lr, first, stages=10), steps)


def single(lr: float, steps: int) -> list[Stage]:
    """Return one stage of one step size."""
    return [Stage(index=1, lr=lr, steps=steps, dual_samples=0)]


def dropped(lr: float, steps: int) -> list[Stage]:
    """Return stages with a tenth of the step size after 1/2 and 3/4 of the steps (40k and 60k)."""
    lengths = [steps - steps // 2, steps // 4, steps // 2 - steps // 4]
    drops = [
        Stage(index=k + 1, lr=lr / 10**k, steps=n, dual_samples=0) for k, n in enumerate(lengths)
    ]
    return [stage for stage in drops if stage.steps]


@dataclass(frozen=True)
class Method:
    """How a method trains.

    Attributes:
        optimizer: its class.
        objective: the objective it is for, a name in :data:`aucmax.train.objectives.OBJECTIVES`.
        stages: its own stages, from the first step size and the number of steps.
        lr: the first step size.
        saddle_lr: the ratio of the saddle variables' step size to it: more where steps do not
            grow with the gradient.
        returns: the iterate that it returns if nobody validates.
        capture: how a CUDA graph can hold its step: "asked" by ``capturable=True``, or "free"
            without asking.
        local_steps: whether its step is linear in the gradient, so that the mean of processes that
            stepped on their own is a model that could have stepped so.
        lemma_3: whether its stages can end by Lemma 3.
        averages_stages: whether its average is drawn from the stages that have ended, alpha's too.
        seeded: whether it draws random numbers, and so takes a seed.
        fused: whether it has a kernel of its own, to be asked for on a GPU.
    """

    optimizer: type[Optimizer]
    objective: str
    stages: Callable[[float, int], list[Stage]]
    lr: float = 0.1
    saddle_lr: float = 1.0
    returns: Literal["last", "average"] = "average"
    capture: Literal["asked", "free"] = "asked"
    local_steps: bool = False
    lemma_3: bool = False
    averages_stages: bool = False
    seeded: bool = False
    fused: bool = False

    def options(self, seed: int, on_gpu: bool, captured: bool) -> dict[str, Any]:
        """Return arguments of the optimizer that the user did not have to think of."""
        arguments: dict[str, Any] = {"seed": seed} if self.seeded else {}
        if on_gpu and self.fused:
            arguments["fused"] = True
        if captured and self.capture == "asked":
            arguments["capturable"] = True
        return arguments


METHODS = {
    "ppd-sg": Method(PPDSG, "auc", tripled, local_steps=True, fused=True),
    "ppd-adagrad": Method(PPDAdaGrad, "auc", tripled, lemma_3=True, fused=True),
    "pga": Method(PGA, "auc", growing, averages_stages=True, seeded=True),
    "oauc": Method(OAUC, "auc", single),
    "sgd": Method(torch.optim.SGD, "ce", dropped, returns="last", capture="free", local_steps=True),
    "adagrad": Method(
        torch.optim.Adagrad, "ce", dropped, 0.01, 10.0, returns="last", capture="free"
    ),
    "adamw": Method(torch.optim.AdamW, "ce", dropped, 1e-3, 10.0, returns="last"),
}


def method_of(optimizer: Optimizer) -> Method:
    """Return the method by which a user's own optimizer trains: that of its class.

    An optimizer without stages keeps its step size. Whether a graph can hold its step is for it to
    say.
    """
    staged = isinstance(optimizer, StagedOptimizer)
    of_its_kind = (m for m in METHODS.values() if isinstance(optimizer, m.optimizer))
    other = Method(type(optimizer), "auc", tripled, returns="average" if staged else "last")
    known = next(of_its_kind, other)
    return known if staged else replace(known, stages=single)


def cut(stages: list[Stage], steps: int) -> list[Stage]:
    """Return the stages' first ``steps`` steps.

    A last stage that the end cuts shorter than a tenth of :math:`T_0`, or than ten steps, joins
    the one before. Where stages lack no more than a step each, the last one is lengthened: a rule
    whose :math:`T_k` add up to ``steps`` takes :math:`T_k - 1` in each stage.
    """
    lengths = [stage.steps for stage in stages if stage.steps is not None]
    if len(lengths) < len(stages):  # some end by another rule
        return stages
    kept: list[int] = []
    left = steps
    for length in lengths:
        taken = min(length, left)
        if kept and taken < length and taken < max((lengths[0] + 1) / 10, 10):
            kept[-1] += taken
        else:
            kept.append(taken)
        left -= taken
    if left > len(stages):
        raise ValueError(
            f"stages must have at least steps={steps} steps in all, found {steps - left}"
        )
    kept[-1] += left
    return [replace(stage, steps=n) for stage, n in zip(stages, kept, strict=False)]
