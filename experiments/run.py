"""Train what is missing of a plan's parts.

::

    python -m experiments.run experiments/paper.toml figure1-digits --processes 2

A run that is done is a line of JSON in ``--out``; one that is not has checkpoints. The same command
resumes after a kill, and gives what it would have given undisturbed.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import multiprocessing
import os
import shutil
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import version
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from experiments.plan import Plan, Run
from experiments.provenance import code, commit, describe
from experiments.search import wanted

TRAINERS = {"image": "experiments.train_image", "table": "experiments.train_table"}
"""The module that trains a kind of run, by ``train(run, data, device, folder) -> dict``."""
GRACE = 30.0
"""Seconds that a worker has to save its state when the time limit is reached."""

Records = dict[str, dict[str, Any]]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m experiments.run", description="Train a plan.")
    parser.add_argument("plan", type=Path, help="a TOML file")
    parser.add_argument("parts", nargs="+", help="parts of the plan, in this order")
    parser.add_argument("--out", type=Path, help="the records; runs/PLAN.jsonl by default")
    parser.add_argument("--checkpoints", type=Path, default=Path("runs/checkpoints"))
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("AUCMAX_DATA", "data")))
    parser.add_argument("--processes", type=int, default=1, help="runs at once")
    parser.add_argument("--device", default="cpu", help="such as cuda")
    parser.add_argument("--time-limit", type=float, help="seconds; then runs are saved, to resume")
    options = parser.parse_args(arguments)
    deadline = None if options.time_limit is None else time.monotonic() + options.time_limit

    plan = Plan.read(options.plan, code(), version("torch"))
    if (wanted_code := plan.content.get("code", plan.code)) != plan.code:
        raise SystemExit(f"{options.plan} is for code {wanted_code}, found {plan.code}")
    stamp = {"code": plan.code, "torch": plan.torch, "commit": commit()}
    out = options.out or Path("runs") / f"{options.plan.stem}.jsonl"
    with records_file(out) as (records, file):
        for part in options.parts:
            place = (options.data, options.device, options.checkpoints, options.processes)

            def missing(part: str = part) -> list[Run]:
                return wanted(plan, part, records)

            print(f"{part}: {len(missing())} runs are wanted", flush=True)
            for run, record in train_in_processes(missing, place, deadline):
                record = {"id": run.id, **stamp, "settings": run.settings, **record}
                records[run.id] = record
                file.write(json.dumps(record).encode() + b"\n")
                file.flush()
                shutil.rmtree(options.checkpoints / run.id, ignore_errors=True)
                note = record.get("error") or ""
                print(f"{label(run)}: {record['seconds']:.0f} s {note}", flush=True)
            if left := len(missing()):
                print(f"{part}: {left} runs are left; the same command resumes", flush=True)
                return
    print(f"records: {out}")


def read_records(path: Path) -> Records:
    """Read a file of records, by id; a last line that was cut off is left out."""
    content = path.read_bytes() if path.exists() else b""
    lines = content[: content.rfind(b"\n") + 1].splitlines()
    return {record["id"]: record for record in map(json.loads, lines)}


@contextmanager
def records_file(path: Path) -> Iterator[tuple[Records, Any]]:
    """Open a file of records to append to it, for one command at a time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit(f"another command writes {path}") from None
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
        yield read_records(path), file


def label(run: Run) -> str:
    """Name a run for people."""
    names = ("dataset", "condition", "model", "removed", "line", "seed")
    return " ".join(str(run.settings[name]) for name in names if name in run.settings)


# --- worker processes -----------------------------------------------------------------------------

Place = tuple[Path, str, Path, int]
"""Data, device, checkpoints, and how many runs there are at once."""


def train_in_processes(
    missing: Callable[[], list[Run]], place: Place, deadline: float | None
) -> Iterator[tuple[Run, dict[str, Any]]]:
    """Yield each run with its record as it ends; after the deadline stop those under way.

    ``missing`` lists the runs that can begin and have no record, and is asked after each record.
    """
    context = multiprocessing.get_context("spawn")
    under_way, idle, workers = dict[Connection, Run](), list[Connection](), []
    try:
        while True:
            waiting = [run for run in missing() if run not in under_way.values()]
            while waiting and (idle or len(workers) < place[-1]):
                if not idle:
                    connection, other = context.Pipe()
                    worker = context.Process(target=work, args=(other, place))
                    worker.start()
                    other.close()
                    workers.append((worker, connection))
                    idle.append(connection)
                connection = idle.pop()
                under_way[connection] = waiting.pop(0)
                connection.send(under_way[connection])
            if not under_way:
                return
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            ready = wait(list(under_way), left)
            for connection in [one for one in under_way if one in ready]:
                run = under_way.pop(connection)
                try:
                    record = connection.recv()
                except EOFError:
                    raise SystemExit(f"a worker process was ended during {label(run)}") from None
                if isinstance(record, str):
                    raise SystemExit(f"{label(run)} failed:\n{record}")
                idle.append(connection)
                yield run, record
            if deadline is not None and time.monotonic() >= deadline:
                return
    finally:
        for worker, connection in workers:
            connection.close()
            if connection not in idle:
                worker.terminate()  # on which fit saves its state
        for worker, _ in workers:
            worker.join(GRACE)
            worker.kill()


def work(connection: Connection, place: Place) -> None:
    """Train the runs that come through a connection until it closes or the parent is gone."""
    threading.Thread(target=end_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, who tells its workers
    import torch

    data, device, checkpoints, processes = place
    torch.set_num_threads(max(1, cores() // processes))
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    while True:
        try:
            run = connection.recv()
        except EOFError:
            return
        folder, began = checkpoints / run.id, time.perf_counter()
        folder.mkdir(parents=True, exist_ok=True)
        try:
            trainer = import_module(TRAINERS[run.settings["kind"]])
            record = trainer.train(run, data, device, folder)
        except Exception:
            connection.send(traceback.format_exc())
            return
        seconds = time.perf_counter() - began
        record |= {"seconds": seconds, "processes": processes, "device": device}
        connection.send({**record, **describe(device)})


def end_with_parent() -> None:
    """End this process when its parent is gone, whatever ended that."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


def cores() -> int:
    """Count the cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # of Linux alone
    return len(affinity(0)) if affinity else os.cpu_count() or 1


if __name__ == "__main__":
    main()
