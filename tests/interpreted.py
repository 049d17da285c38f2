"""Lets tests run the GPU's kernels: on a GPU where there is one, else by Triton's interpreter."""

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before a kernel is made

pytest.importorskip("triton")

from aucmax import kernels

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture
def with_kernels(monkeypatch):
    """Kernels take what is on the CPU too."""
    monkeypatch.setattr(kernels, "ON_THE_CPU", True)


def by_turns(function):
    """What a function gives with kernels, and without."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "ON_THE_CPU", True)
        found = function()
        patch.setattr(kernels, "take", lambda x: False)
        return found, function()
