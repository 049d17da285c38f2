"""Convolutions with the statistics of the batch norm after them; the inputs that they take."""

from __future__ import annotations

import triton
import triton.language as tl

from experiments.resnet20.parts import (
    inside_border,
    is_last,
    place,
    scale_and_shift,
    store_partial,
    two_totals,
    window,
    write_stats,
)


@triton.jit
def activate_kernel(
    z, stats, side, side_stats, activations, pixels, H: tl.constexpr, W: tl.constexpr,
    C: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The activations that a layer takes in, which have a border, from what comes before.

    That is a convolution's output ``z``, normalized, and in a join plus ``side``: the block's
    input, which has a border too, or with ``side_stats`` its projection, normalized. Then ReLU.
    """
    p, c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, C)
    inside, pixel = inside_border(p, pixels, H, W)
    inside, at = inside[:, None], pixel[:, None] * C + c[None, :]
    scale, shift = scale_and_shift(stats, c, C)
    a = tl.load(z + at, mask=inside, other=0.0).to(tl.float32) * scale[None, :] + shift[None, :]
    bordered = p[:, None] * C + c[None, :]
    if side_stats is not None:
        scale, shift = scale_and_shift(side_stats, c, C)
        beside = tl.load(side + at, mask=inside, other=0.0).to(tl.float32)
        a += beside * scale[None, :] + shift[None, :]
    elif side is not None:
        a += tl.load(side + bordered, mask=inside, other=0.0).to(tl.float32)
    a = tl.where(inside, tl.maximum(a, 0.0), 0.0)
    tl.store(activations + bordered, a.to(activations.dtype.element_ty), mask=(p < pixels)[:, None])


@triton.jit
def weights(
    weight, k, n, C_IN: tl.constexpr, C_OUT: tl.constexpr, STEP: tl.constexpr, ACROSS: tl.constexpr
):
    """Those from the numbers k = (row, column, channel) of a window to n = (pixel, channel).

    The window has ACROSS columns; each of its pixels, which are STEP apart, sees three of them.
    """
    u, c = k // C_IN % ACROSS, k % C_IN
    dx = u[:, None] - (n // C_OUT * STEP)[None, :]
    exists = (k < 3 * ACROSS * C_IN)[:, None] & (dx >= 0) & (dx < 3)
    tap = (k // (ACROSS * C_IN) * 3)[:, None] + dx
    return tl.load(
        weight + ((n % C_OUT)[None, :] * 9 + tap) * C_IN + c[:, None], mask=exists, other=0.0
    )


@triton.jit
def forward_kernel(
    activations, weight, out, norm, projection_weight, projection_out, projection_norm, partial,
    counter, rows, H: tl.constexpr, W: tl.constexpr, C_IN: tl.constexpr, C_OUT: tl.constexpr,
    STRIDE: tl.constexpr, PIXELS: tl.constexpr, BLOCK: tl.constexpr, K: tl.constexpr,
    STAGES: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """A 3 x 3 convolution to H x W pixels, and the 1 x 1 projection beside it if there is one.

    The ``activations`` have a border. A row of the product is PIXELS side by side, which share most
    of a window; BLOCK rows are multiplied at a time, by K numbers of their windows at a time.
    """
    ACROSS: tl.constexpr = (PIXELS - 1) * STRIDE + 3
    N: tl.constexpr = PIXELS * C_OUT
    k, n, c = tl.arange(0, K), tl.arange(0, N), tl.arange(0, C_IN)
    sums, squares = tl.zeros((N,), tl.float32), tl.zeros((N,), tl.float32)
    projection_sums, projection_squares = sums, squares
    for tile in range(tl.program_id(0), tl.cdiv(rows, BLOCK), tl.num_programs(0)):
        p = tile * BLOCK + tl.arange(0, BLOCK)
        inside = (p < rows)[:, None]
        pixel = place(tl.minimum(p, rows - 1), H, W // PIXELS, STRIDE, STRIDE * PIXELS, 1)
        source = activations + pixel[:, None] * C_IN
        product = tl.zeros((BLOCK, N), tl.float32)
        for first in tl.range(0, 3 * ACROSS * C_IN, K, num_stages=STAGES):
            j = first + k
            at = source + window(j, C_IN, ACROSS, W * STRIDE + 2, True)[None, :]
            a = tl.load(at, mask=(j < 3 * ACROSS * C_IN)[None, :], other=0.0)
            w = weights(weight, j, n, C_IN, C_OUT, STRIDE, ACROSS)
            product = tl.dot(a, w, product)
        if projection_weight is not None:
            tl.static_assert(PIXELS == 1)
            w = tl.load(projection_weight + n[None, :] * C_IN + c[:, None])
            projection = tl.dot(tl.load(source + c[None, :]), w)
        at = p[:, None] * N + n[None, :]
        # The statistics are those of the rounded numbers, which every reader takes them for.
        rounded = tl.where(inside, product, 0.0).to(out.dtype.element_ty)
        tl.store(out + at, rounded, mask=inside)
        x = rounded.to(tl.float32)
        sums += tl.sum(x, 0)
        squares += tl.sum(x * x, 0)
        if projection_weight is not None:
            rounded = tl.where(inside, projection, 0.0).to(out.dtype.element_ty)
            tl.store(projection_out + at, rounded, mask=inside)
            x = rounded.to(tl.float32)
            projection_sums += tl.sum(x, 0)
            projection_squares += tl.sum(x * x, 0)

    store_partial(partial, sums, 0, N, C_OUT)
    store_partial(partial, squares, 1, N, C_OUT)
    if projection_weight is not None:
        store_partial(partial, projection_sums, 2, N, C_OUT)
        store_partial(partial, projection_squares, 3, N, C_OUT)
    if is_last(counter):
        total, total_squares = two_totals(partial, 0, C_OUT, ROWS)
        write_stats(total, total_squares, rows * PIXELS, norm, C_OUT)
        if projection_weight is not None:
            total, total_squares = two_totals(partial, 2, C_OUT, ROWS)
            write_stats(total, total_squares, rows * PIXELS, projection_norm, C_OUT)


@triton.jit
def image_window(
    images, mean, scale, p, k, rows, stride_n, stride_c, stride_y, stride_x, mean_stride,
    scale_stride, H: tl.constexpr, W: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """The standardized 3 x 3 windows k = (tap, channel) of pixels p, from images as they came."""
    channel, tap = k % C, k // C
    dy, dx = tap // 3 - 1, tap % 3 - 1
    y, x = p // W % H, p % W
    row, column = y[:, None] + dy[None, :], x[:, None] + dx[None, :]
    inside = (row >= 0) & (row < H) & (column >= 0) & (column < W)
    inside &= (p < rows)[:, None] & (k < 9 * C)[None, :]
    offset = (p // (H * W) * stride_n)[:, None] + (channel * stride_c)[None, :]
    pixels = tl.load(images + offset + row * stride_y + column * stride_x, mask=inside, other=0)
    mean = tl.load(mean + channel * mean_stride)[None, :]
    scale = tl.load(scale + channel * scale_stride)[None, :]
    return tl.where(inside, (pixels.to(tl.float32) - mean) * scale, 0.0)


@triton.jit
def stem_kernel(
    images, mean, scale, stride_n, stride_c, stride_y, stride_x, mean_stride, scale_stride, weight,
    out, norm, partial, counter, rows, H: tl.constexpr, W: tl.constexpr, C_IN: tl.constexpr,
    C_OUT: tl.constexpr, BLOCK: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """The first convolution, from the images' bytes: one product with the whole window."""
    k, n = tl.arange(0, K), tl.arange(0, C_OUT)
    w_at = weight + n[None, :] * (9 * C_IN) + k[:, None]
    w = tl.load(w_at, mask=(k < 9 * C_IN)[:, None], other=0.0).to(out.dtype.element_ty)
    sums, squares = tl.zeros((C_OUT,), tl.float32), tl.zeros((C_OUT,), tl.float32)
    for tile in range(tl.program_id(0), tl.cdiv(rows, BLOCK), tl.num_programs(0)):
        p = tile * BLOCK + tl.arange(0, BLOCK)
        a = image_window(
            images, mean, scale, p, k, rows, stride_n, stride_c, stride_y, stride_x, mean_stride,
            scale_stride, H, W, C_IN,
        )  # fmt: skip
        rounded = tl.dot(a.to(out.dtype.element_ty), w).to(out.dtype.element_ty)
        tl.store(out + p[:, None] * C_OUT + n[None, :], rounded, mask=(p < rows)[:, None])
        x = rounded.to(tl.float32)
        sums += tl.sum(x, 0)
        squares += tl.sum(x * x, 0)
    store_partial(partial, sums, 0, C_OUT, C_OUT)
    store_partial(partial, squares, 1, C_OUT, C_OUT)
    if is_last(counter):
        sums, squares = two_totals(partial, 0, C_OUT, ROWS)
        write_stats(sums, squares, rows, norm, C_OUT)


@triton.jit
def pool_kernel(
    activations, pooled, H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, BLOCK: tl.constexpr
):
    """The last block's output, averaged over the pixels of one image per program."""
    PIXELS: tl.constexpr = (H + 2) * (W + 2)
    c = tl.arange(0, C)
    sums = tl.zeros((C,), tl.float32)
    for first in range(0, PIXELS, BLOCK):
        pixel = first + tl.arange(0, BLOCK)
        at = (tl.program_id(0) * PIXELS + pixel)[:, None] * C + c[None, :]
        a = tl.load(activations + at, mask=(pixel < PIXELS)[:, None], other=0.0)
        sums += tl.sum(a.to(tl.float32), 0)
    tl.store(pooled + tl.program_id(0) * C + c, sums / (H * W))
