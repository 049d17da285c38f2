"""STL-10, binary version.

Files and format: https://cs.stanford.edu/~acoates/stl10/. An image is three planes of 96 x 96
bytes, red, green and blue, column by column. Labels are 1 to 10, a byte each.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from aucmax.paper.datasets._layout import (
    Images,
    Labels,
    Layout,
    Member,
    OfficialFiles,
    class_numbers,
    read_bytes,
)

PIXELS = 3 * 96 * 96


class Stl10(Layout):
    """A split is a file of images and a file of labels."""

    def read_split(self, folder: Path, members: tuple[Member, ...]) -> tuple[Images, Labels]:
        """The images and class numbers of one split."""
        images, labels = members
        content = read_bytes(folder / images.name, images.records * PIXELS, images.md5)
        planes = np.frombuffer(content, np.uint8).reshape(-1, 3, 96, 96)
        path = folder / labels.name
        numbers = np.frombuffer(read_bytes(path, labels.records, labels.md5), np.uint8)
        y = class_numbers(path, numbers, self.names.records, first=1)
        # Columns come before rows in the file.
        return np.ascontiguousarray(planes.transpose(0, 3, 2, 1)), y


# The sums are torchvision's.
STL10_BINARY = Stl10(
    folder="stl10_binary",
    train=(
        Member("train_X.bin", 5_000, "918c2871b30a85fa023e0c44e0bee87f"),
        Member("train_y.bin", 5_000, "5a34089d4802c674881badbb80307741"),
    ),
    test=(
        Member("test_X.bin", 8_000, "7f263ba9f9e0b06b93213547f721ac82"),
        Member("test_y.bin", 8_000, "36f9794fa4beb8a2c72628de14fa638e"),
    ),
    names=Member("class_names.txt", 10),
)
STL10 = OfficialFiles(
    layouts=(STL10_BINARY,),
    url="http://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz",
    md5="91f7769df0f17e558f3565bffb0c7dfb",
)
