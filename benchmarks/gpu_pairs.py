"""Sums over pairs on a GPU: by tiles and by one sort, and how the tiles are cut."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from _device import Device, Table
from _timing import Work
from _workloads import batch, forward_backward
from torch import Tensor, nn

from aucmax.kernels import pairs as tiles
from aucmax.loss import _pairs_gpu
from aucmax.loss.pairs import Surrogate, pair_sums_of_arrays
from aucmax.loss.surrogates import SURROGATES

IN_A_GRAPH = 5
SIZES = (128, 512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536)
SHAPES = [
    tiles.Shape(*x)
    for x in (
        (32, 32, 4), (32, 64, 2), (32, 64, 4), (32, 128, 4), (64, 16, 2), (64, 32, 4), (64, 64, 4),
        (128, 16, 4), (128, 32, 4), (128, 64, 4), (256, 16, 4), (256, 16, 8), (256, 32, 8),
    )
]  # fmt: skip


def bounds(device: Device) -> Iterator[tuple[str, Any]]:
    """The squared hinge by tiles over the same by a sort; every surrogate as it is chosen."""
    for n, groups in itertools.product(SIZES, (1, 64)):
        given = rows(device.size(n, 40), device, groups)
        works = {
            "sort": engine(given, Surrogate("squared_hinge"), 0),
            "tiles": engine(given, Surrogate("squared_hinge"), 1 << 30),
        }
        title = f"N = {n:,}, {groups} groups"
        table = device.compare(title, works, "sort", captured=IN_A_GRAPH)
        for name in SURROGATES:
            surrogate = Surrogate(name, 0.3, 1.5, 0.4)
            work = {name: engine(given, surrogate)}
            table |= device.compare(f"{title}, {name}", work, name, captured=IN_A_GRAPH)
            if n <= 16_384:
                table[name]["ratio"] = distance(given, surrogate)
        yield title, table


def shapes(device: Device) -> Iterator[tuple[str, Any]]:
    """Tiles of every shape, over those that are chosen."""
    for n, name in itertools.product((1024, 8192, 65_536), ("squared_hinge", "logistic")):
        given = rows(device.size(n, 40), device)
        surrogate, chosen = Surrogate(name), tiles.shape(n)
        works: dict[str, Work] = {str(tuple(chosen)): engine(given, surrogate, 1 << 30)}
        for x in SHAPES:
            works[str(tuple(x))] = cut(engine(given, surrogate, 1 << 30), x)
        table = device.compare(
            f"{name}, N = {n:,}", works, str(tuple(chosen)), captured=IN_A_GRAPH, rounds=3
        )
        best = sorted(table, key=lambda x: table[x]["seconds"])[:6]
        yield f"{name}, N = {n:,}", {x: table[x] for x in {*best, str(tuple(chosen))}}


class _Mean(nn.Module):
    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        options = ("squared_hinge", 1.0, 1.0, 0.7)
        value: Tensor = _pairs_gpu.PairMean.apply(scores, target, None, None, options)
        return value


def alone(device: Device) -> Iterator[tuple[str, Table]]:
    """A loss of few rows in one launch, over the same in several programs."""
    for n in (64, 128, 256, 512, 1024, 2048, 4096):
        scores, target = batch(device.size(n, 40), device.device)
        scores = scores.detach()

        def mean(scores: Tensor = scores, target: Tensor = target) -> object:
            return tiles.pair_mean(scores, target, None, None, ("squared_hinge", 1.0, 1.0, 0.7))

        works: dict[str, Work] = {"32, 64, 4": cut(mean, tiles.Shape(32, 64, 4))}
        for others, warps in itertools.product((16, 64), (4, 8, 16)):
            if 64 < n <= 512:
                shape = tiles.Shape(n, others, warps)
                works[f"alone, {others}, {warps}"] = cut(mean, shape)
        for shape in (tiles.Shape(16, 128, 4), tiles.Shape(32, 128, 8), tiles.Shape(64, 32, 4)):
            works[", ".join(map(str, shape))] = cut(mean, shape)
        inputs = batch(device.size(n, 40), device.device)
        works["BCEWithLogitsLoss"] = forward_backward(nn.BCEWithLogitsLoss(), *inputs)
        works["as chosen, with backward"] = forward_backward(_Mean(), *inputs)
        title = f"N = {n:,}"
        yield title, device.compare(title, works, "32, 64, 4", captured=10)


def rows(n: int, device: Device, groups: int = 1) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Scores, weights as positives and as negatives, groups."""
    scores, target = batch(n, device.device)
    group = None if groups == 1 else torch.arange(n, device=device.device) * 7919 % groups
    return scores.detach()[None], target[None], 1.0 - target[None], group


def engine(given: Any, surrogate: Surrogate, most: int | None = None) -> Work:
    """The sums, by tiles up to so many rows."""

    def run() -> object:
        chosen = _pairs_gpu.TILES if most is None else most
        with mock.patch.object(_pairs_gpu, "TILES", chosen):
            return _pairs_gpu.pair_sums(*given, surrogate)

    return run


def cut(work: Work, shape: tiles.Shape) -> Work:
    """With tiles of a shape."""

    def run() -> object:
        with mock.patch.object(tiles, "shape", return_value=shape):
            return work()

    return run


def distance(given: Any, surrogate: Surrogate) -> float:
    """The largest from what the CPU has in double precision, relative to each one's largest."""
    found = _pairs_gpu.pair_sums(*given, surrogate)
    arrays = (None if x is None else x.cpu().numpy() for x in given)
    s, p, n, group = arrays
    wanted = pair_sums_of_arrays(*(x.astype("float64") for x in (s, p, n)), group, surrogate)  # type: ignore[union-attr]
    gaps = []
    for x, y in zip(found, wanted[:3], strict=True):
        expected = torch.from_numpy(y)
        gaps.append(((x.cpu().double() - expected).abs().max() / expected.abs().max()).item())
    return max(gaps)
