"""The handwritten digits that come with scikit-learn."""

from __future__ import annotations

import numpy as np

from aucmax.paper.datasets._layout import ImageData

EVERY = 4
"""One in so many images of a class is a test image."""


def read() -> ImageData:
    """The 1,797 images; the fourth, eighth, ... of each class are for testing."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ValueError(f"name 'digits' needs the package scikit-learn: {error}") from None
    images, y = load_digits(return_X_y=True)
    x = images.reshape(-1, 8, 8, 1).astype(np.uint8)
    y = y.astype(np.int64)
    place = np.empty_like(y)  # of an image among those of its class
    for number in range(10):
        place[y == number] = np.arange(np.count_nonzero(y == number))
    test = place % EVERY == EVERY - 1
    return ImageData(x[~test], y[~test], x[test], y[test], tuple("0123456789"))
