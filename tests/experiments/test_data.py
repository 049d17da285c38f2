"""Readers of the official layouts, on small files in them, and what makes a ranking problem."""

import hashlib

import numpy as np
import pytest
from PIL import Image

data = pytest.importorskip("experiments.data", reason="an sdist has no experiments")
from experiments import prepare  # noqa: E402


def pixels(rows, side, seed):
    return np.random.default_rng(seed).integers(0, 256, (rows, side, side, 3), dtype=np.uint8)


@pytest.fixture(autouse=True)
def forget():
    data.load.cache_clear()


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write a file of a data set, whose sum is then the official one."""

    def write(name, *parts):
        content = b"".join(np.ascontiguousarray(part).tobytes() for part in parts)
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
        monkeypatch.setitem(data.MD5, name, hashlib.md5(content).hexdigest())

    return write


def records(x, *labels):
    """Rows of label bytes and planes, as in CIFAR's files."""
    return np.concatenate([np.stack(labels, 1), x.transpose(0, 3, 1, 2).reshape(len(x), -1)], 1)


def test_cifar10(tmp_path, write):
    x, y = pixels(12, 32, 0), np.arange(12, dtype=np.uint8) % 10
    for k in range(5):
        write(
            f"cifar-10-batches-bin/data_batch_{k + 1}.bin",
            records(x[2 * k : 2 * k + 2], y[2 * k : 2 * k + 2]),
        )
    write("cifar-10-batches-bin/test_batch.bin", records(x[10:], y[10:]))
    found = data.load("cifar10", tmp_path)
    np.testing.assert_array_equal(found.x_train, x[:10])
    np.testing.assert_array_equal(found.x_test, x[10:])
    assert found.y_train.tolist() == list(range(10))
    assert found.classes == 10


def test_cifar100_takes_the_fine_labels(tmp_path, write):
    x, coarse, fine = pixels(6, 32, 1), np.zeros(6, np.uint8), np.arange(6, dtype=np.uint8)
    write("cifar-100-binary/train.bin", records(x[:4], coarse[:4], fine[:4]))
    write("cifar-100-binary/test.bin", records(x[4:], coarse[4:], fine[4:]))
    found = data.load("cifar100", tmp_path)
    assert (found.y_train.tolist(), found.y_test.tolist()) == ([0, 1, 2, 3], [4, 5])
    np.testing.assert_array_equal(found.x_train, x[:4])


def test_stl10_lies_column_by_column_and_counts_from_one(tmp_path, write):
    x, y = pixels(4, 96, 2), np.array([1, 10, 5, 6], np.uint8)
    for part, rows in (("train", slice(0, 3)), ("test", slice(3, 4))):
        write(f"stl10_binary/{part}_X.bin", x[rows].transpose(0, 3, 2, 1))
        write(f"stl10_binary/{part}_y.bin", y[rows])
    found = data.load("stl10", tmp_path)
    np.testing.assert_array_equal(found.x_train, x[:3])
    assert (found.y_train.tolist(), found.y_test.tolist()) == ([0, 9, 4], [5])


def test_catdog_is_ordered_by_number(tmp_path):
    x = pixels(6, 32, 3)
    names = [
        "train/cat/2",
        "train/cat/10",
        "train/dog/1",
        "train/dog/3",
        "test/cat/4",
        "test/dog/5",
    ]
    for image, name in zip(x, names, strict=True):
        path = tmp_path / "catdog32" / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    found = data.load("catdog", tmp_path)
    np.testing.assert_array_equal(found.x_train, x[:4])
    assert (found.y_train.tolist(), found.y_test.tolist()) == ([0, 0, 1, 1], [0, 1])


def test_a_file_that_is_not_the_official_one_raises(tmp_path):
    (tmp_path / "cifar-100-binary").mkdir()
    (tmp_path / "cifar-100-binary" / "train.bin").write_bytes(b"cut off")
    with pytest.raises(ValueError, match=r"train\.bin must have the MD5 sum 6172c7"):
        data.load("cifar100", tmp_path)


def test_digits_have_a_quarter_for_testing():
    found = data.load("digits", None)
    assert (found.x_train.shape, found.x_test.shape) == ((1352, 8, 8, 1), (445, 8, 8, 1))


def test_repeats_are_dropped_from_training_first():
    x_train, x_test = np.array([[1], [2], [2], [3]]), np.array([[3], [4], [4]])
    train, test = prepare.distinct(x_train, x_test)
    assert (train.tolist(), test.tolist()) == ([0, 1], [0, 1])


def test_halves_are_those_of_the_classes():
    assert prepare.halves(10).tolist() == [5, 6, 7, 8, 9]
    assert prepare.random_halves(10, seed=1).tolist() == [1, 3, 5, 7, 8]
    assert prepare.binarize(np.array([0, 1, 2, 3]), np.array([2, 3])).tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("removed", [0.0, 0.6, 0.9])
def test_thinning_removes_negatives_alone(removed):
    y = np.array([0, 1] * 50)
    rows = prepare.thin(y, removed, seed=0)
    assert (y[rows] == 1).sum() == 50
    assert (y[rows] == 0).sum() == round(50 * (1 - removed))
    assert rows.tolist() == sorted(set(rows.tolist()))


@pytest.mark.parametrize("size", [10, 0.1])
def test_a_split_has_each_class_in_its_share(size):
    y = np.array([0] * 20 + [1] * 80)
    train, valid = prepare.split(y, size, seed=0)
    assert (len(train), len(valid), y[valid].sum()) == (90, 10, 8)
    assert {*train} | {*valid} == set(range(100))


def test_wrong_labels_have_their_shares():
    y = np.array([0] * 40 + [1] * 60)
    wrong = prepare.mislabel(y, (0.25, 0.1), seed=3) != y
    assert (wrong[:40].sum(), wrong[40:].sum()) == (10, 6)


def test_rows_are_those_of_every_machine():
    """Seeds of published results must go on meaning the same rows."""
    y = np.arange(300) % 10 % 2
    drawn = [
        prepare.thin(y, 0.9, seed=2),
        *prepare.split(y, 30, seed=2),
        prepare.mislabel(y, (0.2, 0.06), seed=2),
    ]
    digest = hashlib.sha256(b"".join(np.asarray(x, np.int64).tobytes() for x in drawn)).hexdigest()
    assert digest[:16] == "6041aeb294fc15f5"
