"""The GPU's kernels do what the plain operations do; on the CPU by Triton's interpreter."""

import pytest
import torch
from interpreted import DEVICE, by_turns, with_kernels  # noqa: F401

from aucmax.data import BatchSampler
from aucmax.data.augment import CropAndFlip
from aucmax.data.sources import ArraySource, Batch, Place
from aucmax.kernels import guard, packed

# --- gradients that are not finite ---------------------------------------------------------------


@pytest.mark.usefixtures("with_kernels")
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_the_first_step_with_a_bad_gradient_or_loss_is_noted(bad):
    grads = [torch.zeros(n, device=DEVICE) for n in (3, packed.BLOCK + 5, 2)]
    since = torch.full((5,), 99, dtype=torch.int64, device=DEVICE)
    loss = torch.zeros((), dtype=torch.float64, device=DEVICE)
    table = packed.Packed(grads, guard.COLUMNS, {}, groups=[0, 1, 3]).table(
        [g.data_ptr() for g in grads]
    )
    steps = torch.zeros((), dtype=torch.int64, device=DEVICE)
    for _ in range(4):
        steps += 1
        if steps == 2:
            grads[1][-1] = bad
        if steps == 3:
            grads[2][0] = loss[...] = bad
        guard.note(table, torch.float32, loss, steps, since)
    assert since.tolist() == [99, 2, 99, 3, 3]


# --- augmentation ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("padding", "flip", "dtype"),
    [(0, True, torch.float32), (2, False, torch.uint8), (2, True, torch.uint8)],
)
def test_crops_of_rows_are_the_plain_ones(padding, flip, dtype):
    values = torch.arange(1, 9 * 3 * 5 * 6 + 1).reshape(9, 3, 5, 6).to(DEVICE, dtype)
    rows = torch.tensor([8, 0, 3, 3, 1, 7, 2, 5, 6, 4], device=DEVICE)
    for images in (values, values.to(memory_format=torch.channels_last)):

        def crop(images=images):
            torch.manual_seed(0)
            return CropAndFlip(padding, flip)(images, rows)

        found, expected = by_turns(crop)
        assert torch.equal(found, expected)
        assert found.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.usefixtures("with_kernels")
def test_images_belong_to_their_labels_when_a_batch_is_worked_on_in_parts():
    labels = (torch.arange(32) % 3 == 0).float()
    images = labels[:, None, None, None].expand(32, 1, 4, 4)
    place = Place(torch.device(DEVICE), torch.float32, "binary")
    source = ArraySource(Batch(images, labels), BatchSampler(labels, 16), place, parts=2)
    for _ in range(4):
        batch = source.load(source.draw(), CropAndFlip(padding=0))
        assert batch.x[:, 0, 0, 0].tolist() == batch.y.tolist()


@pytest.mark.usefixtures("with_kernels")
def test_crops_can_be_differentiated():
    images = torch.ones(2, 1, 4, 4, device=DEVICE, requires_grad=True)
    CropAndFlip(padding=0)(images).sum().backward()
    assert torch.equal(images.grad, torch.ones_like(images))
