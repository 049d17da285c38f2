"""A tiny plan in two processes: killed, resumed, and equal to one that was left alone."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from process import session, wait_until

ROOT = Path(__file__).resolve().parents[2]
PLAN = Path(__file__).with_name("tiny.toml")
KILLED = Path(__file__).with_name("killed_run.py")
DIFFERS = ("seconds", "seconds_per_step", "date")
"""What of a record two runs need not share."""

pytestmark = [
    pytest.mark.skipif(not (ROOT / "experiments").exists(), reason="an sdist has no experiments"),
]


def command(folder, *more, program=("-m", "experiments.run")):
    arguments = [PLAN, "tiny", "--processes", 2, "--out", folder / "r.jsonl"]
    arguments += ["--checkpoints", folder / "checkpoints", *more]
    return [sys.executable, *map(str, (*program, *arguments))]


def environment():
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}


def run(folder, *more):
    done = subprocess.run(
        command(folder, *more), cwd=ROOT, env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def records(folder):
    lines = (folder / "r.jsonl").read_text().splitlines()
    return {record["id"]: record for record in map(json.loads, lines)}


def without_times(record):
    kept = {key: x for key, x in record.items() if key not in DIFFERS}
    kept["history"] = {key: x for key, x in record["history"].items() if key not in DIFFERS}
    return json.dumps(kept)  # in which nan equals nan


def test_a_killed_command_resumes_with_the_same_records_and_leaves_no_process(tmp_path):
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    run(undisturbed)
    expected = records(undisturbed)
    assert len(expected) == 4
    assert not any((undisturbed / "checkpoints").iterdir())

    # SIGKILL reaches the parent alone, as soon as a run has saved its state.
    parent = subprocess.Popen(
        command(killed, program=[KILLED]), cwd=ROOT, env=environment(), start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert parent.wait() == -signal.SIGKILL
    wait_until(lambda: not any(session(parent.pid)))
    assert any(killed.glob("checkpoints/*/fit/checkpoints/step-*.json"))
    assert records(killed) == {}

    # A line that was cut off is not taken for a record.
    with (killed / "r.jsonl").open("a") as file:
        file.write('{"id": "cut')
    run(killed)
    found = records(killed)
    assert {key: without_times(x) for key, x in found.items()} == {
        key: without_times(x) for key, x in expected.items()
    }

    assert "0 runs are wanted" in run(killed)


def test_plan_for_other_code_is_refused(tmp_path):
    plan = tmp_path / "plan.toml"
    plan.write_text('code = "0123456789abcdef"\n' + PLAN.read_text())
    arguments = [plan, "tiny", "--out", tmp_path / "r.jsonl"]
    done = subprocess.run(
        [sys.executable, "-m", "experiments.run", *map(str, arguments)],
        cwd=ROOT, env=environment(), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1
    assert "is for code 0123456789abcdef" in done.stderr


def test_the_time_limit_saves_runs_and_leaves_no_record(tmp_path):
    said = run(tmp_path, "--time-limit", 0)
    assert "4 runs are left" in said
    assert records(tmp_path) == {}
