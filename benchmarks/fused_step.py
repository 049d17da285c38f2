"""Which fused step is faster, the Triton kernel or the compiled lists?

    python benchmarks/fused_step.py [--device cuda]

PPD-SG and PPD-AdaGrad with ``fused=True``, by the kernel and by ``torch.compile`` of the list form,
beside the list form itself and torch's fused AdamW: at 100 million parameters in 40 tensors, and on
the shapes of ResNet-50, eager and in a CUDA graph. Gradients are fixed. On a CPU, where there is no
kernel, its row is the list form.
"""

from __future__ import annotations

from typing import Any

import torch
from _timing import Bench, Work, main
from _workloads import parameters, resnet50_shapes

import aucmax

IN_A_GRAPH = 10
SHAPES = {"100 M": [(2500, 1000)] * 40, "ResNet-50": resnet50_shapes()}


def steps(shapes: Any, bench: Bench, captured: bool) -> dict[str, Work]:
    """Return the step of each optimizer on parameters of its own."""
    extra: dict[str, Any] = {"capturable": True} if captured else {}

    def made(kind: Any, form: str | None = None, **options: Any) -> Work:
        optimizer = kind(parameters(shapes, bench.device), lr=1e-5, **options, **extra)
        if form is not None:
            optimizer.fused_form = form
        step: Work = optimizer.step
        return step

    works = {"AdamW(fused=True)": made(torch.optim.AdamW, fused=True)}
    for kind in (aucmax.PPDSG, aucmax.PPDAdaGrad):
        works[f"{kind.__name__}, lists"] = made(kind)
        for form in ("kernel", "compiled"):
            works[f"{kind.__name__}, {form}"] = made(kind, form, fused=True)
    return works


def check(bench: Bench) -> None:
    """Compare all forms after three steps, with a group that has bounds and is maximised."""
    for kind in (aucmax.PPDSG, aucmax.PPDAdaGrad):
        ends = []
        for form in (None, "kernel", "compiled"):
            ps = parameters([(64, 33), (7,), (5,)], bench.device)
            groups = [{"params": ps[:2]}, {"params": ps[2:], "maximize": True, "bounds": (-1, 1)}]
            optimizer = kind(groups, lr=0.1, gamma=5.0, fused=form is not None)
            optimizer.fused_form = form or "kernel"
            for lr in (0.1, 0.1, 0.3):
                for group in optimizer.param_groups:
                    group["lr"] = lr
                optimizer.step()
            ends.append([*ps, *(average for _, average in optimizer.averages())])
        for found in ends[1:]:
            torch.testing.assert_close(found, ends[0], rtol=1e-5, atol=1e-6)
        bench.record("equal after three steps", kind.__name__, forms=3)


def measure(bench: Bench) -> None:
    """Check the forms, then time them."""
    check(bench)
    for name, shapes in bench.size(SHAPES, {"tiny": [(40, 30), (4,)]}).items():
        bench.compare(f"{name}, eager", steps(shapes, bench, captured=False))
        if bench.cuda:
            works = steps(shapes, bench, captured=True)
            bench.compare(f"{name}, captured", works, captured=IN_A_GRAPH)


if __name__ == "__main__":
    main(measure, __doc__)
