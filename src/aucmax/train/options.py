"""The arguments of :func:`aucmax.fit`: their names, types, defaults and checks, once."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from aucmax import checks, distributed
from aucmax.data.batches import has_groups
from aucmax.stages import Plateau, Stage
from aucmax.train.methods import METHODS, Method, method_of
from aucmax.train.metrics import Metric, default_metric, find_metric
from aucmax.train.objectives import OBJECTIVES, names_of

AMP = {"bf16": torch.bfloat16, "fp16": torch.float16}

P = ParamSpec("P")
Given = TypeVar("Given")
Result = TypeVar("Result")

MAY_DIFFER = {"may_differ": True}
"""Marks an option that may be another when a run is gone on with: it does not change the result."""


@dataclass
class Options:
    """The arguments of :func:`aucmax.fit`, which describes them.

    The configuration that guards a run's folder is derived from these fields: a new one is part of
    it unless it is marked with :data:`MAY_DIFFER`.
    """

    model: nn.Module
    train: Any
    valid: Any = None
    _: KW_ONLY
    test: Any = None
    method: str = "ppd-sg"
    objective: str | Sequence[str] | None = None
    steps: int
    task: str = field(default="auto", metadata=MAY_DIFFER)  # the data say what it turns out to be
    metric: str | Callable[..., float] | None = None
    loss: nn.Module | None = None
    optimizer: Optimizer | None = None
    lr: float | None = None
    stages: Sequence[Stage] | Plateau | None = None
    restart: str | None = None
    lipschitz: float | None = None
    optimizer_options: Mapping[str, Any] | None = None
    loss_options: Mapping[str, Any] | None = None
    pretrain: int = 0
    pretrain_lr: float = 0.1
    batch_size: int = 128
    positives: float | None = None
    replacement: bool = False
    labels: Any = None
    augment: Callable[[Any], Any] | None = None
    workers: int = field(default=0, metadata=MAY_DIFFER)
    seed: int = 0
    eval_every: int | None = None
    probe: int = 512
    choose: str = "best"
    patience: int | None = None
    time_limit: float | None = field(default=None, metadata=MAY_DIFFER)
    out: str | Path | None = field(default=None, metadata=MAY_DIFFER)
    save_every: int | None = field(default=None, metadata=MAY_DIFFER)
    tensorboard: bool = field(default=False, metadata=MAY_DIFFER)
    progress: bool = field(default=True, metadata=MAY_DIFFER)
    device: str | torch.device = field(default="auto", metadata=MAY_DIFFER)
    amp: str | None = None
    clip_norm: float | None = None
    accumulate: int = 1
    local_steps: int | None = None
    compile: bool = False
    cuda_graph: bool | None = field(default=None, metadata=MAY_DIFFER)
    parallel: str = field(default="ddp", metadata=MAY_DIFFER)

    def __post_init__(self) -> None:
        """Check every option and turn each into the type that it has from here on."""
        self.where: torch.device = find_device(self.device)
        self.folder: Path | None = None if self.out is None else Path(self.out)
        if self.metric is None:
            judged = self.train if self.valid is None else self.valid
            self.metric = default_metric(has_groups(judged))
        self.measure: Metric = find_metric(self.metric)
        for name in ("optimizer_options", "loss_options"):
            given = getattr(self, name)
            if not isinstance(given, Mapping | None):
                raise ValueError(f"{name} must be a mapping or None, found {given!r}")
            setattr(self, name, dict(given or {}))
        checks.choice("method", self.method, tuple(METHODS))
        self._check_objective()
        checks.choice("choose", self.choose, ("best", "steady"))
        checks.choice("parallel", self.parallel, ("ddp", "fsdp"))
        checks.choice("amp", self.amp, (None, *AMP))
        checks.choice("restart", self.restart, (None, "average", "last"))
        for name in ("steps", "batch_size", "accumulate"):
            setattr(self, name, checks.count(name, getattr(self, name)))
        for name in ("pretrain", "workers", "probe", "seed"):
            setattr(self, name, checks.count(name, getattr(self, name), 0))
        for name in ("eval_every", "save_every", "patience", "local_steps"):
            if getattr(self, name) is not None:
                setattr(self, name, checks.count(name, getattr(self, name)))
        for name in ("lr", "clip_norm", "lipschitz", "pretrain_lr", "time_limit"):
            if getattr(self, name) is not None:
                setattr(self, name, checks.positive(name, getattr(self, name)))
        if self.positives is not None:
            self.positives = checks.share("positives", self.positives)
        self.eval_every = self.evaluates_every
        self._check_stages()
        self._check_own_parts()
        self._check_local_steps()

    # --- what follows from them -------------------------------------------------------------------

    @property
    def how(self) -> Method:
        """The row of the method, or that of the user's own optimizer."""
        return METHODS[self.method] if self.optimizer is None else method_of(self.optimizer)

    @property
    def evaluates_every(self) -> int:
        """Steps between evaluations."""
        return self.eval_every or math.ceil(self.steps / 40)

    @property
    def saves_every(self) -> int:
        """Steps between checkpoints, at which all processes have one model to save."""
        wanted = self.save_every or self.evaluates_every
        return self.meets_every * math.ceil(wanted / self.meets_every)

    @property
    def walks_apart(self) -> bool:
        """Whether processes take steps of their own, and average what they have come to."""
        return self.local_steps is not None and distributed.world_size() > 1

    @property
    def meets_every(self) -> int:
        """Steps after which all processes have one model."""
        return self.local_steps or 1 if self.walks_apart else 1

    # --- checks of several together ---------------------------------------------------------------

    def check_model(self) -> None:
        """In a sweep the model is made, and checked, when its run begins."""
        model: Any = self.model
        if not isinstance(model, nn.Module):
            raise ValueError(
                f"model must be a torch.nn.Module, found {type(model).__name__}"
                + (": make an instance of it" if isinstance(model, type) else "")
            )
        others = [name for name, x in model.state_dict().items() if not torch.is_tensor(x)]
        if others:
            raise ValueError(f"model must keep tensors alone in its state_dict, found {others}")

    @property
    def objective_name(self) -> str | None:
        """The one objective; None for a loss of the caller's own."""
        if self.loss is not None:
            return None
        assert self.objective is None or isinstance(self.objective, str)
        return self.objective or self.how.objective

    @property
    def has_candidates(self) -> bool:
        """Whether the objective is to be chosen from several."""
        return self.objective == "auto" or isinstance(self.objective, list)

    def _check_objective(self) -> None:
        if self.objective is not None:
            names = names_of(self.objective)
            self.objective = names if len(names) > 1 else self.objective
        unknown = sorted({*(self.loss_options or {})} - {*OBJECTIVES})
        if self.has_candidates and unknown:
            raise ValueError(
                f"loss_options must be mappings by objective, such as {{'auc': {{'margin': 2}}}}, "
                f"where several are chosen from, found {unknown}"
            )

    def _check_stages(self) -> None:
        rule = self.stages
        if rule is None or isinstance(rule, Plateau):
            return
        if (
            isinstance(rule, str)
            or not isinstance(rule, Sequence)
            or not rule
            or not all(isinstance(stage, Stage) for stage in rule)
        ):
            raise ValueError(
                f"stages must be stages from aucmax.stages, such as "
                f"aucmax.stages.geometric(), found {rule!r}"
            )

    def _check_own_parts(self) -> None:
        """An option that would go unheeded is an error."""
        if self.optimizer is not None and self.loss is None:
            raise ValueError("optimizer must come with the loss it was built for, found loss=None")
        unheeded = {
            "lr": self.lr is not None and (self.optimizer or self.stages) is not None,
            "optimizer_options": self.optimizer_options and self.optimizer is not None,
            "loss_options": self.loss_options and self.loss is not None,
            "objective": self.objective is not None and self.loss is not None,
        }
        for name, is_unheeded in unheeded.items():
            if is_unheeded:
                raise ValueError(
                    f"{name} must not be given beside an optimizer, a loss or stages of your own, "
                    f"which it would not reach, found {getattr(self, name)!r}"
                )
        if self.tensorboard and self.out is None:
            raise ValueError("tensorboard must have a folder: pass out=")

    def _check_local_steps(self) -> None:
        """A mean of models that walked apart must be a model that could have walked so."""
        if self.local_steps is None:
            return
        kind = self.how.optimizer if self.optimizer is None else type(self.optimizer)
        refused = {
            f"the optimizer {kind.__name__}": not self.how.local_steps,
            "amp='fp16'": self.amp == "fp16",
            "parallel='fsdp'": self.parallel == "fsdp",
        }
        reasons = [reason for reason, holds in refused.items() if holds]
        if reasons:
            raise ValueError(
                f"local_steps must be None with {' and '.join(reasons)}: it is for PPD-SG and SGD "
                f"on whole models, without a gradient scaler, found {self.local_steps}"
            )

    def check_processes(self) -> None:
        """What can only be checked once the processes know of each other."""
        parts = distributed.world_size() * self.accumulate
        if self.batch_size % parts:
            raise ValueError(
                f"batch_size must be a multiple of {parts}, the processes times accumulate, "
                f"found {self.batch_size}"
            )


def takes(
    options: Callable[P, Given],
) -> Callable[[Callable[[Given], Result]], Callable[P, Result]]:
    """Gives a function of one dataclass the arguments of that dataclass."""

    def decorate(function: Callable[[Given], Result]) -> Callable[P, Result]:
        signature = inspect.signature(options)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> Result:
            signature.bind(*args, **kwargs)  # an error that does not speak of the dataclass
            return function(options(*args, **kwargs))

        returned = inspect.signature(function).return_annotation
        call.__signature__ = signature.replace(return_annotation=returned)  # type: ignore[attr-defined]
        return call

    return decorate


def find_device(device: str | torch.device) -> torch.device:
    """The device that was named; "auto" is this process's GPU if there is one."""
    own_gpu = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    if str(device) == "auto":
        return own_gpu if torch.cuda.is_available() else torch.device("cpu")
    try:
        named = torch.device(device)
    except (RuntimeError, TypeError):
        raise ValueError(
            f"device must be 'auto' or a device of torch's, found {device!r}"
        ) from None
    if named.type != "cuda":
        return named
    named = own_gpu if named.index is None else named
    count = torch.cuda.device_count()
    if named.index >= count:
        known = ", ".join(f"'cuda:{k}'" for k in range(count))
        allowed = f"'cpu' or one of {known}" if count else "'cpu' here, where torch sees no GPU"
        raise ValueError(f"device must be {allowed}, found {device!r}")
    return named
