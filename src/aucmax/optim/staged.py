"""The base of the paper's optimizers: the step, the average of its points, the end of a stage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, ParamsT

from aucmax import checks, kernels
from aucmax.checks import is_sharded
from aucmax.optim._compiled import CompiledSteps
from aucmax.optim._fused import FusedStep

BLOCK = 1 << 19
"""Elements that the list form works on at a time on a CPU: a few arrays of that size fit the cache,
so that a step of several operations reads main memory once, and its temporaries stay small. On an
accelerator, where every launch costs, a block is 64 times as large."""

Group = dict[str, Any]
State = dict[str, Tensor]
Lists = dict[str, list[Tensor]]

_PLAIN_TYPES = {Tensor, torch.nn.Parameter}


class GroupTensors(NamedTuple):
    """The tensors of a group at the beginning of a step; of sharded ones, this rank's parts."""

    group: Group
    params: list[Tensor]  # those that have a gradient
    grads: list[Tensor]
    state: Lists  # by name, in the order of the parameters
    counters: State
    resting: list[Tensor]  # parameters without a gradient


class StagedOptimizer(Optimizer):
    """Base of the optimizers: moves parameters, keeps them in bounds, averages them, ends stages.

    A subclass names its state (:meth:`_state_names`) and writes its update twice: for one tensor
    (:meth:`_plain`), as the paper has it, and for lists of tensors (:meth:`_foreach`), in torch's
    ``_foreach_`` functions. The list form is the default. The plain form is taken with
    ``foreach=False``, for an ``lr`` that is a tensor, and for half precision. Under torch.compile
    both forms can have an ``lr`` that is a tensor.

    After the update, parameters of a group with ``bounds=(low, high)`` are clamped to them. Then
    the point enters the average if the group's state has a ``drift``, the sum of the distances of
    the stage's points to its first one. (A running mean in single precision would stall in a long
    stage, where a step's share of it falls below the last digit.) A parameter without a gradient
    stands still, which is one more point of its average. Parameters in half precision have their
    state in single precision.

    ``state[p]["step"]`` counts the steps of the stage. The parameters of a group share this tensor.
    All other state begins with a parameter's first gradient in the stage.
    """

    counts_start = True
    """True if the average includes the stage's starting point (Alg. 2, line 10)."""

    averages_in_update = True
    """False if a subclass adds the points to the average itself."""

    counters: tuple[str, ...] = ("step",)
    """Numbers that a group's parameters share, in double precision, since single precision counts
    to 2 ** 24 only. They are on the CPU, or with ``capturable`` on the device of the parameters,
    where a CUDA graph counts at every replay."""

    kernel: str | None = None
    """The kernel of :mod:`aucmax.kernels.steps` that takes the step, if there is one."""

    fused_form = "kernel"
    """The form that ``fused=True`` selects: the Triton "kernel", or the list form "compiled" by
    torch.compile. ``benchmarks/fused_step.py`` measures both; the slower one is to go."""

    _fused: FusedStep | None = None
    _compiled: CompiledSteps | None = None

    def __init__(self, params: ParamsT, defaults: Group) -> None:
        shared = {"maximize": False, "bounds": None, "foreach": None, "capturable": False}
        super().__init__(params, {**shared, **defaults})

    # ---- What a subclass provides ----------------------------------------------------------------

    def _state_names(self, group: Group) -> list[str]:
        """Return the names of a group's state, which begins in this order.

        "reference", "centre" and "average" begin as copies of the parameter, all others at zero.
        """
        raise NotImplementedError

    def _plain(self, p: Tensor, g: Tensor, state: State, group: Group) -> None:
        """Update one parameter in place from its gradient and its state."""
        raise NotImplementedError

    def _foreach(self, ps: list[Tensor], gs: list[Tensor], state: Lists, group: Group) -> None:
        """Update a list of parameters in place; the state is a list for each name."""
        raise NotImplementedError

    def _factors(self, group: Group) -> dict[str, Any]:
        """Return the numbers that the kernel reads for a group, by their names."""
        raise NotImplementedError

    # ---- The step --------------------------------------------------------------------------------

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
        compiling = torch.compiler.is_compiling()
        on_gpu = not compiling and torch.cuda.is_available()
        capturing = on_gpu and torch.cuda.is_current_stream_capturing()
        if capturing and not all(group["capturable"] for group in self.param_groups):
            raise RuntimeError(
                "the step cannot be captured in a CUDA graph: build the optimizer with "
                "capturable=True"
            )
        fused = not compiling and all(group.get("fused") for group in self.param_groups)
        if fused and self.fused_form == "kernel" and self._step_by_kernel():
            return loss
        groups = [group for group in self.param_groups if group["params"]]
        begun = [self._begin_group(group) for group in groups]  # all is checked before any moves
        self._count(groups, [tensors.counters for tensors in begun])
        for group, params, grads, state, counters, resting in begun:
            if resting:
                self._rest(resting, group)
            if not params:
                continue
            half = any(p.dtype in checks.LOW_PRECISION for p in params)
            number = compiling or not isinstance(group["lr"], Tensor)
            if half or not number or group["foreach"] is False:
                for i, (p, g) in enumerate(zip(params, grads, strict=True)):
                    own = {name: column[i] for name, column in state.items()}
                    self._step_plain(p, g, {**own, **counters}, group)
            elif fused and self.fused_form == "compiled":
                self._compiled = self._compiled or CompiledSteps()
                self._compiled(self._step_foreach, params, grads, {**state, **counters}, group)
            elif compiling or sum(map(Tensor.numel, params)) <= BLOCK:
                self._step_foreach(params, grads, {**state, **counters}, group)
            else:
                for ps, gs, part in blocks(params, grads, state):
                    self._step_foreach(ps, gs, {**part, **counters}, group)
        return loss

    def _step_plain(self, p: Tensor, g: Tensor, state: State, group: Group) -> None:
        """Update, clamp and average one parameter; half precision through a copy in single."""
        half = p.dtype in checks.LOW_PRECISION
        x = p.float() if half else p
        self._plain(x, g.to(x.dtype), state, group)
        if group["bounds"] is not None:
            x.clamp_(*group["bounds"])
        if self.averages_in_update and "drift" in state:
            state["drift"].add_(x).sub_(state.get("centre", state["reference"]))  # Alg. 2, line 10
        if half:
            p.copy_(x)

    def _step_foreach(self, ps: list[Tensor], gs: list[Tensor], state: Any, group: Group) -> None:
        """Update, clamp and average a list of parameters."""
        self._foreach(ps, gs, state, group)
        if group["bounds"] is not None:
            torch._foreach_clamp_min_(ps, group["bounds"][0])
            torch._foreach_clamp_max_(ps, group["bounds"][1])
        if self.averages_in_update and "drift" in state:  # Alg. 2, line 10
            torch._foreach_add_(state["drift"], ps)
            torch._foreach_sub_(state["drift"], state.get("centre", state["reference"]))

    def _begin_group(self, group: Group) -> GroupTensors:
        """Collect the tensors of a group, beginning the state that is not there yet."""
        # Not `_init_group`: torch.compile relies on what a method of that name finds for good,
        # while here every stage begins new state.
        names, first = self._state_names(group), self.state[group["params"][0]]
        shared = first if "step" in first else self._counters(group)
        counters = {name: shared[name] for name in self.counters}
        params, grads, states, resting = [], [], [], []
        for p in group["params"]:
            state, grad = self.state[p], p.grad
            if state.get("step") is not counters["step"]:
                state.update(counters)
            if grad is None:
                resting.append(p)
                continue
            if grad.layout is not torch.strided:
                raise ValueError(f"gradients must be dense, found layout {grad.layout}")
            if names and names[-1] not in state:
                if not p.is_floating_point():
                    raise ValueError(f"parameters must be real floating point, found {p.dtype}")
                self._begin_state(p, state, names)
            params.append(p)
            grads.append(grad)
            states.append(state)
        # "centre" is kept only where it differs from the reference
        lists = {
            name: [state[name] if name in state else state["reference"] for state in states]
            for name in names
        }
        if not _PLAIN_TYPES.issuperset(map(type, params)):  # elementwise work is that of the shards
            params, grads = [local(p) for p in params], [local(g) for g in grads]
            lists = {name: [local(x) for x in column] for name, column in lists.items()}
        return GroupTensors(group, params, grads, lists, counters, resting)

    def _begin_state(self, p: Tensor, state: State, names: list[str]) -> None:
        """Begin the state that a parameter lacks."""
        for name in names:
            if name in state:
                continue
            if name in ("reference", "centre", "average"):
                state[name] = copy_of(p)
            elif name == "drift":  # it stood still up to here
                state[name] = copy_of(p).sub_(centre_of(state))
                local(state[name]).mul_(number_of(state["step"]) + 1.0)
            else:
                state[name] = torch.zeros_like(p, dtype=exact_dtype(p))

    def _counters(self, group: Group) -> State:
        """Return the counters that a group's parameters share, at zero as its stage begins."""
        for p in group["params"]:
            if p in self.state and "step" in self.state[p]:
                return {name: self.state[p][name] for name in self.counters}
        device = group["params"][0].device if group["capturable"] and group["params"] else "cpu"
        return {name: torch.zeros((), dtype=torch.float64, device=device) for name in self.counters}

    def _count(self, groups: list[Group], counters: list[State]) -> None:
        """Count the step in each of these groups."""
        if counters:
            torch._foreach_add_([numbers["step"] for numbers in counters], 1.0)

    def _rest(self, params: list[Tensor], group: Group) -> None:
        """Add a point to the averages of parameters that stand still."""
        for p in params:
            state = self.state[p]
            if self.averages_in_update and "drift" in state:
                state["drift"].add_(p).sub_(centre_of(state))

    def _step_by_kernel(self) -> bool:
        """Take the step on all groups in one launch of the kernel, or return False."""
        groups = [group for group in self.param_groups if group["params"]]
        if self.kernel is None or not groups or not kernels.usable_on(groups[0]["params"][0]):
            return False
        if self._fused is None:
            self._fused = FusedStep(self.kernel, [group["params"] for group in groups])
        factors = []
        for group in groups:
            low, high = group["bounds"] or (-torch.inf, torch.inf)
            factors.append({**self._factors(group), "low": low, "high": high})
        names = [self._state_names(group) for group in groups]

        def begin() -> None:
            for group in groups:
                self._begin_group(group)

        if not self._fused(factors, names, begin, self.state):
            return False
        self._count(groups, [self._counters(group) for group in groups])
        if self._fused.resting:
            for group in groups:
                self._rest([p for p in group["params"] if p.grad is None], group)
        return True

    def forget_tables(self) -> None:
        """Forget the tables of addresses that a kernel works on; the next step makes them anew.

        Call it after a failed capture of a CUDA graph: the writes to the tables may have been
        recorded but not executed.
        """
        self._fused = None

    # ---- Averages and stages ---------------------------------------------------------------------

    def averages(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Iterate over the parameters that have moved in the running stage, with their averages."""
        for group in self.param_groups:
            steps = self._stage_steps(group)
            for p in group["params"]:
                if "drift" in self.state.get(p, ()):
                    yield p, self._average(self.state[p], steps)

    @torch.no_grad()
    def end_stage(self, restart: str = "average") -> None:
        """End the stage: the average becomes the reference, momentum and sums begin anew.

        Afterwards set alpha from fresh examples with the loss's ``reset_dual``, scored at the
        average: that is where the model stands, unless it continues from the last iterate; then
        score them within :func:`aucmax.averaged` before the stage ends.

        Args:
            restart: "average" continues from the average, as in the paper; "last" continues from
                the last iterate, and the average is the reference only.
        """
        check_restart(restart)
        for group in self.param_groups:
            steps = self._stage_steps(group)
            for p in group["params"]:
                state = self.state.pop(p, {})
                average = self._average(state, steps) if "drift" in state else None
                kept = self._end_stage_of(group, p, state, average, restart)
                if kept:
                    self.state[p] = kept
        self.forget_tables()

    def _end_stage_of(
        self, group: Group, p: Tensor, state: State, average: Tensor | None, restart: str
    ) -> State:
        """Set a parameter for the next stage and return the part of its state that lives on."""
        if average is None:
            return {}
        if restart == "last":
            return {"reference": average}  # Alg. 2, line 3
        p.copy_(average)
        return {}

    def _average(self, state: State, steps: float) -> Tensor:
        """Return the average of a parameter's points after that many steps."""
        return torch.add(centre_of(state), state["drift"], alpha=1.0 / (steps + self.counts_start))

    def _stage_steps(self, group: Group) -> float:
        """Return the number of steps that a group has taken in the running stage."""
        return self._counters(group)["step"].item()

    # ---- Groups and saved states -----------------------------------------------------------------

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
            elif name in ("maximize", "capturable"):
                checks.choice(name, value, (True, False))
            elif name == "bounds" and value is not None:
                check_bounds(value)
            if name in ("momentum", "weight_decay") and value and name not in self.defaults:
                raise ValueError(f"{type(self).__name__} has no {name}, found {value!r}")
        if "lr_scale" in param_group:
            raise ValueError(
                f"lr_scale is no longer an option of groups, found {param_group['lr_scale']!r}: "
                f"give the group its lr, whose ratio to the first group's Stage.set_lr keeps"
            )
        if options.get("fused") and options["foreach"]:
            raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
        super().add_param_group(param_group)
        self.forget_tables()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a saved state.

        The state of half-precision parameters stays in single precision. Groups that were saved
        without ``bounds`` keep those that they have here.
        """
        if any("stage_steps" in group for group in state_dict["param_groups"]):
            raise ValueError(
                "state_dict must be one that this version of aucmax saved, found stage_steps in "
                "its param_groups, which an earlier one wrote"
            )
        bounds = [group["bounds"] for group in self.param_groups]
        # torch casts all state to the parameters' types. A hook that runs last sees what it loads.
        saved: dict[str, Any] = {}
        hook = self.register_load_state_dict_pre_hook(lambda _, final: saved.update(final))
        try:
            super().load_state_dict(state_dict)
        finally:
            hook.remove()
        keys = (key for group in saved["param_groups"] for key in group["params"])
        for group, low_high in zip(self.param_groups, bounds, strict=True):
            group.setdefault("bounds", low_high)
            for p in group["params"]:
                for name, x in saved["state"].get(next(keys), {}).items():
                    if name in self.counters:
                        device = p.device if group["capturable"] else "cpu"
                        self.state[p][name] = x.to(device, torch.float64, copy=True)
                    elif p.dtype in checks.LOW_PRECISION:
                        self.state[p][name] = x.to(p.device, copy=True)
        self.forget_tables()


# ---- Functions that the optimizers share ---------------------------------------------------------


def add_scaled_(xs: list[Tensor], ys: list[Tensor], scale: Any) -> None:
    """Add ``scale * y`` to each ``x``; the scale may be a tensor on the device of these."""
    if isinstance(scale, Tensor):
        torch._foreach_add_(xs, torch._foreach_mul(ys, scale.to(xs[0].dtype)))
    else:
        torch._foreach_add_(xs, ys, alpha=scale)


def lerp_(xs: list[Tensor], ys: list[Tensor], weight: Any) -> None:
    """Move each ``x`` towards its ``y``; the weight may be a tensor."""
    if isinstance(weight, Tensor):
        gaps = torch._foreach_sub(ys, xs)
        torch._foreach_mul_(gaps, weight.to(xs[0].dtype))
        torch._foreach_add_(xs, gaps)
    else:
        torch._foreach_lerp_(xs, ys, weight)


def blocks(
    params: list[Tensor], grads: list[Tensor], state: Lists
) -> Iterator[tuple[list[Tensor], list[Tensor], Lists]]:
    """Cut lists of tensors into parts of one device and dtype, of about ``BLOCK`` elements each.

    Small tensors are taken together, a large contiguous one is cut into flat pieces.
    """
    rows: Any = [params, grads, *state.values()]
    groups = [rows]
    if len({(p.dtype, p.get_device()) for p in params}) > 1:  # else it takes a while in vain
        grouped = Optimizer._group_tensors_by_device_and_dtype(rows)
        groups = [alike for alike, _ in grouped.values()]
    for alike in groups:
        most = BLOCK if alike[0][0].is_cpu else 64 * BLOCK
        for ps, gs, *columns in _cut(alike, most):
            yield ps, gs, dict(zip(state, columns, strict=True))


def _cut(rows: Any, most: int) -> Iterator[list[list[Tensor]]]:
    """Cut rows of tensors of equal shapes into parts of about ``most`` elements."""
    first, size = 0, 0
    for i, p in enumerate(rows[0]):
        n = p.numel()
        if first < i and size + n > most:
            yield [row[first:i] for row in rows]
            first, size = i, 0
        if n > most and all(row[i].is_contiguous() for row in rows):
            pieces = zip(*(row[i].view(-1).split(most) for row in rows), strict=True)
            yield from ([[x] for x in piece] for piece in pieces)
            first, size = i + 1, 0
        else:
            size += n
    if first < len(rows[0]):
        yield [row[first:] for row in rows]


def check_restart(restart: str) -> None:
    """Raise unless it is a known way to begin the next stage."""
    if restart not in ("average", "last"):
        raise ValueError(f"restart must be 'average' or 'last', found {restart!r}")


def check_bounds(bounds: Any) -> None:
    """Raise unless they are two numbers, the lower one first."""
    pair = isinstance(bounds, tuple | list) and len(bounds) == 2
    if not (pair and all(isinstance(x, int | float) for x in bounds) and bounds[0] < bounds[1]):
        raise ValueError(f"bounds must be two numbers (low, high), low < high, found {bounds!r}")


def number_of(x: float | Tensor) -> Any:
    """Return a scalar as a number, or as it is if reading it would wait or is impossible."""
    readable = isinstance(x, Tensor) and x.is_cpu and not torch.compiler.is_compiling()
    return x.item() if readable else x  # type: ignore[union-attr]


def exact_dtype(p: Tensor) -> torch.dtype:
    """Return the type of a parameter's state: single precision or better."""
    return torch.float32 if p.dtype in checks.LOW_PRECISION else p.dtype


def copy_of(p: Tensor) -> Tensor:
    """Return a copy to keep as state."""
    return p.to(exact_dtype(p), copy=True)


def centre_of(state: State) -> Tensor:
    """Return the point that the drift is measured from."""
    return state["centre"] if "centre" in state else state["reference"]


def local(x: Tensor) -> Tensor:
    """Return this rank's part of a tensor that is sharded over ranks; others as they are."""
    return x.to_local() if is_sharded(x) else x  # type: ignore[attr-defined]


def full(x: Tensor) -> Tensor:
    """Return the whole of a tensor that is sharded over ranks; others as they are."""
    return x.full_tensor() if is_sharded(x) else x  # type: ignore[attr-defined]
