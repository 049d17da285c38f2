"""Image data sets, read from their official files: checked, and without running what they hold.

Needs NumPy alone, but for ``catdog`` (Pillow), ``digits`` (scikit-learn) and the bar of a download
(rich), which load when they are used.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from aucmax.extras import needed
from aucmax.paper.datasets import _catdog
from aucmax.paper.datasets._cifar import CIFAR10, CIFAR100
from aucmax.paper.datasets._layout import ImageData
from aucmax.paper.datasets._stl10 import STL10

__all__ = ["NAMES", "ImageData", "data_folder", "load"]

NAMES = ("cifar10", "cifar100", "stl10", "catdog", "digits")
"""What :func:`load` knows."""

_OFFICIAL = {"cifar10": CIFAR10, "cifar100": CIFAR100, "stl10": STL10}


def load(
    name: str,
    root: str | Path | None = None,
    *,
    download: bool = False,
    progress: bool = True,
) -> ImageData:
    """Read a data set of images.

    ======== ============================================ ===================== ==================
    name     folder below ``root``                        images                train / test
    ======== ============================================ ===================== ==================
    cifar10  cifar-10-batches-bin, or cifar-10-batches-py 32 x 32 colour        50,000 / 10,000
    cifar100 cifar-100-binary, or cifar-100-python        32 x 32 colour        50,000 / 10,000
    stl10    stl10_binary                                 96 x 96 colour        5,000 / 8,000
    catdog   catdog32, catdog, dogs-vs-cats or PetImages  made 32 x 32 colour   as found
    digits   none, scikit-learn holds it                  8 x 8 grey, 0 to 16   1,352 / 445
    ======== ============================================ ===================== ==================

    The order is that of the files, so that two machines agree on it. CIFAR-100 is read with its
    100 fine classes. ``catdog`` has cat = 0 and dog = 1, first all cats, then all dogs, ordered by
    file name with numbers by their value; ``catdog/{train,test}/{cat,dog}`` says which photographs
    are for testing, and in Kaggle's own folders every fifth of each class is. Of ``digits`` every
    fourth image of each class is for testing.

    Files are checked against the official sizes and MD5 sums. The pickles of CIFAR's Python
    version are read as data: nothing in them is run.

    Args:
        name: one of :data:`NAMES`.
        root: the folder that holds the official folders; None is the environment variable
            ``AUCMAX_DATA``, or ``data`` if that is not set.
        download: fetch CIFAR and STL-10 from their own pages if the folder is not there. A
            download that broke off goes on at the next call. In a run of several processes,
            let one of them do it first.
        progress: whether a download shows a bar on standard error.

    Raises:
        ValueError: if the name is unknown, or a file is missing, cut off or altered; the message
            names it.
        ConnectionError: if a download failed.

    Example:
        >>> from aucmax.paper import datasets
        >>> data = datasets.load("digits")
        >>> data.x_train.shape, data.y_train[:5].tolist()
        ((1352, 8, 8, 1), [0, 1, 2, 3, 4])
    """
    if name not in NAMES:
        raise ValueError(f"name must be one of {', '.join(NAMES)}, found {name!r}")
    if name == "digits":
        return _read_digits()
    folder = data_folder(root)
    if name == "catdog":
        return _catdog.read(folder)
    return _OFFICIAL[name].load(folder, download, progress)


def data_folder(root: str | Path | None) -> Path:
    """The folder of the data sets' files: the one given, that of ``AUCMAX_DATA``, or ``data``."""
    return Path(root or os.environ.get("AUCMAX_DATA") or "data")


def _read_digits() -> ImageData:
    """Scikit-learn's 1,797 images; the fourth, eighth, ... of each class are for testing."""
    with needed("the data set digits", "all"):
        from sklearn.datasets import load_digits
    images, y = load_digits(return_X_y=True)
    x, y = images.reshape(-1, 8, 8, 1).astype(np.uint8), y.astype(np.int64)
    test = np.zeros(len(y), bool)
    for number in range(10):
        test[np.flatnonzero(y == number)[3::4]] = True
    return ImageData(x[~test], y[~test], x[test], y[test], tuple("0123456789"))
