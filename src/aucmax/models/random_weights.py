"""Layers draw weights when they are made, from torch's own numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch


def leaving_random_numbers(generator: torch.Generator | None) -> AbstractContextManager[None]:
    """Leave torch's own numbers as they are if weights will come from a generator."""
    fork: AbstractContextManager[None] = torch.random.fork_rng([], generator is not None)
    return fork


@contextmanager
def drawing_from(generator: torch.Generator | None) -> Iterator[None]:
    """Let layers that know only torch's own numbers draw from a generator's in the block."""
    with leaving_random_numbers(generator):
        if generator is not None:
            torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
        yield
