"""Augmentation: windows of the padded image, each equally likely; colors; blends in a class."""

import numpy as np
import pytest
import torch
from errors import assert_names
from reference.augment import jitter, mix

from aucmax.data import BatchSampler
from aucmax.data.batches import ArraySource, Batch, BatchFormat
from aucmax.images import augment as module
from aucmax.images.augment import Chain, ColorJitter, CropAndFlip, MixWithinClass


def pictures(n=4, channels=3, height=5, width=6, dtype=torch.uint8):
    """Pixels that differ and are not zero, so that windows differ."""
    count = n * channels * height * width
    if dtype == torch.uint8:
        generator = torch.Generator().manual_seed(0)
        values = torch.randint(1, 256, (count,), generator=generator)
    else:
        values = torch.arange(1, count + 1)
    return values.reshape(n, channels, height, width).to(dtype)


def windows(image, padding, flip):
    """Each possible window of an image as (mirrored, top, left), by its bytes."""
    image = image.numpy()
    _, height, width = image.shape
    padded = np.pad(image, ((0, 0), (padding, padding), (padding, padding)))
    found = {}
    for mirrored in (False, True) if flip else (False,):
        for top in range(2 * padding + 1):
            for left in range(2 * padding + 1):
                window = padded[:, top : top + height, left : left + width]
                window = window[:, :, ::-1] if mirrored else window
                found[window.tobytes()] = mirrored, top, left
    return found


def which(images, outputs, padding, flip):
    """The window of each image; a KeyError if an output is no window of it."""
    possible = [windows(image, padding, flip) for image in images]
    count = (2 * padding + 1) ** 2 * (1 + flip)
    assert {len(found) for found in possible} == {count}
    pairs = zip(possible, outputs, strict=True)
    return [found[image.numpy().tobytes()] for found, image in pairs]


@pytest.mark.parametrize(
    ("padding", "flip", "dtype"),
    [
        (0, True, torch.float32),
        (1, False, torch.uint8),
        (2, True, torch.uint8),
        (1, True, torch.float64),
        (2, False, torch.int64),
    ],
)
def test_every_output_is_a_window_of_its_own_image(padding, flip, dtype):
    images = pictures(n=40, dtype=dtype)
    before = images.clone()
    torch.manual_seed(0)
    outputs = CropAndFlip(padding, flip)(images)
    assert (outputs.shape, outputs.dtype) == (images.shape, dtype)
    assert torch.equal(images, before)
    which(images, outputs, padding, flip)


@pytest.mark.parametrize("flip", [False, True])
def test_windows_are_independent_and_equally_likely(flip):
    """Frequencies within five deviations; top, left and mirror each vary within a batch."""
    padding, n = 1, 3600
    images = pictures(n=2, height=4, width=4).repeat(n // 2, 1, 1, 1)
    torch.manual_seed(0)
    found = which(images, CropAndFlip(padding, flip)(images), padding, flip)
    kinds, counts = np.unique(found, axis=0, return_counts=True)
    assert len(kinds) == 9 * (1 + flip)
    expected = n / len(kinds)
    assert (abs(counts - expected) < 5 * expected**0.5).all()
    # The image's place tells nothing of what became of it: neighbours agree by chance alone.
    same = sum(a == b for a, b in zip(found[::2], found[1::2], strict=True))
    assert abs(same - n / 2 / len(kinds)) < 5 * (n / 2 / len(kinds)) ** 0.5


def test_crops_are_channels_last():
    images = pictures(n=8)
    for given in (images, images.contiguous(memory_format=torch.channels_last)):
        assert CropAndFlip(2)(given).is_contiguous(memory_format=torch.channels_last)


def test_no_padding_and_no_flip_change_nothing():
    images = pictures()
    assert torch.equal(CropAndFlip(padding=0, flip=False)(images), images)


def test_windows_follow_the_seed_of_torch():
    images, augment = pictures(n=64), CropAndFlip(2)
    torch.manual_seed(5)
    first, second = augment(images), augment(images)
    torch.manual_seed(5)
    assert torch.equal(augment(images), first)
    assert not torch.equal(first, second)


def test_gradients_reach_the_pixels_in_the_window():
    images = torch.ones(50, 1, 4, 4, requires_grad=True)
    torch.manual_seed(0)
    outputs = CropAndFlip(1)(images)
    outputs.sum().backward()
    assert set(images.grad.unique().tolist()) == {0.0, 1.0}
    assert images.grad.sum() == outputs.detach().sum()


def test_bad_paddings_and_images_are_named():
    for padding in (-1, 1.5, "4", True):
        assert_names("padding", CropAndFlip, padding)
    for shape in ((3, 5, 6), (5,), (2, 2, 3, 5, 6)):
        assert_names("images", CropAndFlip(), torch.zeros(shape))


# ---- ColorJitter -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_color_jitter_matches_the_reference(dtype):
    images = pictures(6) if dtype == torch.uint8 else pictures(6) / 255
    top = 255 if dtype == torch.uint8 else 1
    torch.manual_seed(3)
    found = ColorJitter(0.8)(images)
    torch.manual_seed(3)
    factors = (1 + 0.8 * (2 * torch.rand(3, 6) - 1)).T.tolist()
    expected = [jitter(x.numpy(), *f, top) for x, f in zip(images, factors, strict=True)]
    assert (found.dtype, found.shape) == (dtype, images.shape)
    tolerance = 0.501 if dtype == torch.uint8 else 1e-5  # rounded
    np.testing.assert_allclose(found.numpy(), np.stack(expected), atol=tolerance)


def test_no_strength_changes_nothing():
    images = pictures()
    assert torch.equal(ColorJitter(0)(images), images)


def test_bad_strengths_and_images_are_named():
    assert_names("strength", ColorJitter, 2)
    negative, nan = pictures() / 255 - 0.5, torch.full((1, 3, 2, 2), torch.nan)
    for images in (pictures(channels=1), negative, pictures().float(), nan):
        assert_names("images", ColorJitter(), images)


# ---- MixWithinClass ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_partners_are_uniform_within_a_class(dtype):
    labels = torch.tensor([0, 1, 0, 2, 0, 1, 0], dtype=dtype)
    torch.manual_seed(0)
    drawn = torch.stack([module._partners(labels) for _ in range(400)])
    assert (labels[drawn] == labels).all()
    assert (drawn.sort(dim=1).values == torch.arange(7)).all()
    assert (drawn[:, 3] == 3).all()  # alone in its class
    counts = np.array([(drawn[:, 0] == k).sum() for k in (0, 2, 4, 6)])
    assert (abs(counts - 100) < 5 * 10).all()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_blends_match_the_reference(dtype):
    images, labels = pictures(8, dtype=dtype), torch.tensor([0.0, 1.0] * 4)
    torch.manual_seed(1)
    found = MixWithinClass(0.5)(images, labels)
    torch.manual_seed(1)
    shares = module._beta(0.5, 8, torch.device("cpu"))
    expected = mix(images.numpy(), module._partners(labels).tolist(), shares.tolist())
    assert found.dtype == dtype
    np.testing.assert_allclose(found.numpy(), expected, atol=0.501, rtol=1e-5)


@pytest.mark.parametrize("a", [0.01, 0.2, 1.0, 4.0])
def test_shares_have_the_moments_of_the_beta_distribution(a):
    """Mean 1/2 and variance 1 / (4 (2 a + 1)); of tiny numbers no nan."""
    torch.manual_seed(0)
    shares = module._beta(a, 20000, torch.device("cpu")).double()
    assert (shares >= 0).all()
    assert (shares <= 1).all()
    assert shares.var().item() == pytest.approx(1 / (4 * (2 * a + 1)), rel=0.05)


def test_several_labels_raise():
    with pytest.raises(ValueError, match="several labels have no class to blend within"):
        MixWithinClass()(pictures(), torch.zeros(4, 2))


def test_a_chain_applies_its_parts_in_turn():
    images, labels = pictures(8), torch.tensor([0.0, 1.0] * 4)
    form = BatchFormat(torch.device("cpu"), torch.float32, "binary")
    source = ArraySource(Batch(images, labels), BatchSampler(labels, 4), form)
    crop, color, blend = CropAndFlip(1), ColorJitter(0.4), MixWithinClass(0.2)
    (rows,) = drawn = source.draw()
    for chain in (Chain(crop, color, blend), Chain(color, blend), Chain(blend)):
        torch.manual_seed(2)
        batch = source.load(drawn, chain)
        torch.manual_seed(2)
        expected = images[rows]
        for part in chain.parts:
            more = (labels[rows],) if part is blend else ()
            expected = part(expected, *more)
        assert torch.equal(batch.x, expected)
