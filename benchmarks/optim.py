"""What does an optimizer's step cost against torch's fused AdamW?

    python benchmarks/optim.py [--device cuda]

Gradients are fixed. LibAUC's PESG is timed beside ours where ``libauc`` is installed.
"""

from __future__ import annotations

from typing import Any

import torch
from _timing import Bench, Work, main
from _workloads import parameters, resnet20_shapes, resnet50_shapes

import aucmax

try:
    import _libauc
except ImportError:
    _libauc = None  # type: ignore[assignment]

IN_A_GRAPH = 10
SHAPES: dict[str, list[tuple[int, ...]]] = {
    "ResNet-20": resnet20_shapes(),
    "MLP 512": [(512, 512), (512,), (512, 512), (512,), (1, 512), (1,)],
    "one tensor of 25 M": [(25_000_000,)],
}


def steps(shapes: list[tuple[int, ...]], bench: Bench, captured: bool) -> dict[str, Work]:
    """Return the step of each optimizer on parameters of its own; captured ones stay on the GPU."""
    extra: dict[str, Any] = {"capturable": True} if captured else {}

    def made(kind: Any, **options: Any) -> Work:
        step: Work = kind(parameters(shapes, bench.device), lr=1e-5, **options).step
        return step

    works = {
        "AdamW(fused=True)": made(torch.optim.AdamW, fused=True, **extra),
        "PPDSG": made(aucmax.PPDSG, **extra),
        "PPDSG, momentum": made(aucmax.PPDSG, momentum=0.9, **extra),
        "PPDAdaGrad": made(aucmax.PPDAdaGrad, **extra),
        "PPDSG(fused=True)": made(aucmax.PPDSG, fused=True, **extra),
        "PPDAdaGrad(fused=True)": made(aucmax.PPDAdaGrad, fused=True, **extra),
        "SGD(fused=True), momentum": made(torch.optim.SGD, momentum=0.9, fused=True),
    }
    if sum(torch.Size(shape).numel() for shape in shapes) > 1_000_000:
        works["PPDAdaGrad, compiled"] = torch.compile(made(aucmax.PPDAdaGrad, **extra))
    if _libauc is not None and not captured:
        theirs = _libauc.pesg_with_gradients(parameters(shapes, bench.device), bench.device)
        works["LibAUC PESG"] = theirs.step
    return works


def measure(bench: Bench) -> None:
    """Time the steps for each model."""
    shapes = SHAPES | ({"ResNet-50": resnet50_shapes()} if bench.cuda else {})
    for name, each in bench.size(shapes, {"tiny": [(4, 3), (4,)]}).items():
        bench.compare(f"{name}, eager", steps(each, bench, captured=False))
        if bench.cuda:
            works = steps(each, bench, captured=True)
            bench.compare(f"{name}, captured", works, captured=IN_A_GRAPH)


if __name__ == "__main__":
    main(measure, __doc__)
