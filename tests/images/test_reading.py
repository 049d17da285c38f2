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


def bmp(size, bits, data, palette=b"", compression=0, masks=b""):
    start = 14 + 40 + len(masks) + len(palette)
    used = len(palette) // 4
    info = struct.pack(
        "<IiiHHIIiiII", 40 + len(masks), *size, 1, bits, compression, len(data), 0, 0, used, 0
    )
    head = b"BM" + struct.pack("<IHHI", start + len(data), 0, 0, start)
    return head + info + masks + palette + bytes(data)


def gif(frames, transparent=None, colours=(0, 0, 0, 255, 0, 0, 0, 255, 0, 0, 0, 255)):
    """Frames of 2 x 2 pixels in 4 colours."""
    out = b"GIF89a" + struct.pack("<HHBBB", 2, 2, 0x81, 0, 0) + bytes(colours)
    for pixels in frames:
        flag, which = (0, 0) if transparent is None else (1, transparent)
        out += b"\x21\xf9\x04" + struct.pack("<BHBB", flag, 10, which, 0)
        out += b"\x2c" + struct.pack("<HHHHB", 0, 0, 2, 2, 0) + b"\x02"
        bits, place = 0, 0
        for code in (4, pixels[0], pixels[1], 4, pixels[2], pixels[3], 5):  # 4 clears, 5 ends
            bits, place = bits | code << place, place + 3
        data = bits.to_bytes((place + 7) // 8, "little")
        out += bytes([len(data)]) + data + b"\0"
    return out + b"\x3b"


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


def animation():
    control = struct.pack(">IIIIHHBB", 2, 2, 0, 0, 1, 10, 0, 0)
    second = struct.pack(">I", 2) + zlib.compress(bytes(14))
    before = chunk(b"acTL", struct.pack(">II", 2, 0))
    before += chunk(b"fcTL", struct.pack(">I", 0) + control)
    after = chunk(b"fcTL", struct.pack(">I", 1) + control) + chunk(b"fdAT", second)
    return png((2, 2), 8, RGB, RGB_2X2, before, after=after)


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
    "PNG of 4 bits": Case(png((2, 2), 4, GREY, [b"\x0f", b"\x12"]), grey([0, 255], [17, 34]), "L"),
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
    "PNG in colours": Case(png((2, 2), 8, RGB, RGB_2X2), COLOURS, "RGB"),
    "PNG in colours of 16 bits": Case(
        png((1, 1), 16, RGB, [words(0x0A80, 0x0B00, 0xFF01)]), [[[10, 11, 255]]], "RGB"
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
    "PNG with a palette": Case(
        png((2, 2), 2, PALETTE, [b"\x40", b"\xb0"], PLTE), [[R, K], [G, B]], "P"
    ),
    "PNG with a palette, a colour transparent": Case(
        png((2, 2), 2, PALETTE, [b"\x40", b"\xb0"], PLTE + trns(b"\xff\xff\0")),
        [[R, K], [W, B]],
        "P",
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
    "PNG in colours with alpha, of 16 bits": Case(
        png((1, 1), 16, RGBA, [words(65535, 0, 0, 0x3333)]), [[[255, 204, 204]]], "RGBA"
    ),
    "PNG, interlaced": Case(
        png((2, 2), 8, GREY, [b"\1", b"\2", b"\3\4"], interlace=1), grey([1, 2], [3, 4]), "L"
    ),
    "PNG, animated": Case(animation(), COLOURS, "RGB", frames=2),
    "PNG with EXIF that is none": Case(
        png((2, 2), 8, RGB, RGB_2X2, chunk(b"eXIf", b"II*\0\xff\xff\xff\xffoh")), COLOURS, "RGB"
    ),
    "PNG with an orientation that is none": Case(
        png((2, 2), 8, RGB, RGB_2X2, chunk(b"eXIf", exif(9))), COLOURS, "RGB"
    ),
    "PNG whose animation is wrong": Case(
        png((2, 2), 8, RGB, RGB_2X2, chunk(b"acTL", struct.pack(">II", 0, 0))), COLOURS, "RGB"
    ),
    # BMP
    "BMP": Case(
        bmp((2, 2), 24, [0, 0, 255, 0, 255, 0, 0, 0, 255, 0, 0, 0, 0, 0, 0, 0]),
        [[B, K], [R, G]],
        "RGB",
    ),
    "BMP from the top": Case(
        bmp((2, -2), 24, [0, 0, 255, 0, 255, 0, 0, 0, 255, 0, 0, 0, 0, 0, 0, 0]),
        [[R, G], [B, K]],
        "RGB",
    ),
    "BMP with a palette": Case(
        bmp((2, 2), 8, [0, 1, 0, 0, 1, 0, 0, 0], bytes([0, 0, 255, 0, 255, 0, 0, 0])),
        [[B, R], [R, B]],
        "P",
    ),
    "BMP of 1 bit": Case(
        bmp((2, 2), 1, b"\x40\0\0\0\x80\0\0\0", bytes([0, 0, 0, 0, 255, 255, 255, 0])),
        grey([255, 0], [0, 255]),
        "1",
    ),
    "BMP of 5 bits a colour": Case(
        bmp((2, 1), 16, struct.pack("<HH", 31 << 10, 31)), [[R, B], [K, K]], "RGB"
    ),
    "BMP, packed": Case(
        bmp((2, 2), 8, b"\2\1\0\0\2\0\0\1", bytes([0, 0, 255, 0, 255, 0, 0, 0]), 1),
        [[R, R], [B, B]],
        "P",
    ),
    "BMP with alpha": Case(
        bmp(
            (1, 1), 32, bytes([0, 0, 255, 51]), b"", 3,
            struct.pack("<IIII", 0xFF0000, 0xFF00, 0xFF, 0xFF000000),
        ),
        [[[255, 204, 204]]],
        "RGBA",
    ),
    # GIF
    "GIF": Case(gif([[0, 1, 2, 3]]), [[K, R], [G, B]], "P"),
    "GIF, a colour transparent": Case(gif([[0, 1, 2, 3]], transparent=2), [[K, R], [W, B]], "P"),
    "GIF, animated": Case(gif([[0, 1, 2, 3], [3, 3, 3, 3]]), [[K, R], [G, B]], "P", frames=2),
    # TIFF
    "TIFF": Case(tiff((2, 2), 8, 1, b"\1\2\3\4"), grey([1, 2], [3, 4]), "L"),
    "TIFF where 0 is white": Case(
        tiff((2, 2), 8, 0, b"\1\2\3\4"), grey([254, 253], [252, 251]), "L"
    ),
    "TIFF of 1 bit": Case(tiff((2, 2), 1, 1, b"\x40\x80"), grey([0, 255], [255, 0]), "1"),
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
    "TIFF in colours": Case(
        tiff((2, 2), 8, 2, BYTES, samples=3), COLOURS, "RGB"
    ),
    "TIFF with a palette": Case(
        tiff(
            (2, 1), 8, 3, b"\0\1",
            tags={320: (SHORT, [65535, *[0] * 255, 0, 65535, *[0] * 254, 0, 65535, *[0] * 254])},
        ),
        [[R, [0, 255, 255]], [K, K]],
        "P",
    ),
    "TIFF with alpha": Case(
        tiff((1, 1), 8, 2, bytes([*R, 51]), samples=4, tags={338: (SHORT, [2])}),
        [[[255, 204, 204]]],
        "RGBA",
    ),
    "TIFF with alpha, multiplied by it": Case(
        tiff((1, 1), 8, 2, bytes([51, 0, 0, 51]), samples=4, tags={338: (SHORT, [1])}),
        [[[255, 204, 204]]],
        "RGBA",
    ),
    "TIFF in four inks": Case(
        tiff((1, 1), 8, 5, bytes([0, 255, 255, 0]), samples=4), [[R]], "CMYK"
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
    "JPEG, grey": Case(saved(plain("L", 77), "JPEG"), flat([77] * 3), "L", 1),
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
    "WebP": Case(
        saved(Image.fromarray(COLOURS.astype(np.uint8)), "WEBP", lossless=True), COLOURS, "RGB"
    ),
    "WebP with alpha": Case(
        saved(plain("RGBA", (255, 0, 0, 51)), "WEBP", lossless=True), flat([255, 204, 204]), "RGBA"
    ),
    "WebP, animated": Case(
        saved(plain("RGB", 255), "WEBP", save_all=True, append_images=[plain("RGB", 0)],
              lossless=True),
        flat(R),
        "RGB",
        frames=2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", READ.values(), ids=READ)
def test_odd_files_look_as_they_should(case):
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
def test_pictures_are_turned_as_exif_says(orientation, turn):
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
    "zeros": (bytes(1000), "not a picture"),
    "a vector graphic": (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "not a picture"),
    "a page of PostScript": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not a picture"),
    "a page saved as a picture": (b"<!DOCTYPE html><html>404</html>", "not a picture"),
    "PNG that ends with its signature": (WHOLE[:8], DAMAGED),
    "PNG that ends in its header": (WHOLE[:20], "cut off"),
    "PNG without width": (png((0, 2), 8, GREY, [b"", b""]), DAMAGED),
    "PNG without pixels": (WHOLE[:33] + chunk(b"IEND", b""), r"damaged \(.+\)"),
    "PNG cut off": (saved(NOISE, "PNG")[:5000], "cut off"),
    "PNG with a changed byte": (
        WHOLE[:20] + b"\1" + WHOLE[21:],
        DAMAGED,
    ),
    "PNG whose pixels are not compressed": (
        WHOLE[:33] + chunk(b"IDAT", b"no zlib at all") + chunk(b"IEND", b""),
        r"damaged \(.+\)",
    ),
    "PNG of 100 million pixels": (
        png((10_000, 10_000), 8, GREY, []), r"too large \(100,000,000 pixels\)",
    ),
    "PNG of 10 billion pixels": (
        png((100_000, 100_000), 8, GREY, []), r"too large \(10,000,000,000 pixels\)",
    ),
    "JPEG that ends with its signature": (b"\xff\xd8\xff\xe0", DAMAGED),
    "JPEG cut off": (saved(NOISE, "JPEG")[:2000], "cut off"),
    "GIF cut off": (saved(NOISE.convert("L"), "GIF")[:3000], "cut off"),
    "GIF that ends with its signature": (b"GIF89a", DAMAGED),
    "BMP cut off": (saved(NOISE, "BMP")[:5000], "cut off"),
    "BMP without height": (bmp((2, 0), 24, b""), DAMAGED),
    "TIFF cut off": (tiff((64, 64), 8, 1, bytes(4096))[:2000], "cut off"),
    "TIFF that ends before its table": (b"II*\0\xff\xff\xff\x7f", "cut off"),
    "TIFF that ends before its table, high byte first": (b"MM\0*\0\0\0\x0cdata", "cut off"),
    "TIFF with an empty table": (b"II*\0\x08\0\0\0\0\0\0\0\0\0", DAMAGED),
    "TIFF, compressed, cut off": (saved(NOISE, "TIFF", compression="tiff_lzw")[:2000], "cut off"),
    "WebP cut off": (saved(NOISE, "WEBP", lossless=True)[:2000], "cut off"),
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
def test_what_is_no_picture_is_refused_with_the_reason(content, reason):
    with pytest.raises(BrokenPicture, match=f"^{reason}$"):
        read_picture(content, 8)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(BrokenPicture, match=r"^no such file$"):
        read_picture(tmp_path / "none.png", 8)
    with pytest.raises(BrokenPicture, match=r"^cannot be read \(Is a directory\)$"):
        read_picture(tmp_path, 8)


def test_a_file_is_read_as_its_content_is_whatever_its_name(tmp_path):
    path = tmp_path / "picture.jpg"
    path.write_bytes(WHOLE)
    assert np.array_equal(read_picture(path, 2).pixels, COLOURS)


# ---- Sizes ---------------------------------------------------------------------------------------


def test_a_picture_of_that_size_keeps_its_bytes_and_can_be_changed():
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
def test_the_longer_side_fits_and_the_rest_is_black(whole, rows, columns):
    expected = np.zeros((8, 8), int)
    expected[slice(*rows), slice(*columns)] = 90
    picture = read_picture(saved(plain("L", 90, whole), "PNG"), 8)
    assert np.array_equal(picture.pixels[:, :, 1], expected)
    assert (picture.width, picture.height) == whole


def test_scaling_down_averages():
    board = (np.indices((320, 320)).sum(axis=0) % 2 * 255).astype(np.uint8)
    assert np.abs(read_picture(saved(Image.fromarray(board), "PNG"), 32).pixels - 127.5).max() < 12


def test_a_jpeg_decoded_to_an_eighth_is_close_to_the_whole_one_scaled():
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
    ("options", "message"),
    [
        ({"size": 0}, "size must be an integer >= 1, found 0"),
        ({"size": 8, "depth": 0}, "depth must be an integer from 1 to 16, found 0"),
        ({"size": 8, "depth": 12.5}, r"depth must be an integer from 1 to 16, found 12\.5"),
    ],
)
def test_sizes_and_depths_that_are_none(options, message):
    with pytest.raises(ValueError, match=message):
        read_picture(WHOLE, **options)


# ---- What is left behind -------------------------------------------------------------------------


def test_pillow_and_warnings_are_left_as_they_were():
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
