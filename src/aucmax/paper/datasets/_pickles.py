"""Pickles read as data: no code runs, whatever they say.

The Python versions of CIFAR are pickles of a dict with a NumPy array in it. A pickle rebuilds an
array by calling functions that it names, which is how a hostile one runs code. Here the few names
that those files use stand for classes that keep what they are given; every other name is refused.
"""

from __future__ import annotations

import io
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


class _Dtype:
    """In place of ``numpy.dtype``: keeps the type's code."""

    def __init__(self, code: str | bytes, *flags: object) -> None:
        self.code = code.encode() if isinstance(code, str) else code

    def __setstate__(self, state: object) -> None:
        """The byte order and such: a single byte has none."""


class _Array:
    """In place of ``numpy.ndarray`` and what rebuilds one: keeps shape, dtype and bytes."""

    state: Any = None

    def __init__(self, *arguments: object) -> None:
        pass  # the type, and the shape and dtype of a dummy that the state replaces

    def __setstate__(self, state: object) -> None:
        self.state = state


class _Encode:
    """In place of ``_codecs.encode``, by which Python 3 writes bytes in old protocols."""

    def __new__(cls, text: str, encoding: str | bytes) -> Any:
        if encoding not in ("latin1", b"latin1"):
            raise pickle.UnpicklingError(f"it encodes text as {encoding!r}")
        return text.encode("latin1")

    def __setstate__(self, state: object) -> None:
        """Never called: without it, a pickle could set attributes of this class."""


# Classes, not functions: a pickle may set attributes of whatever has no __setstate__.
_STAND_INS = {
    "numpy.core.multiarray._reconstruct": _Array,  # NumPy 1, as in the official files
    "numpy._core.multiarray._reconstruct": _Array,  # NumPy 2
    "numpy.ndarray": _Array,
    "numpy.dtype": _Dtype,
    "_codecs.encode": _Encode,
}


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """What a name in the pickle stands for."""
        try:
            return _STAND_INS[f"{module}.{name}"]
        except KeyError:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which is refused") from None


def load_pickle(path: Path, content: bytes) -> dict[bytes, Any]:
    """The dict that a file's pickle holds; arrays in it are for :func:`pixels`.

    Raises:
        ValueError: if it is no whole pickle of a dict, or names anything but an array's parts.
    """
    try:
        value = _Reader(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:  # a damaged pickle may raise anything
        raise ValueError(f"{path} is no pickle of plain data and arrays: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path} must hold a pickled dict, found {type(value).__name__}")
    return value


def pixels(path: Path, value: object, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """The uint8 array that a stand-in keeps, if it has this shape."""
    try:
        _, own_shape, dtype, columns_first, raw = value.state  # type: ignore[attr-defined]
        code = dtype.code
    except (AttributeError, TypeError, ValueError):
        raise ValueError(f"{path} must hold an array of pixels, found none") from None
    if code != b"u1" or own_shape != shape or not isinstance(raw, bytes):
        raise ValueError(f"{path} must hold pixels u1 {shape}, found {code!r} {own_shape}")
    if len(raw) != math.prod(shape):
        raise ValueError(f"{path} must hold {math.prod(shape):,} pixels, found {len(raw):,}")
    return np.frombuffer(raw, np.uint8).reshape(shape, order="F" if columns_first else "C")
