"""All tensors of an optimizer moved by one launch of a kernel, where they are on a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from aucmax import kernels
from aucmax.checks import is_sharded

if TYPE_CHECKING:
    from aucmax.optim.staged import StagedOptimizer


class FusedStep:
    """Keeps the table that the kernel of an optimizer works on.

    Most steps find everything where it was; if gradients or step sizes are new the table is sent
    again, and if anything else is, made again. Nothing is held but addresses, so that gradients are
    freed as ever.
    """

    def __init__(self, optimizer: StagedOptimizer) -> None:
        self.optimizer = optimizer
        self.parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self.whole = not any(map(is_sharded, self.parameters))
        self.structure: Any = None
        self.parts: list[_Part] = []
        self.captured: list[_Part] = []

    def __call__(self) -> bool:
        """Take the step; False if it is one for other ways."""
        groups = self.optimizer.param_groups
        factors = [self.optimizer._factors(group) for group in groups]
        if not self.whole or any(isinstance(x, Tensor) for row in factors for x in row):
            return False
        gradients = [p.grad for p in self.parameters]
        structure = self._structure(gradients)
        if structure != self.structure:
            if not all(map(_fits, self.parameters, gradients)):
                return False
            self._gather(gradients)
            self.structure = structure
        for part in self.parts:
            part(gradients, factors)
        return True

    def _structure(self, gradients: list[Tensor | None]) -> tuple[Any, ...]:
        """All that the table depends on but the gradients' addresses."""
        places = [p.data_ptr() for p in self.parameters]
        strides = [
            None if g is None else (g.stride() if g.layout is torch.strided else g.layout, g.dtype)
            for g in gradients
        ]
        names = [self.optimizer._names(group) for group in self.optimizer.param_groups]
        return places, strides, names

    def _gather(self, gradients: list[Tensor | None]) -> None:
        """Begin the states, and sort the tensors by their types; what graphs read stays alive."""
        self.captured += [part for part in self.parts if part.packed.captured]
        of_group = [k for k, g in enumerate(self.optimizer.param_groups) for _ in g["params"]]
        for group in self.optimizer.param_groups:
            self.optimizer._begin(group)
        by_type: dict[Any, list[int]] = {}
        for i, (p, g) in enumerate(zip(self.parameters, gradients, strict=True)):
            if g is not None and p.numel():
                by_type.setdefault((p.dtype, g.dtype), []).append(i)
        self.parts = [
            _Part(self, types, rows, [of_group[i] for i in rows]) for types, rows in by_type.items()
        ]


class _Part:
    """The tensors of one combination of types."""

    def __init__(self, step: FusedStep, types: Any, rows: list[int], groups: list[int]) -> None:
        from aucmax.kernels import packed, steps

        optimizer, self.rows = step.optimizer, rows
        self.parameters = [step.parameters[i] for i in rows]
        names = optimizer.kernel_columns
        states = [optimizer.state[p] for p in self.parameters]
        for p, state in zip(self.parameters, states, strict=True):
            state.update({k: _arranged(x, p) for k, x in state.items() if not _alike(x, p)})
        columns = [
            optimizer._kernel_state(optimizer.param_groups[k], state)
            for k, state in zip(groups, states, strict=True)
        ]
        addresses = [
            [p.data_ptr(), 0, *(x[name].data_ptr() if name in x else 0 for name in names)]
            for p, x in zip(self.parameters, columns, strict=True)
        ]
        exact = torch.float64 if types[0] == torch.float64 else torch.float32
        self.types = (*types, exact)
        self.kernel = getattr(steps, optimizer.kernel or "")
        self.packed = packed.Packed(self.parameters, addresses, groups, moving=1)

    def __call__(self, gradients: list[Tensor | None], factors: list[list[float]]) -> None:
        """Send what is new and launch."""
        own = [gradients[i] for i in self.rows]
        arranged = [
            g if _alike(g, p) else _arranged(g, p)
            for g, p in zip(own, self.parameters, strict=True)
        ]
        table = self.packed.table([g.data_ptr() for g in arranged if g is not None], factors)
        self.kernel(table, *self.types)


def possible(optimizer: StagedOptimizer) -> bool:
    """Whether the optimizer's tensors are where a kernel can move them."""
    if optimizer.kernel is None or torch.compiler.is_compiling():
        return False
    groups = optimizer.param_groups
    first = next((p for group in groups for p in group["params"]), None)
    if first is None or not kernels.usable_on(first):
        return False
    return all(group["foreach"] is None for group in groups)


def _fits(p: Tensor, g: Tensor | None) -> bool:
    """Whether a tensor and its gradient are plain memory without gaps."""
    if g is None:
        return True
    dense = p.is_contiguous() or p.is_contiguous(memory_format=torch.channels_last)
    return g.layout is torch.strided and dense and kernels.usable_on(p) and p.is_floating_point()


def _alike(x: Any, p: Tensor) -> bool:
    """Whether two tensors of one shape have their elements in the same order."""
    if x.stride() == p.stride():
        return True
    pairs = zip(x.stride(), p.stride(), p.shape, strict=True)
    return all(a == b for a, b, size in pairs if size > 1)


def _arranged(x: Any, p: Tensor) -> Tensor:
    """A copy with its elements in the order of the parameter's."""
    return torch.empty_like(p, dtype=x.dtype).copy_(x)
