"""The step of an optimizer on a GPU as one launch of a kernel over all tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from aucmax import kernels
from aucmax.checks import is_sharded

Types = tuple[torch.dtype, torch.dtype]


class FusedStep:
    """The step of an optimizer by a kernel, with the kernel's tables of addresses.

    In most steps nothing has moved. New gradients or factors send the tables again, any other
    change builds them again. Only addresses are held, so that gradients are freed as usual.

    Args:
        kernel: its name in :mod:`aucmax.kernels.steps`.
        groups: the optimizer's parameters, a list for each group.
    """

    def __init__(self, kernel: str, groups: Sequence[Sequence[Tensor]]) -> None:
        self.kernel = kernel
        self.params = [p for group in groups for p in group]
        self.whole = not any(map(is_sharded, self.params))
        self.group_of = [k for k, group in enumerate(groups) for _ in group]
        self.structure: Any = None
        self.tables: list[tuple[list[int], FusedTable]] = []
        self.resting: list[Tensor] = []
        self.captured: list[FusedTable] = []

    def __call__(
        self,
        factors: list[dict[str, Any]],
        names: list[list[str]],
        begin: Callable[[], object],
        states: Mapping[Tensor, dict[str, Tensor]],
    ) -> bool:
        """Take the step and return True, or return False if the kernel does not support it.

        Args:
            factors: the numbers that the kernel reads for each group, by their names.
            names: the names of each group's state.
            begin: a function that checks the gradients and begins missing state.
            states: the state of all parameters.
        """
        if not self.whole or any(isinstance(x, Tensor) for row in factors for x in row.values()):
            return False
        grads = [p.grad for p in self.params]
        places = [p.data_ptr() for p in self.params]
        strides = [
            None if g is None else (g.stride() if g.layout is torch.strided else g.layout, g.dtype)
            for g in grads
        ]
        structure = (places, strides, names)  # tables depend on these and on gradients' addresses
        if structure != self.structure:
            if not all(map(_fits, self.params, grads)):
                return False
            begin()
            self._build_tables(grads, states)
            self.structure = structure
        for rows, table in self.tables:
            table.launch([grads[i] for i in rows], factors)
        return True

    def _build_tables(
        self, grads: list[Tensor | None], states: Mapping[Tensor, dict[str, Tensor]]
    ) -> None:
        """Sort the tensors by their types, and keep tables that captured graphs read."""
        self.captured += [table for _, table in self.tables if table.packed.captured]
        self.tables = []
        self.resting = [p for p, g in zip(self.params, grads, strict=True) if g is None]
        for types, rows in _by_types(self.params, grads).items():
            params = [self.params[i] for i in rows]
            own = [states[p] for p in params]
            for p, state in zip(params, own, strict=True):
                state.update({k: _arranged(x, p) for k, x in state.items() if k != "step"})
            groups = [self.group_of[i] for i in rows]
            self.tables.append((rows, FusedTable(self.kernel, params, types, own, groups)))


class FusedTable:
    """The table that a kernel reads for tensors of the same types.

    Args:
        kernel: its name in :mod:`aucmax.kernels.steps`.
        params: dense parameters.
        types: the dtypes of the parameters and of their gradients.
        states: the state of each parameter, by name, in the parameter's order in memory.
        groups: the number of each parameter's group.
    """

    def __init__(
        self,
        kernel: str,
        params: list[Tensor],
        types: Types,
        states: Sequence[Mapping[str, Tensor]],
        groups: list[int],
    ) -> None:
        from aucmax.kernels import packed, steps

        self.params = params
        self.kernel: steps.Kernel = getattr(steps, kernel)
        exact = torch.float64 if types[0] == torch.float64 else torch.float32
        self.types = (*types, exact)
        columns = [{"param": p, **state} for p, state in zip(params, states, strict=True)]
        addresses = {
            name: [x[name].data_ptr() if name in x else 0 for x in columns]
            for name in self.kernel.columns
        }
        self.packed = packed.Packed(
            params, self.kernel.columns, addresses, groups, self.kernel.factors
        )

    def launch(self, grads: Sequence[Tensor | None], factors: Sequence[Mapping[str, Any]]) -> None:
        """Send new addresses and factors, then take the step."""
        arranged = [_arranged(g, p) for g, p in zip(grads, self.params, strict=True)]
        table = self.packed.table([g.data_ptr() for g in arranged], factors)
        self.kernel.launch(table, *self.types)


def _by_types(params: Sequence[Tensor], grads: Sequence[Tensor | None]) -> dict[Types, list[int]]:
    """Return the indices of nonempty parameters with a gradient, by the dtypes of both."""
    by_types: dict[Types, list[int]] = {}
    for i, (p, g) in enumerate(zip(params, grads, strict=True)):
        if g is not None and p.numel():
            by_types.setdefault((p.dtype, g.dtype), []).append(i)
    return by_types


def _fits(p: Tensor, g: Tensor | None) -> bool:
    """Return True if a tensor and its gradient are plain memory without gaps."""
    if g is None:
        return True
    dense = p.is_contiguous() or p.is_contiguous(memory_format=torch.channels_last)
    plain = g.layout is torch.strided and p.is_floating_point()
    return plain and dense and kernels.usable_on(p)


def _is_alike(x: Any, p: Tensor) -> bool:
    """Return True if two tensors of one shape have their elements in the same order."""
    if x.stride() == p.stride():
        return True
    pairs = zip(x.stride(), p.stride(), p.shape, strict=True)
    return all(a == b for a, b, size in pairs if size > 1)


def _arranged(x: Any, p: Tensor) -> Tensor:
    """Return ``x``, or a copy with its elements in the order of the parameter's."""
    return x if _is_alike(x, p) else torch.empty_like(p, dtype=x.dtype).copy_(x)
