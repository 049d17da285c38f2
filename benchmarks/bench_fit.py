"""Steps per second of ``aucmax.fit`` against loops written by hand, on the same data.

On the CPU ``make bench`` runs it. On a GPU, from the root of the repository and with nothing
installed but torch, numpy and safetensors::

    PYTHONPATH=src python benchmarks/bench_fit.py --device cuda --json results.json

Kept as ``benchmarks/results/DATE-cuda.json``, the file becomes a table of the performance page. It
times ResNet-20 at batch 128 in bfloat16: the whole step captured as a CUDA graph, and operation by
operation, PPD-SG by ``fit`` and cross-entropy with SGD by hand, in turn in one run.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from _timing import against, alternate
from _workloads import MLP_ROWS, mlp_task, resnet20_task
from torch import Tensor, nn

import aucmax

Task = tuple[nn.Module, Tensor, Tensor]
TASKS = {  # on the CPU: the task, the batch size, steps per round, rounds
    "ResNet-20, batch 128": (resnet20_task, 128, 20, 5),
    "MLP, batch 256": (mlp_task, 256, 3 * MLP_ROWS // 256, 7),
}
CAPTURED, EAGER = (100, 600), (20, 70)  # steps of the shorter and the longer run on a GPU


class Batches:
    """Rows in random order, round by round, as every hand-written loop draws them."""

    def __init__(self, x: Tensor, y: Tensor, size: int) -> None:
        self.x, self.y, self.size = x, y, size
        self.order, self.place = torch.randperm(len(y), device=x.device), 0

    def rows(self) -> Tensor:
        """The next batch's."""
        if self.place + self.size > len(self.order):
            self.order, self.place = torch.randperm(len(self.y), device=self.x.device), 0
        self.place += self.size
        return self.order[self.place - self.size : self.place]

    def __call__(self) -> tuple[Tensor, Tensor]:
        """The next batch."""
        rows = self.rows()
        return self.x[rows], self.y[rows]


def by_fit(task: Task, size: int, steps: int, **options: Any) -> Callable[[], object]:
    """A whole call of fit: PPD-SG without evaluation."""
    model, x, y = task

    def run() -> None:
        aucmax.fit(
            model, (x, y), steps=steps, batch_size=size, eval_every=steps, probe=0,
            stages=aucmax.stages.geometric(lr=0.01, steps=steps, stages=1),
            progress=False, device=x.device, **options,
        )  # fmt: skip

    return run


def by_hand(
    task: Task, size: int, steps: int, auc: bool, amp: bool = False
) -> Callable[[], object]:
    """The loop of a tutorial: the AUC loss with PPDSG, or cross-entropy with SGD."""
    model, x, y = task
    loss: nn.Module = nn.BCEWithLogitsLoss()
    optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    if auc:
        loss = aucmax.AUCLoss(y.mean().item()).to(x.device)
        optimizer = aucmax.PPDSG(aucmax.minmax_groups(model, loss), lr=0.01)

    def run() -> None:
        draw = Batches(x, y, size)
        model.train()
        for _ in range(steps):
            inputs, target = draw()
            optimizer.zero_grad()
            with torch.autocast("cuda", torch.bfloat16) if amp else nullcontext():
                scores = model(inputs).flatten()
                value = loss(scores, target)
            value.backward()
            optimizer.step()

    return run


def captured_by_hand(task: Task, size: int, steps: int) -> Callable[[], object]:
    """Cross-entropy with SGD, the whole step captured as a graph, without an average."""
    model, x, y = task
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    draw, loss, graph = Batches(x, y, size), nn.BCEWithLogitsLoss(), torch.cuda.CUDAGraph()
    rows = draw.rows().clone()

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            value = loss(model(x[rows]).flatten(), y[rows])
        value.backward()
        optimizer.step()

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        step()

    def run() -> None:
        for _ in range(steps):
            rows.copy_(draw.rows())
            graph.replay()

    run.holds = step  # type: ignore[attr-defined]  # the graph writes where the model lives
    return run


def cpu() -> dict[str, Any]:
    """Seconds per step and ratios to the same loop by hand."""
    found = {}
    for name, (make, size, steps, rounds) in TASKS.items():
        functions = {
            "by hand, AUCLoss + PPDSG": by_hand(make("cpu"), size, steps, auc=True),
            "aucmax.fit": by_fit(make("cpu"), size, steps),
            "by hand, BCE + SGD": by_hand(make("cpu"), size, steps, auc=False),
        }
        medians = alternate(functions, rounds=rounds, calls=1)
        per_step = {key: seconds / steps for key, seconds in medians.items()}
        found[name] = against("by hand, AUCLoss + PPDSG", per_step)
    return found


def cuda() -> dict[str, Any]:
    """Seconds per step on a GPU, captured and operation by operation.

    Each loop runs at two lengths: the difference is that of its steps, without the set-up.
    """
    torch.backends.cudnn.benchmark = True
    fitted = {"amp": "bf16", "cuda_graph": None}
    makers: dict[str, tuple[Callable[[Task, int], Callable[[], object]], tuple[int, int]]] = {
        "BCE + SGD by hand, captured": (lambda t, n: captured_by_hand(t, 128, n), CAPTURED),
        "PPD-SG by fit, captured": (lambda t, n: by_fit(t, 128, n, **fitted), CAPTURED),
        "SGD by fit, captured": (lambda t, n: by_fit(t, 128, n, method="sgd", **fitted), CAPTURED),
        "BCE + SGD by hand, eager": (lambda t, n: by_hand(t, 128, n, auc=False, amp=True), EAGER),
        "PPD-SG by hand, eager": (lambda t, n: by_hand(t, 128, n, auc=True, amp=True), EAGER),
        "PPD-SG by fit, eager": (
            lambda t, n: by_fit(t, 128, n, amp="bf16", cuda_graph=False),
            EAGER,
        ),
    }
    functions = {
        (name, length): synchronized(make(resnet20_task("cuda", rows=5_000), length))
        for name, (make, lengths) in makers.items()
        for length in lengths
    }
    medians = alternate(functions, rounds=3, calls=1)  # type: ignore[arg-type]
    per_step = {
        name: (medians[name, long] - medians[name, short]) / (long - short)  # type: ignore[index]
        for name, (_, (short, long)) in makers.items()
    }
    return {"ResNet-20, batch 128, bfloat16": against("BCE + SGD by hand, captured", per_step)}


def synchronized(run: Callable[[], object]) -> Callable[[], object]:
    """The same, waiting for the device at the end."""

    def timed() -> None:
        run()
        torch.cuda.synchronize()

    return timed


def measure() -> dict[str, Any]:
    """What ``make bench`` takes from here."""
    return cpu()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--json", type=Path, help="a file for the figures")
    arguments = parser.parse_args()
    results = cuda() if arguments.device == "cuda" else cpu()
    for workload, rows in results.items():
        for what, row in rows.items():
            print(f"{workload}: {what:<30} {1e3 * row['seconds']:8.3f} ms  {row['ratio']:.3f}")
    if arguments.json:
        name = torch.cuda.get_device_name() if arguments.device == "cuda" else platform.machine()
        where = {"device": name, "python": platform.python_version(), "torch": torch.__version__}
        today = {"date": datetime.date.today().isoformat()}
        arguments.json.write_text(json.dumps({**today, **where, "fit": results}, indent=2) + "\n")
