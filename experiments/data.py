"""Data sets of images, read from their official files as arrays.

======== ============================ ============= =================
name     folder below the data's      images        train / test
======== ============================ ============= =================
cifar10  cifar-10-batches-bin         32 x 32 x 3   50,000 / 10,000
cifar100 cifar-100-binary             32 x 32 x 3   50,000 / 10,000
stl10    stl10_binary                 96 x 96 x 3   5,000 / 8,000
catdog   catdog32, {train,test}/CLASS 32 x 32 x 3   as found
digits   none: scikit-learn holds it  8 x 8 x 1     1,352 / 445
======== ============================ ============= =================

A file that is not the official one, by its MD5 sum, raises.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.prepare import distinct

NAMES = ("cifar10", "cifar100", "stl10", "catdog", "digits")
MD5 = {
    "cifar-10-batches-bin/data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "cifar-10-batches-bin/data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "cifar-10-batches-bin/data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "cifar-10-batches-bin/data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "cifar-10-batches-bin/data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "cifar-10-batches-bin/test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
    "cifar-100-binary/train.bin": "6172c7755cfe09b2fe270c85cebc1b15",
    "cifar-100-binary/test.bin": "4499cfba6c016c1be1438163640a0898",
    "stl10_binary/train_X.bin": "918c2871b30a85fa023e0c44e0bee87f",
    "stl10_binary/train_y.bin": "5a34089d4802c674881badbb80307741",
    "stl10_binary/test_X.bin": "7f263ba9f9e0b06b93213547f721ac82",
    "stl10_binary/test_y.bin": "36f9794fa4beb8a2c72628de14fa638e",
}
"""Sums of the official files, as they are published with the data or by torchvision."""

Array = NDArray[np.uint8]


class Images(NamedTuple):
    """A data set without its exact repeats.

    Attributes:
        x_train: images to train on, bytes of shape (N, height, width, channels).
        y_train: class numbers from 0.
        x_test: images to test on.
        y_test: class numbers.
        classes: how many classes there are.
    """

    x_train: Array
    y_train: NDArray[np.int64]
    x_test: Array
    y_test: NDArray[np.int64]
    classes: int


@lru_cache(maxsize=1)
def load(name: str, folder: Path) -> Images:
    """Read a data set, and drop what it repeats.

    Args:
        name: one of :data:`NAMES`.
        folder: holds the data sets' folders; digits need none.

    Raises:
        ValueError: for an unknown name, or a file that is not the official one.
        FileNotFoundError: if a file is missing.
    """
    if name == "cifar10":
        names = [f"cifar-10-batches-bin/data_batch_{k}.bin" for k in range(1, 6)]
        train = [_cifar(folder, name, labels=1) for name in names]
        x_train, y_train = (np.concatenate(parts) for parts in zip(*train, strict=True))
        x_test, y_test = _cifar(folder, "cifar-10-batches-bin/test_batch.bin", labels=1)
    elif name == "cifar100":
        x_train, y_train = _cifar(folder, "cifar-100-binary/train.bin", labels=2)
        x_test, y_test = _cifar(folder, "cifar-100-binary/test.bin", labels=2)
    elif name == "stl10":
        (x_train, y_train), (x_test, y_test) = (_stl10(folder, x) for x in ("train", "test"))
    elif name == "catdog":
        (x_train, y_train), (x_test, y_test) = (_catdog(folder, x) for x in ("train", "test"))
    elif name == "digits":
        x_train, y_train, x_test, y_test = _digits()
    else:
        raise ValueError(f"dataset must be one of {', '.join(NAMES)}, found {name!r}")
    classes = int(y_train.max()) + 1
    train_rows, test_rows = distinct(x_train, x_test)
    return Images(
        x_train[train_rows], y_train[train_rows], x_test[test_rows], y_test[test_rows], classes
    )


def _read(folder: Path, name: str) -> Array:
    content = (folder / name).read_bytes()
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != MD5[name]:
        raise ValueError(f"{folder / name} must have the MD5 sum {MD5[name]}, found {found}")
    return np.frombuffer(content, np.uint8)


def _cifar(folder: Path, name: str, labels: int) -> tuple[Array, NDArray[np.int64]]:
    """Records of label bytes, the last of them the fine one, and three planes of 32 x 32 pixels."""
    records = _read(folder, name).reshape(-1, labels + 3072)
    x = records[:, labels:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(x), records[:, labels - 1].astype(np.int64)


def _stl10(folder: Path, part: str) -> tuple[Array, NDArray[np.int64]]:
    """Planes of 96 x 96 pixels, column by column; labels from 1."""
    x = _read(folder, f"stl10_binary/{part}_X.bin").reshape(-1, 3, 96, 96).transpose(0, 3, 2, 1)
    y = _read(folder, f"stl10_binary/{part}_y.bin").astype(np.int64) - 1
    return np.ascontiguousarray(x), y


def _catdog(folder: Path, part: str) -> tuple[Array, NDArray[np.int64]]:
    """Photographs of cats, then those of dogs, in the order of the numbers that name them."""
    from PIL import Image

    images, labels = [], []
    for label, name in enumerate(("cat", "dog")):
        paths = (folder / "catdog32" / part / name).glob("*.png")
        for path in sorted(paths, key=lambda path: int(path.stem)):
            with Image.open(path) as image:
                images.append(np.asarray(image.convert("RGB")))
            labels.append(label)
    if not images:
        raise FileNotFoundError(f"no photographs in {folder / 'catdog32' / part}")
    return np.stack(images), np.array(labels, np.int64)


def _digits() -> tuple[Array, NDArray[np.int64], Array, NDArray[np.int64]]:
    """Scikit-learn's 1,797 digits; the fourth, eighth, ... of each class are for testing."""
    from sklearn.datasets import load_digits

    images, y = load_digits(return_X_y=True)
    x, y = images.reshape(-1, 8, 8, 1).astype(np.uint8), y.astype(np.int64)
    test = np.zeros(len(y), bool)
    for number in range(10):
        test[np.flatnonzero(y == number)[3::4]] = True
    return x[~test], y[~test], x[test], y[test]
