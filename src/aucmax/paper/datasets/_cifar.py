"""CIFAR-10 and CIFAR-100, binary and Python version.

Files and formats: https://www.cs.toronto.edu/~kriz/cifar.html. An image is 1024 bytes of red,
1024 of green and 1024 of blue, row by row.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aucmax.paper.datasets._layout import (
    Images,
    Labels,
    Layout,
    Member,
    OfficialFiles,
    class_numbers,
    read_bytes,
)
from aucmax.paper.datasets._pickles import load_pickle, pixels

PIXELS = 3 * 32 * 32


class Cifar(Layout):
    """What the two versions share."""

    @abstractmethod
    def records(self, path: Path, member: Member) -> tuple[Images, NDArray[Any]]:
        """The images, a row of planar bytes each, and the labels of one file."""

    def read_split(self, folder: Path, members: tuple[Member, ...]) -> tuple[Images, Labels]:
        """The images and class numbers of some of the files."""
        x, y = [], []
        for member in members:
            path = folder / member.name
            planes, labels = self.records(path, member)
            x.append(np.ascontiguousarray(planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)))
            y.append(class_numbers(path, labels, self.names.records))
        return np.concatenate(x), np.concatenate(y)


@dataclass(frozen=True)
class BinaryCifar(Cifar):
    """Records of ``label_bytes`` labels, of which the last counts, and an image."""

    label_bytes: int

    def records(self, path: Path, member: Member) -> tuple[Images, NDArray[Any]]:
        """The images, a row of planar bytes each, and the labels of one file."""
        size = member.records * (self.label_bytes + PIXELS)
        table = np.frombuffer(read_bytes(path, size, member.md5), np.uint8)
        table = table.reshape(member.records, -1)
        return table[:, self.label_bytes :], table[:, self.label_bytes - 1]


@dataclass(frozen=True)
class PickledCifar(Cifar):
    """Dicts with an array ``data`` and a list of labels under ``label_key``."""

    label_key: bytes
    names_key: bytes

    def records(self, path: Path, member: Member) -> tuple[Images, NDArray[Any]]:
        """The images, a row of planar bytes each, and the labels of one file."""
        content = load_pickle(path, read_bytes(path, md5=member.md5))
        labels = self._list(path, content, self.label_key, int)
        if len(labels) != member.records:
            raise ValueError(f"{path} must hold {member.records} labels, found {len(labels)}")
        planes = pixels(path, content.get(b"data"), (member.records, PIXELS))
        return planes, np.array(labels)

    def read_names(self, path: Path) -> tuple[str, ...]:
        """The class names."""
        content = load_pickle(path, read_bytes(path, md5=self.names.md5))
        names = self._list(path, content, self.names_key, bytes)
        return self.check_names(path, (name.decode("utf-8", errors="replace") for name in names))

    def _list(self, path: Path, content: dict[bytes, Any], key: bytes, kind: type) -> list[Any]:
        values = content.get(key)
        if not isinstance(values, list) or not all(type(value) is kind for value in values):
            raise ValueError(f"{path} must hold a list of {kind.__name__} under {key!r}")
        return values


# The sums of the binary members were computed from a lossless copy of the official version; the
# same six stand in rai-project/dldataset (vision/cifar10.go), which is where those of CIFAR-100
# are from (vision/cifar100.go). The sums of the Python versions are torchvision's.
CIFAR10_BINARY = BinaryCifar(
    folder="cifar-10-batches-bin",
    train=(
        Member("data_batch_1.bin", 10_000, "5dd7e06a14cb22eb9f671a540d1b7c25"),
        Member("data_batch_2.bin", 10_000, "5ea93a67294ea407fff1d09f752e9692"),
        Member("data_batch_3.bin", 10_000, "942cd6a4bcdd0dd3c604fbe906cb4421"),
        Member("data_batch_4.bin", 10_000, "ae636b3ba5c66a11e91e8cb52e771fcb"),
        Member("data_batch_5.bin", 10_000, "53f37980c15c3d472c316c40844f3f0d"),
    ),
    test=(Member("test_batch.bin", 10_000, "803d5f7f4d78ea53de84dbe85f74fb6d"),),
    names=Member("batches.meta.txt", 10),
    label_bytes=1,
)
CIFAR10_PYTHON = PickledCifar(
    folder="cifar-10-batches-py",
    train=(
        Member("data_batch_1", 10_000, "c99cafc152244af753f735de768cd75f"),
        Member("data_batch_2", 10_000, "d4bba439e000b95fd0a9bffe97cbabec"),
        Member("data_batch_3", 10_000, "54ebc095f3ab1f0389bbae665268c751"),
        Member("data_batch_4", 10_000, "634d18415352ddfa80567beed471001a"),
        Member("data_batch_5", 10_000, "482c414d41f54cd18b22e5b47cb7c3cb"),
    ),
    test=(Member("test_batch", 10_000, "40351d587109b95175f43aff81a1287e"),),
    names=Member("batches.meta", 10, "5ff9c542aee3614f3951f8cda6e48888"),
    label_key=b"labels",
    names_key=b"label_names",
)
CIFAR100_BINARY = BinaryCifar(
    folder="cifar-100-binary",
    train=(Member("train.bin", 50_000, "6172c7755cfe09b2fe270c85cebc1b15"),),
    test=(Member("test.bin", 10_000, "4499cfba6c016c1be1438163640a0898"),),
    names=Member("fine_label_names.txt", 100),
    label_bytes=2,  # the coarse label, then the fine one
)
CIFAR100_PYTHON = PickledCifar(
    folder="cifar-100-python",
    train=(Member("train", 50_000, "16019d7e3df5f24257cddd939b257f8d"),),
    test=(Member("test", 10_000, "f0ef6b0ae62326f3e7ffdfab6717acfc"),),
    names=Member("meta", 100, "7973b15100ade9c7d40fb424638fde48"),
    label_key=b"fine_labels",
    names_key=b"fine_label_names",
)

# The sums of the archives stand on CIFAR's page.
CIFAR10 = OfficialFiles(
    layouts=(CIFAR10_BINARY, CIFAR10_PYTHON),
    url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    md5="c32a1d4ab5d03f1284b67883e8d87530",
)
CIFAR100 = OfficialFiles(
    layouts=(CIFAR100_BINARY, CIFAR100_PYTHON),
    url="https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
    md5="03b5dce01913d631647c71ecec9e9cb8",
)
