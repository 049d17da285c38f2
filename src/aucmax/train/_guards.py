"""Whether a loss or a gradient is NaN or infinite: seen by the host, or noted on the device."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from aucmax import kernels
from aucmax.checks import is_sharded
from aucmax.optim.staged import local
from aucmax.train._result import DivergedError

NEVER = 1 << 62  # a step that no run takes


class HostGuard:
    """Looks at every loss and gradient before the step is taken: cheap on the CPU.

    Args:
        parameters: those that have gradients, by name.
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter]) -> None:
        self.parameters = parameters
        self._one, self._bad = torch.ones(()), torch.zeros(())
        values = parameters.values()
        self._alike = len({p.dtype for p in values}) == 1 and not any(map(is_sharded, values))

    def check(self, loss_sum: Any) -> None:
        """Raise unless the losses so far and all gradients are finite."""
        gradients = [entries(g) for p in self.parameters.values() if (g := p.grad) is not None]
        lists = [gradients]
        if not self._alike:
            shards = [local(g) for g in gradients]
            lists = [[g for g in shards if g.dtype == kind] for kind in {g.dtype for g in shards}]
        for tensors in lists:
            # The only operation that tests a list of tensors in one pass; it multiplies by one.
            torch._amp_foreach_non_finite_check_and_unscale_(tensors, self._bad, self._one)
        finite = math.isfinite(loss_sum)
        if self._bad.item() or not finite:
            self._bad.zero_()
            raise self.diverged("" if finite else "the loss is not finite")

    def look(self, wait: bool) -> None:
        """Nothing is under way."""

    def forget_tables(self) -> None:
        """There are none."""

    def diverged(self, what: str) -> DivergedError:
        """The error, with the names of the parameters concerned."""
        bad = [
            name
            for name, p in self.parameters.items()
            if p.grad is not None and not bool(local(entries(p.grad)).isfinite().all())
        ]
        return divergence(what, bad)


class DeviceGuard:
    """Notes on the device when a loss or a gradient first was not finite; read now and then.

    To look at every step would make the host wait for the device at every step.

    Args:
        parameters: those that have gradients, by name.
        device: where they are.
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter], device: torch.device) -> None:
        self.parameters = parameters
        self.steps = torch.zeros((), dtype=torch.int64, device=device)
        self.since = torch.full((len(parameters) + 1,), NEVER, dtype=torch.int64, device=device)
        self._notes: deque[_Note] = deque()
        self._table: Any = None
        self._old_tables: list[Any] = []
        self._sizes: list[tuple[int, int]] | None = None

    def check(self, loss_sum: Tensor) -> None:
        """Note, without waiting, in which step each gradient and last the loss first was bad."""
        self.steps += 1
        gradients = [p.grad for p in self.parameters.values()]
        if not self._check_at_once(gradients, loss_sum):
            zero = loss_sum.new_zeros(())
            norms = [zero if g is None else torch.linalg.vector_norm(local(g)) for g in gradients]
            sizes = torch.stack([x.double() for x in (*norms, loss_sum)])
            bad = torch.where(sizes.isfinite(), NEVER, self.steps)
            torch.minimum(self.since, bad, out=self.since)

    def _check_at_once(self, gradients: list[Tensor | None], loss_sum: Tensor) -> bool:
        """All gradients in one launch of a kernel, where they are such as it takes."""
        present = [(i, g) for i, g in enumerate(gradients) if g is not None]
        kinds = {g.dtype for _, g in present}
        dense = (torch.contiguous_format, torch.channels_last)
        if len(kinds) != 1 or not all(
            type(g) is Tensor and any(g.is_contiguous(memory_format=how) for how in dense)
            for _, g in present
        ):
            return False
        if not kernels.usable_on(self.steps):
            return False
        from aucmax.kernels import guard, packed

        if not kinds <= packed.TYPES.keys():
            return False
        sizes = [(i, g.numel()) for i, g in present]
        if sizes != self._sizes:
            self._old_tables.append(self._table)  # a graph may read it
            where, tensors = [i for i, _ in present], [g for _, g in present]
            self._table = packed.Packed(tensors, guard.COLUMNS, {}, where)
            self._sizes = sizes
        table = self._table.table([g.data_ptr() for _, g in present])
        guard.note(table, kinds.pop(), loss_sum, self.steps, self.since)
        return True

    def look(self, wait: bool) -> None:
        """Raise if a step was bad: of all, which the device is waited for, or up to the last look.

        So a device need not run out of work while the host waits for it.
        """
        if wait or self.since.device.type != "cuda":
            self._notes.clear()
        else:
            self._notes.append(_Note(self.since))
            if len(self._notes) == 1 or self._notes.popleft().is_good():
                return
        *since, of_loss = self.since.tolist()
        first = min(*since, of_loss)
        if first < NEVER:
            names = [n for n, at in zip(self.parameters, since, strict=True) if at == first]
            raise divergence("", names, int(self.steps) - first)

    def forget_tables(self) -> None:
        """What was to fill them may have been recorded in a graph, not done."""
        self._sizes = None

    def diverged(self, what: str) -> DivergedError:
        """The error where the loss itself has raised one."""
        return divergence(what, [])


class _Note:
    """What a guard had noted when the device came to here."""

    def __init__(self, since: Tensor) -> None:
        pinned = torch.empty_like(since, device="cpu", pin_memory=True)
        self.since = pinned.copy_(since, non_blocking=True)
        self.written = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self.written.record()

    def is_good(self) -> bool:
        """Whether nothing was bad; waits for the device to have come there."""
        self.written.synchronize()
        return bool((self.since == NEVER).all())


def entries(grad: Tensor) -> Tensor:
    """The numbers of a gradient; of a sparse one those that it holds."""
    return grad._values() if grad.is_sparse else grad


def divergence(what: str, names: list[str], steps_ago: int = 0) -> DivergedError:
    """The error; the loop adds the step and the batch."""
    parts = [what] if what else []
    if names:
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        parts.append(f"gradients are not finite in {shown}")
    error = DivergedError("; ".join(parts) or "the loss is not finite")
    error.steps_ago = steps_ago
    return error
