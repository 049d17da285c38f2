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

from aucmax import PairwiseAUCLoss
from aucmax.kernels import pairs as tiles
from aucmax.loss import _pairs_gpu
from aucmax.loss.pairs import Surrogate, pair_sums_of_arrays
from aucmax.loss.surrogates import SURROGATES

try:
    import _libauc
except ImportError:
    _libauc = None  # type: ignore[assignment]

BCE = "BCEWithLogitsLoss"
IN_A_GRAPH = 5
SIZES = (128, 1024, 4096, 8192, 16_384, 32_768, 65_536)
SHAPES = [
    tiles.Shape(*x)
    for x in (
        (8, 128, 4), (8, 256, 4), (16, 32, 1), (16, 64, 2), (16, 128, 4), (16, 256, 4),
        (16, 256, 8), (32, 32, 1), (32, 64, 4), (32, 128, 4), (32, 128, 8), (32, 256, 8),
        (64, 128, 8),
    )
]  # fmt: skip


def losses(device: Device) -> Iterator[tuple[str, Any]]:
    """Forward and backward over BCEWithLogitsLoss, and the memory that they take."""
    peaks: dict[str, dict[str, float]] = {}
    for n in (128, 1024, 8192, 65_536):
        size = device.size(n, 40)
        scores, target = batch(size, device.device)
        made: dict[str, nn.Module] = {BCE: nn.BCEWithLogitsLoss()}
        made |= {f"PairwiseAUCLoss, {name}": PairwiseAUCLoss(name) for name in SURROGATES}
        made["PairwiseAUCLoss, memory 4,096"] = PairwiseAUCLoss(memory=4096)
        made["PairwiseAUCLoss, max_fpr 0.1"] = PairwiseAUCLoss(max_fpr=0.1)
        works = {
            name: forward_backward(loss.to(device.device), scores, target)
            for name, loss in made.items()
        }
        title = f"N = {n:,}"
        yield f"{title}, captured", device.compare(title, works, BCE, captured=IN_A_GRAPH)
        if _libauc is not None:
            theirs = {
                "LibAUC, logistic": _libauc.pairwise("logistic"),
                "LibAUC, square": _libauc.pairwise("squared"),
                "LibAUC, squared_hinge": _libauc.pairwise("squared_hinge"),
                "LibAUC, partial": _libauc.Partial(size, device.device),
            }
            works |= {x: forward_backward(loss, scores, target) for x, loss in theirs.items()}
        yield f"{title}, eager", device.compare(f"{title}, eager", works, BCE)
        if device.is_cuda:
            for name, work in works.items():
                used = device.attempt(f"{title}, memory: {name}", lambda w=work: peak(w))
                if used is not None:
                    peaks.setdefault(name, {})[title] = used / size
    yield "bytes per row", peaks


def peak(work: Work) -> float:
    """Bytes that it takes at most, beside what is there before."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    work()
    torch.cuda.synchronize()
    return float(torch.cuda.max_memory_allocated() - before)


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
                table[name] = {
                    "seconds": table[name]["seconds"],
                    "1e-6": 1e6 * distance(given, surrogate),
                }
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


def alone(device: Device) -> Iterator[tuple[str, Table]]:
    """A loss of few rows in one launch, over the same in several programs."""
    for n in (128, 256, 512, 1024, 2048, 4096, 8192):
        scores, target = batch(device.size(n, 40), device.device)
        scores = scores.detach()

        def mean(scores: Tensor = scores, target: Tensor = target) -> object:
            return tiles.pair_mean(scores, target, None, None, ("squared_hinge", 1.0, 1.0, 0.7))

        works: dict[str, Work] = {"16, 128, 4": cut(mean, tiles.Shape(16, 128, 4))}
        for others, warps in ((16, 8), (32, 4), (32, 8), (32, 16), (64, 8), (64, 16), (128, 16)):
            if n <= 256:
                works[f"alone, {others}, {warps}"] = cut(mean, tiles.Shape(n, others, warps))
        for shape in ((8, 128, 4), (16, 64, 2), (16, 64, 4), (16, 256, 8), (32, 128, 8)):
            works[", ".join(map(str, shape))] = cut(mean, tiles.Shape(*shape))
        title = f"N = {n:,}"
        yield title, device.compare(title, works, "16, 128, 4", captured=10)


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
