"""Which pictures show the same: copies, also written anew, resized or made brighter."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Collection, Iterator

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph
from threadpoolctl import threadpool_limits

from aucmax.images.reading import Pixels

FLAT = 4.0
"""Grey levels of contrast, as a standard deviation, below which a picture shows nothing that it
could be known by; photos have 13 or more."""
FEW_BITS = 7
"""Bits in which the hashes of two pictures of the same may differ. Copies written as JPEG, resized
or made a tenth brighter differ in 0 to 7; of 25,000 photos of 32 pixels, one pair of different ones
does (measured on Cat & Dog, 2,000 photos copied in six ways)."""
ALIKE = 0.1
"""Mean difference, in standard deviations, of two pictures of the same: of copies at 32 pixels 99 %
or more differ by less, the one pair of different photos with like hashes by more than 0.3."""
SMALL = 16
"""The side, in pixels, at which pictures are compared."""
WINDOW, NEAREST = 1024, 64
"""Where many hashes are alike: how many others, next in order, a picture's is compared with, and
how many of the pictures, on average, those of the nearest hashes."""
AT_ONCE = 256
_GREY = np.array([0.299, 0.587, 0.114], np.float32)


def file_digest(content: bytes) -> str:
    """32 hexadecimal digits, the same for files of the same bytes."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def perceptual_hashes(pixels: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """64 bits of each picture that hardly change when it is resized, written anew or brightened.

    They are the signs of the lowest 64 frequencies of its grey levels' discrete cosine transform.
    One that is nearly of one colour has 0.

    Args:
        pixels: (N, size, size, 3).

    Example:
        >>> ramp = np.arange(0, 256, 8, dtype=np.uint8)
        >>> picture = np.broadcast_to(ramp[:, None], (32, 32, 3))
        >>> darker = picture // 2
        >>> a, b, c = perceptual_hashes(np.stack([picture, darker, 255 - picture]))
        >>> bool(a == b), bool(a == c)
        (True, False)
    """
    waves, lowest = _waves(pixels.shape[1])
    hashes = np.zeros(len(pixels), np.uint64)
    with _one_thread():
        for part in _parts(len(pixels), AT_ONCE):
            found = _reduced(pixels[part], waves).reshape(-1, len(waves) ** 2)[:, lowest]
            signs = np.packbits(np.ascontiguousarray(found > 0), axis=1)
            shows = np.square(found).sum(axis=1) > FLAT**2
            hashes[part] = np.where(shows, signs.view(">u8").reshape(-1), 0)
    return hashes


def same_pictures(
    digests: NDArray[np.bytes_],
    hashes: NDArray[np.uint64],
    pixels: Pixels,
    broken: Collection[int] = (),
) -> NDArray[np.int64]:
    """The number of each picture's set; those of a set show the same.

    They are the same file or have the same pixels, or nearly: hashes that differ in few bits, and
    small grey versions of them, brought to the same brightness and contrast, that hardly differ.
    Those of nearly one colour must have the same pixels.

    Args:
        digests: of the files.
        hashes: of the pictures, by :func:`perceptual_hashes`.
        pixels: (N, size, size, 3), of which those of like hashes are read.
        broken: pictures that have no pixels.
    """
    _, first, number = np.unique(digests, return_index=True, return_inverse=True)
    has_pixels = np.ones(len(digests), bool)
    has_pixels[list(broken)] = False
    kept = first[has_pixels[first]]
    _, at, counts = np.unique(hashes[kept], return_inverse=True, return_counts=True)
    pairs = [_of_same_bytes(kept[counts[at] > 1], pixels)]
    looks = _Looks(pixels)
    with _one_thread():
        for one, other in _of_like_hashes(kept[hashes[kept] > 0], hashes):
            alike = looks.differences(one, other) <= ALIKE
            pairs.append((one[alike], other[alike]))
    one, other = (number[np.concatenate(side)] for side in zip(*pairs, strict=True))
    graph = sparse.coo_array((np.ones(len(one), bool), (one, other)), (len(first), len(first)))
    return _numbered(csgraph.connected_components(graph, directed=False)[1][number])


Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]


def _of_same_bytes(rows: NDArray[np.int64], pixels: Pixels) -> Pairs:
    """Each row, and the first that has the same pixels."""
    first = dict[bytes, int]()
    digests = (hashlib.sha256(pixels[row].tobytes()).digest() for row in rows.tolist())
    others = [first.setdefault(x, row) for x, row in zip(digests, rows.tolist(), strict=True)]
    return rows, np.array(others, np.int64)


def _of_like_hashes(rows: NDArray[np.int64], hashes: NDArray[np.uint64]) -> Iterator[Pairs]:
    """Pairs of rows whose hashes differ in few bits.

    Of eight bytes one at least is the same in two hashes that differ in seven bits, so those that
    have a byte in common are compared, where it is the first in common.
    """
    columns = hashes[rows].astype(">u8").view(np.uint8).reshape(-1, FEW_BITS + 1)
    signs = 2 * np.unpackbits(columns, axis=1).astype(np.float32) - 1
    for k, column in enumerate(columns.T):
        order = np.lexsort(np.roll(columns, -k, axis=1).T[::-1])  # like hashes are neighbours
        for bucket in np.split(order, np.flatnonzero(np.diff(column[order])) + 1):
            for part in _parts(len(bucket), AT_ONCE):
                some, others = bucket[part], bucket[part.start : part.stop + WINDOW]
                one, other = _nearest(signs[some] @ signs[others].T)
                one, other = some[one], others[other]
                new = ~(columns[one, :k] == columns[other, :k]).any(axis=1)
                if new.any():
                    yield rows[one[new]], rows[other[new]]


def _nearest(agreeing: NDArray[np.float32]) -> Pairs:
    """Of hashes and those that follow, which differ in few bits; not all where very many do.

    Args:
        agreeing: how many bits agree, less those that differ.
    """
    one, other = np.nonzero(np.triu(agreeing >= 64 - 2 * FEW_BITS, 1))
    if len(one) > (most := NEAREST * len(agreeing)):
        kept = np.argpartition(-agreeing[one, other], most)[:most]
        one, other = one[kept], other[kept]
    return one, other


class _Looks:
    """Small grey versions of pictures, of mean 0 and standard deviation 1, made when needed."""

    def __init__(self, pixels: Pixels) -> None:
        self.pixels = pixels
        self.boxes = _boxes(pixels.shape[1], min(SMALL, pixels.shape[1]))
        self.made = np.zeros(len(pixels), bool)
        self.looks = np.empty((len(pixels), len(self.boxes) ** 2), np.float32)

    def differences(self, one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.float32]:
        """The mean absolute difference of each pair."""
        found = np.empty(len(one), np.float32)
        for part in _parts(len(one), 64 * AT_ONCE):
            self._make(np.union1d(one[part], other[part]))
            found[part] = np.abs(self.looks[one[part]] - self.looks[other[part]]).mean(axis=1)
        return found

    def _make(self, rows: NDArray[np.int64]) -> None:
        rows = rows[~self.made[rows]]
        for part in _parts(len(rows), AT_ONCE):
            grey = _reduced(self.pixels[rows[part]], self.boxes)
            grey -= grey.mean(axis=(1, 2), keepdims=True)
            spread = grey.std(axis=(1, 2), keepdims=True)
            self.looks[rows[part]] = (grey / spread).reshape(len(grey), -1)
        self.made[rows] = True


def _numbered(sets: NDArray[np.integer]) -> NDArray[np.int64]:
    """The same sets, numbered in the order in which they come."""
    _, first, number = np.unique(sets, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[number]


def _one_thread() -> threadpool_limits:
    """For products of small matrices: more threads only wait for each other."""
    return threadpool_limits(1, user_api="blas")


def _parts(count: int, size: int) -> Iterator[slice]:
    return (slice(k, min(k + size, count)) for k in range(0, count, size))


def _reduced(pixels: NDArray[np.uint8], weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """Grey levels of pictures, lines and columns reduced by the same weights (reduced, size)."""
    columns = np.kron(weights.T, _GREY[:, None])  # of red, green and blue in turn
    reduced = np.empty((len(pixels), len(weights), len(weights)), np.float32)
    for picture, into in zip(pixels, reduced, strict=True):  # one by one, they stay in the cache
        lines = picture.reshape(len(picture), -1).astype(np.float32)
        np.matmul(weights @ lines, columns, out=into)
    return reduced


@functools.cache
def _waves(size: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Cosines, and which 64 of their products have the lowest frequencies; squares sum to one."""
    count = 12
    k, x = np.arange(count)[:, None], (np.arange(size) + 0.5) / size
    scale = np.where(k == 0, 1.0, np.sqrt(2.0)) * (k < size)
    lowest = np.argsort(np.add.outer(k**2, k.T**2).reshape(-1), kind="stable")[1:65]
    return (scale * np.cos(np.pi * k * x) / size).astype(np.float32), lowest


@functools.cache
def _boxes(size: int, count: int) -> NDArray[np.float32]:
    """Weights by which ``count`` means are taken of ``size`` levels, shares of a level included."""
    begins, ends = np.arange(size) * count / size, np.arange(1, size + 1) * count / size
    k = np.arange(count)[:, None]
    inside = np.minimum(ends, k + 1) - np.maximum(begins, k)
    return inside.clip(min=0).astype(np.float32)
