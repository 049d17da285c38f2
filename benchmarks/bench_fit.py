"""Steps per second of ``aucmax.fit`` against loops written by hand, on the same data."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch
from _timing import against, at_two_lengths
from _workloads import MLP_ROWS, mlp_task, resnet20_task
from torch import Tensor, nn

import aucmax
from aucmax.paper import datasets
from aucmax.paper.settings import make_plan
from aucmax.paper.training import make_model, make_parts

Task = tuple[nn.Module, Tensor, Tensor]
DIGITS = make_plan("figure1", "digits", protocols=["strong"], seeds=1).runs[0]


def digits_task(device: str) -> Task:
    """The digits, thinned to 91 : 9, and their network, as ``aucmax reproduce`` has them."""
    (x, y), *_ = make_parts(DIGITS, datasets.load("digits"))
    return make_model(DIGITS, x).to(device), x.to(device), y.to(device)


PEER = "by hand, AUCLoss + PPDSG"
TASKS = {  # the task, the batch size, steps of a short and of a long run, rounds
    "ResNet-20, batch 128": (resnet20_task, 128, (4, 20), 5),
    "MLP, batch 256": (mlp_task, 256, (MLP_ROWS // 256, 3 * MLP_ROWS // 256), 7),
    "digits, batch 32": (
        digits_task, DIGITS.options["batch_size"], (200, DIGITS.options["steps"]), 9
    ),
}  # fmt: skip


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


def by_fit(task: Task, size: int) -> Callable[[int], object]:
    """Whole calls of fit, by their steps: PPD-SG without evaluation but for the last one."""
    model, x, y = task

    def run(steps: int) -> None:
        aucmax.fit(
            model, (x, y), steps=steps, batch_size=size, eval_every=steps, probe=0,
            stages=aucmax.stages.geometric(lr=0.01, steps=steps, stages=1),
            progress=False, device=x.device,
        )  # fmt: skip

    return run


def by_hand(task: Task, size: int, auc: bool) -> Callable[[int], object]:
    """The loop of a tutorial: the AUC loss with PPDSG, or cross-entropy with SGD."""
    model, x, y = task
    loss: nn.Module = nn.BCEWithLogitsLoss()
    optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    if auc:
        loss = aucmax.AUCLoss(y.mean().item()).to(x.device)
        optimizer = aucmax.PPDSG(aucmax.minmax_groups(model, loss), lr=0.01)

    def run(steps: int) -> None:
        draw = Batches(x, y, size)
        model.train()
        for _ in range(steps):
            inputs, target = draw()
            optimizer.zero_grad()
            loss(model(inputs).flatten(), target).backward()
            optimizer.step()

    return run


def measure() -> dict[str, Any]:
    """Seconds per step, from runs of two lengths, and of the long run; ratios to that by hand."""
    found: dict[str, Any] = {}
    for name, (make, size, lengths, rounds) in TASKS.items():
        loops = {
            PEER: by_hand(make("cpu"), size, auc=True),
            "aucmax.fit": by_fit(make("cpu"), size),
            "by hand, BCE + SGD": by_hand(make("cpu"), size, auc=False),
        }
        steps, whole = at_two_lengths(loops, lengths, rounds=rounds, warm_up=1)
        found |= {name: against(PEER, steps), f"{name}, whole run": against(PEER, whole)}
    return found


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
