"""Seconds per step of each line, alone on the machine and in turn: the figures' time axis."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import torch

from aucmax.disk import write_json
from aucmax.paper.folder import Folder
from aucmax.paper.provenance import provenance
from aucmax.paper.results import RunResult, read_results
from aucmax.paper.runner import Runner
from aucmax.paper.settings import Run
from aucmax.paper.training import Parts, fit_arguments, make_model, make_parts
from aucmax.processes import configure_torch
from aucmax.threads import cores
from aucmax.train import fit

TIMING = "timing.json"
"""By a line's name, seconds and how they were measured."""
ROUNDS = 3
UNSTEADY = 1.25
"""A round that takes so many times as long as another was not alone."""
LENGTHS = (100, 400)
"""Steps of a shorter and a longer training: the difference is that of the steps, without the
setting up."""


def time_lines(runs: Sequence[Run], runner: Runner) -> None:
    """Time the lines of the runs one after the other, round by round, into ``out/timing.json``.

    Nothing is evaluated or saved meanwhile. A line is timed at one of its ratios: a step takes as
    long at the others. What an earlier call has timed is kept, and in the folder that the runner
    reuses what was timed on such a machine with the same versions.
    """
    folder, here = runner.folder, provenance(runner.device)
    elsewhere = runner.reuse.read(TIMING) if runner.reuse else {}
    alike = ("hardware", "versions")
    known = {k: x for k, x in elsewhere.items() if all(x[name] == here[name] for name in alike)}
    known |= folder.read(TIMING)
    lines = {_name(run): run for run in runs}
    missing = {name: run for name, run in lines.items() if name not in known}
    times = {name: known[name] for name in lines if name in known}
    if times:
        runner.bar.say(f"{len(times)} of {len(lines)} lines were timed before")
    if missing:
        times |= _time(missing, runner)
    write_json(folder.path / TIMING, {**folder.read(TIMING), **times})


def _name(line: Run | RunResult) -> str:
    """Of a line in the file."""
    return f"{line.protocol}-{line.dataset}-{line.line}"


def _time(lines: Mapping[str, Run], runner: Runner) -> dict[str, dict[str, Any]]:
    """The median of the rounds, and how it was measured."""
    device = runner.device
    configure_torch(cores())
    runner.store_images()
    images = runner.folder.stored_images()
    parts = {name: make_parts(run, images) for name, run in lines.items()}
    seconds: dict[str, list[float]] = {name: [] for name in lines}
    for number in range(ROUNDS):
        runner.bar.say(f"timing {len(lines)} lines, round {number + 1} of {ROUNDS}")
        for name, run in lines.items():
            short, long = (_seconds(run, parts[name], device, steps) for steps in LENGTHS)
            seconds[name].append((long - short) / (LENGTHS[1] - LENGTHS[0]))
    for name, values in seconds.items():
        if max(values) > UNSTEADY * min(values):
            times = ", ".join(f"{1e3 * x:.2f}" for x in values)
            runner.bar.say(f"{name}: {times} ms a step, so something else ran: time it again")
    how = {"rounds": ROUNDS, **provenance(device)}
    return {name: {"seconds": median(values), **how} for name, values in seconds.items()}


def read_timed_results(folder: Folder) -> list[RunResult]:
    """The results in a folder, with the times that were measured alone where there are any."""
    times = folder.read(TIMING)
    return [
        replace(result, seconds_per_step=times[name]["seconds"], at_once=1)
        if (name := _name(result)) in times
        else result
        for result in read_results(folder.path / "runs")
    ]


def _seconds(run: Run, parts: Parts, device: str, steps: int) -> float:
    """Of a whole training of so many steps, in one stage."""
    timed = run.with_options(steps=steps, eval_every=steps, probe=2, pretrained=False)
    if "first_stage" in timed.options:
        timed = timed.with_options(first_stage=steps)
    model = make_model(timed, parts.train[0])
    arguments = fit_arguments(timed, model, device)
    began = time.perf_counter()
    fit(model, parts.train, device=device, progress=False, **arguments)
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter() - began
