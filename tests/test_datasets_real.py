"""The readers on the real data, unpacked once for all tests of this file."""

import io
import shutil
import zipfile

import numpy as np
import pytest
from dataset_files import CIFAR10_NAMES, real_root, unpack  # noqa: F401

from aucmax.data import datasets

pytestmark = pytest.mark.xdist_group("images")


def test_the_real_cifar10(real_root, unpack):  # noqa: F811
    data = datasets.load("cifar10", real_root)
    assert data.x_train.shape == (50_000, 32, 32, 3)
    assert data.x_test.shape == (10_000, 32, 32, 3)
    assert np.bincount(data.y_train).tolist() == [5_000] * 10
    assert np.bincount(data.y_test).tolist() == [1_000] * 10
    assert data.classes == tuple(CIFAR10_NAMES)
    expected = unpack.cifar10_arrays()
    for key in ("x_train", "y_train", "x_test", "y_test"):
        assert np.array_equal(getattr(data, key), expected[key]), key


def test_one_altered_bit_in_the_real_cifar10(real_root, tmp_path):  # noqa: F811
    shutil.copytree(real_root / "cifar-10-batches-bin", tmp_path / "cifar-10-batches-bin")
    path = tmp_path / "cifar-10-batches-bin" / "test_batch.bin"
    with path.open("r+b") as file:
        file.seek(20_000_000)
        (byte,) = file.read(1)
        file.seek(20_000_000)
        file.write(bytes([byte ^ 1]))
    with pytest.raises(ValueError, match=r"test_batch\.bin is cut off or altered"):
        datasets.load("cifar10", tmp_path)


def test_the_real_catdog(real_root, unpack):  # noqa: F811
    data = datasets.load("catdog", real_root)
    assert data.x_train.shape == (19_999, 32, 32, 3)
    assert data.x_test.shape == (4_999, 32, 32, 3)
    with zipfile.ZipFile(unpack.HERE / "catdog32.zip") as archive:
        index = np.load(io.BytesIO(archive.read("index.npz")), allow_pickle=False)
        tiles = unpack.mosaics(archive, "32_test")[: len(index["y_test"])]
    order = np.argsort(index["y_test"], kind="stable")
    assert np.array_equal(data.x_test, tiles[order])
    assert np.array_equal(data.y_test, index["y_test"][order])
    assert np.array_equal(np.bincount(data.y_train), np.bincount(index["y_train"]))
