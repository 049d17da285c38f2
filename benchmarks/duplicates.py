"""How the limits of "shows the same" were set: copies of photos against different photos.

``python benchmarks/duplicates.py FOLDER`` reads the pictures in a folder, at any depth, makes
copies of some of them in ways that people do, and prints two tables: in how many bits the hashes of
copies differ, and how many pairs of different photos differ as little; and the same of the mean
difference that confirms a pair. :data:`aucmax.images.duplicates.FEW_BITS` and ``ALIKE`` are chosen
where nearly all copies are within and hardly a pair of different photos is. Photos of the same
bytes once decoded are left out; the pairs within both limits are named, to be looked at.

Of Cat & Dog, 24,968 different photos of 32 pixels, 2,000 of them copied, on 2026-11-18::

    bits at most                    0      1      2      3      5      7      8      9     10     12
    JPEG of quality 80          71.4%  95.2%  99.2%  99.9%   100%   100%   100%   100%   100%   100%
    JPEG of quality 50          46.4%  81.4%  95.3%  99.2%   100%   100%   100%   100%   100%   100%
    two thirds of the size      77.2%  96.8%  99.7%   100%   100%   100%   100%   100%   100%   100%
    twice the size              92.2%  99.8%   100%   100%   100%   100%   100%   100%   100%   100%
    a tenth brighter            72.0%  89.1%  96.2%  98.5%  99.9%   100%   100%   100%   100%   100%
    darker, less contrast       91.8%  99.8%   100%   100%   100%   100%   100%   100%   100%   100%
    pairs of different photos       4      6      6      6      7      7      8     21     64    699

    mean difference at most      0.02   0.03   0.05    0.1   0.15    0.3
    JPEG of quality 80          14.8%  67.5%  98.0%   100%   100%   100%
    JPEG of quality 50           0.0%   2.9%  52.0%  98.8%   100%   100%
    two thirds of the size       0.2%   7.1%  57.9%  99.2%   100%   100%
    twice the size              96.9%  99.8%   100%   100%   100%   100%
    a tenth brighter            80.2%  86.8%  94.3%  99.6%   100%   100%
    darker, less contrast        100%   100%   100%   100%   100%   100%
    pairs, <= 7 bits                5      6      6      6      6      6

Six of the seven pairs within 7 bits are copies that were in the data; the seventh's photos differ,
by more than 0.3.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageEnhance

from aucmax.images.duplicates import ALIKE, FEW_BITS, _Looks, perceptual_hashes
from aucmax.images.listing import SUFFIXES
from aucmax.images.reading import read_picture

BITS = range(0, 13)
DIFFERENCES = (0.02, 0.03, 0.05, 0.1, 0.15, 0.2, 0.3)
MOST_BITS = 12
BLOCK = 512

Bytes = NDArray[np.uint8]


def as_jpeg(image: Image.Image, quality: int) -> Image.Image:
    """Written and read again."""
    file = BytesIO()
    image.save(file, "JPEG", quality=quality)
    return Image.open(file)


def scaled(image: Image.Image, by: float) -> Image.Image:
    """To another size."""
    width, height = (max(8, round(by * side)) for side in image.size)
    return image.resize((width, height), Image.Resampling.LANCZOS)


COPIES: dict[str, Callable[[Image.Image], Image.Image]] = {
    "JPEG of quality 80": lambda x: as_jpeg(x, 80),
    "JPEG of quality 50": lambda x: as_jpeg(x, 50),
    "two thirds of the size": lambda x: scaled(x, 2 / 3),
    "twice the size": lambda x: scaled(x, 2),
    "a tenth brighter": lambda x: ImageEnhance.Brightness(x).enhance(1.1),
    "a fifth darker, less contrast": lambda x: ImageEnhance.Contrast(
        ImageEnhance.Brightness(x).enhance(0.8)
    ).enhance(0.9),
}


def decoded(images: list[Image.Image], size: int) -> Bytes:
    """As a store has them."""
    pixels = []
    for image in images:
        file = BytesIO()
        image.save(file, "PNG")
        pixels.append(read_picture(file.getvalue(), size).pixels)
    return np.stack(pixels)


def bits_of(hashes: NDArray[np.uint64]) -> NDArray[np.float32]:
    """1 or -1 for each."""
    return 2 * np.unpackbits(hashes.view(np.uint8).reshape(-1, 8), axis=1).astype(np.float32) - 1


def near_pairs(hashes: NDArray[np.uint64]) -> Iterator[tuple[int, int, int]]:
    """All pairs whose hashes differ in few bits, and in how many."""
    signs = bits_of(hashes)
    for first in range(0, len(signs), BLOCK):
        differing = (64 - signs[first : first + BLOCK] @ signs[first:].T) / 2
        rows, columns = np.nonzero(np.triu(differing <= MOST_BITS, 1))
        counts = differing[rows, columns].astype(int)
        yield from zip((first + rows).tolist(), (first + columns).tolist(), counts, strict=True)


def measure(files: list[Path], size: int, copied: int) -> dict[str, dict[str, list[float]]]:
    """Of every kind of copy, and of different photos: bits and mean differences, pair by pair."""
    pixels = np.stack([read_picture(path, size).pixels for path in files])
    _, first = np.unique(pixels.reshape(len(pixels), -1), axis=0, return_index=True)
    kept = np.sort(first)
    pixels, hashes = pixels[kept], perceptual_hashes(pixels[kept])
    shows = np.flatnonzero(hashes)
    print(f"{len(files):,} pictures of {size} pixels, {len(kept):,} of them different")
    some = np.random.default_rng(0).permutation(shows)[:copied]
    found: dict[str, dict[str, list[float]]] = {}
    for name, change in COPIES.items():
        images = [change(Image.open(files[kept[k]]).convert("RGB")) for k in some]
        copies = decoded(images, size)
        bits = (64 - (bits_of(hashes[some]) * bits_of(perceptual_hashes(copies))).sum(axis=1)) / 2
        both = np.concatenate([pixels[some], copies])
        places = np.arange(len(some))
        looks = _Looks(both).differences(places, places + len(some))
        found[name] = {"bits": bits.tolist(), "difference": looks.tolist()}
    pairs = np.array([*near_pairs(hashes[shows])], np.int64).reshape(-1, 3)
    one, other, counts = shows[pairs[:, 0]], shows[pairs[:, 1]], pairs[:, 2]
    looks = _Looks(pixels).differences(one, other)
    found["different photos"] = {"bits": counts.tolist(), "difference": looks.tolist()}
    joined = np.flatnonzero((counts <= FEW_BITS) & (looks <= ALIKE))
    print(f"\n{len(joined):,} pairs of different bytes are taken for the same:")
    for k in joined[:20]:
        names = [str(files[kept[x[k]]]) for x in (one, other)]
        print(f"  {names[0]}  {names[1]}: {counts[k]} bits, {looks[k]:.3f}")
    return found


def table(
    found: dict[str, dict[str, list[float]]], what: str, limits: list[float], within: str
) -> str:
    """Of copies the share within each limit, of different photos how many pairs."""
    lines = [f"{within:30}" + "".join(f"{limit:>8g}" for limit in limits)]
    for name, values in found.items():
        numbers = np.array(values[what])
        if name == "different photos" and what == "difference":
            numbers = numbers[np.array(values["bits"]) <= FEW_BITS]
            name = f"different photos, <= {FEW_BITS} bits"
        counts = [int((numbers <= limit).sum()) for limit in limits]
        if name.startswith("different"):
            cells = [f"{count:>8,}" for count in counts]
        else:
            cells = [f"{count / len(numbers):>8.1%}" for count in counts]
        lines.append(f"{name:30}" + "".join(cells))
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--copied", type=int, default=2000, help="photos that copies are made of")
    parser.add_argument("--most", type=int, help="read only so many pictures")
    given = parser.parse_args()
    files = sorted(x for x in given.folder.rglob("*") if x.suffix.lower() in SUFFIXES)
    files = list(itertools.islice(files, given.most))
    found = measure(files, given.size, given.copied)
    print("\n" + table(found, "bits", list(BITS), "bits at most"))
    print("\n" + table(found, "difference", list(DIFFERENCES), "mean difference at most"))


if __name__ == "__main__":
    main()
