"""The list form of a step, compiled once for each set of parameters and settings."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch import Tensor


class CompiledSteps:
    """Compiled steps of an optimizer's groups; a tensor ``lr`` avoids recompilation."""

    def __init__(self) -> None:
        self.steps: dict[Any, Any] = {}
        self.lr = torch.zeros((), dtype=torch.float64)

    def __call__(
        self,
        step: Callable[..., None],
        params: list[Tensor],
        grads: list[Tensor],
        state: dict[str, Any],
        group: dict[str, Any],
    ) -> None:
        """Run ``step(params, grads, state, group)``."""
        settings = {name: x for name, x in group.items() if name not in ("params", "lr")}
        key = (tuple(map(id, params)), tuple(settings.items()))
        if key not in self.steps:

            def run(params: Any, grads: Any, state: Any, lr: Tensor) -> None:
                step(params, grads, state, {**settings, "lr": lr})

            # Dynamo counts its recompilations by code object: each step has one of its own.
            code = run.__code__.replace(co_name=f"step_{len(self.steps)}")
            own = FunctionType(code, run.__globals__, closure=run.__closure__)
            self.steps[key] = torch.compile(own, fullgraph=True, dynamic=False)
        self.lr.fill_(group["lr"])
        self.steps[key](params, grads, state, self.lr)
