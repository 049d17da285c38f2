"""Settings that every test shares."""

import gc
import importlib
import os
import re
import signal
import warnings
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # models here are small, and every core has a worker
# Some virtual machines announce AMX and then trap on it: bfloat16 on the CPU does without.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import pytest

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # by a shell, for what runs in its background
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config):
    if getattr(config.option, "numprocesses", None):
        return  # the process that hands tests out runs none: nothing need be imported
    import torch
    from hypothesis import settings

    if not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported, by whichever test
    settings.register_profile("aucmax", deadline=None, max_examples=25)
    settings.load_profile("aucmax")
    gc.disable()  # until all is imported, which is never looked through again


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


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


# --- long tests come first, so that none is left over for one worker alone ------------------------

LONG = {
    "test_scikit_learns_own_checks",
    "test_killed_it_goes_on",
    "test_a_compiled_run_is_an_eager_run",
    "test_script_trains_in_stages_and_resumes_bit_for_bit",
    "test_the_results_on_the_site_are_those_of_the_runs",
    "test_rates",
    "test_recipes_run_and_rank",
    "test_an_average_in_single_precision_does_not_stand_still_in_a_long_stage",
}
"""Of those in no group; xdist begins with the groups that have most tests."""


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: getattr(item, "originalname", None) not in LONG)


# --- files whose tests share a fixture stay on one worker -----------------------------------------


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Groups by the mark in a file's text.

    xdist 3.8 writes the mark to where pytest 9.2 no longer looks, and so heeds none:
    https://github.com/pytest-dev/pytest-xdist/issues/1386
    """
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadGroupScheduling

    groups = {}
    for path in Path(__file__).parent.rglob("test_*.py"):
        mark = r"^pytestmark = pytest\.mark\.xdist_group\(\"(\w+)\"\)"
        if found := re.search(mark, path.read_text(encoding="utf-8"), flags=re.M):
            groups[path.name] = found[1]

    class ByMark(LoadGroupScheduling):
        def _split_scope(self, nodeid):
            return groups.get(Path(nodeid.partition("::")[0]).name, nodeid)

    return ByMark(config, log)


@pytest.fixture(scope="module", autouse=True)
def group_on_one_worker(request, tmp_path_factory):
    """A group on two workers would make its fixtures twice, and nobody would notice."""
    mark = request.node.get_closest_marker("xdist_group")
    if mark is None or not getattr(request.config.option, "loadgroup", False):
        return
    note = tmp_path_factory.getbasetemp().parent / f"group-{mark.args[0]}"
    worker = os.environ["PYTEST_XDIST_WORKER"]
    try:
        with note.open("x") as file:
            file.write(worker)
    except FileExistsError:
        assert note.read_text() in ("", worker), f"group {mark.args[0]!r} is on two workers"
