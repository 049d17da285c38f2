"""How many cores there are to use, and whether threads give way where others want them."""

import json
import math
import os
import subprocess
import sys
import threading
import time

import pytest
import torch

from aucmax.threads import cores, quota, threads

needs_linux = pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="Linux has these")
needs_two = pytest.mark.skipif(
    not sys.platform.startswith("linux") or cores() < 2, reason="one core has nothing to share"
)


@pytest.mark.parametrize(
    ("groups", "files", "wanted"),
    [
        ("0::/a/b", {"a/b/cpu.max": "150000 100000\n"}, 1.5),
        ("0::/a/b", {"a/b/cpu.max": "max 100000\n"}, math.inf),
        ("0::/a/b", {"a/b/cpu.max": "max 100000", "a/cpu.max": "200000 100000"}, 2.0),
        ("0::/", {"cpu.max": "50000 100000\n"}, 0.5),
        ("0::/on/the/machine", {"cpu.max": "100000 100000\n"}, 1.0),
        (
            "3:cpuset:/\n2:cpu,cpuacct:/a\n0::/",
            {
                "cpu,cpuacct/a/cpu.cfs_quota_us": "300000",
                "cpu,cpuacct/a/cpu.cfs_period_us": "100000",
            },
            3.0,
        ),
        (
            "1:cpu:/",
            {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100\n"},
            math.inf,
        ),
        ("", {}, math.inf),
    ],
)
def test_quotas_of_control_groups(tmp_path, groups, files, wanted):
    (tmp_path / "cgroup").write_text(groups)
    for name, text in files.items():
        file = tmp_path / "sys" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert quota(tmp_path / "cgroup", tmp_path / "sys") == wanted


def test_no_control_groups(tmp_path):
    assert quota(tmp_path / "none", tmp_path) == math.inf


@needs_linux
def test_no_more_threads_than_the_affinity_allows():
    before, allowed = torch.get_num_threads(), os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    torch.set_num_threads(2)
    try:
        seen = {}
        for count in (None, -1, 3):
            with threads(count):
                seen[count] = torch.get_num_threads()
        assert (cores(), seen, torch.get_num_threads()) == (1, {None: 1, -1: 1, 3: 3}, 2)
    finally:
        os.sched_setaffinity(0, allowed)
        torch.set_num_threads(before)


# In a process of its own: how long libgomp's threads spin depends on all that there are.
SPINNING = """
import json, time, torch
from aucmax.threads import sleeping_threads

numbers = torch.ones(200_000)
torch.set_num_threads(2)

def milliseconds():
    began = time.process_time()
    for _ in range(10):
        numbers.exp()
        time.sleep(0.02)
    return 100 * (time.process_time() - began)

taken = [milliseconds()]
with sleeping_threads(2):
    taken.append(milliseconds())
print(json.dumps([*taken, milliseconds()]))
"""


@needs_two
def test_threads_sleep_in_the_block_alone():
    said = subprocess.run([sys.executable, "-c", SPINNING], capture_output=True, check=True)
    before, within, after = json.loads(said.stdout)
    assert within < min(before, after) / 3


@needs_two
def test_threads_give_way_to_other_processes():
    """Beside two busy processes per core our threads are seen to wait, and are let sleep."""
    numbers, before = torch.ones(200_000), torch.get_num_threads()
    command = [sys.executable, "-S", "-c", "while True: pass"]
    others = [subprocess.Popen(command) for _ in range(2 * cores())]
    names, until = set[str](), time.monotonic() + 20
    try:
        with threads(2):
            while "idle team" not in names and time.monotonic() < until:
                numbers.exp()
                names = {thread.name for thread in threading.enumerate()}
    finally:
        for other in others:
            other.kill()
            other.wait()
    assert "idle team" in names
    assert "idle team" not in {thread.name for thread in threading.enumerate()}
    assert torch.get_num_threads() == before
