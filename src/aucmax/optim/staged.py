"""What the paper's optimizers share: the reference, the running average, the end of a stage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer

from aucmax import checks
from aucmax.checks import is_sharded
from aucmax.optim._fused import FusedStep, possible

BLOCK = 1 << 19
"""Elements worked on at a time: a few arrays of that size fit the cache, so that a step of several
operations reads main memory once, and its temporaries stay below two megabytes in float32."""


class StagedOptimizer(Optimizer):
    """Base of the optimizers.

    A parameter's state begins with its first gradient in a stage: until then it has not moved, so
    its average is its value. The average is kept as the sum of the distances to a fixed point, the
    ``drift``: a running mean in single precision would stand still in a long stage, when a step's
    share of it falls below the last digit. A group with ``maximize=True`` is the dual. Parameters
    in half precision keep their state in single precision.

    A subclass names a group's state (:meth:`_names`) and moves one tensor (:meth:`_move_one`) or a
    list of tensors (:meth:`_move_many`); if it names a ``kernel``, that moves all of them at once
    where they are on a GPU.
    """

    counters: tuple[str, ...] = ("stage_steps",)
    """Numbers that groups count in, tensors: on the CPU, or with ``capturable`` on the device of
    the parameters, where a CUDA graph counts them at every replay."""

    counts_start = True
    """Whether the average holds the stage's starting point (Algorithm 2, line 10)."""

    lists_take_tensors = False
    """Whether :meth:`_move_many` can scale by a tensor too, as it must within a CUDA graph if the
    step size changes at every step."""

    kernel: str | None = None
    """The function of :mod:`aucmax.kernels.steps` that takes the step, if there is one."""

    kernel_columns: tuple[str, ...] = ()
    """The state it works on, after the parameter and its gradient."""

    _fused: FusedStep | None = None

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters; it begins a stage of its own."""
        for name, value in {**self.defaults, **param_group}.items():
            if name in ("lr", "momentum", "weight_decay"):
                checks.non_negative(name, value)
            elif name in ("gamma", "delta", "radius", "dual_radius"):
                checks.positive(name, value, infinite=True)
            if name in ("momentum", "weight_decay") and value and name not in self.defaults:
                raise ValueError(f"{type(self).__name__} has no {name}, found {value!r}")
        super().add_param_group(param_group)
        self._keep_counters()
        self.forget_tables()

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
        self._check_capture()
        if not (possible(self) and self._step_fused()):
            self._step_lists()
        return loss

    def _step_fused(self) -> bool:
        """The step in one launch of the kernel; False if the tensors are not such."""
        if self._fused is None:
            self._fused = FusedStep(self)
        if not self._fused():
            return False
        torch._foreach_add_([group["stage_steps"] for group in self.param_groups], 1.0)
        if any(p.grad is None for p in self._fused.parameters):
            self._finish()
        return True

    def _step_lists(self) -> None:
        """The step list by list, or tensor by tensor."""
        begun = [self._begin(group) for group in self.param_groups]
        for group, (moving, states) in zip(self.param_groups, begun, strict=True):
            group["stage_steps"] += 1
            self._move(group, moving, states)
        self._finish()

    def averages(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Each averaged parameter that has moved in the running stage, with its average."""
        for group, p, state in self._states():
            if "drift" in state:
                yield p, self._average(group, state)

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
        for group in self.param_groups:
            for p in group["params"]:
                kept = self._restart(group, p, self.state.pop(p, {}), restart)
                if kept:
                    self.state[p] = kept
            group["stage_steps"].zero_()
        self.forget_tables()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a saved state; that of half-precision parameters stays in single precision."""
        given: dict[str, Any] = {}
        last_hook = self.register_load_state_dict_pre_hook(lambda _, final: given.update(final))
        try:
            super().load_state_dict(state_dict)
        finally:
            last_hook.remove()
        self._keep_counters()
        self.forget_tables()
        keys = [key for group in given["param_groups"] for key in group["params"]]
        parameters = [p for group in self.param_groups for p in group["params"]]
        for key, p in zip(keys, parameters, strict=True):
            if p.dtype in checks.LOW_PRECISION:
                saved = given["state"].get(key, {})
                self.state[p] = {name: x.to(p.device, copy=True) for name, x in saved.items()}

    def forget_tables(self) -> None:
        """Forget the tables of addresses that a kernel works on; the next step makes them anew.

        Needed where a CUDA graph failed to be captured: what was to fill them may have been
        recorded, not done.
        """
        self._fused = None

    def _keep_counters(self) -> None:
        """Every group has the counters, where they belong whatever a load or a default says."""
        for group in self.param_groups:
            place = group["params"][0].device if group["capturable"] else "cpu"
            for name in self.counters:
                count = group.get(name, 0.0)
                group[name] = torch.as_tensor(count, dtype=torch.float64, device=place)

    def _check_capture(self) -> None:
        """Steps that are counted on the host are not counted when a captured graph is replayed."""
        if torch.compiler.is_compiling() or not torch.cuda.is_available():
            return
        if torch.cuda.is_current_stream_capturing() and not self.defaults["capturable"]:
            raise RuntimeError(
                "the step cannot be captured in a CUDA graph: build the optimizer with "
                "capturable=True"
            )

    def _states(self) -> Iterator[tuple[dict[str, Any], Tensor, dict[str, Tensor]]]:
        for group in self.param_groups:
            for p in group["params"]:
                if p in self.state:
                    yield group, p, self.state[p]

    def _begin(self, group: dict[str, Any]) -> tuple[list[Tensor], list[dict[str, Tensor]]]:
        """The parameters that have a gradient, and the state of each, begun."""
        moving = [p for p in group["params"] if p.grad is not None]
        states = [self.state[p] for p in moving]
        names = self._names(group)
        for p, state in zip(moving, states, strict=True):
            if p.grad.layout != torch.strided:
                raise ValueError(f"gradients must be dense, found layout {p.grad.layout}")
            if len(state) < len(names):
                _check_real(p)
                self._start(p, state, names)
        return moving, states

    def _start(self, p: Tensor, state: dict[str, Tensor], names: list[str]) -> None:
        """Begin what the state lacks: a copy as the reference, sums at zero."""
        for name in names:
            if name not in state:
                state[name] = copy_of(p)
                if name == "drift":
                    state[name].sub_(centre_of(state))
                elif name != "reference":
                    state[name].zero_()

    def _restart(
        self, group: dict[str, Any], p: Tensor, state: dict[str, Tensor], restart: str
    ) -> dict[str, Tensor]:
        """What of the state outlives the stage; the rest begins anew at the next step."""
        if "drift" not in state:
            return {}
        average = self._average(group, state)
        if restart == "last":
            return {"reference": average}
        p.copy_(average)
        return {}

    def _average(self, group: dict[str, Any], state: dict[str, Tensor]) -> Tensor:
        points = group["stage_steps"].item() + self.counts_start
        return torch.add(centre_of(state), state["drift"], alpha=1.0 / points)

    def _move(
        self, group: dict[str, Any], moving: list[Tensor], states: list[dict[str, Tensor]]
    ) -> None:
        """Move the parameters that have a gradient, as lists or one by one."""
        state = self._columns(group, states)
        columns: list[list[Any]] = [moving, [p.grad for p in moving], *state.values()]
        if any(map(is_sharded, moving)):  # elementwise work is that of the shards
            columns = [[local(x) for x in column] for column in columns]
            moving = columns[0]
        lr = self._lr(group)
        if wants_foreach(group, moving, None if self.lists_take_tensors else lr):
            for ps, gs, *rest in blocks(columns):
                self._move_many(group, lr, ps, gs, dict(zip(state, rest, strict=True)))
            return
        for p, g, *row in zip(*columns, strict=True):
            with in_single_precision(p) as exact:
                named = dict(zip(state, row, strict=True))
                self._move_one(group, lr, exact, g.to(exact.dtype), named)

    def _columns(
        self, group: dict[str, Any], states: list[dict[str, Tensor]]
    ) -> dict[str, list[Tensor]]:
        """The state that moving needs, a list for each name."""
        return {name: [state[name] for state in states] for name in self._names(group)}

    def _lr(self, group: dict[str, Any]) -> Any:
        return scalar(group["lr"])

    def _finish(self) -> None:
        """Parameters without a gradient stood still: one more equal point in their average."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None and "drift" in self.state.get(p, ()):
                    state = self.state[p]
                    state["drift"].add_(p).sub_(centre_of(state))

    def _factors(self, group: dict[str, Any]) -> list[Any]:
        """The numbers that the kernel takes for a group."""
        raise NotImplementedError

    def _kernel_state(self, group: dict[str, Any], state: dict[str, Tensor]) -> dict[str, Tensor]:
        """What of a parameter's state there is for ``kernel_columns``."""
        return {name: state[name] for name in self._names(group)}

    def _names(self, group: dict[str, Any]) -> list[str]:
        raise NotImplementedError

    def _move_one(
        self, group: dict[str, Any], lr: Any, p: Tensor, g: Tensor, state: dict[str, Tensor]
    ) -> None:
        raise NotImplementedError

    def _move_many(
        self,
        group: dict[str, Any],
        lr: float,
        ps: list[Tensor],
        gs: list[Tensor],
        state: dict[str, list[Tensor]],
    ) -> None:
        raise NotImplementedError


def check_restart(restart: str) -> None:
    """Raise unless it is a known way to go on."""
    if restart not in ("average", "last"):
        raise ValueError(f"restart must be 'average' or 'last', found {restart!r}")


def scalar(x: float | Tensor) -> Any:
    """A Python number; while compiling a tensor stays one, so that a new value recompiles nothing.

    So does one on an accelerator: reading it would wait for that, and a graph could not.
    """
    if not isinstance(x, Tensor) or torch.compiler.is_compiling() or not x.is_cpu:
        return x
    return x.item()


def copy_of(p: Tensor) -> Tensor:
    """A copy to keep as state, in single precision or better."""
    exact = torch.float32 if p.dtype in checks.LOW_PRECISION else p.dtype
    return p.detach().to(exact, copy=True)


def local(x: Tensor) -> Tensor:
    """This rank's part of a tensor that is sharded over ranks; others as they are."""
    return x.to_local() if is_sharded(x) else x  # type: ignore[attr-defined]


def full(x: Tensor) -> Tensor:
    """The whole of a tensor that is sharded over ranks; others as they are."""
    return x.full_tensor() if is_sharded(x) else x  # type: ignore[attr-defined]


def centre_of(state: dict[str, Tensor]) -> Tensor:
    """The point that the drift is measured from."""
    return state["centre"] if "centre" in state else state["reference"]


def wants_foreach(group: dict[str, Any], parameters: list[Tensor], lr: Any) -> bool:
    """Whether to move the group's tensors as lists; the compiler fuses single tensors better."""
    if group.get("foreach") is False or torch.compiler.is_compiling():
        return False
    if isinstance(lr, Tensor):  # lists are scaled by Python numbers only
        return False
    return not any(p.dtype in checks.LOW_PRECISION for p in parameters)


@contextmanager
def in_single_precision(p: Tensor) -> Iterator[Tensor]:
    """A half-precision parameter as a single-precision copy that is written back, others as is."""
    if p.dtype not in checks.LOW_PRECISION:
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
