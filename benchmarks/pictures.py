"""How fast a store of pictures is made, by Pillow's own loop in one process.

``python benchmarks/pictures.py`` writes JPEGs of 500 x 400 pixels and has them, over and over,
decoded to 224 pixels in turn by :func:`aucmax.images.store.build_store` with two workers and by a
loop of Pillow's open, convert and resize. It prints pictures per second, with and without the start
of the workers, and their ratio to the loop's, and writes them to ``results/pictures.json``.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from _timing import at_two_lengths
from PIL import Image

from aucmax.images.store import build_store
from aucmax.paper.provenance import provenance

OUT = Path(__file__).parent / "results" / "pictures.json"
SIZE, FILES = 224, 1000


def write_pictures(folder: Path, count: int) -> list[Path]:
    """Coarse shapes with finer and finer ones in them, as in photos."""
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
    """The loop that anyone would write."""
    for path in files:
        with Image.open(path) as image:
            np.asarray(image.convert("RGB").resize((SIZE, SIZE)))


def measure(count: int, rounds: int, workers: int) -> dict[str, Any]:
    """Pictures per second, and their ratio."""
    with tempfile.TemporaryDirectory() as where:
        written, numbers = write_pictures(Path(where), FILES), itertools.count()
        files = (written * (count // FILES + 1))[:count]

        def by_store(n: int) -> None:
            folder = Path(where, f"store {next(numbers)}")
            build_store(folder, files[:n], SIZE, workers=workers, progress=False)

        runs = {"Pillow": lambda n: by_pillow(files[:n]), "store": by_store}
        steps, wholes = at_two_lengths(runs, (count // 2, count), rounds=rounds)
        size = sum(path.stat().st_size for path in written) / FILES
    speeds = {
        name: {"per second": 1 / steps[name], "with the start": count / wholes[name]}
        for name in runs
    }
    ratios = {of: speeds["store"][of] / speed for of, speed in speeds["Pillow"].items()}
    return {"pictures": count, "file bytes": size, "workers": workers, **speeds, "ratio": ratios}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=int, default=6000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    found = measure(given.pictures, given.rounds, given.workers)
    for name in ("Pillow", "store", "ratio"):
        print(f"{name}: {json.dumps({of: round(x, 2) for of, x in found[name].items()})}")
    OUT.write_text(json.dumps({**found, **provenance("cpu")}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
