"""The readers of official files: what they return, and what they refuse."""

import dataclasses
import hashlib
import pickle
import subprocess
import sys

import numpy as np
import pytest
from dataset_files import (
    CIFAR10_NAMES,
    CIFAR100_NAMES,
    STL10_NAMES,
    images,
    python2_pickle,
    small,
    write_binary_cifar,
    write_pickled_cifar,
    write_stl10,
)

from aucmax.paper import datasets
from aucmax.paper.datasets import _cifar, _stl10
from aucmax.paper.datasets._layout import OfficialFiles

CIFAR10, CIFAR10_PY = small(_cifar.CIFAR10_BINARY, 2), small(_cifar.CIFAR10_PYTHON, 2)
CIFAR100, CIFAR100_PY = small(_cifar.CIFAR100_BINARY, 6), small(_cifar.CIFAR100_PYTHON, 6)
STL10 = small(_stl10.STL10_BINARY, 3)
X12, X6 = images(12, 32, seed=1), images(6, 96, seed=2)
Y10 = np.array([9, 0, 3, 5, 1, 8, 2, 7, 4, 6, 0, 9])
Y100 = np.array([99, 0, 37, 50, 1, 80, 2, 7, 64, 6, 10, 98])


def check(data, x, y, names, train):
    assert np.array_equal(data.x_train, x[:train])
    assert np.array_equal(data.x_test, x[train:])
    assert data.y_train.tolist() == y[:train].tolist()
    assert data.y_test.tolist() == y[train:].tolist()
    assert data.classes == tuple(names)
    for array in data[:4]:
        assert array.flags.c_contiguous
    assert (data.x_train.dtype, data.x_test.dtype) == (np.uint8, np.uint8)
    assert (data.y_train.dtype, data.y_test.dtype) == (np.int64, np.int64)


# --- small files, byte for byte in the official layouts ---------------------------------------


def test_binary_cifar10(tmp_path):
    write_binary_cifar(tmp_path, CIFAR10, X12, Y10, CIFAR10_NAMES)
    check(CIFAR10.read(tmp_path), X12, Y10, CIFAR10_NAMES, train=10)


def test_binary_cifar100_gives_the_fine_labels(tmp_path):
    write_binary_cifar(tmp_path, CIFAR100, X12, Y100, CIFAR100_NAMES)
    check(CIFAR100.read(tmp_path), X12, Y100, CIFAR100_NAMES, train=6)


def old_protocol(content):
    return pickle.dumps(content, protocol=2)


def columns_first(content):
    return python2_pickle(content, columns_first=True)


DUMPS = [python2_pickle, columns_first, old_protocol]


@pytest.mark.parametrize("dump", DUMPS)
def test_pickled_cifar10(tmp_path, dump):
    write_pickled_cifar(tmp_path, CIFAR10_PY, X12, Y10, CIFAR10_NAMES, dump)
    check(CIFAR10_PY.read(tmp_path), X12, Y10, CIFAR10_NAMES, train=10)


@pytest.mark.parametrize("dump", DUMPS)
def test_pickled_cifar100_gives_the_fine_labels(tmp_path, dump):
    write_pickled_cifar(tmp_path, CIFAR100_PY, X12, Y100, CIFAR100_NAMES, dump)
    check(CIFAR100_PY.read(tmp_path), X12, Y100, CIFAR100_NAMES, train=6)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("dump", [python2_pickle, columns_first])
def test_the_hand_made_pickle_is_what_python_itself_reads(dump):
    rows = np.arange(12, dtype=np.uint8).reshape(3, 4)
    content = dump({b"data": rows, b"labels": [1, 2, 3], b"text": b"x" * 300})
    assert b"numpy.core.multiarray" in content
    found = pickle.loads(content, encoding="bytes")
    assert np.array_equal(found.pop(b"data"), rows)
    assert found == {b"labels": [1, 2, 3], b"text": b"x" * 300}


def test_stl10(tmp_path):
    y = np.array([0, 9, 4, 2, 7, 1])
    write_stl10(tmp_path, STL10, X6, y, STL10_NAMES)
    check(STL10.read(tmp_path), X6, y, STL10_NAMES, train=3)


def test_the_binary_version_comes_first(tmp_path):
    files = OfficialFiles((CIFAR10, CIFAR10_PY), url="", md5="")
    write_pickled_cifar(tmp_path, CIFAR10_PY, X12, Y10, CIFAR10_NAMES, python2_pickle)
    check(files.load(tmp_path, False, False), X12, Y10, CIFAR10_NAMES, train=10)
    write_binary_cifar(tmp_path, CIFAR10, X12[::-1], Y10, CIFAR10_NAMES)
    check(files.load(tmp_path, False, False), X12[::-1], Y10, CIFAR10_NAMES, train=10)


def test_digits():
    data = datasets.load("digits")
    assert data.x_train.shape == (1352, 8, 8, 1)
    assert data.x_test.shape == (445, 8, 8, 1)
    assert data.x_train.max() == data.x_test.max() == 16
    assert data.classes == tuple("0123456789")
    counts = np.bincount(np.concatenate([data.y_train, data.y_test]))
    assert np.bincount(data.y_test).tolist() == (counts // 4).tolist()
    assert datasets.load("digits").y_test.tolist() == data.y_test.tolist()


def test_digits_split_by_place_within_the_class():
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    data = datasets.load("digits")
    for number in range(10):
        mine = x[y == number]
        test = data.x_test[data.y_test == number].reshape(-1, 64)
        train = data.x_train[data.y_train == number].reshape(-1, 64)
        assert np.array_equal(test, mine[3::4])
        assert np.array_equal(train, np.delete(mine, np.s_[3::4], axis=0))


# --- what is refused ---------------------------------------------------------------------------


@pytest.fixture
def cifar(tmp_path):
    write_binary_cifar(tmp_path, CIFAR10, X12, Y10, CIFAR10_NAMES)
    return tmp_path / CIFAR10.folder


def refused(layout, root, *texts):
    with pytest.raises(ValueError, match=layout.folder) as caught:
        layout.read(root)
    for text in texts:
        assert text in str(caught.value)


def test_a_missing_file_is_named(cifar):
    (cifar / "data_batch_3.bin").unlink()
    (cifar / "batches.meta.txt").unlink()
    missing = "missing: data_batch_3.bin, batches.meta.txt"
    refused(CIFAR10, cifar.parent, missing, "test_batch.bin", "--download", "download=True")


def test_a_file_that_is_cut_off_is_named(cifar):
    path = cifar / "data_batch_3.bin"
    path.write_bytes(path.read_bytes()[:-1])
    refused(CIFAR10, cifar.parent, str(path), "6,146 bytes", "found 6,145", "cut off")


def test_another_number_of_whole_records_is_refused(cifar):
    path = cifar / "test_batch.bin"
    path.write_bytes(path.read_bytes() + bytes(3073))
    refused(CIFAR10, cifar.parent, str(path), "6,146 bytes", "found 9,219", "no official file")
    refused(_cifar.CIFAR10_BINARY, cifar.parent, "data_batch_1.bin", "30,730,000 bytes")


def test_a_label_out_of_range_is_refused(cifar):
    path = cifar / "data_batch_2.bin"
    path.write_bytes(b"\x0a" + path.read_bytes()[1:])
    refused(CIFAR10, cifar.parent, str(path), "labels 0 to 9, found 5 to 10")


def test_an_altered_file_is_refused(cifar):
    path = cifar / "data_batch_1.bin"
    layout = with_md5(CIFAR10, path.read_bytes())
    layout.read(cifar.parent)
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    refused(layout, cifar.parent, str(path), "altered", layout.train[0].md5, md5(content))


def md5(content):
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def with_md5(layout, content):
    """The layout with the sum of its first file."""
    first = dataclasses.replace(layout.train[0], md5=md5(content))
    return dataclasses.replace(layout, train=(first, *layout.train[1:]))


@pytest.mark.parametrize(
    ("text", "found"), [("a\nb\n", "found 2 names, 2"), ("a\n" * 10, "found 10 names, 1")]
)
def test_class_names_must_be_all_there_and_different(cifar, text, found):
    (cifar / "batches.meta.txt").write_text(text)
    refused(CIFAR10, cifar.parent, "batches.meta.txt", "10 different classes", found)


@pytest.mark.parametrize("layout", [_cifar.CIFAR10_PYTHON, _cifar.CIFAR100_PYTHON])
def test_no_pickle_is_opened_unless_its_sum_is_the_official_one(tmp_path, layout):
    write_pickled_cifar(tmp_path, small(layout, 2), X12, Y10, CIFAR10_NAMES, python2_pickle)
    refused(layout, tmp_path, layout.names.name, "MD5", layout.names.md5)


@pytest.mark.parametrize("label", [0, 11])
def test_stl10_labels_count_from_one(tmp_path, label):
    write_stl10(tmp_path, STL10, X6, np.arange(6), STL10_NAMES)
    (tmp_path / STL10.folder / "test_y.bin").write_bytes(bytes([label, 5, 5]))
    refused(STL10, tmp_path, "test_y.bin", "labels 1 to 10, found")


def test_stl10_files_that_are_cut_off(tmp_path):
    write_stl10(tmp_path, STL10, X6, np.arange(6), STL10_NAMES)
    (tmp_path / STL10.folder / "train_y.bin").write_bytes(b"\x01\x02")
    refused(STL10, tmp_path, "train_y.bin", "3 bytes, found 2")
    refused(_stl10.STL10_BINARY, tmp_path, "train_X.bin", "138,240,000 bytes")


def test_names_and_roots(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="cifar10, cifar100, stl10, catdog, digits, found 'mnist'"):
        datasets.load("mnist", tmp_path)
    monkeypatch.setenv("AUCMAX_DATA", str(tmp_path / "there"))
    with pytest.raises(ValueError, match=r"there.*cifar-10-batches-bin or cifar-10-batches-py"):
        datasets.load("cifar10")
    with pytest.raises(ValueError, match=r"here.*stl10_binary.*--download"):
        datasets.load("stl10", tmp_path / "here")
    monkeypatch.delenv("AUCMAX_DATA")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"'data' .*cifar-100-binary or cifar-100-python"):
        datasets.load("cifar100")


# --- what it brings along ----------------------------------------------------------------------


def test_what_an_import_brings_along():
    """Reading data sets needs NumPy alone; figures load matplotlib when the first is drawn."""
    heavy = ["PIL", "jinja2", "matplotlib", "optuna", "rich", "sklearn", "torchvision"]
    code = (
        "import sys, aucmax.paper.datasets; "
        f"print(*[m for m in {heavy} if m in sys.modules]); "
        "import aucmax.paper.experiment; print('matplotlib' in sys.modules)"
    )
    command = [sys.executable, "-c", code]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["", "False"]
