"""Pickles are read as data: what they name is not run."""

import os
import pickle
import subprocess

import numpy as np
import pytest
from dataset_files import CIFAR10_NAMES, images, python2_pickle, small, write_pickled_cifar

from aucmax.paper.datasets import _cifar, _pickles

CIFAR10_PY = small(_cifar.CIFAR10_PYTHON, 2)
X12 = images(12, 32, seed=1)
Y10 = np.array([9, 0, 3, 5, 1, 8, 2, 7, 4, 6, 0, 9])


class Call:
    """Pickled, it is a call of a function."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("name", ["system", "eval", "open", "subprocess"])
def test_a_hostile_pickle_is_refused_and_does_nothing(tmp_path, name, protocol):
    trace = tmp_path / "trace"
    call = {
        "system": Call(os.system, f"touch {trace}"),
        "eval": Call(eval, f"open({str(trace)!r}, 'w')"),
        "open": Call(open, str(trace), "w"),
        "subprocess": Call(subprocess.call, ["touch", str(trace)]),
    }[name]
    content = pickle.dumps({b"labels": [1], b"data": call}, protocol=protocol)
    with pytest.raises(ValueError, match=r"some/file .*it names .*, which is refused"):
        _pickles.load_pickle("some/file", content)
    assert not trace.exists()


def test_a_hostile_file_is_refused_and_does_nothing(tmp_path):
    write_pickled_cifar(tmp_path, CIFAR10_PY, X12, Y10, CIFAR10_NAMES, python2_pickle)
    path = tmp_path / CIFAR10_PY.folder / "data_batch_4"
    content = {b"data": Call(os.system, f"touch {tmp_path / 'trace'}")}
    path.write_bytes(pickle.dumps(content, protocol=2))
    with pytest.raises(ValueError, match=rf"data_batch_4 .*it names {os.name}\.system"):
        CIFAR10_PY.read(tmp_path)
    assert not (tmp_path / "trace").exists()


# They set attributes of the class that stands for a name.
SETS_ATTRIBUTES = [
    b"c_codecs\nencode\n(N}X\x03\x00\x00\x00keyU\x01xstb.",
    b"cnumpy\nndarray\n(N}X\x05\x00\x00\x00stateU\x01xstb.",
    b"cnumpy\ndtype\n(N}X\x04\x00\x00\x00codeU\x01xstb.",
]
BROKEN = [b"", b"\x80", b"no pickle", b"\x80\x02}", python2_pickle({b"a": b"b" * 300})[:-200]]


@pytest.mark.parametrize("content", SETS_ATTRIBUTES + BROKEN)
def test_a_pickle_can_neither_change_the_reader_nor_break_it(content):
    before = [dict(vars(kind)) for kind in _pickles._STAND_INS.values()]
    with pytest.raises(ValueError, match="some/file is no pickle"):
        _pickles.load_pickle("some/file", content)
    assert [dict(vars(kind)) for kind in _pickles._STAND_INS.values()] == before


def test_dotted_names_and_other_encodings_are_refused():
    dotted = b"\x80\x04\x8c\x05numpy\x8c\x0dndarray.tobyt\x93."
    with pytest.raises(ValueError, match=r"names numpy\.ndarray\.tobyt"):
        _pickles.load_pickle("file", dotted)
    with pytest.raises(ValueError, match="encodes text as 'rot13'"):
        _pickles.load_pickle(
            "file", b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x05\x00\x00\x00rot13\x86R."
        )
    with pytest.raises(ValueError, match="pickled dict, found list"):
        _pickles.load_pickle("file", pickle.dumps([1], protocol=2))


def change(content, **changes):
    return content | {key.encode(): value for key, value in changes.items()}


ROWS = np.zeros((2, 3072), np.uint8)
CONTENT = {b"labels": [1, 2], b"data": ROWS}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (change(CONTENT, data=b"raw"), "array of pixels, found none"),
        (change(CONTENT, data=ROWS[:1]), r"\(2, 3072\), found b'u1' \(1, 3072\)"),
        (change(CONTENT, labels=[1]), "2 labels, found 1"),
        (change(CONTENT, labels=[1, b"2"]), "list of int under b'labels'"),
        (change(CONTENT, labels=b"12"), "list of int under b'labels'"),
        (change(CONTENT, labels=[1, 10]), "labels 0 to 9, found 1 to 10"),
        (change(CONTENT, labels=[-1, 1]), "labels 0 to 9, found -1 to 1"),
        ({b"labels": [1, 2]}, "array of pixels, found none"),
    ],
)
def test_what_a_pickle_holds_is_checked(tmp_path, content, text):
    write_pickled_cifar(tmp_path, CIFAR10_PY, X12, Y10, CIFAR10_NAMES, python2_pickle)
    (tmp_path / CIFAR10_PY.folder / "test_batch").write_bytes(python2_pickle(content))
    with pytest.raises(ValueError, match=rf"test_batch must hold .*{text}"):
        CIFAR10_PY.read(tmp_path)


def test_pixels_must_be_bytes_and_all_there():
    floats = pickle.dumps({b"data": np.zeros((2, 3072))}, protocol=2)
    with pytest.raises(ValueError, match=r"pixels u1 .*found b'f8'"):
        _pickles.pixels("file", _pickles.load_pickle("file", floats)[b"data"], (2, 3072))
    fewer = python2_pickle({b"data": ROWS}).replace(
        b"T" + (6144).to_bytes(4, "little"), b"T" + (6143).to_bytes(4, "little")
    )
    fewer = fewer.replace(b"\x00tb" + b"u.", b"tbu.")
    with pytest.raises(ValueError, match="6,144 pixels, found 6,143"):
        _pickles.pixels("file", _pickles.load_pickle("file", fewer)[b"data"], (2, 3072))
