"""How long does a GPU wait for pictures: a step of ResNet-50 at 224 pixels, fed from a store?

    python benchmarks/gpu_pictures.py --device cuda

``fit`` trains as ImageClassifier does with more pictures than fit into memory: workers read batches
from the store; cropping and mirroring happen on the device. In alternation, the same pictures lie
on the device from the start. Needs torchvision for ResNet-50; ``--tiny`` takes ResNet-20.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _timing import Bench, main
from fit import Run
from pictures import write_pictures
from torch import nn

from aucmax.images.augment import CropAndFlip
from aucmax.images.store import StoredPictures, build_store
from aucmax.models import Standardize, resnet20
from aucmax.stages import Stage

FILES = 250
"""Pictures that differ; the store holds each several times."""


def network(bench: Bench) -> nn.Module:
    """Return ResNet-50 of bytes, or ResNet-20 to try the code."""
    if bench.tiny:
        return resnet20(mean=127.5, std=60.0)
    from torchvision.models import resnet50

    return nn.Sequential(Standardize([127.5] * 3, [60.0] * 3), resnet50(num_classes=1))


def training(bench: Bench, model: nn.Module, data: Any, batch: int, workers: int) -> Run:
    """Return calls of fit as ImageClassifier makes them."""
    import aucmax

    def run(steps: int) -> None:
        aucmax.fit(
            model,
            data,
            method="sgd",
            objective="auc+ce",
            steps=steps,
            eval_every=steps,
            stages=[Stage(index=1, lr=0.01, steps=steps, dual_samples=0)],
            probe=0,
            optimizer_options={"momentum": 0.9, "weight_decay": 0.001},
            batch_size=batch,
            positives=0.5,
            augment=CropAndFlip(padding=28),
            amp="bf16",
            workers=workers,
            device=bench.device,
            progress=False,
        )

    return run


def measure(bench: Bench) -> None:
    """Time a step of both, and of a single layer, which shows how fast batches arrive."""
    count, size, batch = bench.size((4000, 224, 128), (64, 16, 16))
    workers = bench.size(4, 0)
    with tempfile.TemporaryDirectory() as where:
        files = write_pictures(Path(where), bench.size(FILES, 4))
        wanted = (files * (count // len(files) + 1))[:count]
        store = build_store(
            Path(where, "store"), wanted, size, workers=max(1, workers), progress=False
        )
        classes = (np.arange(count) % 10 == 0).astype(np.int64)
        stored = StoredPictures(store.pixels, np.arange(count), classes)
        pixels = torch.from_numpy(np.array(store.pixels)).permute(0, 3, 1, 2)
        near = pixels.to(bench.device), torch.from_numpy(classes)
        model = network(bench).to(bench.device)
        layer = nn.Sequential(
            Standardize([127.5] * 3, [60.0] * 3),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(3, 1),
        ).to(bench.device)
        runs = {
            "on the device": training(bench, model, near, batch, workers=0),
            "from the store": training(bench, model, stored, batch, workers),
            "from the store, one layer": training(bench, layer, stored, batch, workers),
        }
        seconds = bench.per_step("a step", runs, bench.size((16, 80), (1, 2)), rounds=3)
    whole, near_by = seconds["from the store"], seconds["on the device"]
    bench.record("a step", "share that the GPU waits", share=(whole - near_by) / whole)


if __name__ == "__main__":
    main(measure, __doc__)
