"""Gradients through batch norm and convolution: of the data, the weights and the norms."""

from __future__ import annotations

import triton
import triton.language as tl

from experiments.resnet20.forward import image_window
from experiments.resnet20.parts import (
    gathered,
    inside_border,
    is_last,
    place,
    store_partial,
    two_totals,
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
def input_gradient_kernel(
    d, z, coefficients, dz, pixels, H: tl.constexpr, W: tl.constexpr, C: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """A batch norm's gradient at its input ``z``, from ``d`` at its output; ``dz`` has a border."""
    p, c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, C)
    inside, pixel = inside_border(p, pixels, H, W)
    inside, at = inside[:, None], pixel[:, None] * C + c[None, :]
    here_d = tl.load(d + at, mask=inside, other=0.0)
    here_z = tl.load(z + at, mask=inside, other=0.0)
    gradient = tl.where(inside, input_gradient(here_d, here_z, coefficients, c, C), 0.0)
    at = p[:, None] * C + c[None, :]
    tl.store(dz + at, gradient.to(dz.dtype.element_ty), mask=(p < pixels)[:, None])


@triton.jit
def transposed_weights(
    weight, k, n, C_IN: tl.constexpr, C_OUT: tl.constexpr, STRIDE: tl.constexpr,
    ACROSS: tl.constexpr,
):  # fmt: skip
    """Those from the numbers k = (row, column, channel) of a window of gradients to the inputs n.

    With stride 1, n = (pixel, channel) of pixels side by side, and the window is turned around.
    With stride 2 a pixel lies over 2 x 2 of the input, n = (row, column, channel), each of which
    sees one, two or four of the 2 x 2 gradients.
    """
    row, column = (k // (ACROSS * C_OUT))[:, None], (k // C_OUT % ACROSS)[:, None]
    if STRIDE == 1:
        dy = 2 - row
        dx = (n // C_IN + 2)[None, :] - column
        exists = (row < 3) & (dx >= 0) & (dx < 3)
    else:
        dy = (n // (2 * C_IN) + 1)[None, :] - row * 2
        dx = (n // C_IN % 2 + 1)[None, :] - column * 2
        exists = (row < 2) & (dy >= 0) & (dx >= 0)
    at = weight + ((k % C_OUT)[:, None] * 9 + dy * 3 + dx) * C_IN + (n % C_IN)[None, :]
    return tl.load(at, mask=exists, other=0.0)


@triton.jit
def data_gradient_kernel(
    dz, weight, projection_dz, projection_weight, skip, activations, before_z, before, beside_z,
    beside, d_before, partial, counter, rows, H: tl.constexpr, W: tl.constexpr, C_IN: tl.constexpr,
    C_OUT: tl.constexpr, STRIDE: tl.constexpr, PIXELS: tl.constexpr, BLOCK: tl.constexpr,
    K: tl.constexpr, STAGES: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """From the gradient at a convolution's output to the one after the batch norm before it.

    ``dz`` is of H x W pixels and has a border. Through the transposed convolution (and that of the
    block's projection, from ``projection_dz``), plus ``skip``, and through the ReLU before, which
    was positive where the ``activations`` are, it becomes ``d_before``, the gradient at the output
    of the norm of ``before_z``; ``before`` takes what follows from its sums, ``beside`` the same
    for a projection that met it in a join. A row of the product is PIXELS side by side, or with
    stride 2 the 2 x 2 of the input under one.
    """
    DOWN: tl.constexpr = 3 if STRIDE == 1 else 2
    ACROSS: tl.constexpr = PIXELS + 2 if STRIDE == 1 else 2
    N: tl.constexpr = C_IN * PIXELS * STRIDE * STRIDE
    k, n, o = tl.arange(0, K), tl.arange(0, N), tl.arange(0, C_OUT)
    mean = tl.load(before.stats + n % C_IN)[None, :]
    d_sums, dz_sums = tl.zeros((N,), tl.float32), tl.zeros((N,), tl.float32)
    beside_sums = d_sums

    for tile in range(tl.program_id(0), tl.cdiv(rows, BLOCK), tl.num_programs(0)):
        p = tile * BLOCK + tl.arange(0, BLOCK)
        inside = (p < rows)[:, None]
        p = tl.minimum(p, rows - 1)
        source = place(p, H, W // PIXELS, 1, PIXELS, 1)[:, None] * C_OUT
        product = tl.zeros((BLOCK, N), tl.float32)
        for first in tl.range(0, DOWN * ACROSS * C_OUT, K, num_stages=STAGES):
            j = first + k
            at = dz + source + window(j, C_OUT, ACROSS, W + 2, STRIDE == 1)[None, :]
            a = tl.load(at, mask=(j < DOWN * ACROSS * C_OUT)[None, :], other=0.0)
            w = transposed_weights(weight, j, n, C_IN, C_OUT, STRIDE, ACROSS)
            product = tl.dot(a, w, product)
        if projection_weight is not None:
            w_at = projection_weight + o[:, None] * C_IN + n[None, :]
            w = tl.load(w_at, mask=(n < C_IN)[None, :], other=0.0)
            product = tl.dot(tl.load(projection_dz + source + o[None, :]), w, product)

        RIGHT: tl.constexpr = PIXELS * STRIDE
        pixel = place(p, H, W // PIXELS, STRIDE, RIGHT, 1)[:, None] * C_IN
        at = pixel + window(n, C_IN, RIGHT, W * STRIDE + 2)[None, :]
        alive = tl.load(activations + at).to(tl.float32) > 0
        pixel = place(p, H, W // PIXELS, STRIDE, RIGHT, 0)[:, None] * C_IN
        at = pixel + window(n, C_IN, RIGHT, W * STRIDE)[None, :]
        if skip is not None:
            product += tl.load(skip + at).to(tl.float32)
        x = tl.load(before_z + at).to(tl.float32)
        rounded = tl.where(alive & inside, product, 0.0).to(d_before.dtype.element_ty)
        tl.store(d_before + at, rounded, mask=inside)
        gradient = rounded.to(tl.float32)
        d_sums += tl.sum(gradient, 0)
        dz_sums += tl.sum(gradient * (x - mean), 0)
        if beside_z is not None:
            x = tl.load(beside_z + at).to(tl.float32)
            x -= tl.load(beside.stats + n % C_IN)[None, :]
            beside_sums += tl.sum(gradient * x, 0)

    store_partial(partial, d_sums, 0, N, C_IN)
    store_partial(partial, dz_sums, 1, N, C_IN)
    if beside_z is not None:
        store_partial(partial, beside_sums, 2, N, C_IN)
    if is_last(counter):
        count = (rows * (PIXELS * STRIDE * STRIDE)).to(tl.float32)
        d_total, dz_total = two_totals(partial, 0, C_IN, ROWS)
        write_coefficients(d_total, dz_total, count, before, C_IN)
        if beside_z is not None:
            dz_total = tl.sum(gathered(partial, 2, C_IN, ROWS), 0)
            write_coefficients(d_total, dz_total, count, beside, C_IN)


@triton.jit
def pool_gradient_kernel(
    gradient, z, activations, norm, d, partial, counter, rows, H: tl.constexpr, W: tl.constexpr,
    C: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """From the gradient of the pooled features to the one at the last norm's output."""
    c = tl.arange(0, C)
    mean = tl.load(norm.stats + c)[None, :]
    d_sums, dz_sums = tl.zeros((C,), tl.float32), tl.zeros((C,), tl.float32)
    for tile in range(tl.program_id(0), tl.cdiv(rows, BLOCK), tl.num_programs(0)):
        p = tile * BLOCK + tl.arange(0, BLOCK)
        inside = (p < rows)[:, None]
        at = p[:, None] * C + c[None, :]
        x = tl.load(z + at, mask=inside, other=0.0)
        a = tl.load(
            activations + place(p, H, W, 1, 1, 1)[:, None] * C + c[None, :], mask=inside, other=0.0
        )
        g = tl.load(gradient + (p // (H * W))[:, None] * C + c[None, :], mask=inside, other=0.0)
        rounded = tl.where(a > 0, g / (H * W), 0.0).to(d.dtype.element_ty)
        tl.store(d + at, rounded, mask=inside)
        d_sums += tl.sum(rounded.to(tl.float32), 0)
        dz_sums += tl.sum(rounded.to(tl.float32) * (x.to(tl.float32) - mean), 0)
    store_partial(partial, d_sums, 0, C, C)
    store_partial(partial, dz_sums, 1, C, C)
    if is_last(counter):
        d_sums, dz_sums = two_totals(partial, 0, C, ROWS)
        write_coefficients(d_sums, dz_sums, rows.to(tl.float32), norm, C)


@triton.jit
def weight_gradient_kernel(
    activations, dz, partial, rows, H: tl.constexpr, W: tl.constexpr, C_IN: tl.constexpr,
    C_OUT: tl.constexpr, STRIDE: tl.constexpr, SIDE: tl.constexpr, BLOCK: tl.constexpr,
    K: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """A part of the weight gradients of several layers of one shape, kept one after the other.

    The grid is parts of the pixels x parts of the window x layers; ``partial`` is (parts of the
    pixels, layers, C_OUT, taps, C_IN). The ``activations`` taken in and ``dz`` have borders;
    windows are of SIDE x SIDE taps.
    """
    part, layer = tl.program_id(0), tl.program_id(2)
    k, n = tl.program_id(1) * K + tl.arange(0, K), tl.arange(0, C_OUT)
    images = rows // (H * W)
    activations += layer * images * ((H * STRIDE + 2) * (W * STRIDE + 2) * C_IN)
    dz += layer * images * ((H + 2) * (W + 2) * C_OUT)
    step, exists = (
        window(k, C_IN, SIDE, W * STRIDE + 2, SIDE == 3)[None, :],
        (k < SIDE * SIDE * C_IN)[None, :],
    )
    product = tl.zeros((C_OUT, K), tl.float32)
    for tile in tl.range(part, tl.cdiv(rows, BLOCK), tl.num_programs(0), num_stages=STAGES):
        p = tile * BLOCK + tl.arange(0, BLOCK)
        inside = (p < rows)[:, None]
        p = tl.minimum(p, rows - 1)
        a = tl.load(
            activations + place(p, H, W, STRIDE, STRIDE, 1)[:, None] * C_IN + step,
            mask=exists,
            other=0.0,
        )
        at = place(p, H, W, 1, 1, 1)[:, None] * C_OUT + n[None, :]
        gradient = tl.load(dz + at, mask=inside, other=0.0)
        product = tl.dot(tl.trans(gradient), a, product)
    at = ((part * tl.num_programs(2) + layer) * C_OUT + n)[:, None] * (SIDE * SIDE * C_IN)
    tl.store(partial + at + k[None, :], product, mask=exists)


@triton.jit
def stem_weight_gradient_kernel(
    images, mean, scale, stride_n, stride_c, stride_y, stride_x, mean_stride, scale_stride, d, z,
    coefficients, partial, rows, H: tl.constexpr, W: tl.constexpr, C_IN: tl.constexpr,
    C_OUT: tl.constexpr, BLOCK: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """A part of the first layer's weight gradient; ``partial`` is (parts, C_OUT, taps, C_IN)."""
    k, n = tl.arange(0, K), tl.arange(0, C_OUT)
    product = tl.zeros((C_OUT, K), tl.float32)
    for tile in range(tl.program_id(0), tl.cdiv(rows, BLOCK), tl.num_programs(0)):
        p = tile * BLOCK + tl.arange(0, BLOCK)
        a = image_window(
            images, mean, scale, p, k, rows, stride_n, stride_c, stride_y, stride_x, mean_stride,
            scale_stride, H, W, C_IN,
        )  # fmt: skip
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
