"""How long a GPU waits for pictures: a step of ResNet-50 at 224 pixels, fed from a store.

From the root of the repository, where torchvision is installed::

    PYTHONPATH=src python benchmarks/gpu_pictures.py

Pictures are written, decoded to a store, and trained on by :func:`aucmax.fit` as
:class:`aucmax.ImageClassifier` does with more than it takes into memory: workers read batches from
the store, bfloat16, cropped and mirrored on the device. In turn with it, the same pictures lie on
the device from the start. The share of a step that the GPU waits is what the first takes longer,
over what it takes. A network of one layer shows how fast pictures come if nothing holds them up.
``--device cpu --tiny`` tries the code where there is no GPU.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _device import Device
from _machine import machine
from PIL import Image
from torch import nn

import aucmax
from aucmax.data.augment import CropAndFlip
from aucmax.images.store import Store, StoredPictures, build_store
from aucmax.models import Standardize, resnet20
from aucmax.stages import Stage
from aucmax.threads import cores

FILES = 250
"""Pictures that differ; the store holds each of them several times."""
MOST_WAITED = 0.05
OUT = Path(__file__).parent / "results" / "gpu-pictures.json"


def write_pictures(folder: Path, size: int) -> list[Path]:
    """Coarse shapes and fine noise."""
    random, files = np.random.default_rng(0), []
    for number in range(FILES):
        coarse = random.integers(0, 256, (7, 7, 3), dtype=np.uint8)
        levels = np.asarray(Image.fromarray(coarse).resize((size, size)), float)
        levels += random.normal(0, 5, levels.shape)
        files.append(folder / f"{number:03}.jpg")
        Image.fromarray(levels.clip(0, 255).astype(np.uint8)).save(files[-1], quality=90)
    return files


def make_store(folder: Path, count: int, size: int) -> Store:
    """So many rows of pictures."""
    files = write_pictures(folder, size)
    wanted = (files * (count // FILES + 1))[:count]
    return build_store(folder / "store", wanted, size, progress=False)


def large_network(tiny: bool) -> nn.Module:
    """ResNet-50 of bytes; ResNet-20 to try the code."""
    if tiny:
        return resnet20(mean=127.5, std=60.0)
    from torchvision.models import resnet50

    return nn.Sequential(Standardize([127.5] * 3, [60.0] * 3), resnet50(num_classes=1))


def small_network() -> nn.Module:
    """One layer, of a few pixels: all that takes time is their way."""
    few = nn.AdaptiveAvgPool2d(1)
    return nn.Sequential(Standardize([127.5] * 3, [60.0] * 3), few, nn.Flatten(), nn.Linear(3, 1))


def run(device: Device, network: nn.Module, data: Any, batch: int) -> Callable[[int], object]:
    """Training as the classifier does it, by its steps; evaluated when it is over."""
    workers = min(4, cores()) if isinstance(data, StoredPictures) else 0

    def steps(count: int) -> None:
        aucmax.fit(
            network, data, method="sgd", objective="auc+ce", steps=count, eval_every=count,
            stages=[Stage(index=1, lr=0.01, steps=count, dual_samples=0)], probe=0,
            optimizer_options={"momentum": 0.9, "weight_decay": 0.001}, batch_size=batch,
            positives=0.5, augment=CropAndFlip(padding=28), amp="bf16", workers=workers,
            device=device.device, progress=False,
        )  # fmt: skip

    return steps


def measure(device: Device, count: int, size: int, batch: int, lengths: tuple[int, int]) -> Any:
    """Seconds per step, the share of it that the GPU waits, and how fast pictures come."""
    with tempfile.TemporaryDirectory() as where:
        store = make_store(Path(where), count, size)
        classes = (np.arange(count) % 10 == 0).astype(np.int64)
        stored = StoredPictures(store.pixels, np.arange(count), classes)
        pixels = torch.from_numpy(np.array(store.pixels)).permute(0, 3, 1, 2)
        near = pixels.to(device.device), torch.from_numpy(classes)
        large = large_network(device.tiny).to(device.device)
        makers = {
            "from the store": lambda: run(device, large, stored, batch),
            "on the device": lambda: run(device, large, near, batch),
            "from the store, one layer": lambda: run(device, small_network(), stored, batch),
        }
        seconds = device.per_step("pictures", makers, lengths)
    found: dict[str, Any] = {"pictures": count, "size": size, "batch": batch, "seconds": seconds}
    if not device.errors:
        whole, near_by, reading = seconds.values()
        found |= {"waited": (whole - near_by) / whole, "read per second": batch / reading}
    return {**found, "errors": device.errors, "machine": machine(device.device)}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--tiny", action="store_true", help="sizes that say nothing")
    parser.add_argument("--pictures", type=int, default=4000)
    parser.add_argument("--json", type=Path, help=f"in place of {OUT.name}")
    given = parser.parse_args()
    device = Device(torch.device(given.device), given.tiny)
    count, size, batch = device.size((given.pictures, 224, 128), (96, 16, 16))
    found = measure(device, count, size, batch, device.size((16, 80), (1, 3)))
    print(json.dumps(found, indent=2))
    if "waited" in found:
        says = "less" if found["waited"] < MOST_WAITED else "NOT less"
        print(f"the GPU waits {found['waited']:.1%} of a step, {says} than {MOST_WAITED:.0%}")
    published = None if given.tiny or device.errors else OUT
    if path := given.json or published:
        path.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
