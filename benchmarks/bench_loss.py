"""AUCLoss, forward and backward, against torch's BCEWithLogitsLoss on one thread."""

from __future__ import annotations

import json
from typing import Any

import torch
from _timing import against, alternate
from _workloads import batch, forward_backward
from torch import nn

import aucmax


def measure(sizes: tuple[int, ...] = (128, 8192)) -> dict[str, Any]:
    """Seconds and ratios for each batch size."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    found = {}
    for n in sizes:
        scores, target = batch(n)
        losses = {
            "BCEWithLogitsLoss": nn.BCEWithLogitsLoss(),
            "AUCLoss": aucmax.AUCLoss(target.mean().item()),
            "AUCLoss, prior unknown": aucmax.AUCLoss(),
        }
        runs = {name: forward_backward(loss, scores, target) for name, loss in losses.items()}
        found[f"N = {n:,}"] = against("BCEWithLogitsLoss", alternate(runs, rounds=21, calls=400))
    torch.set_num_threads(threads)
    return found


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
