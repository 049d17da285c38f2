"""What the official files of a data set look like, and the checks that every reader makes."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aucmax.paper.datasets._download import fetch

Images = NDArray[np.uint8]
Labels = NDArray[np.int64]


class ImageData(NamedTuple):
    """A data set of images, whole and in the order of its files.

    Attributes:
        x_train: images to learn from, uint8 of shape (N, height, width, channels), C contiguous.
        y_train: their class numbers, int64, from 0.
        x_test: images to evaluate on.
        y_test: their class numbers.
        classes: the names; the position of a name is its class number.

    Example:
        >>> from aucmax.paper import datasets
        >>> data = datasets.load("digits")
        >>> data.x_test.shape, data.x_test.dtype
        ((445, 8, 8, 1), dtype('uint8'))
        >>> data.classes[data.y_test[0]]
        '0'
    """

    x_train: Images
    y_train: Labels
    x_test: Images
    y_test: Labels
    classes: tuple[str, ...]


@dataclass(frozen=True)
class Member:
    """One file: its name, how many records it holds, and its MD5 sum where that is known."""

    name: str
    records: int
    md5: str | None = None


@dataclass(frozen=True)
class Layout(ABC):
    """The files of a data set.

    Attributes:
        folder: that holds them, below the root.
        train: the files of the training set, in order.
        test: the files of the test set, in order.
        names: the file with the class names; its records are the classes.
    """

    folder: str
    train: tuple[Member, ...]
    test: tuple[Member, ...]
    names: Member

    def read(self, root: Path) -> ImageData:
        """Read and check every file.

        Raises:
            ValueError: if a file is missing, cut off or altered; the message names it.
        """
        folder = root / self.folder
        names = [member.name for member in (*self.train, *self.test, self.names)]
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            raise ValueError(
                f"{folder} must hold {', '.join(names)}; missing: {', '.join(missing)}. Remove the "
                f"folder, then download=True (--download) fetches it whole"
            )
        classes = self.read_names(folder / self.names.name)
        return ImageData(
            *self.read_split(folder, self.train), *self.read_split(folder, self.test), classes
        )

    @abstractmethod
    def read_split(self, folder: Path, members: tuple[Member, ...]) -> tuple[Images, Labels]:
        """The images and class numbers of some of the files."""

    def read_names(self, path: Path) -> tuple[str, ...]:
        """The class names, one in a line."""
        lines = read_bytes(path, md5=self.names.md5).decode("utf-8", errors="replace").splitlines()
        return self.check_names(path, (line.strip() for line in lines))

    def check_names(self, path: Path, names: Iterable[str]) -> tuple[str, ...]:
        """The names that are not empty, if there is one for each class."""
        classes = tuple(name for name in names if name)
        if len(set(classes)) != len(classes) or len(classes) != self.names.records:
            raise ValueError(
                f"{path} must name {self.names.records} different classes, found {len(classes)} "
                f"names, {len(set(classes))} of them different"
            )
        return classes


@dataclass(frozen=True)
class OfficialFiles:
    """A data set as it is published.

    Attributes:
        layouts: that its files may have, the preferred one first.
        url: of the archive that holds the files in the preferred layout.
        md5: the archive's sum.
    """

    layouts: tuple[Layout, ...]
    url: str
    md5: str

    def load(self, root: Path, download: bool, progress: bool) -> ImageData:
        """Read the first layout whose folder is there; fetch it if none is and that is wanted."""
        for layout in self.layouts:
            if (root / layout.folder).is_dir():
                return layout.read(root)
        if not download:
            folders = " or ".join(layout.folder for layout in self.layouts)
            raise ValueError(
                f"root {str(root)!r} must hold the folder {folders}, which is not there: "
                f"download=True (--download) fetches it from {self.url}"
            )
        fetch(self.url, self.md5, self.layouts[0].folder, root, progress)
        return self.layouts[0].read(root)


def read_bytes(path: Path, size: int | None = None, md5: str | None = None) -> bytes:
    """The content of a file, if it has the official size and sum (None: any)."""
    content = path.read_bytes()
    if size is not None and len(content) != size:
        raise ValueError(
            f"{path} must hold {size:,} bytes, found {len(content):,}: "
            f"it is {'cut off' if len(content) < size else 'no official file'}"
        )
    own = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if md5 is not None and own != md5:
        raise ValueError(
            f"{path} is cut off or altered: the MD5 sum of its {len(content):,} bytes is {own}, "
            f"that of the official file is {md5}"
        )
    return content


def class_numbers(path: Path, labels: NDArray[Any], classes: int, first: int = 0) -> Labels:
    """Class numbers from 0, of a file's labels that count from ``first``."""
    low, high, last = int(labels.min()), int(labels.max()), first + classes - 1
    if low < first or high > last:
        raise ValueError(f"{path} must hold labels {first} to {last}, found {low} to {high}")
    return labels.astype(np.int64) - first
