"""What does a step of ``aucmax.fit`` cost against a loop written by hand, on the same data?

    python benchmarks/fit.py [--device cuda]

On a CPU: ResNet-20 and a small network in float32. On a GPU: the paper's step, that is ResNet-20 of
128 images of bytes, cropped and mirrored, in bfloat16, eager and as a captured graph. LibAUC's loss
and optimizer are timed in a loop by hand where ``libauc`` is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from _timing import Bench, main
from _workloads import mlp_task, resnet20_task
from torch import Tensor, nn

import aucmax
from aucmax.images.augment import CropAndFlip
from aucmax.models import resnet20

try:
    import _libauc
except ImportError:
    _libauc = None  # type: ignore[assignment]

LR = 0.01
Run = Callable[[int], object]
"""Takes a number of training steps."""


class Task:
    """A model and its data, trained by hand or by fit.

    Args:
        model: to train.
        x: inputs.
        y: labels 0 and 1.
        size: of a batch.
        augment: applied to a batch's inputs.
        amp: train in bfloat16.
        options: of the optimizer.
    """

    def __init__(
        self,
        model: nn.Module,
        x: Tensor,
        y: Tensor,
        size: int,
        *,
        augment: Callable[[Tensor], Tensor] | None = None,
        amp: bool = False,
        **options: float,
    ) -> None:
        self.model, self.x, self.y, self.size = model, x, y, size
        self.augment, self.amp, self.options = augment, amp, options
        self.order, self.place = y.new_zeros(0), 0

    def draw(self) -> Tensor:
        """Return the rows of the next batch, each epoch in a new random order."""
        if self.place + self.size > len(self.order):
            self.order, self.place = torch.randperm(len(self.y), device=self.y.device), 0
        self.place += self.size
        return self.order[self.place - self.size : self.place]

    def step(self, loss: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[[Tensor], None]:
        """Return a training step on the rows it is given."""

        def run(rows: Tensor) -> None:
            x = self.x[rows]
            if self.augment is not None:
                x = self.augment(x)
            optimizer.zero_grad()
            with torch.autocast(x.device.type, torch.bfloat16, self.amp, cache_enabled=False):
                value = loss(self.model(x).flatten(), self.y[rows])
            value.backward()
            optimizer.step()

        return run

    def cross_entropy(self) -> Callable[[Tensor], None]:
        """Return a step of torch's SGD on cross-entropy."""
        optimizer = torch.optim.SGD(self.model.parameters(), lr=LR, **self.options)
        return self.step(nn.BCEWithLogitsLoss(), optimizer)

    def ppd_sg(self) -> Callable[[Tensor], None]:
        """Return a step of PPDSG on the AUC loss."""
        loss = aucmax.AUCLoss(self.y.mean().item()).to(self.y.device)
        groups = aucmax.minmax_groups(self.model, loss)
        extra: dict[str, Any] = {"capturable": True} if self.y.is_cuda else {}
        return self.step(loss, aucmax.PPDSG(groups, lr=LR, **extra, **self.options))

    def libauc(self) -> Callable[[Tensor], None]:
        """Return a step of PESG on LibAUC's loss."""
        loss = _libauc.AfterSigmoid(self.y.device)
        return self.step(loss, _libauc.pesg(list(self.model.parameters()), loss.loss, LR))

    def by_hand(self, step: Callable[[Tensor], None]) -> Run:
        """Return a loop of steps."""

        def run(steps: int) -> None:
            self.model.train()
            for _ in range(steps):
                step(self.draw())

        return run

    def captured(self, step: Callable[[Tensor], None], bench: Bench) -> Run:
        """Return a loop of replays of one captured step."""
        rows = self.draw().clone()
        replay = bench.capture(lambda: step(rows))

        def run(steps: int) -> None:
            for _ in range(steps):
                rows.copy_(self.draw())
                replay()

        return run

    def by_fit(self, **options: Any) -> Run:
        """Return calls of fit that evaluate once, at the end."""
        if self.augment is not None:
            options["augment"] = self.augment

        def run(steps: int) -> None:
            aucmax.fit(
                self.model,
                (self.x, self.y),
                steps=steps,
                batch_size=self.size,
                eval_every=steps,
                probe=0,
                stages=aucmax.stages.geometric(lr=LR, steps=steps, stages=1),
                optimizer_options=self.options,
                amp="bf16" if self.amp else None,
                progress=False,
                device=self.y.device,
                **options,
            )

        return run


def paper_task(bench: Bench, seed: int = 0) -> Task:
    """Return the paper's step on random images of bytes, a tenth of them positive."""
    rows = bench.size(5000, 64)
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (rows, 32, 32, 3), generator=generator, dtype=torch.uint8)
    y = (torch.rand(rows, generator=generator) < 0.1).float()
    model = resnet20(mean=127.5, std=60.0, generator=generator).to(bench.device)
    return Task(
        model,
        images.to(bench.device).permute(0, 3, 1, 2),
        y.to(bench.device),
        bench.size(128, 8),
        augment=CropAndFlip(),
        amp=True,
        momentum=0.9,
        weight_decay=1e-4,
    )


def measure(bench: Bench) -> None:
    """Time a step of each loop, on a model of its own."""
    if bench.cuda:
        torch.backends.cudnn.benchmark = True
        tasks: dict[str, tuple[Callable[[], Task], tuple[int, int]]] = {
            "ResNet-20, bfloat16, eager": (lambda: paper_task(bench), bench.size((10, 60), (2, 4)))
        }
    else:
        tasks = {
            "ResNet-20, batch 128": (
                lambda: Task(*resnet20_task("cpu", bench.size(2048, 16)), bench.size(128, 4)),
                bench.size((4, 20), (1, 2)),
            ),
            "MLP, batch 256": (
                lambda: Task(*mlp_task("cpu", bench.size(1 << 17, 64)), bench.size(256, 16)),
                bench.size((512, 1536), (1, 2)),
            ),
        }
    eager: dict[str, Any] = {"cuda_graph": False} if bench.cuda else {}
    for title, (make, lengths) in tasks.items():
        task, ours = make(), make()
        runs = {
            "by hand, AUCLoss + PPDSG": ours.by_hand(ours.ppd_sg()),
            "by hand, BCE + SGD": task.by_hand(task.cross_entropy()),
            "aucmax.fit": make().by_fit(**eager),
        }
        if _libauc is not None:
            theirs = make()
            runs["by hand, LibAUC"] = theirs.by_hand(theirs.libauc())
        bench.per_step(title, runs, lengths)
    if bench.cuda:
        task, ours = paper_task(bench), paper_task(bench)
        runs = {
            "by hand, AUCLoss + PPDSG": ours.captured(ours.ppd_sg(), bench),
            "by hand, BCE + SGD": task.captured(task.cross_entropy(), bench),
            "aucmax.fit": paper_task(bench).by_fit(),
        }
        bench.per_step("ResNet-20, bfloat16, captured", runs, bench.size((100, 900), (2, 4)))


if __name__ == "__main__":
    main(measure, __doc__)
