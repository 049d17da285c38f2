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
def drawing_from(generator: torch.Generator | None) -> Iterator[None]:
    """Let layers, which draw from torch's global generator, take a seed from ``generator``.

    The global generator is restored afterwards. With None nothing changes.
    """
    with torch.random.fork_rng([], enabled=generator is not None):
        if generator is not None:
            torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
        yield


class Isolated:
    """Random numbers of a seed within its block; the caller's own go on afterwards.

    The block may be entered again, and then goes on where it was left. On a CUDA device it has a
    generator state of its own, not a copy that is put into the caller's: a captured graph keeps to
    the state that it was captured with, so that runs which take turns do not share one.

    Args:
        seed: of the first block.
        device: whose generator is isolated too, if it is a CUDA device.
    """

    def __init__(self, seed: int, device: torch.device | None = None) -> None:
        self.seed = seed
        self.device = device if device is not None and device.type == "cuda" else None
        self._own: tuple[Any, ...] | None = None
        self._outer: tuple[Any, ...] = ()

    def __enter__(self) -> None:
        self._outer = self._current()
        if self._own is not None:
            self._restore(self._own)
            return
        random.seed(self.seed)
        np.random.seed(self.seed % 2**32)  # noqa: NPY002
        torch.default_generator.manual_seed(self.seed)
        if self.device is not None:
            renew_cuda(self.device).manual_seed(self.seed)

    def __exit__(self, *_: object) -> None:
        self._own = self._current()
        self._restore(self._outer)

    def _current(self) -> tuple[Any, ...]:
        """The states as they are now, as the libraries themselves hold them: quick to put back."""
        cuda = None if self.device is None else _cuda_generator(self.device).graphsafe_get_state()
        return random.getstate(), np.random.get_state(), torch.get_rng_state(), cuda  # noqa: NPY002

    def _restore(self, states: tuple[Any, ...]) -> None:
        python, numpy, cpu, cuda = states
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
        torch.set_rng_state(cpu)
        if self.device is not None:
            _cuda_generator(self.device).graphsafe_set_state(cuda)


def renew_cuda(device: torch.device) -> torch.Generator:
    """Give the device's generator another state, of a seed that nobody chose; the generator."""
    generator = _cuda_generator(device)
    generator.graphsafe_set_state(torch.Generator(device).graphsafe_get_state())
    return generator


def _cuda_generator(device: torch.device) -> torch.Generator:
    torch.cuda.init()  # type: ignore[no-untyped-call]
    index = torch.cuda.current_device() if device.index is None else device.index
    return torch.cuda.default_generators[index]
