"""Checks of what users pass in, and when they may run.

A check that looks at a tensor's values reads a number back to the host. On the CPU that costs a
microsecond; on an accelerator it stalls the stream, and under ``torch.compile`` or graph capture
it is impossible. So value checks run where :func:`host_readable` says they are cheap.
"""

from __future__ import annotations

import functools
import math
import sys
import warnings
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any, ParamSpec, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.floating[Any]]
T = TypeVar("T")
P = ParamSpec("P")

LOW_PRECISION = (torch.float16, torch.bfloat16)
WEIGHTS = {False: "non-negative with a positive sum", True: "non-negative"}
"""What weights must be, by whether all may be zero."""


class NotFiniteError(ValueError):
    """NaN or infinity where there must be none."""


class MissingClassError(ValueError):
    """Examples that lack a class where each must be there."""


def tracing() -> bool:
    """Whether operations are recorded by torch.compile or a function transform."""
    return torch.compiler.is_compiling() or transforming()


def transforming() -> bool:
    """Whether a function transform of torch.func is at work."""
    return torch._C._are_functorch_transforms_active()


def host_readable(x: Tensor) -> bool:
    """Whether reading a number out of ``x`` is cheap and possible."""
    return (
        (type(x) is Tensor or type(x) is torch.nn.Parameter)
        and x.is_cpu
        and not torch.compiler.is_compiling()
        and not torch._C._are_functorch_transforms_active()
    )


def is_sharded(x: object) -> bool:
    """Whether it is a DTensor, found without importing what makes those."""
    plain = type(x) is Tensor or type(x) is torch.nn.Parameter
    return not plain and isinstance(x, Tensor) and hasattr(x, "to_local")


def synchronizable() -> bool:
    """Whether an accelerator may be waited for: not while tracing or capturing a graph."""
    capturing = torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
    return not (capturing or tracing())


def readable(x: Tensor) -> bool:
    """Whether a number can be read out of ``x`` now, if need be by waiting for its device."""
    plain = type(x) is Tensor or type(x) is torch.nn.Parameter
    return plain and not x.is_meta and synchronizable()


def check_finite(name: str, x: Array, hint: str = "") -> None:
    """Raise if ``x`` holds NaN or infinity; one pass when it does not."""
    if x.size <= 10_000:  # beyond, OpenBLAS would wake threads, which then spin and take a core
        flat = x.reshape(-1)
        with np.errstate(over="ignore", invalid="ignore"):
            squares = flat.dot(flat)
        if math.isfinite(squares):
            return
    if np.isfinite(x).all():  # the squares of large finite numbers may overflow
        return
    raise NotFiniteError(
        f"{name} must be finite, found {np.isnan(x).sum()} NaN and {np.isinf(x).sum()} infinite "
        f"of {x.size} values{hint}"
    )


def check_labels(labels: Array) -> int:
    """Raise unless every entry is 0 or 1; return the number of ones."""
    ones = int(np.count_nonzero(labels == 1))
    if ones + np.count_nonzero(labels == 0) == labels.size:  # faster than to count nonzero reals
        return ones
    values = np.unique(labels)
    some = ", ".join(f"{value:g}" for value in values[:5]) + (", ..." if len(values) > 5 else "")
    hint = "; turn labels -1/+1 into 0/1 with (target + 1) / 2" if set(values) <= {-1, 1} else ""
    raise ValueError(f"target must hold 0 and 1 only, found {some}{hint}")


def check_weights(weight: Array, may_be_zero: bool = False) -> None:
    """Raise unless the weights are finite, none negative, and some positive if they must be."""
    check_finite("weight", weight)
    if weight.min() < 0 or (weight.max() == 0 and not may_be_zero):
        raise ValueError(
            f"weight must be {WEIGHTS[may_be_zero]}, "
            f"found values from {weight.min():g} to {weight.max():g}"
        )


def warn(message: str) -> None:
    """Warn in the name of the caller's own line, however deep in aucmax and torch this is."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in (
        "aucmax",
        "torch",
    ):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, UserWarning, stacklevel=level)


def number(name: str, value: object, allowed: str, test: Callable[[float], bool]) -> float:
    """Return ``value`` as a float if it is a number that passes ``test``.

    NaN, booleans and text are no numbers; infinity is one, if it passes.
    """
    try:
        is_text_or_bool = isinstance(value, str | bytes | bool | np.bool_)
        x = math.nan if is_text_or_bool else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        x = math.nan
    if math.isnan(x) or not test(x):
        raise ValueError(f"{name} must be {allowed}, found {value!r}")
    return x


def positive(name: str, value: object, *, infinite: bool = False) -> float:
    """Return ``value`` if it is a number above zero, finite unless ``infinite``."""
    if infinite:
        return number(name, value, "a number > 0", lambda x: x > 0)
    return number(name, value, "a finite number > 0", lambda x: 0 < x < math.inf)


def non_negative(name: str, value: object) -> float:
    """Return ``value`` if it is a finite number not below zero."""
    return number(name, value, "a finite number >= 0", lambda x: 0 <= x < math.inf)


def count(name: str, value: object, least: int = 1) -> int:
    """Return ``value`` if it is an integer not below ``least``."""
    if isinstance(value, bool) or not (isinstance(value, Integral) and int(value) >= least):
        raise ValueError(f"{name} must be an integer >= {least}, found {value!r}")
    return int(value)


def share(name: str, value: object) -> float:
    """Return ``value`` if it is a share strictly between zero and one."""
    allowed = "a share strictly between 0 and 1 (the probability of a positive)"
    return number(name, value, allowed, lambda x: 0 < x < 1)


def choice(name: str, value: T, allowed: Sequence[object]) -> T:
    """Return ``value`` if it is one of those allowed."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, found {value!r}")
    return value


def without(**gone: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Let a function raise for keyword arguments of earlier versions.

    Args:
        gone: what takes the place of each.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def wrapped(*args: P.args, **options: P.kwargs) -> T:
            for name in gone.keys() & options.keys():
                raise ValueError(
                    f"{name} is no longer an argument, found {name}={options[name]!r}: {gone[name]}"
                )
            return function(*args, **options)

        return wrapped

    return decorate
