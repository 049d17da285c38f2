"""Photographs of cats and dogs, from Kaggle's "Dogs vs. Cats", as 32 x 32 colour images."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from aucmax.extras import needed
from aucmax.paper.datasets._layout import ImageData, Images, Labels

CLASSES = ("cat", "dog")
SIDE = 32
SUFFIXES = (".jpg", ".jpeg", ".png")
EVERY = 5
"""One in so many photographs of a class is for testing where there is no official split."""

WHERE = (
    'it is Kaggle\'s "Dogs vs. Cats" (https://www.kaggle.com/c/dogs-vs-cats/data), which asks '
    "for a login, so it cannot be fetched from here. Lay it out as "
    "catdog/{train,test}/{cat,dog}/*.jpg (or .png; any size), or unpack Kaggle's own archive as "
    "dogs-vs-cats/train/{cat,dog}.NUMBER.jpg or PetImages/{Cat,Dog}/*.jpg"
)

Files = list[list[Path]]
"""The photographs of cats, and those of dogs."""


def read(root: Path) -> ImageData:
    """Read the first folder that is there: catdog32, catdog, dogs-vs-cats, PetImages.

    Raises:
        ValueError: if there is none, a class has no photograph, or a file is no image.
    """
    with needed("the data set catdog", "all"):
        import PIL.Image  # noqa: F401
    train, test = _find(root)
    return ImageData(*_decode_all(train), *_decode_all(test), CLASSES)


def _find(root: Path) -> tuple[Files, Files]:
    """The files of both splits."""
    for name in ("catdog32", "catdog"):
        if (root / name).is_dir():
            splits = root / name / "train", root / name / "test"
            train, test = ([_photos(split / kind) for kind in CLASSES] for split in splits)
            return train, test
    if (root / "dogs-vs-cats").is_dir():
        folder = root / "dogs-vs-cats" / "train"
        return _divide([_photos(folder, "cat."), _photos(folder, "dog.")])
    if (root / "PetImages").is_dir():
        return _divide([_photos(root / "PetImages" / "Cat"), _photos(root / "PetImages" / "Dog")])
    raise ValueError(
        f"root {str(root)!r} must hold catdog32, catdog, dogs-vs-cats or PetImages, found none: "
        f"{WHERE}"
    )


def _photos(folder: Path, start: str = "") -> list[Path]:
    """The images of a folder whose name begins so, ordered as people count: 2 before 10."""
    paths = [path for path in folder.glob(f"{start}*") if path.suffix.lower() in SUFFIXES]
    if not paths:
        raise ValueError(f"{folder} must hold {start}* photographs ({', '.join(SUFFIXES)})")

    def natural(path: Path) -> tuple[list[tuple[int, int, str]], str]:
        parts = re.findall(r"[0-9]+|[^0-9]+", path.name)
        return [(0, int(p), "") if p[0] in "0123456789" else (1, 0, p) for p in parts], path.name

    return sorted(paths, key=natural)


def _divide(files: Files) -> tuple[Files, Files]:
    """Every fifth photograph of each class is for testing, the others are for training."""
    train = [[p for i, p in enumerate(paths) if i % EVERY != EVERY - 1] for paths in files]
    return train, [paths[EVERY - 1 :: EVERY] for paths in files]


def _decode_all(files: Files) -> tuple[Images, Labels]:
    paths = [*files[0], *files[1]]
    x = np.empty((len(paths), SIDE, SIDE, 3), np.uint8)
    workers = min(os.cpu_count() or 1, 8)  # Pillow decodes without holding the interpreter
    with ThreadPoolExecutor(workers) as pool:
        for row, image in zip(x, pool.map(_decode, paths), strict=True):
            row[:] = image
    return x, np.repeat(np.arange(2, dtype=np.int64), [len(files[0]), len(files[1])])


def _decode(path: Path) -> Images:
    """One photograph; one that has the size already is not touched."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            colours = image.convert("RGB")
            if colours.size != (SIDE, SIDE):
                # Pillow's filter widens as it shrinks an image, so it leaves no jagged edges.
                colours = colours.resize((SIDE, SIDE), Image.Resampling.BICUBIC)
            return np.asarray(colours)
    except Exception as error:  # a damaged image may raise anything
        raise ValueError(f"{path} is no whole image: {error}") from error
