"""PairwiseAUCLoss, forward and backward, against torch's BCEWithLogitsLoss on one thread."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch
from _memory import grown
from _timing import Work, against, alternate
from _workloads import batch, forward_backward
from torch import nn

from aucmax import PairwiseAUCLoss
from aucmax.loss.surrogates import DEGREES, SURROGATES

BCE = "BCEWithLogitsLoss"
BY_SORT: dict[str, dict[str, Any]] = {name: {"surrogate": name} for name in DEGREES} | {
    "squared_hinge, memory 1,024": {"memory": 1024},
    "squared_hinge, max_fpr 0.1": {"max_fpr": 0.1},
}
BY_BLOCKS = {name: {"surrogate": name} for name in SURROGATES if name not in DEGREES}


def compared(n: int, kinds: dict[str, Any], rounds: int, calls: int) -> dict[str, Any]:
    """Seconds and ratios of some kinds on n rows."""
    scores, target = batch(n)
    losses = {BCE: nn.BCEWithLogitsLoss()}
    losses |= {name: PairwiseAUCLoss(**options) for name, options in kinds.items()}
    works = {name: forward_backward(loss, scores, target) for name, loss in losses.items()}
    return against(BCE, alternate(works, rounds=rounds, calls=calls))


def work(surrogate: str) -> Callable[[int], Work]:
    """Forward and backward on n rows."""
    return lambda n: forward_backward(PairwiseAUCLoss(surrogate), *batch(n))


def measure() -> dict[str, Any]:
    """Times for two batch sizes; the memory, of the surrogates in blocks up to fewer rows."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    found = {
        "N = 128": compared(128, BY_SORT | BY_BLOCKS, 21, 200),
        "N = 8,192": compared(8192, BY_BLOCKS, 3, 1) | compared(8192, BY_SORT, 21, 50),
        "memory": {
            "squared_hinge": grown(work("squared_hinge"), (100_000, 1_000_000)),
            "logistic": grown(work("logistic"), (4096, 16_384)),
        },
    }
    torch.set_num_threads(threads)
    return found


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
