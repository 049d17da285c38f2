"""Whole training steps on a GPU: ResNet-20, batch 128, bfloat16, images of bytes, augmented."""

from __future__ import annotations

import collections
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from _device import Device, Table
from _timing import Work, against
from torch import Tensor, nn

import aucmax
from aucmax.data.augment import CropAndFlip
from aucmax.models import resnet20

try:
    import _libauc
except ImportError:
    _libauc = None  # type: ignore[assignment]

Loop = Callable[[int], object]  # takes so many steps
PEER = "BCE + SGD by hand"
LEARNING = {"momentum": 0.9, "weight_decay": 1e-4}
LR = 0.01
TOP = 15  # kernels that the profile names
AT_ONCE = (1, 2, 4, 8)


def models() -> dict[str, dict[str, Any]]:
    """The network as it comes, and with torch's own layers where those are not the same."""
    plain = {"ResNet-20, plain layers": {"fused": False}}
    return {"ResNet-20": {}} | (plain if "fused" in inspect.signature(resnet20).parameters else {})


class Task:
    """A model, images of bytes in channels-last memory, labels of which a tenth are positive."""

    def __init__(self, device: Device, options: dict[str, Any], seed: int = 0) -> None:
        self.device, rows = device, device.size(5000, 64)
        self.size = device.size(128, 8)
        generator = torch.Generator().manual_seed(seed)
        images = torch.randint(0, 256, (rows, 32, 32, 3), generator=generator, dtype=torch.uint8)
        self.x = images.to(device.device).permute(0, 3, 1, 2)
        self.y = (torch.rand(rows, generator=generator) < 0.1).float().to(device.device)
        self.model = resnet20(mean=127.5, std=60.0, generator=generator, **options)
        self.model.to(device.device)
        self.augment = CropAndFlip()
        self.order, self.place = self.y.new_zeros(0), 0

    def draw(self) -> Tensor:
        """The rows of the next batch, round by round in random order, as every loop draws them."""
        if self.place + self.size > len(self.order):
            self.order, self.place = torch.randperm(len(self.y), device=self.x.device), 0
        self.place += self.size
        return self.order[self.place - self.size : self.place]

    def images(self, rows: Tensor) -> Tensor:
        """Of a batch, shifted and mirrored."""
        return self.augment(self.x.index_select(0, rows))

    def step(self, loss: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[[Tensor], None]:
        """A training step by hand, of the rows it is given."""

        def run(rows: Tensor) -> None:
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(self.device.device.type, torch.bfloat16, cache_enabled=False):
                value = loss(self.model(self.images(rows)).flatten(), self.y[rows])
            value.backward()
            optimizer.step()

        return run

    def cross_entropy(self, **options: Any) -> Callable[[Tensor], None]:
        """A step on cross-entropy with torch's SGD."""
        optimizer = torch.optim.SGD(self.model.parameters(), lr=LR, **LEARNING, **options)
        return self.step(nn.BCEWithLogitsLoss(), optimizer)

    def ppd_sg(self) -> Callable[[Tensor], None]:
        """A step on the AUC loss with PPDSG."""
        loss = aucmax.AUCLoss(self.y.mean().item()).to(self.x.device)
        groups = aucmax.minmax_groups(self.model, loss)
        return self.step(
            loss, aucmax.PPDSG(groups, lr=LR, capturable=self.device.is_cuda, **LEARNING)
        )

    def pesg(self) -> Callable[[Tensor], None]:
        """A step on LibAUC's loss with its optimizer."""
        loss = _libauc.AfterSigmoid(self.x.device)
        return self.step(loss, _libauc.pesg(list(self.model.parameters()), loss.loss, LR))

    def eager(self, step: Callable[[Tensor], None]) -> Callable[[int], None]:
        """A loop of steps, operation by operation."""

        def run(steps: int) -> None:
            for _ in range(steps):
                step(self.draw())

        return run

    def captured(self, step: Callable[[Tensor], None]) -> Callable[[int], None]:
        """A loop of replays, the rows copied to where the graph reads them."""
        replay = self.replay(step)

        def run(steps: int) -> None:
            for _ in range(steps):
                self.rows.copy_(self.draw())
                replay()

        return run

    def replay(self, step: Callable[[Tensor], None]) -> Work:
        """One step, captured."""
        self.rows = self.draw().clone()
        return self.device.capture(lambda: step(self.rows))

    def config(self, **options: Any) -> dict[str, Any]:
        """The arguments of fit for the same step, evaluation but for the last one left out."""
        return {
            "model": self.model, "train": (self.x, self.y), "batch_size": self.size, "probe": 0,
            "augment": self.augment, "amp": "bf16", "optimizer_options": LEARNING,
            **options,
        }  # fmt: skip

    def fit(self, **options: Any) -> Callable[[int], object]:
        """Whole calls of fit, by their steps."""
        at = {"device": self.x.device, "progress": False}
        return lambda steps: aucmax.fit(**self.config(**lasting(steps), **at, **options))


def lasting(steps: int) -> dict[str, Any]:
    """Options of a run of so many steps in one stage, looked at when it is over."""
    stages = aucmax.stages.geometric(lr=LR, steps=steps, stages=1)
    return {"steps": steps, "eval_every": steps, "stages": stages}


def step(device: Device) -> Iterator[tuple[str, Table]]:
    """Seconds per step, captured and operation by operation, and of the images alone."""
    for name, options in models().items():
        title = f"{name}, captured"
        made = captured_loops(lambda o=options: Task(device, o))
        found = device.per_step(title, made, device.size((100, 900), (2, 4)))
        yield title, against(PEER, found)
    title = "ResNet-20, eager"
    found = device.per_step(
        title, eager_loops(lambda: Task(device, {})), device.size((10, 50), (2, 4))
    )
    yield title, against(PEER, found)
    task = Task(device, {})
    rows = task.draw().clone()
    works: dict[str, Work] = {"gather + CropAndFlip": lambda: task.images(rows)}
    yield "images alone, captured", device.compare("images", works, *works, captured=10)


def captured_loops(new: Callable[[], Task]) -> dict[str, Callable[[], Loop]]:
    """Each on a task of its own."""
    return {
        PEER: lambda: (task := new()).captured(task.cross_entropy()),
        "BCE + SGD(fused=True) by hand": lambda: (task := new()).captured(
            task.cross_entropy(fused=True)
        ),
        "PPD-SG by hand": lambda: (task := new()).captured(task.ppd_sg()),
        "PPD-SG by fit": lambda: new().fit(),
        "SGD by fit": lambda: new().fit(method="sgd"),
    }


def eager_loops(new: Callable[[], Task]) -> dict[str, Callable[[], Loop]]:
    """Each on a task of its own; LibAUC's too if it is there."""
    loops: dict[str, Callable[[], Loop]] = {
        PEER: lambda: (task := new()).eager(task.cross_entropy()),
        "PPD-SG by hand": lambda: (task := new()).eager(task.ppd_sg()),
        "PPD-SG by fit": lambda: new().fit(cuda_graph=False),
    }
    if _libauc is not None:
        loops["LibAUC by hand"] = lambda: (task := new()).eager(task.pesg())
    return loops


def at_once(device: Device) -> Iterator[tuple[str, Any]]:
    """Seconds per run and step of several runs of PPD-SG on one device."""
    counts = device.size(AT_ONCE, (1, 2))
    tasks = [Task(device, {}, seed) for seed in range(max(counts))]
    sweep = getattr(aucmax, "sweep", None)
    together = _swept(sweep, tasks) if sweep else _round_robin(tasks)
    made = {f"{n} at once": (lambda n=n: together(n)) for n in counts}
    found = device.per_step("ResNet-20", made, device.size((64, 832), (2, 4)), rounds=2)
    each = {name: seconds / int(name.split()[0]) for name, seconds in found.items()}
    yield "ResNet-20", against("1 at once", each)
    yield "way", "aucmax.sweep" if sweep else "graphs by hand, in turn on streams of their own"


def _swept(sweep: Any, tasks: list[Task]) -> Callable[[int], Loop]:
    def together(n: int) -> Loop:
        def run(steps: int) -> None:
            configs = [task.config(seed=k, **lasting(steps)) for k, task in enumerate(tasks[:n])]
            sweep(configs, at_once=n, device=tasks[0].x.device, progress=False)

        return run

    return together


def _round_robin(tasks: list[Task]) -> Callable[[int], Loop]:
    """Without sweep: captured steps by hand, each on a stream of its own."""
    cuda = tasks[0].device.is_cuda
    streams = [torch.cuda.Stream() if cuda else None for _ in tasks]
    loops = [task.captured(task.ppd_sg()) for task in tasks]

    def together(n: int) -> Loop:
        def run(steps: int) -> None:
            for _ in range(steps):
                for loop, stream in zip(loops[:n], streams, strict=False):
                    with torch.cuda.stream(stream):
                        loop(1)

        return run

    return together


def profile(device: Device) -> Iterator[tuple[str, Any]]:
    """The kernels of a captured step: how many, how long, and those that take longest."""
    for name, options in models().items():
        task = Task(device, options)
        yield f"PPD-SG, {name}", kernels(device, task.replay(task.ppd_sg()))
        task = Task(device, options)
        yield f"BCE + SGD, {name}", kernels(device, task.replay(task.cross_entropy()))


def kernels(device: Device, replay: Work, replays: int = 5) -> dict[str, Any]:
    """What the profiler saw, per replay."""
    kind = torch.profiler.ProfilerActivity
    replay()
    device.wait()
    with torch.profiler.profile(activities=[kind.CUDA if device.is_cuda else kind.CPU]) as seen:
        for _ in range(replays):
            replay()
        device.wait()
    counts: dict[str, int] = collections.Counter()
    microseconds: dict[str, float] = collections.Counter()
    for event in seen.events():
        on_device = event.device_type == torch.autograd.DeviceType.CUDA
        if on_device or not device.is_cuda:
            counts[event.name] += 1
            spent = event.device_time if device.is_cuda else event.self_cpu_time_total
            microseconds[event.name] += spent
    longest = sorted(counts, key=lambda name: -microseconds[name])[:TOP]
    return {
        "kernels": sum(counts.values()) / replays,
        "microseconds": sum(microseconds.values()) / replays,
        "longest": [
            {"name": n, "count": counts[n] / replays, "microseconds": microseconds[n] / replays}
            for n in longest
        ],
    }
