"""Which pictures show the same, on real photos and on pictures that only look alike."""

from io import BytesIO

import numpy as np
import pytest
from PIL import Image, ImageEnhance
from sklearn.datasets import load_digits, load_sample_images

from aucmax.images.duplicates import FEW_BITS, perceptual_hashes, same_pictures

TILE = 106


def as_jpeg(image, quality):
    file = BytesIO()
    image.save(file, "JPEG", quality=quality)
    return Image.open(file)


COPIES = {
    "written anew": lambda x: as_jpeg(x, 50),
    "smaller": lambda x: as_jpeg(x.resize((70, 70), Image.Resampling.LANCZOS), 80),
    "larger": lambda x: x.resize((300, 300), Image.Resampling.BICUBIC),
    "brighter": lambda x: as_jpeg(ImageEnhance.Brightness(x).enhance(1.1), 90),
    "darker, less contrast": lambda x: ImageEnhance.Contrast(
        ImageEnhance.Brightness(x).enhance(0.8)
    ).enhance(0.9),
}


@pytest.fixture(scope="module")
def photos():
    """Tiles of two photos, each of which shows something."""
    tiles = [
        photo[y : y + TILE, x : x + TILE]
        for photo in load_sample_images().images
        for y in range(0, 4 * TILE, TILE)
        for x in range(0, 6 * TILE, TILE)
    ]
    return [Image.fromarray(tile) for tile in tiles if tile.mean(axis=2).std() > 20]


def at_size(images, size):
    return np.stack([np.asarray(x.convert("RGB").resize((size, size))) for x in images])


def sets_of(pixels, digests=None, **options):
    digests = np.arange(len(pixels)) if digests is None else np.array(digests)
    return same_pictures(digests.astype("S"), perceptual_hashes(pixels), pixels, **options).tolist()


@pytest.mark.parametrize("size", [32, 96])
def test_edited_copies_are_found(photos, size):
    every = [photos, *([change(x) for x in photos] for change in COPIES.values())]
    found = np.array(sets_of(np.concatenate([at_size(images, size) for images in every])))
    of_copies = found.reshape(len(every), len(photos))
    assert len(photos) > 30
    assert of_copies[0].tolist() == list(range(len(photos)))
    missed = {
        name: int((x != of_copies[0]).sum()) for name, x in zip(COPIES, of_copies[1:], strict=True)
    }
    assert missed == dict.fromkeys(COPIES, 0)


def test_similar_pictures_are_not_joined():
    """Digits of one hand after the other: hundreds of pairs have hashes like each other's."""
    digits = [Image.fromarray((x * 15).astype(np.uint8)) for x in load_digits().images]
    pixels = at_size([x.resize((32, 32), Image.Resampling.BICUBIC) for x in digits], 32)
    bits = np.unpackbits(perceptual_hashes(pixels).view(np.uint8).reshape(-1, 8), axis=1)
    signs = 2.0 * bits - 1
    like = np.triu(signs @ signs.T >= 64 - 2 * FEW_BITS, 1)
    assert like.sum() > 300
    assert len(set(sets_of(pixels))) >= len(pixels) - 2


def test_sets_are_numbered_in_order(photos):
    pixels = at_size([photos[k] for k in (5, 9, 5, 20, 9)], 32)
    pixels[2:3] = 255 - pixels[2:3]  # whatever the pixels
    assert sets_of(pixels, [*"abacd"]) == [0, 1, 0, 2, 1]


def test_flat_pictures_are_compared_by_pixel():
    random = np.random.default_rng(0)
    levels = [50, 50, 90, 90, 0, 0]
    pixels = np.stack([np.full((32, 32, 3), level, np.uint8) for level in levels])
    pixels[3] += random.integers(0, 2, pixels[3].shape, dtype=np.uint8)
    assert not perceptual_hashes(pixels).any()
    assert sets_of(pixels) == [0, 0, 1, 2, 3, 3]
    assert sets_of(pixels, broken={4: "cut off", 5: "empty"}) == [0, 0, 1, 2, 3, 4]


def test_pairs_within_few_bits_match_brute_force():
    """Against all pairs; pixels are the same, so hashes alone decide."""
    random = np.random.default_rng(0)
    hashes = random.integers(1, 2**63, 400, dtype=np.uint64)
    changed = [
        sum(1 << int(k) for k in random.choice(64, count, replace=False))
        for count in random.integers(0, 2 * FEW_BITS, 400)
    ]
    hashes = np.concatenate([hashes, hashes ^ np.array(changed, np.uint64)])
    picture = random.integers(0, 256, (16, 16, 3), dtype=np.uint8)
    pixels = np.broadcast_to(picture, (800, 16, 16, 3))
    found = same_pictures(np.arange(800).astype("S"), hashes, pixels)
    joined = found[:400] == found[400:]
    assert joined.tolist() == [x.bit_count() <= FEW_BITS for x in changed]
    assert 0 < joined.sum() < 400


def test_same_pixels_among_many_of_one_hash():
    pixels = np.random.default_rng(0).integers(0, 256, (3000, 8, 8, 3), dtype=np.uint8)
    pixels[2000] = pixels[7]
    found = same_pictures(np.arange(3000).astype("S"), np.full(3000, 5, np.uint64), pixels)
    assert found[2000] == found[7]
    assert len(set(found.tolist())) == 2999


def test_hash_is_independent_of_the_batch(photos):
    pixels = at_size(photos, 50)
    whole = perceptual_hashes(pixels)
    assert whole.tolist() == [int(perceptual_hashes(x[None])[0]) for x in pixels]
