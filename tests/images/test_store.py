"""Decoded pictures on disk: right, whole or not there, and the same however often interrupted."""

import os
import pickle
import shutil
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from aucmax.images import store as store_module
from aucmax.images.duplicates import perceptual_hashes
from aucmax.images.reading import read_picture
from aucmax.images.store import StoredPictures, build_store

SIZE = 16


def write_pictures(folder, count, side=24, seed=0):
    """Write shapes of noise, no two alike."""
    random = np.random.default_rng(seed)
    folder.mkdir(exist_ok=True)
    files = [folder / f"{number:03}.png" for number in range(count)]
    for path in files:
        coarse = Image.fromarray(random.integers(0, 256, (5, 5, 3), dtype=np.uint8))
        coarse.resize((side, side)).save(path)
    return files


def make(folder, files, **options):
    return build_store(folder, files, SIZE, **{"workers": 1, "progress": False, **options})


def content(folder):
    """Every byte of a store, whose names tell of what files it is."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def file_of(folder, kind):
    (path,) = folder.glob(f"*.{kind}")
    return path


def unfinish(folder, rows):
    """Make it a store of which only these rows are done."""
    index = file_of(folder, "index")
    entries = store_module._read_index(index)
    done = store_module._seal({row: entries[row] for row in rows})
    index.with_suffix(".log").write_text(f"\n{done}")
    index.unlink()


# ---- What is in it -------------------------------------------------------------------------------


def test_rows_are_pictures_and_broken_files_are_zeros(tmp_path):
    a, b, c = write_pictures(tmp_path / "pictures", 3)
    text, empty, copy, scan = (a.with_name(name) for name in ("text.png", "empty", "copy", "scan"))
    text.write_text("no picture")
    empty.touch()
    shutil.copy(a, copy)
    levels = np.arange(20 * 30, dtype=np.uint16).reshape(20, 30)
    Image.fromarray(levels).save(scan, "TIFF")
    files = [a, text, b, empty, scan, c, copy]
    store = make(tmp_path / "store", files, depth=10)
    for row, path in enumerate(files):
        if row in (1, 3):
            assert not store.pixels[row].any()
        else:
            picture = read_picture(path, SIZE, depth=10)
            assert (store.pixels[row] == picture.pixels).all()
            assert (store.widths[row], store.heights[row]) == (picture.width, picture.height)
            assert (store.modes[row], store.frames[row]) == (picture.mode, picture.frames)
    assert store.broken == {1: "not a picture", 3: "empty"}
    assert store.brightest.tolist() == [255, 0, 255, 0, 599, 255, 255]
    assert store.digests[0] == store.digests[6]
    assert len(set(store.digests)) == 6
    assert store.hashes.tolist() == perceptual_hashes(store.pixels).tolist()
    with pytest.raises(ValueError, match="read-only"):
        store.pixels[0] = 1


def test_no_files_raise(tmp_path):
    with pytest.raises(ValueError, match="files must be those of pictures, found none"):
        make(tmp_path / "store", [])
    with pytest.raises(FileNotFoundError, match=r"absent\.png"):
        make(tmp_path / "store", [tmp_path / "absent.png"])
    assert not (tmp_path / "store").exists()


# ---- Interruptions -------------------------------------------------------------------------------


def test_interrupted_store_goes_on(tmp_path, monkeypatch, capfd):
    """Stopped in the second chunk of 16, it decodes the others and has the same bytes."""
    files, decoded = write_pictures(tmp_path / "pictures", 40), []
    whole = make(tmp_path / "whole", files)
    read = store_module.read_picture

    def interrupted(*given, **options):
        decoded.append(0)
        if len(decoded) == 20:
            raise KeyboardInterrupt
        return read(*given, **options)

    monkeypatch.setattr(store_module, "read_picture", interrupted)
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path / "store", files)
    store = make(tmp_path / "store", files, progress=True)
    assert capfd.readouterr().err == "decoding 24 of 40 pictures\n"
    assert (store.pixels == whole.pixels).all()
    assert content(tmp_path / "store") == content(tmp_path / "whole")


def test_log_lines_without_rows_do_not_count(tmp_path, capfd):
    """As after a power failure; nor do they spoil the lines that come after them."""
    files = write_pictures(tmp_path / "pictures", 40)
    folder = tmp_path / "store"
    make(folder, files)
    whole = content(folder)
    unfinish(folder, rows=[0, 1, 2])
    with file_of(folder, "log").open("a") as file:
        file.write('\n0badc0de {"3":["a')
    pixels = file_of(folder, "pixels")
    pixels.write_bytes(pixels.read_bytes()[: 2 * SIZE * SIZE * 3])
    make(folder, files, progress=True)
    assert capfd.readouterr().err == "decoding 38 of 40 pictures\n"
    assert content(folder) == whole


# ---- Changes -------------------------------------------------------------------------------------


def test_only_new_files_are_decoded(tmp_path, capfd):
    a, b, c, _ = files = write_pictures(tmp_path / "pictures", 4)
    (new,) = write_pictures(tmp_path / "more", 1, seed=1)
    before = make(tmp_path / "store", files)
    rows = before.pixels.copy()
    about = a.stat()
    a.write_bytes(bytes(about.st_size))  # not to be looked at, as its time is what it was
    os.utime(a, ns=(about.st_atime_ns, about.st_mtime_ns))
    os.utime(b)
    c.write_bytes(new.read_bytes())
    after = make(tmp_path / "store", [new, a, c, b], progress=True)
    assert capfd.readouterr().err == "decoding 3 of 4 pictures\n"
    fresh = read_picture(new, SIZE).pixels
    assert (after.pixels == np.stack([fresh, rows[0], fresh, rows[1]])).all()
    assert not after.broken
    assert (before.pixels == rows).all()  # a run that still uses it is not disturbed
    assert sorted(path.suffix for path in (tmp_path / "store").iterdir()) == [
        "",
        ".index",
        ".pixels",
    ]
    make(tmp_path / "store", [new, a, c, b], progress=True)
    assert capfd.readouterr().err == ""


def test_rows_of_an_unfinished_store_are_reused(tmp_path, capfd):
    files = write_pictures(tmp_path / "pictures", 5)
    folder = tmp_path / "store"
    rows = make(folder, files[:4]).pixels.copy()
    unfinish(folder, rows=[2, 3])
    store = make(folder, files, progress=True)
    assert capfd.readouterr().err == "decoding 3 of 5 pictures\n"
    assert (store.pixels[:4] == rows).all()


def test_altered_row_is_not_reused(tmp_path):
    files = write_pictures(tmp_path / "pictures", 3)
    rows = make(tmp_path / "store", files).pixels.copy()
    pixels = file_of(tmp_path / "store", "pixels")
    pixels.write_bytes(bytes(byte ^ 1 for byte in pixels.read_bytes()))
    about = files[1].stat()
    files[1].write_bytes(b"x" * about.st_size)  # decoded again, it is none
    os.utime(files[1], ns=(about.st_atime_ns, about.st_mtime_ns))
    store = make(tmp_path / "store", files[:2])
    assert (store.pixels[0] == rows[0]).all()
    assert store.broken == {1: "not a picture"}
    assert not store.pixels[1].any()


@pytest.mark.parametrize("kind", ["pixels", "index", "shorter"])
def test_altered_store_raises(tmp_path, kind):
    files, folder = write_pictures(tmp_path / "pictures", 3), tmp_path / "store"
    make(folder, files)
    path = file_of(folder, "pixels" if kind == "shorter" else kind)
    altered = bytearray(path.read_bytes())
    altered[-9] ^= 1
    path.write_bytes(altered[:-1] if kind == "shorter" else altered)
    with pytest.raises(ValueError, match=f"found other bytes in {folder}: delete it"):
        make(folder, files)


def test_two_threads_decode_once(tmp_path, monkeypatch):
    files, decoded = write_pictures(tmp_path / "pictures", 30), []
    read = store_module.read_picture
    monkeypatch.setattr(
        store_module, "read_picture", lambda *x, **y: decoded.append(0) or read(*x, **y)
    )
    with ThreadPoolExecutor(2) as threads:
        one, other = threads.map(lambda _: make(tmp_path / "store", files), range(2))
    assert len(decoded) == 30
    assert (one.pixels == other.pixels).all()


def test_worker_processes_read_stored_pictures(tmp_path):
    made = make(tmp_path / "store", write_pictures(tmp_path / "pictures", 8))
    rows, targets = np.array([6, 1, 4]), np.array([0, 1, 1])
    data = StoredPictures(made.pixels, rows, targets, np.array([1.0, 2.0, 3.0]))
    assert len(pickle.dumps(data)) < 2000  # where the pixels are, not all of them
    loader = DataLoader(data, 3, num_workers=1, multiprocessing_context="spawn")
    ((x, y, weight),) = loader
    assert (x.permute(0, 2, 3, 1).numpy() == made.pixels[rows]).all()
    assert (y.tolist(), weight.tolist()) == ([0, 1, 1], [1.0, 2.0, 3.0])
    together = data.read_batch([2, 0])  # as the loop reads them
    assert together[0].is_contiguous(memory_format=torch.channels_last)
    assert (together[0].permute(0, 2, 3, 1).numpy() == made.pixels[rows[[2, 0]]]).all()
    assert [part.tolist() for part in together[1:]] == [[1, 0], [3.0, 1.0]]


# ---- Straight from the files ---------------------------------------------------------------------


@pytest.fixture
def full_disk(monkeypatch):
    """A disk that has one byte too little for three pictures."""
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(2303))


def test_without_room_pictures_are_decoded_when_used(tmp_path, monkeypatch, full_disk):
    files = write_pictures(tmp_path / "pictures", 3)
    files[1].write_bytes(b"GIF89a")
    streamed = make(tmp_path / "store", files)
    assert "they need 2,304 bytes, and the disk" in streamed.streamed
    assert "has 2,303 free" in streamed.streamed
    assert [path.suffix for path in (tmp_path / "store").glob("*px*")] == [".index"]
    again = make(tmp_path / "store", files)
    assert (again.digests == streamed.digests).all()
    assert again.streamed
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(2304))
    stored = make(tmp_path / "store", files)
    assert not stored.streamed
    rows = np.array([2, 0, 1])
    assert (streamed.pixels[rows] == stored.pixels[rows]).all()
    assert (streamed.pixels[2] == stored.pixels[2]).all()
    for name in ("digests", "hashes", "widths", "broken", "modes"):
        assert np.array_equal(getattr(streamed, name), getattr(stored, name))
    assert pickle.loads(pickle.dumps(StoredPictures(streamed.pixels, rows, rows)))[2][1] == 1


def test_changed_file_raises_when_streamed(tmp_path, full_disk):
    files = write_pictures(tmp_path / "pictures", 3)
    streamed = make(tmp_path / "store", files)
    files[0].write_bytes(files[1].read_bytes())
    files[2].write_bytes(b"")
    for row, found in ((0, "other pixels"), (2, "empty")):
        with pytest.raises(ValueError, match=rf"as they were, found {found} in .*{row:03}\.png"):
            streamed.pixels[row]
