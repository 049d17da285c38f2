"""Photographs of cats and dogs in the folders people have them in."""

import numpy as np
import pytest
from dataset_files import images
from PIL import Image

from aucmax.paper import datasets
from aucmax.paper.datasets import _catdog


def save(path, pixels, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)


def plain(number):
    """A 32 x 32 image of one colour that tells which it is."""
    return np.full((32, 32, 3), number, np.uint8)


def first_pixels(x):
    return x[:, 0, 0, 0].tolist()


@pytest.mark.parametrize("folder", ["catdog", "catdog32"])
def test_catdog_in_folders(tmp_path, folder):
    pictures = images(4, 32, seed=3)
    for k, place in enumerate(["train/cat/10", "train/cat/9", "train/dog/a", "test/dog/1"]):
        save(tmp_path / folder / f"{place}.png", pictures[k])
    save(tmp_path / folder / "test" / "cat" / "1.JPG", plain(7), quality=95)
    (tmp_path / folder / "train" / "cat" / "Thumbs.db").write_bytes(b"no image")
    data = datasets.load("catdog", tmp_path)
    assert np.array_equal(data.x_train, pictures[[1, 0, 2]])
    assert data.y_train.tolist() == [0, 0, 1]
    assert np.array_equal(data.x_test[1], pictures[3])
    assert first_pixels(data.x_test[:1]) == [7]
    assert data.y_test.tolist() == [0, 1]
    assert data.classes == ("cat", "dog")
    assert data.x_train.dtype == np.uint8
    assert data.y_train.dtype == np.int64


def test_other_sizes_and_colours_become_32_by_32(tmp_path):
    # A chequerboard of single pixels: without a filter that averages, it would stay black/white.
    board = (np.indices((320, 640)).sum(axis=0) % 2 * 255).astype(np.uint8)
    for split in ("train", "test"):
        save(tmp_path / "catdog" / split / "cat" / "1.png", board)
        save(tmp_path / "catdog" / split / "dog" / "1.png", np.dstack([board] * 3 + [board]))
    data = datasets.load("catdog", tmp_path)
    assert data.x_train.shape == (2, 32, 32, 3)
    assert np.abs(data.x_train.astype(int) - 127).max() < 12


@pytest.mark.parametrize(
    "name", ["dogs-vs-cats/train/{}.{}.jpg", "PetImages/{}/{}.jpg"], ids=["flat", "PetImages"]
)
def test_every_fifth_of_kaggles_own_files_is_for_testing(tmp_path, name):
    kinds = ("cat", "dog") if "{}.{}" in name else ("Cat", "Dog")
    for start, kind in zip((0, 100), kinds, strict=True):
        for number in range(11):
            save(tmp_path / name.format(kind, number), plain(start + number), quality=95)
    data = datasets.load("catdog", tmp_path)
    assert first_pixels(data.x_test) == [4, 9, 104, 109]
    rest = [0, 1, 2, 3, 5, 6, 7, 8, 10]
    assert first_pixels(data.x_train) == rest + [100 + number for number in rest]
    assert data.y_train.tolist() == [0] * 9 + [1] * 9
    assert data.y_test.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("content", [b"", b"no image", None], ids=["empty", "text", "cut off"])
def test_a_broken_image_is_named(tmp_path, content):
    for number in range(10):
        for kind in ("Cat", "Dog"):
            save(tmp_path / "PetImages" / kind / f"{number}.png", images(1, 32, seed=number)[0])
    path = tmp_path / "PetImages" / "Dog" / "6.png"
    path.write_bytes(path.read_bytes()[:1000] if content is None else content)
    with pytest.raises(ValueError, match=r"Dog.6\.png is no whole image"):
        datasets.load("catdog", tmp_path)


@pytest.mark.parametrize("download", [False, True])
def test_a_missing_catdog_says_where_to_get_it(tmp_path, download):
    with pytest.raises(ValueError, match=r"Dogs vs\. Cats.*kaggle.*catdog/\{train,test\}"):
        datasets.load("catdog", tmp_path, download=download)


def test_a_class_without_photographs_is_named(tmp_path):
    save(tmp_path / "catdog" / "train" / "cat" / "1.png", plain(1))
    with pytest.raises(ValueError, match=r"train.dog must hold \* photographs"):
        datasets.load("catdog", tmp_path)


def test_numbers_are_ordered_by_value(tmp_path):
    names = ["b1.png", "a10.png", "a9.png", "a09.png", "a.png", "1.png"]
    for name in names:
        (tmp_path / name).touch()
    found = [path.name for path in _catdog._photos(tmp_path)]
    assert found == ["1.png", "a09.png", "a9.png", "a10.png", "a.png", "b1.png"]
