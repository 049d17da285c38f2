"""What the kernels of a convolution and its batch norm share: windows, sums, statistics.

Activations are matrices of pixels x channels in bfloat16: images, rows and columns of NHWC, one
after the other. What a 3 x 3 convolution reads, its input or in the backward pass the gradient at
its output, has a border of zeros around each image, one pixel wide: the window of a pixel is then
three runs of numbers at the same distances everywhere, without tests at the edges. A batch norm's
``stats`` hold four rows of float32: mean, 1 / deviation, scale and shift, so that its output is
``scale * z + shift``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl


class Norm(NamedTuple):
    """The tensors of one ``nn.BatchNorm2d``, and where the batch's ``stats`` go."""

    gamma: Any
    beta: Any
    running_mean: Any
    running_var: Any
    tracked: Any
    stats: Any
    momentum: float
    eps: float


class NormGradient(NamedTuple):
    """Where the gradients of a batch norm go, and the coefficients of its input's.

    With d at its output, dz = A d + B z + C for each channel: ``coefficients`` are A, B and C.
    """

    gamma: Any
    stats: Any
    d_gamma: Any
    d_beta: Any
    coefficients: Any


@triton.jit
def place(
    p, H: tl.constexpr, W: tl.constexpr, DOWN: tl.constexpr, RIGHT: tl.constexpr,
    BORDER: tl.constexpr,
):  # fmt: skip
    """Where the places p of grids of H x W lie, DOWN and RIGHT pixels apart, in their images.

    The images are as large as that makes them, and have a border of so many pixels.
    """
    if DOWN == 1 and BORDER == 0:
        return p * RIGHT
    y, x = p // W % H * DOWN + BORDER, p % W * RIGHT + BORDER
    return (p // (H * W) * (H * DOWN + 2 * BORDER) + y) * (W * RIGHT + 2 * BORDER) + x


@triton.jit
def window(
    k, C: tl.constexpr, ACROSS: tl.constexpr, WIDTH: tl.constexpr, AROUND: tl.constexpr = False
):
    """The way from a pixel to the numbers k = (row, column, channel) of a window.

    The window has ACROSS columns. It begins with the pixel, or if it is AROUND it one row above
    and one column before it, in images with rows of WIDTH pixels; their border makes it exist.
    """
    FIRST: tl.constexpr = -(WIDTH + 1) * C if AROUND else 0
    step = k // (ACROSS * C) * (WIDTH * C) + k % (ACROSS * C) + FIRST
    return tl.max_contiguous(tl.multiple_of(step, 8), 8)


@triton.jit
def inside_border(p, pixels, H: tl.constexpr, W: tl.constexpr):
    """Which of the pixels p of images with a border are not of it, and which they are without it.

    H and W are those of the images without it.
    """
    y, x = p // (W + 2) % (H + 2) - 1, p % (W + 2) - 1
    inside = (p < pixels) & (y >= 0) & (y < H) & (x >= 0) & (x < W)
    return inside, (p // ((H + 2) * (W + 2)) * H + y) * W + x


@triton.jit
def scale_and_shift(stats, channel, C: tl.constexpr):
    """The two numbers of each channel that normalize it."""
    return tl.load(stats + 2 * C + channel), tl.load(stats + 3 * C + channel)


@triton.jit
def is_last(counter):
    """Whether this program is the last of the grid to come here; the counter is then 0 again.

    What the others stored before they came is visible to it.
    """
    tl.debug_barrier()
    last = tl.atomic_add(counter, 1, sem="acq_rel") == tl.num_programs(0) - 1
    if last:
        tl.store(counter, 0)
    return last


@triton.jit
def store_partial(partial, sums, which: tl.constexpr, N: tl.constexpr, C: tl.constexpr):
    """Put this program's sums beside those of the others; N columns fold into C channels."""
    row = which * tl.num_programs(0) + tl.program_id(0)
    tl.store(partial + row * C + tl.arange(0, C), tl.sum(tl.reshape(sums, (N // C, C)), 0))


@triton.jit
def gathered(partial, which: tl.constexpr, C: tl.constexpr, ROWS: tl.constexpr):
    """What all programs stored, to be summed over the first axis, in an order that never changes.

    ROWS is a power of two, and at least the programs.
    """
    CHUNK: tl.constexpr = ROWS if ROWS * C <= 1024 else 1024 // C
    r = tl.arange(0, CHUNK)[:, None]
    at = partial + (which * tl.num_programs(0) + r) * C + tl.arange(0, C)[None, :]
    sums = tl.zeros((CHUNK, C), tl.float32)
    for i in tl.static_range(ROWS // CHUNK):
        mask = i * CHUNK + r < tl.num_programs(0)
        sums += tl.load(at + i * CHUNK * C, mask=mask, other=0.0, cache_modifier=".cg")
    return sums


@triton.jit
def two_totals(partial, which: tl.constexpr, C: tl.constexpr, ROWS: tl.constexpr):
    """One kind of sums of all programs and the next; both are on their way at the same time."""
    one, next_one = gathered(partial, which, C, ROWS), gathered(partial, which + 1, C, ROWS)
    return tl.sum(one, 0), tl.sum(next_one, 0)


@triton.jit
def write_stats(sums, squares, count, norm, C: tl.constexpr):
    """End the statistics of a batch as ``nn.BatchNorm2d`` does, its running ones too."""
    c = tl.arange(0, C)
    count = count.to(tl.float32)
    mean = sums / count
    var = tl.maximum(squares / count - mean * mean, 0.0)
    rstd = 1 / tl.sqrt(var + norm.eps)
    scale = tl.load(norm.gamma + c) * rstd
    tl.store(norm.stats + c, mean)
    tl.store(norm.stats + C + c, rstd)
    tl.store(norm.stats + 2 * C + c, scale)
    tl.store(norm.stats + 3 * C + c, tl.load(norm.beta + c) - mean * scale)
    old_mean, old_var = tl.load(norm.running_mean + c), tl.load(norm.running_var + c)
    unbiased = var * (count / (count - 1))
    tl.store(norm.running_mean + c, old_mean + norm.momentum * (mean - old_mean))
    tl.store(norm.running_var + c, old_var + norm.momentum * (unbiased - old_var))
    tl.store(norm.tracked, tl.load(norm.tracked) + 1)


@triton.jit
def write_coefficients(d_sum, dz_sum, count, norm, C: tl.constexpr):
    r"""The gradients of gamma and beta, and the coefficients of the input's.

    With sums over the batch of d and of d (z - mean), and xhat = (z - mean) / deviation,

        dz = gamma / deviation (d - mean(d) - xhat mean(d xhat)).
    """
    c = tl.arange(0, C)
    mean, rstd = tl.load(norm.stats + c), tl.load(norm.stats + C + c)
    d_gamma = dz_sum * rstd
    a = tl.load(norm.gamma + c) * rstd
    b = -a * rstd * d_gamma / count
    tl.store(norm.d_gamma + c, d_gamma)
    tl.store(norm.d_beta + c, d_sum)
    tl.store(norm.coefficients + c, a)
    tl.store(norm.coefficients + C + c, b)
    tl.store(norm.coefficients + 2 * C + c, -a * d_sum / count - b * mean)
