"""How many cores there are to use, and whether threads give way where others want them."""

import math
import os
import sys
import threading

import pytest
import torch
from process import wait_until

from aucmax import threads as module
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


def idle_teams():
    return [thread for thread in threading.enumerate() if thread.name == "idle team"]


@needs_linux
def test_sleeping_threads_keeps_an_idle_team_in_the_block_alone():
    torch.ones(200_000).exp()  # loads libgomp's threads
    before = len(os.listdir("/proc/self/task"))
    with module.sleeping_threads(2):
        assert len(idle_teams()) == 1
        assert len(os.listdir("/proc/self/task")) > before
    assert not idle_teams()


@needs_two
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_threads_that_wait_for_a_core_are_let_sleep(monkeypatch, share):
    """The share of time that they wait is measured where it can be; here it is given."""
    monkeypatch.setattr(module, "LOOK_EVERY", 0.001)
    monkeypatch.setattr(module, "SLEEP_FOR", 0.001)
    looks = []
    monkeypatch.setattr(module._Waits, "share", lambda self: looks.append(1) or share)
    before = torch.get_num_threads()
    with threads(2):
        wait_until(lambda: len(looks) > 3)
        assert bool(idle_teams()) == (share > module.CONTENDED)
    assert not idle_teams()
    assert torch.get_num_threads() == before


@needs_linux
def test_waits_are_a_share_of_time():
    waits = module._Waits()
    assert 0 <= waits.share() < math.inf
