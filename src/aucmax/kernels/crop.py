"""Windows of padded images, mirrored or not, straight from where the images lie."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024


def crop(images: Tensor, rows: Tensor, windows: Tensor, padding: int, flip: bool) -> Tensor:
    """The windows of some images, channels-last.

    Args:
        images: (N, C, H, W) in any order in memory.
        rows: which of them, (n,).
        windows: a number for each: its place among the windows, times two, plus whether mirrored,
            or without the latter if ``flip`` is False.
        padding: pixels of zeros on every side.
        flip: whether some are mirrored.
    """
    _, channels, height, width = images.shape
    rows = rows.contiguous()  # a rank's or a part's skip rows of a batch
    cropped = images.new_empty((len(rows), height, width, channels)).permute(0, 3, 1, 2)
    size = channels * height * width
    _crop[(len(rows), triton.cdiv(size, BLOCK))](
        images, rows, windows, cropped, *images.stride(), channels, height, width, padding, flip,
        BLOCK, num_warps=4,
    )  # fmt: skip
    return cropped


@triton.jit
def _crop(
    images, rows, windows, cropped, by_image, by_channel, by_row,
    by_column, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, PADDING: tl.constexpr,
    FLIP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    k = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    y, x, channel = i // (W * C), i // C % W, i % C
    window = tl.load(windows + k)
    if FLIP:
        x = tl.where(window % 2 == 1, W - 1 - x, x)
        window = window // 2
    y += (window // (2 * PADDING + 1) - PADDING).to(tl.int32)
    x += (window % (2 * PADDING + 1) - PADDING).to(tl.int32)
    inside = (i < H * W * C) & (y >= 0) & (y < H) & (x >= 0) & (x < W)
    image = images + tl.load(rows + k) * by_image
    pixels = tl.load(
        image + y * by_row + x * by_column + channel * by_channel, mask=inside, other=0
    )
    tl.store(cropped + k * (H * W * C) + i, pixels, mask=i < H * W * C)
