"""Seconds per step of each line, alone on the machine and in turn: the figures' time axis."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

from aucmax.disk import write_json
from aucmax.paper.job import Parts, fit_arguments, make_model, make_parts, provenance, stored_images
from aucmax.paper.plan import Run, study_name
from aucmax.paper.workshop import Workshop
from aucmax.processes import configure_torch
from aucmax.train import fit

ROUNDS = 3
LENGTHS = (100, 400)
"""Steps of a shorter and a longer training: the difference is that of the steps, without the
setting up."""


def time_lines(runs: list[Run], workshop: Workshop) -> None:
    """Time the lines of the runs one after the other, round by round, into ``out/timing.json``.

    Nothing is evaluated or saved meanwhile. What an earlier call has timed is kept.
    """
    out, device, bar = workshop.folder, workshop.device, workshop.bar
    path = out / "timing.json"
    found: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    missing = {run.study: run for run in runs if run.study not in found}
    if not missing:
        return
    configure_torch(os.cpu_count() or 1)
    workshop.store_images()
    images = stored_images(out)
    parts = {name: make_parts(run, images) for name, run in missing.items()}
    seconds: dict[str, list[float]] = {name: [] for name in missing}
    for number in range(ROUNDS):
        bar.note(f"timing {len(missing)} lines, round {number + 1} of {ROUNDS}")
        for name, run in missing.items():
            seconds[name].append(_seconds_per_step(run, parts[name], device))
    how = {"rounds": ROUNDS, **provenance(device)}
    found |= {name: {"seconds": median(values), **how} for name, values in seconds.items()}
    write_json(path, found)


def with_times(results: list[dict[str, Any]], out: Path) -> list[dict[str, Any]]:
    """The results with the seconds per step that :func:`time_lines` found, where it has."""
    path = out / "timing.json"
    if not path.exists():
        return results
    lines = json.loads(path.read_text(encoding="utf-8"))
    names = [study_name(*(r[k] for k in ("protocol", "dataset", "ratio", "line"))) for r in results]
    return [
        {**result, "seconds_per_step": lines[name]["seconds"], "at_once": 1}
        if name in lines
        else result
        for result, name in zip(results, names, strict=True)
    ]


def _seconds_per_step(run: Run, parts: Parts, device: str) -> float:
    short, long = (_seconds(run, parts, device, steps) for steps in LENGTHS)
    return (long - short) / (LENGTHS[1] - LENGTHS[0])


def _seconds(run: Run, parts: Parts, device: str, steps: int) -> float:
    """Of a whole training of so many steps, in one stage."""
    timed = run.with_options(steps=steps, eval_every=steps, probe=2, pretrained=False)
    if "first_stage" in timed.options:
        timed = timed.with_options(first_stage=1.0)
    model = make_model(timed, parts.train[0])
    arguments = fit_arguments(timed, model, device, out=None)
    began = time.perf_counter()
    fit(model, parts.train, device=device, progress=False, **arguments)
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter() - began
