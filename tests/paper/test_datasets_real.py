"""The readers on the real data, unpacked once for all tests of this file."""

import io
import shutil
import zipfile

import numpy as np
import pytest
from dataset_files import CIFAR10_NAMES, real_root, unpack  # noqa: F401

from aucmax.paper import datasets, prepare
from aucmax.paper.settings import make_plan
from aucmax.paper.training import make_parts

pytestmark = pytest.mark.xdist_group("images")


@pytest.fixture(scope="module")
def cifar10(real_root):  # noqa: F811
    return datasets.load("cifar10", real_root)


@pytest.fixture(scope="module")
def catdog(real_root):  # noqa: F811
    return datasets.load("catdog", real_root)


def test_the_real_cifar10(cifar10, unpack):  # noqa: F811
    assert cifar10.x_train.shape == (50_000, 32, 32, 3)
    assert cifar10.x_test.shape == (10_000, 32, 32, 3)
    assert np.bincount(cifar10.y_train).tolist() == [5_000] * 10
    assert np.bincount(cifar10.y_test).tolist() == [1_000] * 10
    assert cifar10.classes == tuple(CIFAR10_NAMES)
    expected = unpack.cifar10_arrays()
    for key in ("x_train", "y_train", "x_test", "y_test"):
        assert np.array_equal(getattr(cifar10, key), expected[key]), key


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


def test_the_real_catdog(catdog, unpack):  # noqa: F811
    assert catdog.x_train.shape == (19_999, 32, 32, 3)
    assert catdog.x_test.shape == (4_999, 32, 32, 3)
    with zipfile.ZipFile(unpack.HERE / "catdog32.zip") as archive:
        index = np.load(io.BytesIO(archive.read("index.npz")), allow_pickle=False)
        tiles = unpack.mosaics(archive, "32_test")[: len(index["y_test"])]
    order = np.argsort(index["y_test"], kind="stable")
    assert np.array_equal(catdog.x_test, tiles[order])
    assert np.array_equal(catdog.y_test, index["y_test"][order])
    assert np.array_equal(np.bincount(catdog.y_train), np.bincount(index["y_train"]))


# ---- Prepared for the experiments --------------------------------------------------------------


def test_the_real_cifar10_at_91_to_9(cifar10):
    """Of 45,000 images 22,500 to 2,250 are left; 5,000 validate, 10,000 test."""
    train, test = prepare.distinct(cifar10.x_train, cifar10.x_test)
    assert (len(train), len(test)) == (50_000, 10_000)  # no two are alike
    run = make_plan("figure1", "cifar10", removed=[0.9], lines=["sgd"]).runs[0]
    assert run.ratio == "91/9"
    parts = make_parts(run, cifar10)
    counts = parts.counts()
    assert counts["valid"] == [2_500, 2_500]
    assert counts["train"] == [22_500, 2_250]
    assert counts["test"] == [5_000, 5_000]
    assert np.array_equal(parts.test[0].permute(0, 2, 3, 1).numpy(), cifar10.x_test)
    assert np.array_equal(parts.test[1].numpy(), cifar10.y_test >= 5)
    label = {
        image.tobytes(): int(y) >= 5
        for image, y in zip(cifar10.x_train, cifar10.y_train, strict=True)
    }
    for x, y in (parts.train, parts.valid):
        found = [label.pop(image.tobytes()) for image in x.permute(0, 2, 3, 1).numpy()]
        assert found == y.bool().tolist()  # its own label, and no image twice


def first_of_each(*parts):
    """For each part the rows whose bytes no row before them has, in it or in an earlier part."""
    seen, kept = set(), []
    for x in parts:
        kept.append([])
        for number, row in enumerate(x):
            if row.tobytes() not in seen:
                seen.add(row.tobytes())
                kept[-1].append(number)
    return kept


def test_the_real_catdog_without_repeats(catdog):
    train, test = prepare.distinct(catdog.x_train, catdog.x_test)
    expected_test, expected_train = first_of_each(catdog.x_test, catdog.x_train)
    assert (train.tolist(), test.tolist()) == (expected_train, expected_test)
    (once,) = first_of_each(catdog.x_train)
    within_train, within_test = len(catdog.x_train) - len(once), len(catdog.x_test) - len(test)
    shared = len(once) - len(train)
    assert (within_train, within_test, shared) == (18, 3, 9)
