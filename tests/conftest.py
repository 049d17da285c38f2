"""Settings that every test shares."""

import importlib
import warnings

import pytest
import torch
from hypothesis import settings

settings.register_profile("aucmax", deadline=None, max_examples=50)
settings.load_profile("aucmax")


@pytest.fixture
def fresh_compiler():
    """Nothing that was compiled before, so that no test depends on another's recompilations."""
    with warnings.catch_warnings():  # torch's own, on the first import
        warnings.simplefilter("ignore")
        importlib.import_module("torch._inductor.compile_fx")
        torch._dynamo.reset()
    yield
    torch._dynamo.reset()
