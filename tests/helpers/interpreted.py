"""Lets tests run the GPU's kernels: on a GPU where there is one, else by Triton's interpreter.

``conftest.py`` has turned the interpreter on, before anything imports triton.
"""

import builtins

import pytest
import torch

pytest.importorskip("triton")

from triton.runtime import interpreter

from aucmax import kernels

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class _Meta(type):
    def __instancecheck__(cls, value):
        return isinstance(value, builtins.int)


class _Int(metaclass=_Meta):
    def __new__(cls, value):
        return builtins.int(value.item() if hasattr(value, "item") else value)


# It takes a loop's bounds with int(array), which NumPy 2.4 refuses for arrays of one element.
interpreter.int = _Int


@pytest.fixture
def with_kernels(monkeypatch):
    """Kernels work on what is on the CPU too."""
    monkeypatch.setattr(kernels, "ON_THE_CPU", True)


def by_turns(function):
    """What a function gives with kernels, and without."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "ON_THE_CPU", True)
        found = function()
        patch.setattr(kernels, "usable_on", lambda x: False)
        return found, function()
