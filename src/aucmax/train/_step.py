"""One optimizer step: batches, loss, backward, clipping, optimizer, average."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import Optimizer
from torch.utils._pytree import tree_leaves

from aucmax import distributed
from aucmax.checks import NotFiniteError, is_sharded
from aucmax.data.sources import Batch, BatchSource
from aucmax.loss.base import Scale
from aucmax.loss.pairwise import RankingLoss
from aucmax.optim import IterateAverage
from aucmax.optim.staged import full, local
from aucmax.train._guards import DeviceGuard, HostGuard, entries
from aucmax.train._phases import Phase
from aucmax.train._result import DivergedError
from aucmax.train.objectives import ModelWithLoss
from aucmax.train.options import AMP, Options

MOVING = ("drift", "momentum_buffer")
"""The optimizers' state that a step changes, by name."""


class Step:
    """Takes the optimizer's steps, one per call, operation by operation.

    Attributes:
        loss_sum: of the losses since :meth:`mean_loss` was last asked; on a device a tensor there,
            which is not waited for, and on the CPU a number.
        apart: whether a step was taken since the processes last had one model.
    """

    def __init__(self, phase: Phase, source: BatchSource, options: Options) -> None:
        self.phase, self.source, self.options = phase, source, options
        self.model = options.model
        for part in phase.loss.modules():
            if isinstance(part, RankingLoss):
                part.across_ranks = not options.walks_apart
        self.objective = _wrapped(ModelWithLoss(self.model, phase.loss), options)
        parts = {"model": self.model, "loss": phase.loss}
        self.parameters = {
            f"{part}.{name}": p
            for part, module in parts.items()
            for name, p in module.named_parameters()
        }
        self.sharded = any(map(is_sharded, self.parameters.values()))
        self.scaler = torch.amp.GradScaler(options.where.type, enabled=options.amp == "fp16")
        self.on_host = options.where.type == "cpu"
        zero = torch.zeros((), dtype=torch.float64, device=options.where)
        self.loss_sum: Any = 0.0 if self.on_host else zero
        self.losses, self.apart = 0, False
        self.guard: HostGuard | DeviceGuard = (
            HostGuard(self.parameters)
            if self.on_host
            else DeviceGuard(self.parameters, options.where)
        )

    def __call__(self) -> bool:
        """Take a step; False if the gradient scaler left it out. StopIteration: no more data."""
        is_done = self.run([self.source.draw() for _ in range(self.options.accumulate)])
        self.losses += 1
        return is_done

    def run(self, drawn: list[tuple[Any, ...]]) -> bool:
        """The work of a step on what was drawn."""
        forget_gradients(self.phase.optimizer)
        batches = [self.source.load(part, self.options.augment) for part in drawn]
        parts = _weighed(batches)
        for k, (batch, scale) in enumerate(parts):
            self._backward(batch, scale, last=k + 1 == len(parts))
        return self._update()

    def _backward(self, batch: Batch, scale: Scale | None, last: bool) -> None:
        in_parts = isinstance(self.objective, DistributedDataParallel) and not last
        with self.objective.no_sync() if in_parts else nullcontext():  # type: ignore[attr-defined]
            with autocast(self.options):
                try:
                    loss = self.objective(*batch, scale)
                except NotFiniteError as error:
                    raise self._traced(str(error), batch) from None
            self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        self.loss_sum += loss.item() if self.on_host else loss.detach()

    def _traced(self, what: str, batch: Batch) -> DivergedError:
        """The error, told from the inputs and from the gradients of the scores themselves."""
        self.phase.optimizer.zero_grad(set_to_none=True)
        self.model(batch.x).sum().backward()
        reals = [x for x in tree_leaves(batch.x) if x.is_floating_point()]
        bad_inputs = not all(bool(x.isfinite().all()) for x in reals)
        error = self.guard.diverged("the inputs hold NaN or infinity" if bad_inputs else what)
        error.bad_inputs = bad_inputs
        return error

    def _update(self) -> bool:
        """Clip, step, average."""
        optimizer, scaled = self.phase.optimizer, self.scaler.is_enabled()
        if self.sharded:
            # The loss's own parameters are whole on every rank.
            own = [p.grad for p in self.phase.loss.parameters() if p.grad is not None]
            distributed.average_over_ranks(own)
        self.scaler.unscale_(optimizer) if scaled else self.guard.check(self.loss_sum)
        if self.options.clip_norm is not None:
            self._clip(self.options.clip_norm)
        if scaled:
            scale = self.scaler.get_scale()
            self.scaler.step(optimizer)
            self.scaler.update()
            if self.scaler.get_scale() < scale:  # a gradient was not finite, and no step was taken
                return False
        else:
            optimizer.step()
        if isinstance(self.phase.average, IterateAverage):
            self.phase.average.update()
        self.apart = self.options.walks_apart
        return True

    def _clip(self, limit: float) -> None:
        """Scale the gradients to the norm ``limit`` if theirs is larger."""
        sparse = [p for p in self.parameters.values() if p.grad is not None and p.grad.is_sparse]
        if not (self.sharded or sparse):
            nn.utils.clip_grad_norm_(self.parameters.values(), limit)
            return
        for p in sparse:  # to which parts of a batch have added entries of their own
            p.grad = None if p.grad is None else p.grad.coalesce()
        gradients = [entries(g) for p in self.parameters.values() if (g := p.grad) is not None]
        norms = torch.stack([full(torch.linalg.vector_norm(g)) for g in gradients])
        scale = (limit / (torch.linalg.vector_norm(norms) + 1e-6)).clamp(max=1.0)
        torch._foreach_mul_([local(g) for g in gradients], scale)

    def meet(self) -> None:
        """Average over the processes what each has come to in steps of its own, if it took any."""
        if self.apart:
            distributed.average_over_ranks(moving(self.phase))
            self.apart = False

    @property
    def is_replaying(self) -> bool:
        """Whether the next steps need neither the host's random numbers nor its waiting."""
        return False

    def begin_stage(self) -> None:
        """A stage begins: what was made for the one before is no longer right."""

    def mean_loss(self) -> float:
        """The mean loss of the steps since this was last asked."""
        sums = distributed.sum_over_ranks(torch.as_tensor(self.loss_sum, dtype=torch.float64))
        total = sums.item() / distributed.world_size()
        mean = total / self.losses if self.losses else math.nan
        self._set_sum(0.0, 0)
        return mean

    def _set_sum(self, loss_sum: float, losses: int) -> None:
        """Go on from here; the tensor stays the one that a graph adds to."""
        self.loss_sum = loss_sum if self.on_host else self.loss_sum.fill_(loss_sum)
        self.losses = losses

    def state_dict(self) -> dict[str, Any]:
        """The running sum of losses, and the gradient scaler."""
        return {
            "loss_sum": torch.as_tensor(self.loss_sum, dtype=torch.float64).cpu(),
            "losses": self.losses,
            "scaler": self.scaler.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self._set_sum(state["loss_sum"].item(), state["losses"])
        if state["scaler"]:
            self.scaler.load_state_dict(state["scaler"])


def forget_gradients(optimizer: Optimizer) -> None:
    """``optimizer.zero_grad()``, which itself takes as long as a layer of a small network."""
    if type(optimizer).zero_grad is not Optimizer.zero_grad:  # one with its own way
        optimizer.zero_grad(set_to_none=True)
        return
    for group in optimizer.param_groups:
        for p in group["params"]:
            p.grad = None


def autocast(options: Options) -> Any:
    """Mixed precision if it is asked for; without a cache, which a captured graph must not have."""
    if options.amp is None:
        return nullcontext()
    return torch.autocast(options.where.type, AMP[options.amp], cache_enabled=False)


def moving(phase: Phase) -> list[Tensor]:
    """What a step of PPD-SG or SGD changes: the iterate, its average, its momentum.

    Not the reference, which is the same everywhere: a stage begins at one model.
    """
    optimizer, average = phase.optimizer, phase.average
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    states = [optimizer.state.get(p, {}) for p in parameters]
    tensors = [state.get(name) for state in states for name in MOVING]
    if isinstance(average, IterateAverage):
        tensors += [*average.first, *average.drift]
    return [*(p for p in parameters if p.requires_grad), *(x for x in tensors if x is not None)]


def _wrapped(objective: ModelWithLoss, options: Options) -> Callable[..., Tensor]:
    """The objective, data-parallel under a process group, compiled if asked for.

    If neither, it is its plain function: nobody hooks on to a module that is made here.
    """
    wrapped: nn.Module = objective
    if options.walks_apart:
        distributed.broadcast_tensors([*objective.parameters(), *objective.buffers()])
    elif distributed.world_size() > 1 and options.parallel == "ddp":
        devices = [options.where] if options.where.type == "cuda" else None
        # What a loss keeps follows the batches of all ranks, and so is the same on each: to send it
        # at every step would cost as much as there are rows and groups.
        kept = [f"loss.{name}" for name, _ in objective.loss.named_buffers()]
        ignore: Any = DistributedDataParallel._set_params_and_buffers_to_ignore_for_model
        ignore(objective, kept)
        wrapped = DistributedDataParallel(objective, device_ids=devices)
    if options.compile:
        return torch.compile(wrapped)
    return objective.forward if wrapped is objective else wrapped


def _weighed(batches: list[Batch]) -> list[tuple[Batch, Scale | None]]:
    """Each part of a step's batch with how much its mean counts in that of the whole.

    Parts without weights are of equal size and count alike. One whose weights are all zero counts
    nothing. A loss that compares rows sees those of all ranks, and so counts alike in every part.
    """
    alike = 1.0 / len(batches)
    unweighted = batches[0].weight is None
    if unweighted or (len(batches) == 1 and distributed.world_size() == 1):
        scale = None if len(batches) == 1 else Scale(alike, alike)
        return [(batch, scale) for batch in batches]
    weights = [batch.weight for batch in batches if batch.weight is not None]
    sums = [weight.sum() for weight in weights]
    total = distributed.sum_over_ranks(torch.stack(sums).sum())
    return [
        (batch, Scale(s * distributed.world_size() / total, alike))
        for batch, s in zip(batches, sums, strict=True)
    ]
