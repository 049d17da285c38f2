"""The options of a run, checked, and the part of them that decides what comes out."""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import Optimizer
from torch.utils._pytree import tree_leaves

from aucmax import checks, distributed
from aucmax.optim import OAUC, PGA, PPDSG, PPDAdaGrad
from aucmax.stages import Plateau, Stage

OPTIMIZERS: dict[str, Any] = {
    "ppd-sg": PPDSG,
    "ppd-adagrad": PPDAdaGrad,
    "pga": PGA,
    "oauc": OAUC,
    "sgd": torch.optim.SGD,
    "adagrad": torch.optim.Adagrad,
    "adamw": torch.optim.AdamW,
}
OBJECTIVES = ("auc", "auc+ce", "ce")
LINEAR = (PPDSG, torch.optim.SGD)
"""Optimizers whose step is linear in the gradient: the mean of steps is the step of the mean."""
AMP = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(kw_only=True)
class Options:
    """The arguments of :func:`aucmax.fit`, which describes them."""

    method: str
    objective: str | None
    steps: int
    task: str
    loss: nn.Module | None
    optimizer: Optimizer | None
    lr: float | None
    stages: Sequence[Stage] | Plateau | None
    restart: str | None
    lipschitz: float | None
    optimizer_options: Mapping[str, Any] = field(default_factory=dict)
    loss_options: Mapping[str, Any] = field(default_factory=dict)
    pretrain: int
    pretrain_lr: float
    batch_size: int
    positives: float | None
    replacement: bool
    augment: Callable[[Any], Any] | None
    workers: int
    seed: int
    eval_every: int | None
    probe: int
    patience: int | None
    time_limit: float | None
    out: Path | None
    save_every: int | None
    tensorboard: bool
    progress: bool
    device: torch.device
    amp: str | None
    clip_norm: float | None
    accumulate: int
    local_steps: int | None
    compile: bool
    cuda_graph: bool | None
    parallel: str

    def __post_init__(self) -> None:
        """Check every option and turn each into the type that it has here."""
        self.device = find_device(self.device)
        self.out = None if self.out is None else Path(self.out)
        self.optimizer_options = dict(self.optimizer_options or {})
        self.loss_options = dict(self.loss_options or {})
        checks.choice("method", self.method, tuple(OPTIMIZERS))
        checks.choice("objective", self.objective, (None, *OBJECTIVES))
        checks.choice("parallel", self.parallel, ("ddp", "fsdp"))
        checks.choice("amp", self.amp, (None, *AMP))
        checks.choice("restart", self.restart, (None, "average", "last"))
        self._count("steps", 1)
        if self.eval_every is None:
            self.eval_every = math.ceil(self.steps / 40)
        if self.save_every is None:
            self.save_every = self.eval_every
        counts = ("batch_size", "accumulate", "local_steps", "eval_every", "save_every", "patience")
        for name in counts:
            self._count(name, 1)
        for name in ("pretrain", "workers", "probe", "seed"):
            self._count(name, 0)
        for name in ("lr", "clip_norm", "lipschitz", "pretrain_lr", "time_limit"):
            if getattr(self, name) is not None:
                setattr(self, name, checks.positive(name, getattr(self, name)))
        if self.positives is not None:
            self.positives = checks.share("positives", self.positives)
        self._check_stages()
        self._check_own_parts()
        self._check_local_steps()
        parts = distributed.world_size() * self.accumulate
        if self.batch_size % parts:
            raise ValueError(
                f"batch_size must be a multiple of {parts}, the processes times accumulate, "
                f"found {self.batch_size}"
            )

    def _count(self, name: str, least: int) -> None:
        if getattr(self, name) is not None or name not in ("patience", "local_steps"):
            setattr(self, name, checks.count(name, getattr(self, name), least))

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
        for name, found in unheeded.items():
            if found:
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
        own = self.optimizer
        kind = OPTIMIZERS[self.method] if own is None else type(own)
        refused = {
            f"the optimizer {kind.__name__}": not issubclass(kind, LINEAR),
            "amp='fp16'": self.amp == "fp16",
            "parallel='fsdp'": self.parallel == "fsdp",
        }
        found = [name for name, is_found in refused.items() if is_found]
        if found:
            raise ValueError(
                f"local_steps must be None with {' and '.join(found)}: it is for PPD-SG and SGD on "
                f"whole models, without a gradient scaler, found {self.local_steps}"
            )

    @property
    def walks_apart(self) -> bool:
        """Whether processes take steps of their own, and average what they have come to."""
        return self.local_steps is not None and distributed.world_size() > 1

    @property
    def meets_every(self) -> int:
        """Steps after which all processes have one model."""
        return self.local_steps or 1 if self.walks_apart else 1


def find_device(device: str | torch.device) -> torch.device:
    """The device that was named; "auto" is this process's GPU if there is one."""
    if str(device) != "auto":
        return _checked_device(device)
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


def _checked_device(device: str | torch.device) -> torch.device:
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError):
        raise ValueError(
            f"device must be 'auto' or a device of torch's, found {device!r}"
        ) from None
    if found.type == "cuda" and found.index is None:
        found = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    count = torch.cuda.device_count()
    if found.type == "cuda" and (found.index or 0) >= count:
        raise ValueError(f"device must be one of this machine's {count} GPUs, found {device!r}")
    return found


def fingerprint(options: Options, model: nn.Module, data: dict[str, Any]) -> dict[str, Any]:
    """What must be the same for a run to be gone on with, as plain JSON."""
    given = {
        name: getattr(options, name)
        for name in (
            "method", "objective", "steps", "lr", "restart", "lipschitz", "pretrain", "pretrain_lr",
            "batch_size", "positives", "replacement", "seed", "eval_every", "probe",
            "patience", "amp", "clip_norm", "accumulate", "local_steps", "compile",
        )
    }  # fmt: skip
    shapes = {name: list(p.shape) for name, p in model.named_parameters()}
    return {
        **given,
        "loss": _described_loss(options.loss),
        "optimizer": _described_optimizer(options.optimizer),
        "optimizer_options": _plain(options.optimizer_options),
        "loss_options": _plain(options.loss_options),
        "stages": _described(options.stages),
        "augment": _named(options.augment),
        "model": f"{type(model).__name__} {_short_digest(_text(model) + repr(sorted(shapes)))}",
        "data": data,
    }


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """The fields in which two configurations differ, with both values."""
    names = [*new, *(name for name in old if name not in new)]
    return [
        f"{name} ({old.get(name)!r} there, {new.get(name)!r} now)"
        for name in names
        if old.get(name) != new.get(name)
    ]


def digest(x: Any, rows: int = 1000) -> str | None:
    """A few hexadecimal digits that tell one array, or tree of arrays, from another.

    Of a long one, that many rows evenly spread are looked at.
    """
    if x is None:
        return None
    found = hashlib.sha256()
    for leaf in tree_leaves(x):
        every = max(1, len(leaf) // rows)
        found.update(repr(tuple(leaf.shape)).encode())
        found.update(leaf[::every].double().numpy(force=True).tobytes())
    return found.hexdigest()[:16]


def _described(stages: Sequence[Stage] | Plateau | None) -> Any:
    if stages is None:
        return None
    if isinstance(stages, Plateau):
        return ["plateau", stages.patience, stages.min_gain, *map(repr, stages.stages)]
    return list(map(repr, stages))


def _described_loss(loss: nn.Module | None) -> str | None:
    """Its kind and options, without what training changes."""
    return None if loss is None else f"{type(loss).__name__}({loss.extra_repr()})"


def _described_optimizer(optimizer: Optimizer | None) -> str | None:
    if optimizer is None:
        return None
    options = {k: v for k, v in optimizer.defaults.items() if k != "lr"}
    return f"{type(optimizer).__name__}({_plain(options)})"


def _named(function: Any) -> str | None:
    if function is None:
        return None
    return str(getattr(function, "__qualname__", None) or _text(function))


def _text(x: object) -> str:
    """The repr, without places in memory, which are others in every process."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(x))


def _short_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    plain = (bool, int, str, type(None))
    return {k: v if isinstance(v, plain) else _text(v) for k, v in sorted(options.items())}
