"""Kernels launched, or compiled at the same time before any of them is needed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

try:
    from triton.runtime._async_compile import AsyncCompileMode
except ImportError:  # an older Triton: each kernel is compiled where it is first launched
    AsyncCompileMode = None

_compiles_only: ContextVar[bool] = ContextVar("compiles_only", default=False)


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **sizes: Any) -> None:
    """Launch a kernel; within :func:`compiled_together` only have it compiled."""
    if not _compiles_only.get():
        kernel[grid](*arguments, **sizes)
    elif AsyncCompileMode is not None:
        kernel.warmup(*arguments, grid=grid, **sizes)


@contextmanager
def compiled_together() -> Iterator[None]:
    """Launches in this context do nothing but compile, on all cores; at its end all are ready.

    An error of the compiler is left to the real launch, which meets it again.
    """
    token = _compiles_only.set(True)
    try:
        if AsyncCompileMode is None:
            yield
        else:
            with (
                ThreadPoolExecutor(os.cpu_count()) as threads,
                AsyncCompileMode(threads, ignore_errors=True),
            ):
                yield
    finally:
        _compiles_only.reset(token)
