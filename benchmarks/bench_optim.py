"""A step of PPDSG and PPDAdaGrad against torch's fused AdamW."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch
from _timing import against, alternate
from _workloads import SHAPES, parameters

import aucmax


def steps(shapes: list[tuple[int, ...]], compiled: bool) -> dict[str, Callable[[], object]]:
    """The step of each optimizer, on parameters of its own."""
    adamw = torch.optim.AdamW(parameters(shapes), lr=1e-5, fused=True)
    ppdsg = aucmax.PPDSG(parameters(shapes), lr=1e-5)
    sgd = torch.optim.SGD(parameters(shapes), lr=1e-5, momentum=0.9, fused=True)
    adagrad = aucmax.PPDAdaGrad(parameters(shapes), lr=1e-5)
    runs: dict[str, Callable[[], object]] = {
        "AdamW(fused=True)": adamw.step,
        "PPDSG": ppdsg.step,
        "PPDAdaGrad": adagrad.step,
        "SGD(fused=True), momentum": sgd.step,
    }
    if compiled:
        other = aucmax.PPDAdaGrad(parameters(shapes), lr=1e-5)
        runs["PPDAdaGrad, compiled"] = torch.compile(other.step)
    return runs


def measure() -> dict[str, Any]:
    """Seconds and ratios for each model, optimizers in pairs with AdamW so the cache is theirs."""
    found = {}
    for name, shapes in SHAPES.items():
        large = sum(torch.Size(shape).numel() for shape in shapes) > 1_000_000
        runs = steps(shapes, compiled=large)
        peer = "AdamW(fused=True)"
        found[name] = {
            other: against(
                peer,
                alternate(
                    {peer: runs[peer], other: runs[other]},
                    rounds=21,
                    calls=2 if large else 40,
                ),
            )[other]
            for other in runs
            if other != peer
        }
    return found


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
