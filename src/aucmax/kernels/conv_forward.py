"""Convolution with the normalization before it and the statistics after it, in one kernel."""

# mypy: disable-error-code="import-untyped,import-not-found,untyped-decorator,no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl

from aucmax.kernels.conv_parts import (
    is_last,
    scale_and_shift,
    store_partial,
    total,
    window,
    write_stats,
)


@triton.jit
def normalized(z, scale, shift, side, side_scale, side_shift, KIND: tl.constexpr):
    """What a layer takes in, before the mask, from what was kept of the layer before.

    KIND says what that is: "norm", a convolution's output to normalize; "skip", the same of a
    block's last and the block's input; "projection", and its shortcut's output to normalize.
    """
    a = z.to(tl.float32) * scale + shift
    if KIND == "skip":
        a += side.to(tl.float32)
    elif KIND == "projection":
        a += side.to(tl.float32) * side_scale + side_shift
    return tl.maximum(a, 0.0)


@triton.jit
def make_input(
    z, z_stats, side, side_stats, offset, inside, channel, C: tl.constexpr, KIND: tl.constexpr
):
    """What a layer takes in at these places (see :func:`normalized`), and 0 outside the image."""
    scale, shift = scale_and_shift(z_stats, channel, C)
    here = tl.load(z + offset, mask=inside, other=0.0)
    beside, side_scale, side_shift = here, scale, shift
    if KIND != "norm":
        beside = tl.load(side + offset, mask=inside, other=0.0)
    if KIND == "projection":
        side_scale, side_shift = scale_and_shift(side_stats, channel, C)
    a = normalized(
        here,
        scale[None, :],
        shift[None, :],
        beside,
        side_scale[None, :],
        side_shift[None, :],
        KIND,
    )
    return tl.where(inside, a, 0.0)


@triton.jit
def forward_kernel(
    z,
    z_stats,
    side,
    side_stats,
    made,
    weight,
    out,
    norm,
    shortcut_weight,
    shortcut_out,
    shortcut_norm,
    partial,
    counter,
    rows,
    KIND: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    C_IN: tl.constexpr,
    C_OUT: tl.constexpr,
    STRIDE: tl.constexpr,
    BLOCK: tl.constexpr,
    K: tl.constexpr,
    STAGES: tl.constexpr,
    UNROLL: tl.constexpr,
    ROWS: tl.constexpr,
):
    """A 3 x 3 convolution to H x W pixels, and the 1 x 1 shortcut beside it if there is one.

    The input is made in passing from ``z`` and ``side`` (see :func:`normalized`) and stored in
    ``made`` for the weight gradient. BLOCK pixels are multiplied at a time, by K numbers of their
    windows at a time.
    """
    k, n, c = tl.arange(0, K), tl.arange(0, C_OUT), tl.arange(0, C_IN)
    sums, squares = tl.zeros((C_OUT,), tl.float32), tl.zeros((C_OUT,), tl.float32)
    shortcut_sums, shortcut_squares = sums, squares
    for tile in range(tl.program_id(0), tl.cdiv(rows, BLOCK), tl.num_programs(0)):
        p = tile * BLOCK + tl.arange(0, BLOCK)
        product = tl.zeros((BLOCK, C_OUT), tl.float32)
        for first in tl.range(0, 9 * C_IN, K, num_stages=STAGES, loop_unroll_factor=UNROLL):
            j = first + k
            offset, inside = window(p, j, rows, H, W, C_IN, STRIDE, 9)
            a = make_input(z, z_stats, side, side_stats, offset, inside, k % C_IN, C_IN, KIND)
            a = a.to(made.dtype.element_ty)
            # Each pixel of the input is stored by the one window that it is the centre of, or
            # where windows are two apart, by the one whose lower right quarter it is in.
            tap = j // C_IN
            mine = (tap == 4) if STRIDE == 1 else (tap >= 4) & (tap != 6)
            if first + K > 4 * C_IN and (STRIDE == 2 or first <= 4 * C_IN):
                mask = tl.max_constancy(inside & mine[None, :], [1, 8])
                tl.store(made + offset, a, mask=mask)
            w_at = weight + n[None, :] * (9 * C_IN) + j[:, None]
            w = tl.load(w_at, mask=(j < 9 * C_IN)[:, None], other=0.0)
            product = tl.dot(a, w.to(made.dtype.element_ty), product)
        if shortcut_weight is not None:
            offset, inside = window(p, c, rows, H, W, C_IN, STRIDE, 1)
            a = make_input(z, z_stats, side, side_stats, offset, inside, c, C_IN, KIND)
            w = tl.load(shortcut_weight + n[None, :] * C_IN + c[:, None])
            shortcut = tl.dot(a.to(made.dtype.element_ty), w.to(made.dtype.element_ty))
        at = p[:, None] * C_OUT + n[None, :]
        # The statistics are those of the rounded numbers, which every reader takes them for.
        rounded = product.to(out.dtype.element_ty)
        tl.store(out + at, rounded, mask=(p < rows)[:, None])
        x = rounded.to(tl.float32)
        sums += tl.sum(x, 0)
        squares += tl.sum(x * x, 0)
        if shortcut_weight is not None:
            rounded = shortcut.to(out.dtype.element_ty)
            tl.store(shortcut_out + at, rounded, mask=(p < rows)[:, None])
            x = rounded.to(tl.float32)
            shortcut_sums += tl.sum(x, 0)
            shortcut_squares += tl.sum(x * x, 0)

    store_partial(partial, sums, 0, C_OUT)
    store_partial(partial, squares, 1, C_OUT)
    if shortcut_weight is not None:
        store_partial(partial, shortcut_sums, 2, C_OUT)
        store_partial(partial, shortcut_squares, 3, C_OUT)
    if is_last(counter):
        sums = total(partial, 0, C_OUT, C_OUT, ROWS)
        squares = total(partial, 1, C_OUT, C_OUT, ROWS)
        write_stats(sums, squares, rows, norm, C_OUT)
        if shortcut_weight is not None:
            sums = total(partial, 2, C_OUT, C_OUT, ROWS)
            squares = total(partial, 3, C_OUT, C_OUT, ROWS)
            write_stats(sums, squares, rows, shortcut_norm, C_OUT)


@triton.jit
def image_window(
    images,
    mean,
    scale,
    p,
    k,
    rows,
    stride_n,
    stride_c,
    stride_y,
    stride_x,
    mean_stride,
    scale_stride,
    H: tl.constexpr,
    W: tl.constexpr,
    C: tl.constexpr,
):
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
    images,
    mean,
    scale,
    stride_n,
    stride_c,
    stride_y,
    stride_x,
    mean_stride,
    scale_stride,
    weight,
    out,
    norm,
    partial,
    counter,
    rows,
    H: tl.constexpr,
    W: tl.constexpr,
    C_IN: tl.constexpr,
    C_OUT: tl.constexpr,
    BLOCK: tl.constexpr,
    K: tl.constexpr,
    ROWS: tl.constexpr,
):
    """The first convolution, from the images' bytes: one product with the whole window."""
    k, n = tl.arange(0, K), tl.arange(0, C_OUT)
    w_at = weight + n[None, :] * (9 * C_IN) + k[:, None]
    w = tl.load(w_at, mask=(k < 9 * C_IN)[:, None], other=0.0).to(out.dtype.element_ty)
    sums, squares = tl.zeros((C_OUT,), tl.float32), tl.zeros((C_OUT,), tl.float32)
    for tile in range(tl.program_id(0), tl.cdiv(rows, BLOCK), tl.num_programs(0)):
        p = tile * BLOCK + tl.arange(0, BLOCK)
        a = image_window(
            images,
            mean,
            scale,
            p,
            k,
            rows,
            stride_n,
            stride_c,
            stride_y,
            stride_x,
            mean_stride,
            scale_stride,
            H,
            W,
            C_IN,
        )
        rounded = tl.dot(a.to(out.dtype.element_ty), w).to(out.dtype.element_ty)
        tl.store(out + p[:, None] * C_OUT + n[None, :], rounded, mask=(p < rows)[:, None])
        x = rounded.to(tl.float32)
        sums += tl.sum(x, 0)
        squares += tl.sum(x * x, 0)
    store_partial(partial, sums, 0, C_OUT)
    store_partial(partial, squares, 1, C_OUT)
    if is_last(counter):
        sums = total(partial, 0, C_OUT, C_OUT, ROWS)
        squares = total(partial, 1, C_OUT, C_OUT, ROWS)
        write_stats(sums, squares, rows, norm, C_OUT)


@triton.jit
def pool_kernel(
    z, z_stats, side, pooled, PIXELS: tl.constexpr, C: tl.constexpr, BLOCK: tl.constexpr
):
    """The last block's output, averaged over the pixels of one image per program."""
    c = tl.arange(0, C)
    scale, shift = scale_and_shift(z_stats, c, C)
    sums = tl.zeros((C,), tl.float32)
    for first in tl.static_range(0, PIXELS, BLOCK):
        pixel = first + tl.arange(0, BLOCK)
        at = (tl.program_id(0) * PIXELS + pixel)[:, None] * C + c[None, :]
        inside = (pixel < PIXELS)[:, None]
        x = tl.load(z + at, mask=inside, other=0.0)
        s = tl.load(side + at, mask=inside, other=0.0)
        a = normalized(x, scale[None, :], shift[None, :], s, 0.0, 0.0, "skip")
        sums += tl.sum(tl.where(inside, a, 0.0), 0)
    tl.store(pooled + tl.program_id(0) * C + c, sums / PIXELS)
