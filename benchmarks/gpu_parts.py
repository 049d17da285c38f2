"""The parts of a step on a GPU, one by one: optimizer, loss; and the metric."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from _device import Device, Table
from _timing import Work
from _workloads import batch, forward_backward, parameters, resnet20_shapes, resnet50_shapes
from torch import Tensor, nn

import aucmax
from aucmax.metrics import delong_test, roc_auc, roc_auc_interval

try:
    import _libauc
except ImportError:
    _libauc = None  # type: ignore[assignment]

SCORES = 10_000_000
IN_A_GRAPH = 10  # steps, so that what is timed is theirs and not the start of the graph
ADAMW, BCE, SORT = "AdamW(fused=True)", "BCEWithLogitsLoss", "torch.sort"
LARGE = "one tensor of 100 M"
BYTES_PER_NUMBER = 24
"""That a step of PPDSG cannot do without: parameter, gradient, reference and drift are read,
parameter and drift written, four bytes each."""


def shapes(device: Device) -> dict[str, list[tuple[int, ...]]]:
    """Of the models whose parameters are moved."""
    if device.tiny:
        return {LARGE: [(1000,)], "ResNet-20": [(4, 3), (4,)], "ResNet-50": [(8, 3), (8,)]}
    return {
        LARGE: [(100_000_000,)],
        "ResNet-20": resnet20_shapes(),
        "ResNet-50": resnet50_shapes(),
    }


def optimizer(device: Device) -> Iterator[tuple[str, Table]]:
    """Steps over those of fused AdamW, gradients fixed: with the host's time, and in a graph."""
    for name, of in shapes(device).items():
        for how, captured in (("captured", IN_A_GRAPH), ("eager", 0)):
            title = f"{name}, {how}"
            makers = steps(of, device, capturable=captured > 0)
            made = {n: device.attempt(f"{title}: {n}", make) for n, make in makers.items()}
            works = {n: work for n, work in made.items() if work is not None}
            table = device.compare(title, works, ADAMW, captured=captured)
            yield title, table
            if name == LARGE and captured:
                yield "memory", memory(device, table)


def steps(
    of: list[tuple[int, ...]], device: Device, capturable: bool
) -> dict[str, Callable[[], Work]]:
    """Makers of each optimizer's step, on parameters of its own."""

    def made(kind: Any, **options: Any) -> Callable[[], Work]:
        return lambda: kind(parameters(of, device.device), lr=1e-5, **options).step

    extra = {"capturable": True} if capturable else {}
    makers = {
        ADAMW: made(torch.optim.AdamW, fused=True, **extra),
        "PPDSG": made(aucmax.PPDSG, **extra),
        "PPDSG, momentum": made(aucmax.PPDSG, momentum=0.9, **extra),
        "PPDAdaGrad": made(aucmax.PPDAdaGrad, **extra),
        "SGD(fused=True), momentum": made(torch.optim.SGD, momentum=0.9, fused=True),
    }
    if _libauc is not None and not capturable:
        makers["PESG"] = lambda: (
            _libauc.pesg_alone(parameters(of, device.device), device.device).step
        )
    return makers


def memory(device: Device, timed: Table) -> Table:
    """Bytes per second of a PPDSG step on the large tensor, beside those of plain operations."""
    (size,) = shapes(device)[LARGE][0]
    source, target = torch.ones(size, device=device.device), torch.ones(size, device=device.device)
    works: dict[str, Work] = {
        "copy": lambda: target.copy_(source),
        "multiplication": lambda: torch.mul(source, 2.0, out=target),
    }
    plain = device.compare("memory", works, "copy", captured=IN_A_GRAPH)
    speeds = {name: 8 * size / row["seconds"] for name, row in plain.items()}
    speeds["PPDSG"] = BYTES_PER_NUMBER * size / timed["PPDSG"]["seconds"]
    return {
        name: {"bytes_per_second": speed, "ratio": speed / speeds["copy"]}
        for name, speed in speeds.items()
    }


def loss(device: Device) -> Iterator[tuple[str, Table]]:
    """Forward and backward over BCEWithLogitsLoss."""
    for n in (128, 8192, 1_000_000):
        scores, target = batch(device.size(n, 50), device.device)
        losses: dict[str, nn.Module] = {
            BCE: nn.BCEWithLogitsLoss(),
            "AUCLoss": aucmax.AUCLoss(target.mean().item()).to(device.device),
            "AUCLoss, prior unknown": aucmax.AUCLoss().to(device.device),
        }
        works: dict[str, Work] = {
            name: forward_backward(of, scores, target) for name, of in losses.items()
        }
        title = f"N = {n:,}"
        captured = device.compare(f"{title}, captured", works, BCE, captured=IN_A_GRAPH)
        yield f"{title}, captured", captured
        if _libauc is not None and n <= 8192:  # its time and memory grow with the square of n
            theirs = _libauc.AfterSigmoid(device.device)
            works["AUCMLoss"] = forward_backward(theirs, scores, target)
        yield f"{title}, eager", device.compare(f"{title}, eager", works, BCE)


def metric(device: Device) -> Iterator[tuple[str, Table]]:
    """Exact AUCs of ten million scores on the device, over the time to sort them."""
    n = device.size(SCORES, 1000)
    generator = torch.Generator(device.device).manual_seed(0)

    def normal() -> Tensor:
        return torch.randn(n, generator=generator, device=device.device)

    target = (torch.rand(n, generator=generator, device=device.device) < 0.1).float()
    scores, other = normal() + target, normal() + target
    tied, weight = torch.round(scores, decimals=2), normal().abs()
    plain: dict[str, Work] = {
        SORT: lambda: torch.sort(scores),
        "roc_auc": lambda: roc_auc(scores, target),
        "roc_auc, weights": lambda: roc_auc(scores, target, weight),
        "roc_auc_interval": lambda: roc_auc_interval(scores, target),
        "delong_test": lambda: delong_test(scores, other, target),
        **metric_peers(scores, target),
    }
    ties: dict[str, Work] = {
        SORT: lambda: torch.sort(tied),
        "roc_auc": lambda: roc_auc(tied, target),
    }
    title = f"N = {SCORES:,}"
    yield title, device.compare(title, plain, SORT, rounds=7)
    yield f"{title}, ties", device.compare(f"{title}, ties", ties, SORT, rounds=7)


def metric_peers(scores: Tensor, target: Tensor) -> dict[str, Work]:
    """Those that can be imported: torchmetrics on the device, scikit-learn on the host."""
    found: dict[str, Work] = {}
    try:
        from torchmetrics.functional.classification import binary_auroc

        probabilities, classes = scores.sigmoid(), target.long()
        found["torchmetrics"] = lambda: binary_auroc(probabilities, classes, thresholds=None)
    except ImportError:
        pass
    try:
        from sklearn.metrics import roc_auc_score

        arrays = target.cpu().numpy(), scores.cpu().numpy()
        found["scikit-learn, on the CPU"] = lambda: roc_auc_score(*arrays)
    except ImportError:
        pass
    return found
