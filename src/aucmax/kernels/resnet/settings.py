"""How the kernels of a convolution divide their work, by kernel, input channels and stride."""

from __future__ import annotations

from typing import NamedTuple


class Setting(NamedTuple):
    """Sizes of one kernel."""

    block: int  # rows of pixels multiplied at a time; numbers made or summed at a time
    k: int  # numbers of the window per product, a multiple of the channels; parts summed at a time
    warps: int  # of a program
    programs: int  # at most so many share the pixels; a power of two
    stages: int = 1  # of the innermost loop; above one, copies run ahead through shared memory
    pixels: int = 1  # side by side in such a row; they must divide an image's width


SETTINGS: dict[tuple[str, int, int], Setting] = {
    ("stem", 3, 1): Setting(128, 32, 4, 512),
    ("forward", 16, 1): Setting(128, 64, 4, 256, 3, 2),
    ("forward", 16, 2): Setting(128, 64, 4, 256, 3),
    ("forward", 32, 1): Setting(128, 32, 4, 256, 4),
    ("forward", 32, 2): Setting(64, 64, 4, 128, 3),
    ("forward", 64, 1): Setting(64, 64, 4, 128, 3),
    ("data", 16, 1): Setting(64, 64, 4, 512, 1, 2),
    ("data", 16, 2): Setting(128, 64, 4, 256, 3),
    ("data", 32, 1): Setting(128, 32, 4, 256, 4),
    ("data", 32, 2): Setting(64, 64, 4, 128, 3),
    ("data", 64, 1): Setting(64, 64, 4, 128, 3),
    ("weight", 3, 1): Setting(128, 32, 4, 264),
    ("weight", 16, 1): Setting(64, 64, 2, 128, 2),
    ("weight", 16, 2): Setting(64, 64, 2, 256, 2),
    ("weight", 32, 1): Setting(128, 128, 4, 32, 2),
    ("weight", 32, 2): Setting(64, 64, 4, 64, 3),
    ("weight", 64, 1): Setting(64, 64, 4, 8, 3),
    ("elementwise", 1, 1): Setting(2048, 0, 4, 0),
    ("pool", 1, 1): Setting(64, 64, 4, 128),
    ("sum", 1, 1): Setting(64, 64, 4, 0),
}
"""For a batch of 128 images of 32 x 32 on an H200; change an entry to try another."""


def programs(setting: Setting, rows: int) -> int:
    """As many programs as share the pixels evenly, at most the setting's."""
    tiles = -(-rows // setting.block)
    each = -(-tiles // setting.programs)
    return -(-tiles // each)
