"""Seconds per step of each line, alone on the machine and in turn: the figures' time axis."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

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
LENGTHS = (100, 400)
"""Steps of a shorter and a longer training: the difference is that of the steps, without the
setting up."""


def time_lines(runs: Sequence[Run], runner: Runner) -> None:
    """Time the lines of the runs one after the other, round by round, into ``out/timing.json``.

    Nothing is evaluated or saved meanwhile. What an earlier call has timed is kept.
    """
    folder, device = runner.folder, runner.device
    times = folder.read(TIMING)
    missing = {run.key.file_name: run for run in runs if run.key.file_name not in times}
    if not missing:
        return
    configure_torch(cores())
    runner.store_images()
    images = folder.stored_images()
    parts = {name: make_parts(run, images) for name, run in missing.items()}
    seconds: dict[str, list[float]] = {name: [] for name in missing}
    for number in range(ROUNDS):
        runner.bar.say(f"timing {len(missing)} lines, round {number + 1} of {ROUNDS}")
        for name, run in missing.items():
            short, long = (_seconds(run, parts[name], device, steps) for steps in LENGTHS)
            seconds[name].append((long - short) / (LENGTHS[1] - LENGTHS[0]))
    how = {"rounds": ROUNDS, **provenance(device)}
    new = {name: {"seconds": median(values), **how} for name, values in seconds.items()}
    write_json(folder.path / TIMING, {**times, **new})


def read_timed_results(folder: Folder) -> list[RunResult]:
    """The results in a folder, with the times that were measured alone where there are any."""
    times = folder.read(TIMING)
    return [
        replace(result, seconds_per_step=times[name]["seconds"], at_once=1)
        if (name := result.key.file_name) in times
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
