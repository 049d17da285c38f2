"""One picture: from a file, whatever is in it, to red, green and blue bytes of one size."""

from __future__ import annotations

import re
import warnings
import zlib
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from threading import Lock
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from aucmax.checks import count
from aucmax.threads import cores

FORMATS = ("JPEG", "PNG", "WEBP", "TIFF", "GIF", "BMP")
SIGNATURES = (b"\xff\xd8\xff", b"\x89PNG", b"RIFF", b"II*\0", b"MM\0*", b"GIF8", b"BM")
"""What files of these formats begin with."""

ORIENTATION = 274
"""The tag of EXIF that says how the camera was held."""

UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

ON_ITS_SIDE = 5
"""From this orientation on, width and height change places."""

EXIF = ("exif", "Raw profile type exif", "xmp", "XML:com.adobe.xmp")
"""Where Pillow keeps what may hold the orientation."""

PHOTOMETRIC = 262
"""The tag of TIFF that is 0 where the largest value is black."""

Size = tuple[int, int]
Box = tuple[float, float, float, float]


class BrokenPicture(ValueError):  # noqa: N818 - what the file is, as the message goes on to say
    """A file that is no picture that can be read; the message says why, without the path."""


class Picture(NamedTuple):
    """A picture as bytes, and what its file was like.

    Attributes:
        pixels: red, green and blue, (size, size, 3).
        width: of the picture as seen, after the rotation that EXIF asks for.
        height: likewise.
        mode: as Pillow names it, such as "RGB", "L", "P", "CMYK" or "I;16".
        frames: how many there are, of which the first is read.
        brightest: the largest value of a picture of 16 bits; 255 for others.
    """

    pixels: NDArray[np.uint8]
    width: int
    height: int
    mode: str
    frames: int
    brightest: int


def read_picture(content: bytes | Path, size: int, *, depth: int = 16) -> Picture:
    """Decode a picture: upright, over white, its longer side ``size``, black around it.

    JPEG, PNG, WebP, TIFF, GIF and BMP are read, whatever the file's name says. One that has the
    size already keeps its bytes.

    Args:
        content: of the file, or where it is.
        size: of the square that comes out.
        depth: how many bits the values of grey pictures of 16 bits use: 12 for those of many
            scanners.

    Raises:
        BrokenPicture: if it is none, is damaged or cannot be read.

    Example:
        >>> from io import BytesIO
        >>> file = BytesIO()
        >>> Image.new("L", (40, 20), color=9).save(file, "PNG")
        >>> picture = read_picture(file.getvalue(), size=4)
        >>> picture.pixels[:, :, 0].tolist()
        [[0, 0, 0, 0], [9, 9, 9, 9], [9, 9, 9, 9], [0, 0, 0, 0]]
        >>> picture.width, picture.height, picture.mode
        (40, 20, 'L')
    """
    count("size", size)
    if depth not in range(1, 17):
        raise ValueError(f"depth must be an integer from 1 to 16, found {depth!r}")
    data = content if isinstance(content, bytes) else _read_file(content)
    if not data:
        raise BrokenPicture("empty")
    try:
        with _QUIET:
            return _decode(data, size, depth)
    except BrokenPicture:
        raise
    except Exception as error:  # a damaged picture may raise anything
        raise BrokenPicture(_reason(error, data)) from error


class PictureFiles:
    """Pictures that are decoded from their files whenever they are asked for, as an array's rows.

    Args:
        files: of the pictures.
        size: see :func:`read_picture`, as of ``depth``.
        depth: of 16 bits.
        broken: rows that are zeros, for their files are no pictures.
        checksums: CRC-32 of each row as it was first decoded; None if that does not matter.

    Attributes:
        shape: (N, size, size, 3).
    """

    def __init__(
        self,
        files: Sequence[Path],
        size: int,
        *,
        depth: int = 16,
        broken: Collection[int] = (),
        checksums: NDArray[np.uint32] | None = None,
    ) -> None:
        self.files, self.size, self.depth = list(files), count("size", size), depth
        self.broken, self.checksums = frozenset(broken), checksums
        self.shape = (len(self.files), size, size, 3)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, rows: int | NDArray[np.int64]) -> NDArray[np.uint8]:
        """A row, (size, size, 3), or several, (n, size, size, 3), which threads decode.

        Raises:
            ValueError: if a file is no longer the picture that it was.
        """
        if not isinstance(rows, np.ndarray):
            return self._decode(int(rows))
        pixels = np.empty((len(rows), *self.shape[1:]), np.uint8)
        with ThreadPoolExecutor(cores()) as threads:
            for place, picture in enumerate(threads.map(self._decode, rows.tolist())):
                pixels[place] = picture
        return pixels

    def _decode(self, row: int) -> NDArray[np.uint8]:
        if row in self.broken:
            return np.zeros(self.shape[1:], np.uint8)
        path, found = self.files[row], "other pixels"
        try:
            pixels = np.ascontiguousarray(read_picture(path, self.size, depth=self.depth).pixels)
        except BrokenPicture as error:
            pixels, found = None, str(error)
        if pixels is None or (
            self.checksums is not None and zlib.crc32(pixels.data) != self.checksums[row]
        ):
            raise ValueError(f"files must stay as they were, found {found} in {path}") from None
        return pixels


Pixels = NDArray[np.uint8] | PictureFiles
"""Pictures (N, size, size, 3): bytes that are there, or files that give them."""


def _read_file(path: Path) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.readall()
    except FileNotFoundError:
        raise BrokenPicture("no such file") from None
    except OSError as error:
        raise BrokenPicture(f"cannot be read ({error.strerror})") from None


def _decode(data: bytes, size: int, depth: int) -> Picture:
    image = Image.open(BytesIO(data), formats=FORMATS)
    limit = Image.MAX_IMAGE_PIXELS  # beyond, Pillow itself but warns, and raises at its double
    if limit is not None and image.width * image.height > limit:
        raise BrokenPicture(f"too large ({image.width * image.height:,} pixels)")
    mode, frames = image.mode, getattr(image, "n_frames", 1)
    _scale_transparent_value(image)
    whole, box = _load(image, size)
    turn = _orientation(image)
    flat, brightest = _to_eight_bits(image, depth)
    fitted = _fit(whole, size)
    if flat.size != fitted:
        flat = flat.resize(fitted, Image.Resampling.BICUBIC, box)
    if turn in UPRIGHT:
        flat = flat.transpose(UPRIGHT[turn])
        whole = whole[::-1] if turn >= ON_ITS_SIDE else whole
    return Picture(_pad(flat, size), *whole, mode, frames, brightest)


def _load(image: Image.Image, size: int) -> tuple[Size, Box | None]:
    """Read the pixels; the size of the picture, and where in the pixels it lies if not all over.

    A JPEG that is much larger than needed is decoded to a half, a quarter or an eighth, but never
    to less than twice what is needed, so that the filter still has pixels to average.
    """
    whole = image.size
    drafted = None
    if max(whole) >= 4 * size:
        wide, high = _fit(whole, size)
        drafted = image.draft(None, (2 * wide, 2 * high))
    image.load()
    # A TIFF is turned upright as it is loaded.
    return (image.size, None) if drafted is None else (whole, drafted[1])


def _fit(whole: Size, size: int) -> Size:
    """Its width and height with the longer one ``size``."""
    longer = max(whole)
    return max(1, round(whole[0] * size / longer)), max(1, round(whole[1] * size / longer))


def _orientation(image: Image.Image) -> int:
    """How EXIF says a loaded picture is to be turned; 1, upright, if it does not."""
    if image.info.keys().isdisjoint(EXIF):
        return 1
    try:
        return int(image.getexif().get(ORIENTATION, 1))
    except Exception:  # damaged EXIF may raise anything, and the pixels are whole all the same
        return 1


def _to_eight_bits(image: Image.Image, depth: int) -> tuple[Image.Image, int]:
    """A loaded picture in grey or in colours, without alpha, and its largest value."""
    mode = image.mode
    if mode == "F":
        raise BrokenPicture("floating point pixels")
    if mode == "I" or mode.startswith("I;16"):
        return _sixteen_to_eight_bits(image, depth)
    if "transparency" in image.info or mode.endswith("A"):
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image.convert("RGBA")).convert("RGB"), 255
    if mode in ("L", "RGB"):
        return image, 255
    return image.convert("L" if mode == "1" else "RGB"), 255


def _sixteen_to_eight_bits(image: Image.Image, depth: int) -> tuple[Image.Image, int]:
    values = np.asarray(image)
    least, most = int(values.min()), int(values.max())
    if least < 0 or most > 65535:
        raise BrokenPicture(f"values from {least} to {most}, beyond 16 bits")
    grey: NDArray[np.uint8] = _eight_bits(depth)[values]
    if getattr(image, "tag_v2", {}).get(PHOTOMETRIC) == 0:  # Pillow turns 8 bits around, not 16
        grey = 255 - grey
    if "transparency" in image.info:
        grey[values == image.info["transparency"]] = 255
    return Image.fromarray(grey), most


@lru_cache(maxsize=16)
def _eight_bits(depth: int) -> NDArray[np.uint8]:
    """What each value of 16 bits is in 8 bits."""
    shares = np.arange(2**16) / (2**depth - 1)
    table: NDArray[np.uint8] = np.rint(255 * shares.clip(max=1)).astype(np.uint8)
    return table


def _scale_transparent_value(image: Image.Image) -> None:
    """Make the value that a PNG names transparent one of 8 bits, as its pixels will be.

    Pillow widens pixels of 2 and 4 bits and keeps the high byte of colours of 16 bits, but leaves
    that value as it is in the file.
    """
    value = image.info.get("transparency")
    if value is None or image.format != "PNG":
        return
    raw = image.tile[0][3]  # type: ignore[attr-defined] # of a picture that comes from a file
    if raw in ("L;2", "L;4"):
        image.info["transparency"] = value * (85 if raw == "L;2" else 17)
    elif raw == "RGB;16B":
        image.info["transparency"] = tuple(x >> 8 for x in value)


def _pad(image: Image.Image, size: int) -> NDArray[np.uint8]:
    """The picture in the middle of a black square."""
    if image.size != (size, size) or image.mode != "RGB":
        square = Image.new("RGB", (size, size))
        square.paste(image, ((size - image.width) // 2, (size - image.height) // 2))
        image = square
    return np.frombuffer(bytearray(image.tobytes()), np.uint8).reshape(size, size, 3)


def _reason(error: Exception, data: bytes) -> str:
    """Why a picture cannot be read, in a few words."""
    said = str(error)
    if isinstance(error, Image.DecompressionBombError):
        pixels = re.search(r"\d+", said)
        return f"too large ({int(pixels[0]):,} pixels)" if pixels else "too large"
    if isinstance(error, MemoryError):
        return "too large for the memory"
    if isinstance(error, EOFError) or "truncated" in said.lower() or _ends_too_soon(data):
        return "cut off"
    if data[128:132] == b"DICM":
        return "DICOM, which is to be written as PNG first, for example with pydicom"
    if isinstance(error, UnidentifiedImageError):
        known = data.startswith(SIGNATURES)
        return "damaged, or of an unknown kind" if known else "not a picture"
    return f"damaged ({said})" if said else "damaged"


def _ends_too_soon(data: bytes) -> bool:
    """Whether a WebP is shorter than it says, or a TIFF ends before its table: Pillow is silent."""
    if data[:4] == b"RIFF":
        return len(data) < 8 + int.from_bytes(data[4:8], "little")
    order: Literal["little", "big"] = "little" if data[:2] == b"II" else "big"
    is_tiff = data[:4] in (b"II*\0", b"MM\0*")
    return is_tiff and len(data) <= int.from_bytes(data[4:8], order)


class _Quiet:
    """No warnings of Pillow while any thread is inside.

    Filters of warnings belong to the process. Did each thread save them and put them back, the
    last to leave could put back those that another had set.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._inside = 0
        self._before = warnings.catch_warnings()

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._before = warnings.catch_warnings()
                self._before.__enter__()
                warnings.filterwarnings("ignore", module="PIL")
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._before.__exit__(None, None, None)


_QUIET = _Quiet()
