"""One optimizer step: batches, loss, backward, clipping, optimizer, average."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import Optimizer
from torch.utils._pytree import tree_leaves

from aucmax import distributed, kernels
from aucmax.checks import NotFiniteError, is_sharded
from aucmax.data.sources import Batch, BatchSource
from aucmax.loss import AUCLoss
from aucmax.loss.combined import saddle_part
from aucmax.optim import IterateAverage
from aucmax.optim.staged import full, local
from aucmax.train._methods import Phase
from aucmax.train._options import AMP, Options
from aucmax.train._result import DivergedError

NEVER = 1 << 62  # a step that no run takes

MOVING = ("drift", "momentum", "momentum_buffer")
"""The optimizers' state that a step changes, by name."""


class Objective(nn.Module):
    """Model and loss as one module: what is compiled, captured and kept in step over ranks."""

    def __init__(self, model: nn.Module, loss: nn.Module) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, x: Any, y: Tensor, weight: Tensor | None = None) -> Tensor:
        """The loss of a batch."""
        scores = self.model(x)
        if len(scores) != len(y):  # an ensemble's, row by row: every member learns the label
            if isinstance(saddle := saddle_part(self.loss), AUCLoss):
                saddle.repeats = max(1, len(scores) // max(1, len(y)))
            y, weight = (_repeated(t, len(scores)) for t in (y, weight))
        value: Tensor = self.loss(scores, y) if weight is None else self.loss(scores, y, weight)
        return value


def _repeated(rows: Any, length: int) -> Any:
    """Every row as often as it takes to get so many; those that do not divide it stay as they are.

    The loss says of those what is wrong.
    """
    if rows is None or not len(rows) or length % len(rows):
        return rows
    return rows.repeat_interleave(length // len(rows), dim=0)


class Step:
    """Takes the optimizer's steps, one per call, operation by operation.

    Attributes:
        loss_sum: of the losses since :meth:`mean_loss` was last asked; on a device a tensor there,
            which is not waited for, and on the CPU a number.
        apart: whether a step was taken since the processes last had one model.
    """

    def __init__(
        self, model: nn.Module, phase: Phase, source: BatchSource, options: Options
    ) -> None:
        self.model, self.phase, self.source, self.options = model, phase, source, options
        self.objective = _wrapped(Objective(model, phase.loss), options)
        self.names = [f"model.{n}" for n, _ in model.named_parameters()]
        self.names += [f"loss.{n}" for n, _ in phase.loss.named_parameters()]
        self.parameters = [*model.parameters(), *phase.loss.parameters()]
        self.sharded = any(map(is_sharded, self.parameters))
        self.scaler = torch.amp.GradScaler(options.device.type, enabled=options.amp == "fp16")
        self.on_host = options.device.type == "cpu"
        zero = torch.zeros((), dtype=torch.float64, device=options.device)
        self.loss_sum: Any = 0.0 if self.on_host else zero
        self.losses, self.apart = 0, False
        self.guard: HostGuard | DeviceGuard = (HostGuard if self.on_host else DeviceGuard)(self)

    def __call__(self) -> bool:
        """Take a step; False if the gradient scaler left it out. StopIteration: no more data."""
        taken = self.run([self.source.draw() for _ in range(self.options.accumulate)])
        self.losses += 1
        return taken

    def run(self, drawn: list[tuple[Any, ...]]) -> bool:
        """The work of a step on what was drawn."""
        forget_gradients(self.phase.optimizer)
        parts = _weighed([load(self.source, self.options, part) for part in drawn])
        for k, (batch, scale) in enumerate(parts):
            self._backward(batch, scale, last=k + 1 == len(parts))
        return self._update()

    def _backward(self, batch: Batch, scale: Any, last: bool) -> None:
        with nullcontext() if last else self._waiting():
            with autocast(self.options):
                try:
                    loss = self.objective(*batch)
                except NotFiniteError as error:
                    raise self._traced(str(error), batch) from None
            loss = loss if scale is None else loss * scale
            self.scaler.scale(loss).backward()
        self.loss_sum += loss.item() if self.on_host else loss.detach()

    def _waiting(self) -> Any:
        """Within it ranks keep their gradients to themselves: more of the batch is to come."""
        if isinstance(self.objective, DistributedDataParallel):
            return self.objective.no_sync()
        return nullcontext()

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
        self.scaler.unscale_(optimizer) if scaled else self.guard.check()
        if self.options.clip_norm is not None:
            self._clip(self.options.clip_norm)
        if not scaled:
            optimizer.step()
        elif not self._scaled_step(optimizer):
            return False
        if isinstance(self.phase.average, IterateAverage):
            self.phase.average.update()
        self.apart = self.options.walks_apart
        return True

    def meet(self) -> None:
        """Average over the processes what each has come to in steps of its own, if it took any."""
        if self.apart:
            distributed.average_over_ranks(moving(self.phase))
            self.apart = False

    def _scaled_step(self, optimizer: Optimizer) -> bool:
        """A step, or a smaller scale and no step because a gradient was not finite."""
        before = self.scaler.get_scale()
        self.scaler.step(optimizer)
        self.scaler.update()
        return self.scaler.get_scale() >= before

    def _clip(self, limit: float) -> None:
        """Scale the gradients to the norm ``limit`` if theirs is larger."""
        if not self.sharded:
            nn.utils.clip_grad_norm_(self.parameters, limit)
            return
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        norms = torch.stack([full(torch.linalg.vector_norm(g)) for g in gradients])
        scale = (limit / (torch.linalg.vector_norm(norms) + 1e-6)).clamp(max=1.0)
        torch._foreach_mul_([local(g) for g in gradients], scale)

    @property
    def is_replaying(self) -> bool:
        """Whether the next steps need neither the host's random numbers nor its waiting."""
        return False

    def begin_stage(self) -> None:
        """A stage begins: what was made for the one before is no longer right."""

    def settle(self, all_of_it: bool = True) -> None:
        """Raise if a step diverged: of all, or those up to the last but one call of this.

        So a device need not run out of work while the host waits for it.
        """
        self.guard.poll(all_of_it)

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


class HostGuard:
    """Looks at every loss and gradient before the step is taken: cheap on the CPU."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.one, self.found = torch.ones(()), torch.zeros(())
        self.alike = len({p.dtype for p in step.parameters}) == 1 and not step.sharded

    def check(self) -> None:
        """Raise unless the losses so far and all gradients are finite."""
        gradients = [g for p in self.step.parameters if (g := p.grad) is not None]
        for group in [gradients] if self.alike else _by_dtype(gradients):
            # The only operation that tests a list of tensors in one pass; it multiplies by one.
            torch._amp_foreach_non_finite_check_and_unscale_(group, self.found, self.one)
        finite = math.isfinite(self.step.loss_sum)
        if self.found.item() or not finite:
            self.found.zero_()
            raise self.diverged("" if finite else "the loss is not finite")

    def poll(self, all_of_it: bool = True) -> None:
        """Nothing is under way."""

    def diverged(self, what: str) -> DivergedError:
        """The error, with the names of the parameters concerned."""
        names = zip(self.step.names, self.step.parameters, strict=True)
        bad = [
            n for n, p in names if p.grad is not None and not bool(local(p.grad).isfinite().all())
        ]
        return divergence(what, bad)


class DeviceGuard:
    """Notes on the device when a loss or a gradient first was not finite; read now and then.

    To look at every step would make the host wait for the device at every step.
    """

    def __init__(self, step: Step) -> None:
        self.step = step
        device, size = step.options.device, len(step.parameters) + 1
        self.steps = torch.zeros((), dtype=torch.int64, device=device)
        self.since = torch.full((size,), NEVER, dtype=torch.int64, device=device)
        self.reports: deque[_Report] = deque()
        self.packed: Any = None
        self.kept: list[Any] = []
        self.known: Any = None

    def check(self) -> None:
        """Note, without waiting, in which step each gradient and last the loss first was bad."""
        self.steps += 1
        gradients = [p.grad for p in self.step.parameters]
        if not self._check_at_once(gradients):
            zero = self.step.loss_sum.new_zeros(())
            norms = [zero if g is None else torch.linalg.vector_norm(local(g)) for g in gradients]
            sizes = torch.stack([x.double() for x in (*norms, self.step.loss_sum)])
            bad = torch.where(sizes.isfinite(), NEVER, self.steps)
            torch.minimum(self.since, bad, out=self.since)

    def _check_at_once(self, gradients: list[Tensor | None]) -> bool:
        """All gradients in one launch of a kernel, where they are such as it takes."""
        found = [(i, g) for i, g in enumerate(gradients) if g is not None]
        kinds = {g.dtype for _, g in found}
        if len(kinds) != 1 or not all(type(g) is Tensor and _is_dense(g) for _, g in found):
            return False
        if not kernels.usable_on(self.steps):
            return False
        from aucmax.kernels import guard, packed

        if not kinds <= packed.TYPES.keys():
            return False

        known = [(i, g.numel()) for i, g in found]
        if known != self.known:
            self.kept.append(self.packed)  # a graph may read it
            where, columns = [i for i, _ in found], [[0] for _ in found]
            self.packed = packed.Packed([g for _, g in found], columns, where, moving=0)
            self.known = known
        table = self.packed.table([g.data_ptr() for _, g in found], [])
        guard.note(table, kinds.pop(), self.step.loss_sum, self.steps, self.since)
        return True

    def poll(self, all_of_it: bool = True) -> None:
        """Wait for the device, or only for what it was given before the last call, and look."""
        if all_of_it or self.since.device.type != "cuda":
            self.reports.clear()
        else:
            self.reports.append(_Report(self.since))
            if len(self.reports) == 1 or self.reports.popleft().is_good():
                return
        *since, of_loss = self.since.tolist()
        first = min(*since, of_loss)
        if first < NEVER:
            names = [n for n, at in zip(self.step.names, since, strict=True) if at == first]
            raise divergence("", names, int(self.steps) - first)

    def diverged(self, what: str) -> DivergedError:
        """The error where the loss itself has raised one."""
        return divergence(what, [])


class _Report:
    """What a guard had noted when the device came to here."""

    def __init__(self, since: Tensor) -> None:
        pinned = torch.empty_like(since, device="cpu", pin_memory=True)
        self.since = pinned.copy_(since, non_blocking=True)
        self.made = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self.made.record()

    def is_good(self) -> bool:
        """Whether nothing was bad; waits for the device to have come there."""
        self.made.synchronize()
        return bool((self.since == NEVER).all())


def divergence(what: str, names: list[str], steps_ago: int = 0) -> DivergedError:
    """The error; the loop adds the step and the batch."""
    parts = [what] if what else []
    if names:
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        parts.append(f"gradients are not finite in {shown}")
    error = DivergedError("; ".join(parts) or "the loss is not finite")
    error.steps_ago = steps_ago
    return error


def forget_gradients(optimizer: Optimizer) -> None:
    """``optimizer.zero_grad()``, which itself takes as long as a layer of a small network."""
    if type(optimizer).zero_grad is not Optimizer.zero_grad:  # one with its own way
        optimizer.zero_grad(set_to_none=True)
        return
    for group in optimizer.param_groups:
        for p in group["params"]:
            p.grad = None


def load(source: BatchSource, options: Options, drawn: tuple[Any, ...]) -> Batch:
    """The batch on the device, augmented."""
    return source.load(drawn, options.augment)


def autocast(options: Options) -> Any:
    """Mixed precision if it is asked for; without a cache, which a captured graph must not have."""
    if options.amp is None:
        return nullcontext()
    return torch.autocast(options.device.type, AMP[options.amp], cache_enabled=False)


def moving(phase: Phase) -> list[Tensor]:
    """What a step of PPD-SG or SGD changes: the iterate, its average, its momentum.

    Not the reference, which is the same everywhere: a stage begins at one model.
    """
    optimizer, average = phase.optimizer, phase.average
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    states = [optimizer.state.get(p, {}) for p in parameters]
    found = [state.get(name) for state in states for name in MOVING]
    if isinstance(average, IterateAverage):
        found += [*average.first, *average.drift]
    return [*(p for p in parameters if p.requires_grad), *(x for x in found if x is not None)]


def _wrapped(objective: Objective, options: Options) -> Callable[..., Tensor]:
    """The objective, data-parallel under a process group, compiled if asked for.

    If neither, it is its plain function: nobody hooks on to a module that is made here.
    """
    wrapped: nn.Module = objective
    if options.walks_apart:
        distributed.broadcast_tensors([*objective.parameters(), *objective.buffers()])
    elif distributed.world_size() > 1 and options.parallel == "ddp":
        devices = [options.device] if options.device.type == "cuda" else None
        wrapped = DistributedDataParallel(objective, device_ids=devices)
    if options.compile:
        return torch.compile(wrapped)
    return objective.forward if wrapped is objective else wrapped


def _weighed(batches: list[Batch]) -> list[tuple[Batch, Any]]:
    """Each part of a step's batch with how much its mean counts in that of the whole.

    Parts without weights are of equal size and count alike. One whose weights are all zero counts
    nothing; its weights become ones, for it has no mean of its own.
    """
    unweighted = batches[0].weight is None
    if unweighted or (len(batches) == 1 and distributed.world_size() == 1):
        return [(batch, None if len(batches) == 1 else 1.0 / len(batches)) for batch in batches]
    weights = [batch.weight for batch in batches if batch.weight is not None]
    sums = [weight.sum() for weight in weights]
    total = distributed.sum_over_ranks(torch.stack(sums).sum())
    usable = [w + (s == 0) for w, s in zip(weights, sums, strict=True)]
    return [
        (batch._replace(weight=w), s * distributed.world_size() / total)
        for batch, w, s in zip(batches, usable, sums, strict=True)
    ]


def _is_dense(x: Tensor) -> bool:
    return x.is_contiguous() or x.is_contiguous(memory_format=torch.channels_last)


def _by_dtype(tensors: list[Tensor]) -> Iterator[list[Tensor]]:
    shards = [local(x) for x in tensors]
    for dtype in {x.dtype for x in shards}:
        yield [x for x in shards if x.dtype == dtype]
