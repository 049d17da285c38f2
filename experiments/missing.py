"""Run what the figures lack, by several processes that share one GPU.

From the root of the repository, with the official files in a folder::

    nvidia-cuda-mps-control -d  # lets kernels of several processes run side by side
    PYTHONPATH=src python experiments/missing.py --data DIR --time-limit 1500

``aucmax reproduce`` runs one figure in one process. Here the runs of 20,000 steps that the folders
of ``experiments/results`` lack, with settings found before, are a list for each folder, the
strongest imbalance and the first seed first, and every process takes the next run when it has room.
When the time is over, or by SIGTERM or Ctrl-C, runs under way are saved where they are, in the
folders' ``unfinished``, and the same command goes on: on another machine too, if that is taken
along. Name folders to run them alone, also new ones: ``figure1-long-cifar10`` has all of the
paper's steps. ``--list`` says what is missing.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import queue
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aucmax.paper import datasets
from aucmax.paper.folder import Folder
from aucmax.paper.provenance import commit
from aucmax.paper.runner import train_by_turns
from aucmax.paper.settings import Run, make_plan

RESULTS = Path(__file__).parent / "results"
ENDING = (signal.SIGTERM, signal.SIGHUP)
"""Signals that let runs be saved, as Ctrl-C does."""
IN_FULL = "figure1-long"
"""The experiment whose runs are not shortened."""


@dataclass(frozen=True)
class Part:
    """An experiment on a data set: its folder, and the runs that it lacks."""

    folder: Folder
    dataset: str
    runs: list[Run]


def missing(results: Path, names: list[str], steps: int, seeds: int | None = None) -> list[Part]:
    """What each folder lacks, EXPERIMENT-DATASET by its name; those that lack nothing are left out.

    Lines that figure 2 shares with figure 1 are not run for it: ``aucmax reproduce --reuse``.
    """
    parts = []
    for name in names:
        experiment, dataset = name.rsplit("-", 1)
        folder = Folder(results / name)
        length = None if experiment == IN_FULL else steps
        runs = make_plan(experiment, dataset, steps=length, seeds=seeds).runs
        if experiment == "figure2":
            runs = [run for run in runs if run.options.get("pretrained")]
        if lacking := [run for run in runs if not folder.result_file(run).exists()]:
            parts.append(Part(folder, dataset, lacking))
    return parts


def work(
    parts: list[Part], lists: list[Any], first: int, at_once: int, device: str, others: int
) -> None:
    """Take runs, from the part of this number on, until there are no more.

    ``others`` runs of other processes share the device.
    """

    def next_runs(wanted: Any) -> Iterator[Run]:
        while True:
            try:
                yield wanted.get(timeout=1)
            except queue.Empty:
                return

    for number in range(len(parts)):
        part, wanted = (x[(first + number) % len(parts)] for x in (parts, lists))
        ended = train_by_turns(next_runs(wanted), part.folder, device, at_once, others=others)
        for run, result in ended:
            print(f"{part.folder.path.name} {run}: {result.seconds:.0f} s", flush=True)


def train(
    parts: list[Part], processes: int, at_once: int, others: int, device: str, ends: float | None
) -> None:
    """Train in so many processes, each with so many runs at once, beside other commands' runs."""
    context = multiprocessing.get_context("spawn")
    lists = []
    for part in parts:
        lists.append(context.Queue())
        lists[-1].cancel_join_thread()  # what nobody begins may stay there
        for run in part.runs:
            lists[-1].put(run)
    os.environ["AUCMAX_COMMIT"] = commit() or ""  # of the code as it is now, for all processes
    others += (processes - 1) * at_once
    workers = [
        context.Process(target=_work_apart, args=(parts, lists, number, at_once, device, others))
        for number in range(processes)
    ]
    started = []
    try:
        for worker in workers:
            worker.start()
            started.append(worker)
        for worker in workers:
            worker.join(None if ends is None else max(0.0, ends - time.time()))
    finally:
        for worker in started:
            worker.terminate()  # it saves its runs; one that has ended knows nothing of it
        for worker in started:
            worker.join()


def _work_apart(*arguments: Any) -> None:
    """In a group of its own: of signals to the command's only what that passes on, once."""
    os.setpgrp()
    work(*arguments)


def _exit_once(number: int, _: Any) -> None:
    for each in ENDING:
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + number)


def main() -> None:
    """Say what is missing, or run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="folders, such as figure1-cifar10; those there")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, help="only the first so many")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--data")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--at-once", type=int, default=3, help="runs of each process")
    parser.add_argument("--others", type=int, default=0, help="runs of other commands meanwhile")
    parser.add_argument("--time-limit", type=float, help="seconds")
    parser.add_argument("--list", action="store_true", help="only say what is missing")
    given = parser.parse_args()
    ends = None if given.time_limit is None else time.time() + given.time_limit
    for each in ENDING:
        signal.signal(each, _exit_once)
    there = sorted(path.name for path in given.results.glob("figure*-c*") if path.is_dir())
    parts = missing(given.results, given.names or there, given.steps, given.seeds)
    for part in parts:
        print(f"{part.folder.path.name} lacks {len(part.runs)} of its runs", flush=True)
        if given.list:
            print("".join(f"  {run}\n" for run in part.runs), end="")
    if parts and not given.list:
        for part in parts:
            part.folder.store_images(datasets.load(part.dataset, given.data, progress=False))
        train(parts, given.processes, given.at_once, given.others, given.device, ends)
        for part in parts:
            part.folder.tidy()


if __name__ == "__main__":
    main()
