"""What the paper's optimizers share: the reference, the running average, the end of a stage."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer

from aucmax import checks, kernels
from aucmax.checks import is_sharded
from aucmax.optim._fused import FusedStep

BLOCK = 1 << 19
"""Elements worked on at a time: a few arrays of that size fit the cache, so that a step of several
operations reads main memory once, and its temporaries stay below two megabytes in float32."""

Group = dict[str, Any]
State = dict[str, Tensor]
Step = TypeVar("Step", bound=Callable[..., Any])

_PLAIN = {Tensor, torch.nn.Parameter}


class Begun(NamedTuple):
    """A group at the beginning of a step; of tensors that are sharded, this rank's parts."""

    group: Group
    params: list[Tensor]
    """Those that have a gradient."""
    grads: list[Tensor]
    states: list[State]
    resting: list[Tensor]
    """Parameters without a gradient."""


def use_grad_for_differentiable(step: Step) -> Step:
    """Run a step with gradients enabled if the optimizer is differentiable, else without.

    torch's own decorator of this name loads the compiler at the first step: seconds.
    """

    @functools.wraps(step)
    def run(self: StagedOptimizer, closure: Callable[[], Any] | None = None) -> Any:
        with torch.set_grad_enabled(self.defaults["differentiable"]):
            return step(self, closure)

    return run  # type: ignore[return-value]


class StagedOptimizer(Optimizer):
    """Base of the optimizers.

    ``state[p]["step"]`` counts the steps of the stage, those too in which a parameter has no
    gradient: where it rests is a point of its average as well. So all parameters of a group count
    alike, and share one tensor: to count for each would take as long as to move a small one. The
    other state begins with the first gradient in a stage: until then a parameter has not moved, so
    its average is its value. The average is kept as the sum of the distances to a fixed point, the
    ``drift``: a running mean in single precision would stand still in a long stage, when a step's
    share of it falls below the last digit. A group with ``maximize=True`` is the dual. Parameters
    in half precision keep their state in single precision.

    A subclass names a group's state (:meth:`_state_names`) and moves the parameters in ``step``;
    if it names a ``kernel``, that moves all of them at once where they are on a GPU.
    """

    counts_start = True
    """Whether the average holds the stage's starting point (Alg. 2, line 10)."""

    numbers: tuple[str, ...] = ("step",)
    """State of one element, which a group's parameters share. It is in double precision, since
    single precision counts to 2 ** 24 only, and on the CPU; with ``capturable`` it is on the device
    of the parameters, where a CUDA graph counts at every replay."""

    exact: tuple[str, ...] = ()
    """State that stays in its own precision, whatever that of the parameter."""

    kernel: str | None = None
    """The kernel of :mod:`aucmax.kernels.steps` that takes the step, if there is one."""

    _fused: FusedStep | None = None

    def add_param_group(self, param_group: Group) -> None:
        """Add a group of parameters; it begins a stage of its own."""
        options = {**self.defaults, **param_group}
        for name, value in options.items():
            if name in ("lr", "momentum", "weight_decay"):
                checks.non_negative(name, value.detach() if isinstance(value, Tensor) else value)
            elif name in ("gamma", "delta", "radius", "dual_radius"):
                checks.positive(name, value, infinite=True)
            elif name in ("foreach", "fused"):
                checks.choice(name, value, (None, True, False))
            elif name in ("maximize", "capturable", "differentiable"):
                checks.choice(name, value, (True, False))
            if name in ("momentum", "weight_decay") and value and name not in self.defaults:
                raise ValueError(f"{type(self).__name__} has no {name}, found {value!r}")
        if options["fused"] and self.kernel is None:
            raise RuntimeError(f"`fused=True` is not supported by {type(self).__name__}")
        if options["fused"] and options["foreach"]:
            raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
        for name in ("fused", "foreach"):
            if options[name] and options["differentiable"]:
                raise RuntimeError(f"`{name}` does not support `differentiable`")
        super().add_param_group(param_group)
        self.forget_tables()

    def catch_up(self) -> None:
        """Do what steps have left for later; those of most optimizers leave nothing."""

    def averages(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Each averaged parameter that has moved in the running stage, with its average."""
        self.catch_up()
        for group in self.param_groups:
            steps = self._stage_steps(group)
            for p in group["params"]:
                if "drift" in self.state.get(p, ()):
                    yield p, self._average(self.state[p], steps)

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
        self.catch_up()
        for group in self.param_groups:
            steps = self._stage_steps(group)
            for p in group["params"]:
                state = self.state.pop(p, {})
                average = self._average(state, steps) if "drift" in state else None
                kept = self._end_stage_of(group, p, state, average, restart)
                if kept:
                    self.state[p] = kept
        self.forget_tables()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a saved state; that of half-precision parameters stays in single precision."""
        if any("stage_steps" in group for group in state_dict["param_groups"]):
            raise ValueError(
                "state_dict must be one that this version of aucmax saved, found stage_steps in "
                "its param_groups, which an earlier one wrote"
            )
        given: dict[str, Any] = {}
        last_hook = self.register_load_state_dict_pre_hook(lambda _, final: given.update(final))
        try:
            super().load_state_dict(state_dict)
        finally:
            last_hook.remove()
        keys = (key for group in given["param_groups"] for key in group["params"])
        for group in self.param_groups:
            for p in group["params"]:
                for name, x in given["state"].get(next(keys), {}).items():
                    if name in self.numbers:
                        place = p.device if group["capturable"] else "cpu"
                        self.state[p][name] = x.to(place, torch.float64, copy=True)
                    elif p.dtype in checks.LOW_PRECISION or name in self.exact:
                        self.state[p][name] = x.to(p.device, copy=True)
        self.forget_tables()

    def forget_tables(self) -> None:
        """Forget the tables of addresses that a kernel works on; the next step makes them anew.

        Needed where a CUDA graph failed to be captured: what was to fill them may have been
        recorded, not done.
        """
        self._fused = None

    # What a subclass says and what its step is made of.

    def _state_names(self, group: Group) -> list[str]:
        """A group's state beside ``step``, in the order in which it begins."""
        raise NotImplementedError

    def _check_capture(self) -> None:
        """Steps that are counted on the host are not counted when a captured graph is replayed."""
        if torch.compiler.is_compiling() or not torch.cuda.is_available():
            return
        if torch.cuda.is_current_stream_capturing() and not all(
            group["capturable"] for group in self.param_groups
        ):
            raise RuntimeError(
                "the step cannot be captured in a CUDA graph: build the optimizer with "
                "capturable=True"
            )

    def _step_fused(self) -> bool:
        """Take the step on all groups in one launch of the kernel; False if that cannot be.

        Every group must ask for it, or leave the choice and be where it works.
        """
        groups = self.param_groups
        first = next((p for group in groups for p in group["params"]), None)
        if first is None or torch.compiler.is_compiling() or not kernels.usable_on(first):
            return False
        for group in groups:
            left_open = group["fused"] is None and group["foreach"] is None
            if not (group["fused"] or (left_open and not group["differentiable"])):
                return False
        if self._fused is None:
            assert self.kernel is not None
            self._fused = FusedStep(self.kernel, [group["params"] for group in groups])
        factors = [self._factors(group) for group in groups]
        names = [self._state_names(group) for group in groups]
        if not self._fused(factors, names, self._begin_groups, self.state):
            return False
        self._count()
        self._rest(self._fused.resting)
        return True

    def _begin_step(self) -> list[Begun]:
        """All groups, checked and begun before anything moves, and the step counted."""
        begun = self._begin_groups()
        self._count()
        return begun

    def _count(self) -> None:
        groups = [group for group in self.param_groups if group["params"]]
        if groups:
            torch._foreach_add_([self._numbers_of(group)["step"] for group in groups], 1.0)

    def _begin_groups(self) -> list[Begun]:
        return [self._begin_group(group) for group in self.param_groups if group["params"]]

    def _begin_group(self, group: Group) -> Begun:
        # Not `_init_group`: torch.compile relies on what a method of that name finds for good,
        # while here every stage begins new state.
        names, numbers = self._state_names(group), self._numbers_of(group)
        params, grads, states, resting = [], [], [], []
        for p in group["params"]:
            state, grad = self.state[p], p.grad
            if state.get("step") is not numbers["step"]:  # also after a load, or a move elsewhere
                state.update(numbers)
            if grad is None:
                resting.append(p)
                continue
            if grad.layout is not torch.strided:
                self._check_sparse(group, grad)
            if names and names[-1] not in state:
                if not p.is_floating_point():
                    raise ValueError(f"parameters must be real floating point, found {p.dtype}")
                self._begin_state(p, state, names)
            params.append(p)
            grads.append(grad)
            states.append(state)
        if not _PLAIN.issuperset(map(type, params)):  # elementwise work is that of the shards
            params, grads = [local(p) for p in params], [local(g) for g in grads]
            states = [{name: local(x) for name, x in state.items()} for state in states]
        return Begun(group, params, grads, states, resting)

    def _check_sparse(self, group: Group, grad: Tensor) -> None:
        """Raise for a gradient that is not dense, unless the step can take it."""
        raise ValueError(f"gradients must be dense, found layout {grad.layout}")

    def _begin_state(self, p: Tensor, state: State, names: list[str]) -> None:
        """Begin what the state lacks: a copy as the reference, sums at zero."""
        for name in names:
            if name in state:
                continue
            if name == "reference":
                state[name] = copy_of(p)
            elif name == "drift":
                state[name] = copy_of(p).sub_(centre_of(state))
                local(state[name]).mul_(scalar(state["step"]) + 1.0)  # it rested up to here
            else:
                state[name] = torch.zeros_like(p, dtype=exact_dtype(p))

    def _rest(self, params: list[Tensor]) -> None:
        """Parameters without a gradient stood still: one more equal point in their average."""
        for p in params:
            state = self.state[p]
            if "drift" in state:
                state["drift"].add_(p).sub_(centre_of(state))

    def _factors(self, group: Group) -> dict[str, Any]:
        """The numbers that the kernel reads for a group, by their names."""
        raise NotImplementedError

    def _numbers_of(self, group: Group) -> State:
        """What the parameters of a group share, at zero if its stage has not begun."""
        for p in group["params"]:
            if p in self.state and "step" in self.state[p]:
                return {name: self.state[p][name] for name in self.numbers}
        place = group["params"][0].device if group["capturable"] and group["params"] else "cpu"
        return {name: torch.zeros((), dtype=torch.float64, device=place) for name in self.numbers}

    def _stage_steps(self, group: Group) -> float:
        return self._numbers_of(group)["step"].item()

    def _average(self, state: State, steps: float) -> Tensor:
        share = 1.0 / (steps + self.counts_start)
        return torch.add(centre_of(state), state["drift"], alpha=share)

    def _end_stage_of(
        self, group: Group, p: Tensor, state: State, average: Tensor | None, restart: str
    ) -> State:
        """Set a parameter for the next stage; returns what of its state outlives this one."""
        if average is None:
            return {}
        if restart == "last":
            return {"reference": average}  # Alg. 2, line 3
        p.copy_(average)
        return {}


def default_to_fused_or_foreach(
    params: list[Tensor],
    lr: float | Tensor,
    foreach: bool | None,
    fused: bool | None,
    differentiable: bool,
) -> tuple[bool, bool]:
    """Whether to use the fused and the list implementation; torch's default is lists on a GPU only.

    Tensors are moved one by one where autograd or the compiler follows, which fuses single tensors
    better, and in half precision, of which one copy is made at a time.
    """
    if torch.compiler.is_compiling():
        return False, False
    if fused or differentiable:
        return bool(fused), False
    on_device = isinstance(lr, Tensor) and not lr.is_cpu  # lists are scaled by Python numbers
    if foreach and on_device:
        raise ValueError("lr as a Tensor on an accelerator is not supported for foreach=True")
    if foreach is None:
        foreach = fused is None and not on_device
    return False, foreach and {p.dtype for p in params}.isdisjoint(checks.LOW_PRECISION)


def check_restart(restart: str) -> None:
    """Raise unless it is a known way to go on."""
    if restart not in ("average", "last"):
        raise ValueError(f"restart must be 'average' or 'last', found {restart!r}")


def scalar(x: float | Tensor) -> Any:
    """A Python number; while compiling a tensor stays one, so that a new value recompiles nothing.

    So does one that is differentiated by, and one on an accelerator: reading it would wait for
    that, and a graph could not.
    """
    if not isinstance(x, Tensor) or torch.compiler.is_compiling():
        return x
    return x.item() if x.is_cpu and not x.requires_grad else x


def exact_dtype(p: Tensor) -> torch.dtype:
    """The type of a parameter's state: single precision or better."""
    return torch.float32 if p.dtype in checks.LOW_PRECISION else p.dtype


def copy_of(p: Tensor) -> Tensor:
    """A copy to keep as state."""
    return p.to(exact_dtype(p), copy=True)


def local(x: Tensor) -> Tensor:
    """This rank's part of a tensor that is sharded over ranks; others as they are."""
    return x.to_local() if is_sharded(x) else x  # type: ignore[attr-defined]


def full(x: Tensor) -> Tensor:
    """The whole of a tensor that is sharded over ranks; others as they are."""
    return x.full_tensor() if is_sharded(x) else x  # type: ignore[attr-defined]


def centre_of(state: State) -> Tensor:
    """The point that the drift is measured from."""
    return state["centre"] if "centre" in state else state["reference"]


@contextmanager
def in_single_precision(p: Tensor) -> Iterator[Tensor]:
    """A half-precision parameter as a single-precision copy that is written back, others as is."""
    if p.dtype not in checks.LOW_PRECISION:
        yield p
        return
    exact = p.float()
    yield exact
    p.copy_(exact)


def blocks(*columns: list[Tensor]) -> Iterator[list[list[Tensor]]]:
    """Columns of tensors by device and dtype, in parts of about ``BLOCK`` elements.

    Small tensors are taken together, a large contiguous one is cut into flat pieces. A column may
    be empty, and then is so in every part.
    """
    present = [column for column in columns if column]
    if not present:
        return
    groups: list[Any] = [present]
    if len({(p.dtype, p.get_device()) for p in present[0]}) > 1:  # else it takes a while in vain
        grouped = Optimizer._group_tensors_by_device_and_dtype(present)  # type: ignore[arg-type]
        groups = [alike for alike, _ in grouped.values()]
    for alike in groups:
        for part in _cut(alike):
            parts = iter(part)
            yield [next(parts) if column else [] for column in columns]


def _cut(columns: list[list[Tensor]]) -> Iterator[list[list[Tensor]]]:
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
