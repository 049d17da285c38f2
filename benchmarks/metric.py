"""What does the exact AUC cost against scikit-learn and torchmetrics, and against a sort on a GPU?

    python benchmarks/metric.py [--device cuda]

A tenth of the rows are positive. torchmetrics and LibAUC are timed where they are installed.
"""

from __future__ import annotations

import torch
from _timing import Bench, Work, main
from sklearn.metrics import roc_auc_score
from torch import Tensor

from aucmax.metrics import compare, interval, roc_auc

try:
    from libauc.metrics import auc_roc_score
except ImportError:
    auc_roc_score = None
try:
    from torchmetrics.functional.classification import binary_auroc
except ImportError:
    binary_auroc = None


def draw(rows: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the scores of two models, labels and weights."""
    generator = torch.Generator(device).manual_seed(0)

    def normal() -> Tensor:
        return torch.randn(rows, generator=generator, device=device)

    target = (torch.rand(rows, generator=generator, device=device) < 0.1).float()
    return normal() + target, normal() + target, target, normal().abs()


def measure(bench: Bench) -> None:
    """Time metrics with and without ties and weights."""
    rows = bench.size(10_000_000 if bench.cuda else 1_000_000, 1000)
    scores, other, target, weight = draw(rows, bench.device)
    host = [x.cpu().numpy() for x in (target, scores, weight)]
    if abs(roc_auc(scores, target) - roc_auc_score(host[0], host[1])) > 1e-12:
        raise AssertionError("roc_auc differs from scikit-learn")
    sort: dict[str, Work] = {"torch.sort": lambda: torch.sort(scores)} if bench.cuda else {}
    probabilities, classes = scores.sigmoid(), target.long()
    works: dict[str, Work] = {
        "scikit-learn": lambda: roc_auc_score(host[0], host[1]),
        "roc_auc": lambda: roc_auc(scores, target),
        "interval": lambda: interval(scores, target),
        "compare": lambda: compare(scores, other, target),
    }
    if binary_auroc is not None:
        works["torchmetrics"] = lambda: binary_auroc(probabilities, classes, thresholds=None)
    if auc_roc_score is not None:
        works["LibAUC"] = lambda: auc_roc_score(host[0], host[1])
    bench.compare(f"N = {rows:,}", sort | works, rounds=7)
    weighted: dict[str, Work] = {
        "scikit-learn": lambda: roc_auc_score(host[0], host[1], sample_weight=host[2]),
        "roc_auc": lambda: roc_auc(scores, target, weight),
    }
    bench.compare(f"N = {rows:,}, weights", sort | weighted, rounds=7)
    tied = torch.round(scores, decimals=2)
    tied_host = tied.cpu().numpy()
    ties: dict[str, Work] = {
        "scikit-learn": lambda: roc_auc_score(host[0], tied_host),
        "roc_auc": lambda: roc_auc(tied, target),
    }
    bench.compare(f"N = {rows:,}, ties", sort | ties, rounds=7)


if __name__ == "__main__":
    main(measure, __doc__)
