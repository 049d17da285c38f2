"""A small data set of pictures on disk, and the plan of the study made short for it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from aucmax.study.settings import plan


def write_pictures(folder: Path) -> Path:
    """``catdog32/{train,test}/{cat,dog}``: 80 and 20 of each, of noise, dogs a little brighter."""
    random = np.random.default_rng(0)
    for part, count in (("train", 80), ("test", 20)):
        for name, light in (("cat", 100), ("dog", 130)):
            where = folder / "catdog32" / part / name
            where.mkdir(parents=True)
            for number in range(count):
                pixels = light + random.integers(0, 60, size=(32, 32, 3))
                Image.fromarray(pixels.astype(np.uint8)).save(where / f"{number}.png")
    return folder


def shorten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two lines, two points, one seed, two steps."""
    grid, other = {"lr": [0.1], "positives": ["natural", 0.5]}, {"lr": [0.1], "decay": [0.0, 0.001]}
    for name, value in (("steps", 2), ("grid", grid)):
        monkeypatch.setitem(plan()["models"]["resnet"], name, value)
    monkeypatch.setitem(plan()["regimes"]["pictures-sources"], "grid", other)
    lines = {name: plan()["lines"]["pictures"][name] for name in ("ce", "pairwise")}
    monkeypatch.setitem(plan()["lines"], "pictures", lines)
    monkeypatch.setitem(plan(), "seeds", 1)
