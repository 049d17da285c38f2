"""How fast are JPEG files decoded into a store, against Pillow's own loop in one process?

    python benchmarks/pictures.py

Files of 500 x 400 pixels are decoded to 224 pixels, by the store with two workers.
"""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import numpy as np
from _timing import Bench, main
from PIL import Image

from aucmax.images.store import build_store

SIZE, WORKERS = 224, 2


def write_pictures(folder: Path, count: int) -> list[Path]:
    """Write shapes with finer and finer detail, as in photos."""
    random, files = np.random.default_rng(0), []
    for number in range(count):
        levels = np.full((400, 500, 3), 128.0)
        for side, strength in ((4, 50), (16, 25), (64, 12), (256, 6)):
            noise = random.normal(0, strength, (side, side, 3)).clip(-127, 127) + 128
            scaled = Image.fromarray(noise.astype(np.uint8)).resize((500, 400))
            levels += np.asarray(scaled, float) - 128
        files.append(folder / f"{number:05}.jpg")
        Image.fromarray(levels.clip(0, 255).astype(np.uint8)).save(files[-1], quality=90)
    return files


def by_pillow(files: list[Path]) -> None:
    """Decode with the loop that anyone would write."""
    for path in files:
        with Image.open(path) as image:
            np.asarray(image.convert("RGB").resize((SIZE, SIZE)))


def measure(bench: Bench) -> None:
    """Time one further file."""
    written, count = bench.size((1000, 6000), (2, 4))
    with tempfile.TemporaryDirectory() as where:
        numbers = itertools.count()
        files = (write_pictures(Path(where), written) * (count // written + 1))[:count]

        def by_store(n: int) -> None:
            folder = Path(where, f"store {next(numbers)}")
            workers = bench.size(WORKERS, 1)
            build_store(folder, files[:n], SIZE, workers=workers, progress=False)

        runs = {"Pillow": lambda n: by_pillow(files[:n]), "store": by_store}
        bench.per_step(f"a file, {WORKERS} workers", runs, (count // 2, count), rounds=3)


if __name__ == "__main__":
    main(measure, __doc__)
