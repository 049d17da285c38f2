"""Stop the queue of a search on digits again and again, and compare with one left alone.

    python tests/soak/stops.py --stops 10

By turns the command is killed, terminated, or reaches its time limit, each time after a run has
saved its state anew. The records must be the same apart from seconds and dates, and no process may
be left.
"""

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "helpers"))
from process import session, wait_until  # noqa: E402

SEARCH = """
[rules]
ppd-sg = [{ key = "lr", values = [0.1, 0.3] }, { key = "gamma", values = [20, "inf"] }]
adagrad = [{ key = "lr", values = [0.01, 0.03], extend = true }]
[parts.queue.set]
kind = "image"
dataset = "digits"
partition = "halves"
removed = 0.9
hold_out = "before"
steps = 400
eval_every = 40
seed = 1
[parts.queue.each]
line = ["ppd-sg", "adagrad"]
[parts.queue.search]
again = 2
best = 2
most = [9]
report = [3, 4]
"""
WAYS = (signal.SIGKILL, signal.SIGTERM, "time limit")
DIFFERS = ("seconds", "seconds_per_step", "date")


def start(folder, *more):
    """Start the command in a session of its own."""
    arguments = [
        folder.parent / "plan.toml",
        "queue",
        "--processes",
        2,
        "--out",
        folder / "r.jsonl",
    ]
    arguments += ["--checkpoints", folder / "checkpoints", *more]
    return subprocess.Popen(
        [sys.executable, "-m", "experiments.run", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        start_new_session=True,
        stdout=subprocess.DEVNULL,
    )


def states(folder):
    """Return the checkpoints and the number of records."""
    saved = {str(path) for path in folder.glob("checkpoints/*/fit/checkpoints/step-*.json")}
    return saved | {f"{len(records(folder))} records"}


def records(folder):
    """Return the records without what may differ, by id."""
    path, found = folder / "r.jsonl", {}
    for line in path.read_text().splitlines() if path.exists() else []:
        record = json.loads(line)
        record["history"] = {k: x for k, x in record["history"].items() if k not in DIFFERS}
        found[record["id"]] = {k: x for k, x in record.items() if k not in DIFFERS}
    return {key: json.dumps(record) for key, record in found.items()}  # nan equals nan


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stops", type=int, default=10)
    stops = parser.parse_args().stops
    with tempfile.TemporaryDirectory() as scratch:
        alone, stopped = Path(scratch, "alone"), Path(scratch, "stopped")
        plan = (ROOT / "tests" / "experiments" / "tiny.toml").read_text()
        lines = [f"[lines.{name}]" for name in ("ppd-sg", "adagrad")]
        for line in lines:
            plan = plan.replace(line, f'{line}\nreturns = "average"')
        Path(scratch, "plan.toml").write_text(plan + SEARCH)
        alone.mkdir(), stopped.mkdir()
        assert start(alone).wait() == 0
        for number, way in zip(range(stops), itertools.cycle(WAYS), strict=False):
            before = states(stopped)
            command = start(stopped, *(["--time-limit", 15] if way == "time limit" else []))
            if way != "time limit":
                wait_until(lambda: states(stopped) - before, lambda: command.poll() is None)  # noqa: B023
                command.send_signal(way)
            command.wait()
            wait_until(lambda: not any(session(command.pid)))  # noqa: B023
            print(f"stop {number + 1} ({way}): {len(records(stopped))} records", flush=True)
        assert start(stopped).wait() == 0
        expected, found = records(alone), records(stopped)
        same = {key for key in expected if found.get(key) == expected[key]}
        for key in expected.keys() & found.keys() - same:
            pairs = zip(*(json.loads(x[key]).items() for x in (expected, found)), strict=True)
            print(key, "differs in", [one[0] for one, other in pairs if one != other])
        print(f"{len(same)} of {len(expected)} records are the same, {len(found)} found")
        return not (len(same) == len(expected) == len(found))


if __name__ == "__main__":
    raise SystemExit(main())
