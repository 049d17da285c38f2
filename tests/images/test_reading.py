"""Odd files, put together byte by byte: read as they should look, or refused with the reason."""

import io
import struct
import threading
import warnings
import zlib
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image, ImageFile

from aucmax.images.reading import BrokenPicture, read_picture

# ---- Formats by hand -----------------------------------------------------------------------------


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


GREY, RGB, PALETTE, GREY_ALPHA, RGBA = 0, 2, 3, 4, 6


def png(size, depth, colour, rows, extra=b"", interlace=0, after=b""):
    header = struct.pack(">IIBBBBB", *size, depth, colour, 0, 0, interlace)
    data = zlib.compress(b"".join(b"\0" + bytes(row) for row in rows))
    start = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra
    return start + chunk(b"IDAT", data) + after + chunk(b"IEND", b"")


def words(*values):
    """Numbers of 16 bits, the high byte first."""
    return struct.pack(f">{len(values)}H", *values)


def exif(orientation):
    return b"MM\0*" + struct.pack(">IHHHIHHI", 8, 1, 0x112, 3, 1, orientation, 0, 0)


def with_exif(jpeg, content):
    """A JPEG with a segment of EXIF after its first marker."""
    content = b"Exif\0\0" + content
    return jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(content) + 2) + content + jpeg[2:]


SHORT, LONG = 3, 4


def tiff(size, bits, photometric, data, order="<", tags=(), samples=1, pages=1):
    """Each page is a table of tags, its long values, then the same pixels, uncompressed."""
    out = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "I", 8)
    for page in range(pages):
        entries = {
            256: (LONG, [size[0]]),
            257: (LONG, [size[1]]),
            258: (SHORT, [bits] * samples),
            259: (SHORT, [1]),
            262: (SHORT, [photometric]),
            273: (LONG, [0]),
            277: (SHORT, [samples]),
            278: (LONG, [size[1]]),
            279: (LONG, [len(data)]),
            **dict(tags),
        }
        values_at = len(out) + 2 + 12 * len(entries) + 4
        packed = {
            tag: struct.pack(order + str(len(v)) + ("H" if kind == SHORT else "I"), *v)
            for tag, (kind, v) in entries.items()
        }
        extra = b"".join(p for _, p in sorted(packed.items()) if len(p) > 4)
        packed[273] = struct.pack(order + "I", values_at + len(extra))
        table, at = b"", values_at
        for tag, (kind, values) in sorted(entries.items()):
            table += struct.pack(order + "HHI", tag, kind, len(values))
            if len(packed[tag]) > 4:
                table, at = table + struct.pack(order + "I", at), at + len(packed[tag])
            else:
                table += packed[tag].ljust(4, b"\0")
        following = values_at + len(extra) + len(data) if page + 1 < pages else 0
        out += struct.pack(order + "H", len(entries)) + table
        out += struct.pack(order + "I", following) + extra + data
    return out


def saved(image, kind, **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def plain(mode, colour, size=(16, 16)):
    return Image.new(mode, size, colour)


# ---- What is read --------------------------------------------------------------------------------


class Case(NamedTuple):
    content: bytes
    pixels: object
    mode: str
    tolerance: int = 0
    frames: int = 1
    depth: int = 16
    brightest: int = 255


def grey(*rows):
    return np.repeat(np.array(rows)[:, :, None], 3, axis=2)


def flat(colour, size=16):
    return np.broadcast_to(np.array(colour), (size, size, 3))


W, K = [255, 255, 255], [0, 0, 0]
R, G, B = [255, 0, 0], [0, 255, 0], [0, 0, 255]
BYTES = bytes(range(10, 22))
COLOURS = np.arange(10, 22).reshape(2, 2, 3)
PLTE = chunk(b"PLTE", bytes([0, 0, 0, 255, 0, 0, 0, 255, 0, 0, 0, 255]))
RGB_2X2 = [BYTES[:6], BYTES[6:]]


def trns(data):
    return chunk(b"tRNS", data)


SIXTEEN = [words(0, 4095), words(32768, 65535)]
SIXTEEN_LITTLE = struct.pack("<4H", 0, 4095, 32768, 65535)

READ = {
    # PNG
    "PNG of 1 bit": Case(
        png((2, 2), 1, GREY, [b"\x40", b"\x80"]), grey([0, 255], [255, 0]), "1"
    ),
    "PNG of 2 bits": Case(
        png((4, 1), 2, GREY, [b"\x1b"]),
        grey([0] * 4, [0, 85, 170, 255], [0] * 4, [0] * 4),
        "L",
    ),
    "PNG of 8 bits": Case(png((2, 2), 8, GREY, [b"\1\2", b"\3\4"]), grey([1, 2], [3, 4]), "L"),
    "PNG of 16 bits": Case(
        png((2, 2), 16, GREY, SIXTEEN), grey([0, 16], [128, 255]), "I;16", brightest=65535
    ),
    "PNG of 12 bits in 16": Case(
        png((2, 2), 16, GREY, [words(0, 4095), words(2048, 1000)]),
        grey([0, 255], [128, 62]),
        "I;16",
        depth=12,
        brightest=4095,
    ),
    "PNG of more than the 12 bits": Case(
        png((2, 2), 16, GREY, SIXTEEN), grey([0, 255], [255, 255]), "I;16", 0, 1, 12, 65535
    ),
    "PNG, a grey transparent": Case(
        png((2, 2), 8, GREY, [b"\1\2", b"\3\4"], trns(words(3))), grey([1, 2], [255, 4]), "L"
    ),
    "PNG of 1 bit, white and black transparent": Case(
        png((2, 2), 1, GREY, [b"\x40", b"\x80"], trns(words(0))), flat(W, 2), "1"
    ),
    "PNG of 2 bits, a grey transparent": Case(
        png((2, 2), 2, GREY, [b"\x40", b"\xb0"], trns(words(1))),
        grey([255, 0], [170, 255]),
        "L",
    ),
    "PNG of 4 bits, a grey transparent": Case(
        png((2, 2), 4, GREY, [b"\x0f", b"\x12"], trns(words(2))), grey([0, 255], [17, 255]), "L"
    ),
    "PNG of 16 bits, a grey transparent": Case(
        png((2, 2), 16, GREY, SIXTEEN, trns(words(4095))),
        grey([0, 255], [128, 255]),
        "I;16",
        brightest=65535,
    ),
    "PNG, a colour transparent": Case(
        png((2, 2), 8, RGB, RGB_2X2, trns(words(13, 14, 15))),
        [[COLOURS[0, 0], W], COLOURS[1]],
        "RGB",
    ),
    "PNG, a colour of 16 bits transparent": Case(
        png((1, 1), 16, RGB, [words(0x0A80, 0x0B00, 0xFF01)], trns(words(0x0A80, 0x0B00, 0xFF01))),
        [[W]],
        "RGB",
    ),
    "PNG with a palette, colours half transparent": Case(
        png((2, 2), 2, PALETTE, [b"\x40", b"\xb0"], PLTE + trns(b"\x33\xff\x33\0")),
        [[R, [204] * 3], [[204, 255, 204], W]],
        "P",
    ),
    "PNG, grey with alpha": Case(
        png((2, 2), 8, GREY_ALPHA, [b"\0\0\0\xff", b"\0\x33\x64\xff"]),
        grey([255, 0], [204, 100]),
        "LA",
    ),
    "PNG in colours with alpha": Case(
        png((2, 2), 8, RGBA, [bytes([*R, 255, *G, 0]), bytes([*K, 51, *B, 51])]),
        [[R, W], [[204] * 3, [204, 204, 255]]],
        "RGBA",
    ),
    "PNG with EXIF that is none": Case(
        png((2, 2), 8, RGB, RGB_2X2, chunk(b"eXIf", b"II*\0\xff\xff\xff\xffoh")), COLOURS, "RGB"
    ),
    "PNG with an orientation that is none": Case(
        png((2, 2), 8, RGB, RGB_2X2, chunk(b"eXIf", exif(9))), COLOURS, "RGB"
    ),
    # TIFF
    "TIFF where 0 is white": Case(
        tiff((2, 2), 8, 0, b"\1\2\3\4"), grey([254, 253], [252, 251]), "L"
    ),
    "TIFF of 16 bits, low byte first": Case(
        tiff((2, 2), 16, 1, SIXTEEN_LITTLE), grey([0, 16], [128, 255]), "I;16", brightest=65535
    ),
    "TIFF of 16 bits, high byte first": Case(
        tiff((2, 2), 16, 1, b"".join(SIXTEEN), ">"),
        grey([0, 16], [128, 255]),
        "I;16B",
        brightest=65535,
    ),
    "TIFF of 16 bits where 0 is white": Case(
        tiff((2, 2), 16, 0, SIXTEEN_LITTLE), grey([255, 239], [127, 0]), "I;16", brightest=65535
    ),
    "TIFF of 12 bits, packed": Case(
        tiff((2, 1), 12, 1, b"\x80\x0f\xff"),
        grey([128, 255], [0, 0]),
        "I;16",
        depth=12,
        brightest=4095,
    ),
    "TIFF of 32 bits that use 16": Case(
        tiff((2, 2), 32, 1, struct.pack("<4I", 0, 4095, 32768, 65535), tags={339: (SHORT, [2])}),
        grey([0, 16], [128, 255]),
        "I",
        brightest=65535,
    ),
    "TIFF in L*a*b*": Case(
        tiff((2, 1), 8, 8, bytes([255, 0, 0, 0, 0, 0]), samples=3), [[W, K], [K, K]], "LAB", 2
    ),
    "TIFF of two pages": Case(
        tiff((2, 2), 8, 1, b"\1\2\3\4", pages=2), grey([1, 2], [3, 4]), "L", frames=2
    ),
    "TIFF on its side": Case(
        tiff((2, 2), 8, 1, b"\1\2\3\4", tags={274: (SHORT, [6])}), grey([3, 1], [4, 2]), "L"
    ),
    # JPEG and WebP, which Pillow writes
    "JPEG": Case(saved(plain("RGB", (200, 100, 50)), "JPEG"), flat([200, 100, 50]), "RGB", 3),
    "JPEG in four inks, turned around as Adobe does": Case(
        saved(plain("CMYK", (0, 255, 255, 0)), "JPEG"), flat(R), "CMYK", 3
    ),
    "JPEG, of which a small one would do": Case(
        saved(plain("RGB", (200, 100, 50), (400, 400)), "JPEG"), flat([200, 100, 50]), "RGB", 3
    ),
    "JPEG with EXIF that is none": Case(
        with_exif(saved(plain("L", 77), "JPEG"), b"MM\0*\0\0\xff\0"), flat([77] * 3), "L", 1
    ),
    "JPEGs in one file": Case(
        saved(plain("L", 77), "MPO", save_all=True, append_images=[plain("L", 0)]),
        flat([77] * 3),
        "L",
        1,
        frames=2,
    ),
    "WebP with alpha": Case(
        saved(plain("RGBA", (255, 0, 0, 51)), "WEBP", lossless=True), flat([255, 204, 204]), "RGBA"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", READ.values(), ids=READ)
def test_picture_has_the_pixels_of_its_format(case):
    expected = np.asarray(case.pixels)
    picture = read_picture(case.content, len(expected), depth=case.depth)
    assert picture.pixels.dtype == np.uint8
    assert np.abs(picture.pixels.astype(int) - expected).max() <= case.tolerance
    assert picture[3:] == (case.mode, case.frames, case.brightest)


@pytest.mark.parametrize(
    ("orientation", "turn"),
    [
        (1, lambda x: x),
        (2, lambda x: x[:, ::-1]),
        (3, lambda x: x[::-1, ::-1]),
        (4, lambda x: x[::-1]),
        (5, lambda x: x.T),
        (6, lambda x: np.rot90(x, -1)),
        (7, lambda x: x[::-1, ::-1].T),
        (8, lambda x: np.rot90(x, 1)),
    ],
)
def test_exif_orientation(orientation, turn):
    before = np.arange(1, 9).reshape(2, 4)
    rows = [row.astype(np.uint8).tobytes() for row in before]
    as_png = png((4, 2), 8, GREY, rows, chunk(b"eXIf", exif(orientation)))
    picture = read_picture(as_png, 4)
    upright = turn(before)
    assert (picture.height, picture.width) == upright.shape
    margins = [(1, 1), (0, 0)] if upright.shape == (2, 4) else [(0, 0), (1, 1)]
    assert np.array_equal(picture.pixels[:, :, 0], np.pad(upright, margins))

    smooth = np.kron(np.arange(8).reshape(2, 4) * 30, np.ones((16, 16))).astype(np.uint8)
    jpeg = with_exif(saved(Image.fromarray(smooth), "JPEG", quality=95), exif(orientation))
    small = read_picture(jpeg, 16)  # decoded to a half, then turned
    assert (small.height, small.width) == turn(smooth).shape
    expected = read_picture(saved(Image.fromarray(turn(smooth).copy()), "PNG"), 16)
    assert np.abs(small.pixels.astype(int) - expected.pixels).max() < 8


# ---- What is refused -----------------------------------------------------------------------------

NOISE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8))
FLOATS = struct.pack("<4f", 0, 0.5, 1, 2)
WHOLE = png((2, 2), 8, RGB, RGB_2X2)
DAMAGED = "damaged, or of an unknown kind"

REFUSED = {
    "nothing": (b"", "empty"),
    "a text": (b"a picture of a cat", "not a picture"),
    "PNG that ends with its signature": (WHOLE[:8], DAMAGED),
    "PNG that ends in its header": (WHOLE[:20], "cut off"),
    "PNG without pixels": (WHOLE[:33] + chunk(b"IEND", b""), r"damaged \(.+\)"),
    "PNG cut off": (saved(NOISE, "PNG")[:5000], "cut off"),
    "PNG with a changed byte": (
        WHOLE[:20] + b"\1" + WHOLE[21:],
        DAMAGED,
    ),
    "PNG of 100 million pixels": (
        png((10_000, 10_000), 8, GREY, []), r"too large \(100,000,000 pixels\)",
    ),
    "PNG of 10 billion pixels": (
        png((100_000, 100_000), 8, GREY, []), r"too large \(10,000,000,000 pixels\)",
    ),
    "JPEG cut off": (saved(NOISE, "JPEG")[:2000], "cut off"),
    "TIFF that ends before its table": (b"II*\0\xff\xff\xff\x7f", "cut off"),
    "TIFF that ends before its table, high byte first": (b"MM\0*\0\0\0\x0cdata", "cut off"),
    "WebP that ends in its header": (saved(NOISE, "WEBP")[:14], "cut off"),
    "TIFF of floating point": (
        tiff((2, 2), 32, 1, FLOATS, tags={339: (SHORT, [3])}),
        "floating point pixels",
    ),
    "TIFF of 32 bits": (
        tiff((2, 1), 32, 1, struct.pack("<2i", 5, 70000), tags={339: (SHORT, [2])}),
        "values from 5 to 70000, beyond 16 bits",
    ),
    "TIFF below zero": (
        tiff((2, 1), 16, 1, struct.pack("<2h", -1000, 5), tags={339: (SHORT, [2])}),
        "values from -1000 to 5, beyond 16 bits",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("content", "reason"), REFUSED.values(), ids=REFUSED)
def test_broken_picture_has_a_reason(content, reason):
    with pytest.raises(BrokenPicture, match=f"^{reason}$"):
        read_picture(content, 8)


def test_file_is_read_by_its_content_and_not_its_name(tmp_path):
    path = tmp_path / "picture.jpg"
    path.write_bytes(WHOLE)
    assert np.array_equal(read_picture(path, 2).pixels, COLOURS)
    with pytest.raises(BrokenPicture, match=r"^no such file$"):
        read_picture(tmp_path / "none.png", 8)
    with pytest.raises(BrokenPicture, match=r"^cannot be read \(Is a directory\)$"):
        read_picture(tmp_path, 8)


@pytest.mark.parametrize("kind", ["PNG", "BMP", "GIF", "TIFF", "WEBP"])
def test_every_format_is_read(kind):
    image = Image.fromarray(COLOURS.astype(np.uint8))
    content = saved(image, kind, **({"lossless": True} if kind == "WEBP" else {}))
    assert np.array_equal(read_picture(content, 2).pixels, COLOURS)


# ---- Sizes ---------------------------------------------------------------------------------------


def test_picture_of_the_size_keeps_its_pixels():
    picture = read_picture(saved(NOISE, "PNG"), 64)
    assert np.array_equal(picture.pixels, np.asarray(NOISE))
    picture.pixels[0, 0] = 0
    assert picture.pixels.flags.c_contiguous


@pytest.mark.parametrize(
    ("whole", "rows", "columns"),
    [
        ((40, 20), (2, 6), (0, 8)),
        ((20, 40), (0, 8), (2, 6)),
        ((3, 2), (1, 6), (0, 8)),
        ((1, 500), (0, 8), (3, 4)),
        ((4, 4), (0, 8), (0, 8)),
    ],
)
def test_longer_side_fits_and_the_rest_is_black(whole, rows, columns):
    expected = np.zeros((8, 8), int)
    expected[slice(*rows), slice(*columns)] = 90
    picture = read_picture(saved(plain("L", 90, whole), "PNG"), 8)
    assert np.array_equal(picture.pixels[:, :, 1], expected)
    assert (picture.width, picture.height) == whole


def test_jpeg_decoded_small_is_close_to_the_whole_scaled():
    across = np.linspace(0, 6, 1000)
    waves = 128 + 100 * np.sin(across[:, None] * 5) * np.cos(across[None, :905] * 7)
    image = Image.fromarray(waves.astype(np.uint8)).convert("RGB")
    jpeg = saved(image, "JPEG", quality=95)
    wide = round(905 * 50 / 1000)
    expected = np.asarray(Image.open(io.BytesIO(jpeg)).resize((wide, 50)), int)
    left = (50 - wide) // 2
    pixels = read_picture(jpeg, 50).pixels[:, left : left + wide]
    assert np.abs(pixels - expected).max() <= 3
    assert np.abs(pixels - expected).mean() < 0.5


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"size": 0}, "size"),
        ({"size": 8, "depth": 0}, "depth"),
        ({"size": 8, "depth": 17}, "depth"),
    ],
)
def test_size_and_depth_out_of_range_raise(options, name):
    with pytest.raises(ValueError, match=f"^{name} must be"):
        read_picture(WHOLE, **options)


# ---- What is left behind -------------------------------------------------------------------------


def test_threads_leave_pillow_and_warnings_as_they_were():
    before = ImageFile.LOAD_TRUNCATED_IMAGES, Image.MAX_IMAGE_PIXELS, list(warnings.filters)
    contents = [case.content for case in READ.values()] + [
        content for content, _ in REFUSED.values()
    ]
    errors = []

    def read_all():
        for content in contents:
            try:
                read_picture(content, 8)
            except BrokenPicture:
                pass
            except Exception as error:  # a warning is an error here
                errors.append(error)

    threads = [threading.Thread(target=read_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    after = ImageFile.LOAD_TRUNCATED_IMAGES, Image.MAX_IMAGE_PIXELS, list(warnings.filters)
    assert errors == []
    assert after == before
