"""Settings that every test shares."""

import fcntl
import gc
import importlib
import os
import random
import signal
import tempfile
import warnings
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # models here are small, and every core has a worker
# Some virtual machines announce AMX and then trap on it: bfloat16 on the CPU does without.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import pytest

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # by a shell, for what runs in its background
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config):
    from hypothesis import settings

    common = {"deadline": None, "database": None}
    settings.register_profile("aucmax", max_examples=40, derandomize=True, **common)
    settings.register_profile("fuzz", max_examples=500, print_blob=True, **common)
    settings.load_profile(config.getoption("--hypothesis-profile") or "aucmax")
    if getattr(config.option, "numprocesses", None):
        return  # the process that hands tests out runs none: nothing else need be imported
    import torch

    if not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported, by whichever test
    gc.disable()  # until all is imported, which is never looked through again


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """Seed the global generators, so that no test depends on what ran before it."""
    import numpy as np
    import torch

    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    torch.manual_seed(0)


@pytest.fixture
def fresh_compiler():
    """Nothing that was compiled before, so that no test depends on another's recompilations."""
    import torch

    with warnings.catch_warnings():  # torch's own, on the first import
        warnings.simplefilter("ignore")
        importlib.import_module("torch._inductor.compile_fx")
        torch._dynamo.reset()
    yield
    torch._dynamo.reset()


# --- several workers ------------------------------------------------------------------------------

LONG = [
    "test_fit_ranks.py", "test_run.py", "test_fit_images.py", "test_fit_resume.py",
    "test_fit_signals.py", "test_image_classifier.py", "test_fit.py", "test_streams.py",
    "test_interrupts.py", "test_classifier.py", "test_documents.py", "test_tune.py",
]  # fmt: skip
"""Files to start with, the longest first, so that no worker is left with one at the end."""


def pytest_collection_modifyitems(items):
    order = {name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: order.get(item.path.name, len(LONG)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Run tests marked ``ranks`` one at a time, whichever workers of this run have them."""
    if item.get_closest_marker("ranks") is None:
        return (yield)
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", os.getpid())  # another run may hang for ever
    with (Path(tempfile.gettempdir()) / f"aucmax-ranks-{run}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return (yield)
