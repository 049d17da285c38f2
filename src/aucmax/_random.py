"""The state of the random number generators that a training run may use."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


def get_state(device: torch.device | None = None) -> dict[str, Any]:
    """The state of Python's, NumPy's and torch's global generators, and of ``device``'s if CUDA."""
    version, internal, gauss = random.getstate()
    name, keys, *rest = np.random.get_state()  # noqa: NPY002
    state = {
        "python": [version, torch.tensor(internal), gauss],
        "numpy": [name, torch.from_numpy(np.asarray(keys).astype(np.int64)), *rest],
        "torch": torch.get_rng_state(),
    }
    if device is not None and device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def set_state(state: dict[str, Any], device: torch.device | None = None) -> None:
    """Put the generators back to where :func:`get_state` found them."""
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal.tolist()), gauss))
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))  # noqa: NPY002
    torch.set_rng_state(state["torch"].cpu())
    if device is not None and device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"].cpu(), device)


@contextmanager
def isolated(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Random numbers of a seed within the block; the caller's own go on afterwards."""
    before = get_state(device)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    torch.default_generator.manual_seed(seed)
    if device is not None and device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)
    try:
        yield
    finally:
        set_state(before, device)
