"""Gradients through batch norm and convolution: of the data, the weights and the norms."""

# mypy: disable-error-code="import-untyped,import-not-found,untyped-decorator,no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl

from aucmax.kernels.conv_forward import image_window, normalized
from aucmax.kernels.conv_parts import (
    is_last,
    scale_and_shift,
    store_partial,
    total,
    window,
    write_coefficients,
)


@triton.jit
def input_gradient(d, z, coefficients, channel, C: tl.constexpr):
    """A d + B z + C: a batch norm's gradient at its input (see ``NormGradient``)."""
    a = tl.load(coefficients + channel)[None, :]
    b = tl.load(coefficients + C + channel)[None, :]
    c = tl.load(coefficients + 2 * C + channel)[None, :]
    return a * d.to(tl.float32) + (b * z.to(tl.float32) + c)


@triton.jit
def transposed_weights(weight, k, n, C_IN: tl.constexpr, C_OUT: tl.constexpr, STRIDE: tl.constexpr):
    """The weights from the gradients k = (tap, channel) around a pixel to the inputs n under it.

    With stride 1 the window is turned around. With stride 2 a pixel lies over 2 x 2 of the input,
    n = (row, column, channel), each of which sees one, two or four of the 2 x 2 taps.
    """
    tap, channel = (k // C_OUT)[:, None], (k % C_OUT)[:, None]
    if STRIDE == 1:
        turned = 8 - tap
        exists = (tap < 9) & (n >= 0)[None, :]
    else:
        dy = (n // (2 * C_IN) + 1)[None, :] - tap // 2 * 2
        dx = (n // C_IN % 2 + 1)[None, :] - tap % 2 * 2
        turned = dy * 3 + dx
        exists = (tap < 4) & (dy >= 0) & (dx >= 0)
    at = weight + (channel * 9 + turned) * C_IN + (n % C_IN)[None, :]
    return tl.load(at, mask=exists, other=0.0)


@triton.jit
def data_gradient_kernel(
    d,
    z,
    coefficients,
    dz,
    weight,
    shortcut_d,
    shortcut_z,
    shortcut_coefficients,
    shortcut_dz,
    shortcut_weight,
    skip,
    made,
    before_z,
    before,
    beside_z,
    beside,
    d_before,
    partial,
    counter,
    rows,
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
    """From the gradient after a layer's batch norm to the one after the batch norm before it.

    ``d`` is the gradient at the output of the norm of ``z``, of H x W pixels; the norm's input
    gradient is stored in ``dz`` for the weights. Through the transposed convolution (and that of
    the block's projection, from ``shortcut_d``), plus ``skip``, and through the ReLU before, it
    becomes ``d_before``, the gradient at the output of the norm of ``before_z``; ``before`` takes
    what follows from its sums, ``beside`` the same for a projection that met it in a join. The
    ReLU was positive where ``made`` is, the layer's input, or without it where the norm was.
    """
    TAPS: tl.constexpr = 9 if STRIDE == 1 else 4
    CENTRE: tl.constexpr = 4 if STRIDE == 1 else 0
    N: tl.constexpr = C_IN * STRIDE * STRIDE
    k, n, o = tl.arange(0, K), tl.arange(0, N), tl.arange(0, C_OUT)
    mean = tl.load(before.stats + n % C_IN)[None, :]
    scale, shift = scale_and_shift(before.stats, n % C_IN, C_IN)
    d_sums, dz_sums = tl.zeros((N,), tl.float32), tl.zeros((N,), tl.float32)
    beside_sums = d_sums

    for tile in range(tl.program_id(0), tl.cdiv(rows, BLOCK), tl.num_programs(0)):
        p = tile * BLOCK + tl.arange(0, BLOCK)
        product = tl.zeros((BLOCK, N), tl.float32)
        for first in tl.range(0, TAPS * C_OUT, K, num_stages=STAGES, loop_unroll_factor=UNROLL):
            j = first + k
            offset, inside = window(p, j, rows, H, W, C_OUT, 1, TAPS)
            here_d = tl.load(d + offset, mask=inside, other=0.0)
            here_z = tl.load(z + offset, mask=inside, other=0.0)
            a = input_gradient(here_d, here_z, coefficients, k % C_OUT, C_OUT)
            a = tl.where(inside, a, 0.0).to(dz.dtype.element_ty)
            if first <= CENTRE * C_OUT and first + K > CENTRE * C_OUT:
                mine = inside & (j // C_OUT == CENTRE)[None, :]
                tl.store(dz + offset, a, mask=tl.max_constancy(mine, [1, 8]))
            w = transposed_weights(weight, j, n, C_IN, C_OUT, STRIDE)
            product = tl.dot(a, w.to(dz.dtype.element_ty), product)
        if shortcut_weight is not None:
            offset, inside = window(p, o, rows, H, W, C_OUT, 1, 1)
            here_d = tl.load(shortcut_d + offset, mask=inside, other=0.0)
            here_z = tl.load(shortcut_z + offset, mask=inside, other=0.0)
            a = input_gradient(here_d, here_z, shortcut_coefficients, o, C_OUT)
            a = tl.where(inside, a, 0.0).to(dz.dtype.element_ty)
            tl.store(shortcut_dz + offset, a, mask=inside)
            w_at = shortcut_weight + o[:, None] * C_IN + n[None, :]
            w = tl.load(w_at, mask=(n < C_IN)[None, :], other=0.0).to(dz.dtype.element_ty)
            product = tl.dot(a, w, product)

        at = p[:, None] * C_IN + n[None, :]
        if STRIDE == 2:
            pixel = p // W * (4 * W) + p % W * 2
            at = (pixel * C_IN)[:, None] + (n // (2 * C_IN) * (2 * W * C_IN) + n % (2 * C_IN))[None]
        inside = (p < rows)[:, None]
        if skip is not None:
            product += tl.load(skip + at, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(before_z + at, mask=inside, other=0.0).to(tl.float32)
        if made is not None:
            alive = tl.load(made + at, mask=inside, other=0.0).to(tl.float32) > 0
        else:
            alive = x * scale[None, :] + shift[None, :] > 0
        rounded = tl.where(alive & inside, product, 0.0).to(d_before.dtype.element_ty)
        tl.store(d_before + at, rounded, mask=inside)
        gradient = rounded.to(tl.float32)
        d_sums += tl.sum(gradient, 0)
        dz_sums += tl.sum(gradient * (x - mean), 0)
        if beside_z is not None:
            x = tl.load(beside_z + at, mask=inside, other=0.0).to(tl.float32)
            x -= tl.load(beside.stats + n % C_IN)[None, :]
            beside_sums += tl.sum(gradient * x, 0)

    store_partial(partial, d_sums, 0, N)
    store_partial(partial, dz_sums, 1, N)
    if beside_z is not None:
        store_partial(partial, beside_sums, 2, N)
    if is_last(counter):
        count = (rows * (STRIDE * STRIDE)).to(tl.float32)
        d_total = total(partial, 0, N, C_IN, ROWS)
        write_coefficients(d_total, total(partial, 1, N, C_IN, ROWS), count, before, C_IN)
        if beside_z is not None:
            write_coefficients(d_total, total(partial, 2, N, C_IN, ROWS), count, beside, C_IN)


@triton.jit
def pool_gradient_kernel(
    gradient,
    z,
    side,
    norm,
    d,
    partial,
    counter,
    rows,
    PIXELS: tl.constexpr,
    C: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """From the gradient of the pooled features to the one at the last norm's output."""
    c = tl.arange(0, C)
    mean = tl.load(norm.stats + c)[None, :]
    scale, shift = scale_and_shift(norm.stats, c, C)
    d_sums, dz_sums = tl.zeros((C,), tl.float32), tl.zeros((C,), tl.float32)
    for tile in range(tl.program_id(0), tl.cdiv(rows, BLOCK), tl.num_programs(0)):
        p = tile * BLOCK + tl.arange(0, BLOCK)
        inside = (p < rows)[:, None]
        at = p[:, None] * C + c[None, :]
        x = tl.load(z + at, mask=inside, other=0.0)
        s = tl.load(side + at, mask=inside, other=0.0)
        alive = normalized(x, scale[None, :], shift[None, :], s, 0.0, 0.0, "skip") > 0
        g = tl.load(gradient + (p // PIXELS)[:, None] * C + c[None, :], mask=inside, other=0.0)
        rounded = tl.where(alive & inside, g / PIXELS, 0.0).to(d.dtype.element_ty)
        tl.store(d + at, rounded, mask=inside)
        d_sums += tl.sum(rounded.to(tl.float32), 0)
        dz_sums += tl.sum(rounded.to(tl.float32) * (x.to(tl.float32) - mean), 0)
    store_partial(partial, d_sums, 0, C)
    store_partial(partial, dz_sums, 1, C)
    if is_last(counter):
        d_sums, dz_sums = total(partial, 0, C, C, ROWS), total(partial, 1, C, C, ROWS)
        write_coefficients(d_sums, dz_sums, rows.to(tl.float32), norm, C)


@triton.jit
def weight_gradient_kernel(
    made,
    dz,
    partial,
    rows,
    H: tl.constexpr,
    W: tl.constexpr,
    C_IN: tl.constexpr,
    C_OUT: tl.constexpr,
    STRIDE: tl.constexpr,
    TAPS: tl.constexpr,
    BLOCK: tl.constexpr,
    K: tl.constexpr,
    STAGES: tl.constexpr,
):
    """A part of the weight gradients of several layers of one shape, kept one after the other.

    The grid is parts of the pixels x parts of the window x layers; ``partial`` is (parts of the
    pixels, layers, C_OUT, taps, C_IN).
    """
    part, layer = tl.program_id(0), tl.program_id(2)
    k, n = tl.program_id(1) * K + tl.arange(0, K), tl.arange(0, C_OUT)
    made += layer * rows * (STRIDE * STRIDE * C_IN)
    dz += layer * rows * C_OUT
    product = tl.zeros((C_OUT, K), tl.float32)
    for tile in tl.range(part, tl.cdiv(rows, BLOCK), tl.num_programs(0), num_stages=STAGES):
        p = tile * BLOCK + tl.arange(0, BLOCK)
        offset, inside = window(p, k, rows, H, W, C_IN, STRIDE, TAPS)
        a = tl.load(made + offset, mask=inside, other=0.0)
        at = p[:, None] * C_OUT + n[None, :]
        gradient = tl.load(dz + at, mask=(p < rows)[:, None], other=0.0)
        product = tl.dot(tl.trans(gradient), a, product)
    at = ((part * tl.num_programs(2) + layer) * C_OUT + n)[:, None] * (TAPS * C_IN) + k[None, :]
    tl.store(partial + at, product, mask=(k < TAPS * C_IN)[None, :])


@triton.jit
def stem_weight_gradient_kernel(
    images,
    mean,
    scale,
    stride_n,
    stride_c,
    stride_y,
    stride_x,
    mean_stride,
    scale_stride,
    d,
    z,
    coefficients,
    partial,
    rows,
    H: tl.constexpr,
    W: tl.constexpr,
    C_IN: tl.constexpr,
    C_OUT: tl.constexpr,
    BLOCK: tl.constexpr,
    K: tl.constexpr,
):
    """A part of the first layer's weight gradient; ``partial`` is (parts, C_OUT, taps, C_IN)."""
    k, n = tl.arange(0, K), tl.arange(0, C_OUT)
    product = tl.zeros((C_OUT, K), tl.float32)
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
        at = p[:, None] * C_OUT + n[None, :]
        inside = (p < rows)[:, None]
        here_d = tl.load(d + at, mask=inside, other=0.0)
        here_z = tl.load(z + at, mask=inside, other=0.0)
        gradient = input_gradient(here_d, here_z, coefficients, n, C_OUT)
        gradient = tl.where(inside, gradient, 0.0).to(d.dtype.element_ty)
        product = tl.dot(tl.trans(gradient), a.to(d.dtype.element_ty), product)
    at = (tl.program_id(0) * C_OUT + n)[:, None] * (9 * C_IN) + k[None, :]
    tl.store(partial + at, product, mask=(k < 9 * C_IN)[None, :])


@triton.jit
def sum_parts_kernel(
    partial, gradient, SECTIONS: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr
):
    """Sum the parts of all weight gradients, in one order.

    Each of SECTIONS is (its first program, where its parts begin, numbers in a part, parts); the
    sections' sums follow each other in ``gradient``.
    """
    first, start, size, parts, at = 0, 0, 0, 0, 0
    for i in tl.static_range(len(SECTIONS)):
        if tl.program_id(0) >= SECTIONS[i][0]:
            first, start, size, parts, at = SECTIONS[i]
    column = (tl.program_id(0) - first) * BLOCK + tl.arange(0, BLOCK)
    row = tl.arange(0, PARTS)
    sums = tl.zeros((PARTS, BLOCK), tl.float32)
    for i in range(0, parts, PARTS):
        mask = (i + row < parts)[:, None] & (column < size)[None, :]
        offset = (i + row)[:, None] * size + column[None, :]
        sums += tl.load(partial + start + offset, mask=mask, other=0.0)
    tl.store(gradient + at + column, tl.sum(sums, 0), mask=column < size)
