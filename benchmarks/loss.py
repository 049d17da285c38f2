"""What do our losses cost, forward and backward, against torch's BCEWithLogitsLoss?

    python benchmarks/loss.py [--device cuda]

One thread on a CPU. LibAUC's losses are timed beside ours where ``libauc`` is installed.
"""

from __future__ import annotations

import torch
from _timing import Bench, main
from _workloads import batch, forward_backward
from torch import nn

import aucmax

try:
    import _libauc
except ImportError:
    _libauc = None  # type: ignore[assignment]

BY_SORT = ("squared_hinge", "square", "hinge")
IN_A_GRAPH = 10


def losses(prior: float, of_all_pairs: bool) -> dict[str, nn.Module]:
    """Return the losses by name; the logistic surrogate looks at every pair."""
    made = {
        "BCEWithLogitsLoss": nn.BCEWithLogitsLoss(),
        "AUCLoss": aucmax.AUCLoss(prior),
        "AUCLoss, prior unknown": aucmax.AUCLoss(),
        **{f"PairwiseAUCLoss, {name}": aucmax.PairwiseAUCLoss(name) for name in BY_SORT},
        "PairwiseAUCLoss, max_fpr 0.1": aucmax.PairwiseAUCLoss(max_fpr=0.1),
        "PartialAUCLoss": aucmax.PartialAUCLoss(max_fpr=0.1),
    }
    if of_all_pairs:
        made["PairwiseAUCLoss, logistic"] = aucmax.PairwiseAUCLoss("logistic")
    return made


def measure(bench: Bench) -> None:
    """Time each batch size, then measure the memory per row."""
    torch.set_num_threads(1)
    for n in bench.size((128, 8192) + (1_000_000,) * bench.cuda, (40,)):
        scores, target = batch(n, bench.device)
        made = losses(target.mean().item(), of_all_pairs=n <= 8192)
        works = {
            name: forward_backward(loss.to(bench.device), scores, target)
            for name, loss in made.items()
        }
        if bench.cuda:
            bench.compare(f"N = {n:,}, captured", works, captured=IN_A_GRAPH)
        if _libauc is not None and n <= 8192:  # their cost grows with the square of n
            for name, loss in _libauc.losses(n, bench.device).items():
                works[name] = forward_backward(loss, scores, target)
        bench.compare(f"N = {n:,}, eager", works)
    for name, sizes in {"squared_hinge": (100_000, 1_000_000), "logistic": (4096, 16_384)}.items():
        for n in bench.size(sizes, (50,)):
            work = forward_backward(aucmax.PairwiseAUCLoss(name), *batch(n, bench.device))
            bench.record(f"memory, N = {n:,}", name, bytes_per_row=bench.peak_memory(work) / n)


if __name__ == "__main__":
    main(measure, __doc__)
