"""What the paper's optimizers share: the reference, the running average, the end of a stage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer

from aucmax import _checks

BLOCK = 1 << 19
"""Elements worked on at a time: a few arrays of that size fit the cache, so that a step of several
operations reads main memory once, and its temporaries stay below two megabytes in float32."""


class StagedOptimizer(Optimizer):
    """Base of the optimizers.

    A parameter's state begins with its first gradient, as a copy of its value: until then it has
    not moved, so its average is its value. A group with ``maximize=True`` is the dual. Parameters
    in half precision keep their state in single precision, where a running average still moves.

    A subclass names a group's state (:meth:`_names`), moves one tensor (:meth:`_move_one`) or a
    list of tensors (:meth:`_move_many`), and says what a stage's end does (:meth:`_restart`).
    """

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters; it begins a stage of its own."""
        for name, value in {**self.defaults, **param_group}.items():
            if name in ("lr", "momentum", "weight_decay"):
                _checks.non_negative(name, value)
            elif name in ("gamma", "delta", "radius", "dual_radius"):
                _checks.positive(name, value)
        super().add_param_group(param_group)
        self.param_groups[-1].setdefault("stage_steps", host_zero())

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step.

        Args:
            closure: evaluates the model again and returns the loss, as in every torch optimizer.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        _refuse_capture()
        for group in self.param_groups:
            moving = self._begin(group)
            group["stage_steps"] += 1
            self._move(group, moving)
        self._finish()
        return loss

    def averages(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Each averaged parameter with its average over the running stage."""
        for parameter, state in self._states():
            if "average" in state:
                yield parameter, state["average"]

    @torch.no_grad()
    def end_stage(self, restart: str = "average") -> None:
        """End the stage: the average becomes the reference, momentum and sums begin anew.

        Afterwards set alpha from fresh examples with the loss's ``reset_dual``, scored at the
        average: that is where the model stands, unless it goes on from the last iterate; then
        score them within :func:`aucmax.averaged` before the stage ends.

        Args:
            restart: "average" goes on from the average, as in the paper; "last" goes on from the
                last iterate, and the average is the reference only.
        """
        check_restart(restart)
        for parameter, state in self._states():
            self._restart(parameter, state, restart)
        for group in self.param_groups:
            group["stage_steps"].zero_()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a saved state; that of half-precision parameters stays in single precision."""
        given: dict[str, Any] = {}
        last_hook = self.register_load_state_dict_pre_hook(lambda _, final: given.update(final))
        try:
            super().load_state_dict(state_dict)
        finally:
            last_hook.remove()
        keys = [key for group in given["param_groups"] for key in group["params"]]
        parameters = [p for group in self.param_groups for p in group["params"]]
        for key, p in zip(keys, parameters, strict=True):
            if p.dtype in _checks.LOW_PRECISION:
                saved = given["state"].get(key, {})
                self.state[p] = {name: x.to(p.device, copy=True) for name, x in saved.items()}

    def _states(self) -> Iterator[tuple[Tensor, dict[str, Tensor]]]:
        for group in self.param_groups:
            for p in group["params"]:
                if p in self.state:
                    yield p, self.state[p]

    def _begin(self, group: dict[str, Any]) -> list[Tensor]:
        """The parameters that have a gradient, each with its state begun."""
        moving = [p for p in group["params"] if p.grad is not None]
        for p in moving:
            if p.grad.layout != torch.strided:
                raise ValueError(f"gradients must be dense, found layout {p.grad.layout}")
            if not self.state[p]:
                _check_real(p)
                self.state[p] = self._start(p, group)
        return moving

    def _move(self, group: dict[str, Any], moving: list[Tensor]) -> None:
        """Move the parameters that have a gradient, as lists or one by one."""
        state = self._columns(group, [self.state[p] for p in moving])
        columns: list[list[Any]] = [moving, [p.grad for p in moving], *state.values()]
        lr, weight = self._rates(group)
        if wants_foreach(group, moving):
            for ps, gs, *rest in blocks(columns):
                self._move_many(group, lr, weight, ps, gs, dict(zip(state, rest, strict=True)))
            return
        for p, g, *row in zip(*columns, strict=True):
            with in_single_precision(p) as exact:
                named = dict(zip(state, row, strict=True))
                self._move_one(group, lr, weight, exact, g.to(exact.dtype), named)

    def _columns(
        self, group: dict[str, Any], states: list[dict[str, Tensor]]
    ) -> dict[str, list[Tensor]]:
        """The state that moving needs, a list for each name."""
        return {name: [state[name] for state in states] for name in self._names(group)}

    def _rates(self, group: dict[str, Any]) -> tuple[Any, Any]:
        """The step size, and the new iterate's weight in the average of the start and all since."""
        return scalar(group["lr"]), 1.0 / (scalar(group["stage_steps"]) + 1.0)

    def _finish(self) -> None:
        """Parameters without a gradient stood still: their average takes one more equal iterate."""
        for group in self.param_groups:
            idle = [p for p in group["params"] if p.grad is None and p in self.state]
            for p in idle:
                if "average" in self.state[p]:
                    take_in(self.state[p]["average"], p, self._rates(group)[1])

    def _names(self, group: dict[str, Any]) -> list[str]:
        raise NotImplementedError

    def _start(self, p: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        raise NotImplementedError

    def _move_one(
        self,
        group: dict[str, Any],
        lr: Any,
        weight: Any,
        p: Tensor,
        g: Tensor,
        state: dict[str, Tensor],
    ) -> None:
        raise NotImplementedError

    def _move_many(
        self,
        group: dict[str, Any],
        lr: float,
        weight: float,
        ps: list[Tensor],
        gs: list[Tensor],
        state: dict[str, list[Tensor]],
    ) -> None:
        raise NotImplementedError

    def _restart(self, p: Tensor, state: dict[str, Tensor], restart: str) -> None:
        raise NotImplementedError


def host_zero() -> Tensor:
    """A number that a compiled step may change, on the CPU whatever the default device."""
    return torch.zeros((), dtype=torch.float64, device="cpu")


def check_restart(restart: str) -> None:
    """Raise unless it is a known way to go on."""
    if restart not in ("average", "last"):
        raise ValueError(f"restart must be 'average' or 'last', found {restart!r}")


def scalar(x: float | Tensor) -> Any:
    """A Python number; while compiling a tensor stays one, so that a new value recompiles nothing.

    Only groups hold these tensors, on the CPU, so reading them does not wait for an accelerator.
    """
    return x.item() if isinstance(x, Tensor) and not torch.compiler.is_compiling() else x


def copy_of(p: Tensor) -> Tensor:
    """A copy to keep as state, in single precision or better."""
    exact = torch.float32 if p.dtype in _checks.LOW_PRECISION else p.dtype
    return p.detach().to(exact, copy=True)


def take_in(average: Tensor, p: Tensor, weight: Any) -> None:
    """Move the average towards ``p`` by the share ``weight``, a number or, compiled, a tensor."""
    if isinstance(weight, Tensor):
        average.add_((p - average).mul_(weight))
    else:
        average.lerp_(p.to(average.dtype), weight)


def restart_from_average(p: Tensor, state: dict[str, Tensor], restart: str) -> None:
    """The average becomes the reference; the next average begins where the iterate does."""
    state["reference"].copy_(state["average"])
    if restart == "average":
        p.copy_(state["average"])
    state["average"].copy_(p)


def wants_foreach(group: dict[str, Any], parameters: list[Tensor]) -> bool:
    """Whether to move the group's tensors as lists; the compiler fuses single tensors better."""
    if group.get("foreach") is False or torch.compiler.is_compiling():
        return False
    return not any(p.dtype in _checks.LOW_PRECISION for p in parameters)


@contextmanager
def in_single_precision(p: Tensor) -> Iterator[Tensor]:
    """A half-precision parameter as a single-precision copy that is written back, others as is."""
    if p.dtype not in _checks.LOW_PRECISION:
        yield p
        return
    exact = p.float()
    yield exact
    p.copy_(exact)


def blocks(columns: list[list[Tensor]]) -> Iterator[list[list[Tensor]]]:
    """Cut columns of tensors into parts of about ``BLOCK`` elements.

    Small tensors are taken together, a large contiguous one is cut into flat pieces.
    """
    first, size = 0, 0
    for i, p in enumerate(columns[0]):
        n = p.numel()
        if first < i and size + n > BLOCK:
            yield [column[first:i] for column in columns]
            first, size = i, 0
        if n > BLOCK and all(column[i].is_contiguous() for column in columns):
            pieces = zip(
                *(torch.split(column[i].view(-1), BLOCK) for column in columns), strict=True
            )
            yield from ([[x] for x in piece] for piece in pieces)
            first, size = i + 1, 0
        else:
            size += n
    if first < len(columns[0]):
        yield [column[first:] for column in columns]


def _check_real(p: Tensor) -> None:
    if not p.is_floating_point():
        raise ValueError(f"parameters must be real floating point, found {p.dtype}")


def _refuse_capture() -> None:
    """The average's weight is read on the host: a captured graph would repeat it for ever."""
    if torch.compiler.is_compiling() or not torch.cuda.is_available():
        return
    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError("the step cannot be captured in a CUDA graph")
