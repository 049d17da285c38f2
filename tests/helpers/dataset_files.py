"""Small files in the official layouts, and the real data where it is at hand."""

import dataclasses
import functools
import importlib.util
import os
import struct
from pathlib import Path

import numpy as np
import pytest

CIFAR10_NAMES = [
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
]
CIFAR100_NAMES = [f"fine {number:02}" for number in range(100)]
STL10_NAMES = ["airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck"]


def small(layout, records):
    """The layout with so many records in each file, and no checksums."""

    def shrunk(members):
        return tuple(dataclasses.replace(m, records=records, md5=None) for m in members)

    names = dataclasses.replace(layout.names, md5=None)
    return dataclasses.replace(
        layout, train=shrunk(layout.train), test=shrunk(layout.test), names=names
    )


def images(count, side, seed):
    """Pixels (count, side, side, 3) without any symmetry."""
    return np.random.default_rng(seed).integers(0, 256, (count, side, side, 3), dtype=np.uint8)


def planar_rows(x):
    """Each image as a line: red, green, blue, row by row; told pixel by pixel."""
    rows = [[image[r, c, k] for k in range(3) for r in range(32) for c in range(32)] for image in x]
    return np.array(rows, np.uint8)


def write_binary_cifar(root, layout, x, y, names):
    """Split x over the files of the layout; bytes before the last label are 255."""
    folder = root / layout.folder
    folder.mkdir(parents=True)
    start = 0
    for member in (*layout.train, *layout.test):
        part = slice(start, start + member.records)
        lines = [
            b"\xff" * (layout.label_bytes - 1) + bytes([label]) + row.tobytes()
            for row, label in zip(planar_rows(x[part]), y[part], strict=True)
        ]
        (folder / member.name).write_bytes(b"".join(lines))
        start = part.stop
    (folder / layout.names.name).write_text("\n".join(names) + "\n\n")


def write_pickled_cifar(root, layout, x, y, names, dump):
    folder = root / layout.folder
    folder.mkdir(parents=True)
    start = 0
    for member in (*layout.train, *layout.test):
        part = slice(start, start + member.records)
        content = {
            b"batch_label": b"training batch",
            layout.label_key: [int(label) for label in y[part]],
            b"data": planar_rows(x[part]),
            b"filenames": [b"a.png"] * member.records,
        }
        (folder / member.name).write_bytes(dump(content))
        start = part.stop
    content = {layout.names_key: [name.encode() for name in names]}
    (folder / layout.names.name).write_bytes(dump(content))


def write_stl10(root, layout, x, y, names):
    folder = root / layout.folder
    folder.mkdir(parents=True)
    half = layout.train[0].records
    for split, part in (("train", slice(0, half)), ("test", slice(half, None))):
        # For each image, each channel, column by column.
        planes = [image[:, :, k].tobytes(order="F") for image in x[part] for k in range(3)]
        (folder / f"{split}_X.bin").write_bytes(b"".join(planes))
        (folder / f"{split}_y.bin").write_bytes(bytes(int(label) + 1 for label in y[part]))
    (folder / layout.names.name).write_text("\n".join(names) + "\n")


def python2_pickle(value, columns_first=False):
    """A protocol 2 pickle as Python 2 with NumPy 1 wrote it: byte strings, numpy.core names."""
    return b"\x80\x02" + _python2(value, columns_first) + b"."


def _python2(value, columns_first=False):
    if isinstance(value, bytes):
        short = len(value) < 256
        return (
            b"U" + bytes([len(value)]) if short else b"T" + struct.pack("<i", len(value))
        ) + value
    if isinstance(value, int):
        return b"J" + struct.pack("<i", value)
    if isinstance(value, list):
        return b"](" + b"".join(map(_python2, value)) + b"e"
    if isinstance(value, dict):
        items = (_python2(k) + _python2(v, columns_first) for k, v in value.items())
        return b"}(" + b"".join(items) + b"u"
    shape = b"(" + b"".join(map(_python2, value.shape)) + b"t"
    dtype = b"cnumpy\ndtype\n" + _python2(b"u1") + b"K\x00K\x01\x87R"
    dtype += b"(K\x03" + _python2(b"|") + b"NNN" + _python2(-1) * 2 + b"K\x00tb"
    dummy = b"cnumpy\nndarray\nK\x00\x85" + _python2(b"b") + b"\x87R"
    raw = _python2(value.tobytes(order="F" if columns_first else "C"))
    flag = b"\x88" if columns_first else b"\x89"
    state = b"(K\x01" + shape + dtype + flag + raw + b"tb"
    return b"cnumpy.core.multiarray\n_reconstruct\n" + dummy + state


@pytest.fixture(scope="session")
def unpack():
    """The module that lays the real data out."""
    script = Path(os.environ.get("AUCMAX_DATA") or "none") / "unpack.py"
    if not script.is_file():
        pytest.skip("AUCMAX_DATA names no folder with the real data")
    spec = importlib.util.spec_from_file_location("unpack", script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.cifar10_arrays = functools.cache(module.cifar10_arrays)  # to write and to compare with
    return module


@pytest.fixture(scope="session")
def real_root(unpack, tmp_path_factory):
    """A folder with the real CIFAR-10 and Cat & Dog, as a user's disk would have them."""
    root = tmp_path_factory.mktemp("real")
    unpack.cifar10(root)
    unpack.catdog(root)
    return root
