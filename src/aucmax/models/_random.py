"""Layers draw weights when they are made, from torch's own numbers."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch


def leaving_random_numbers(generator: torch.Generator | None) -> AbstractContextManager[None]:
    """Leave torch's own numbers as they are if weights will come from a generator."""
    if generator is None:
        return nullcontext()
    fork: AbstractContextManager[None] = torch.random.fork_rng(devices=[])
    return fork
