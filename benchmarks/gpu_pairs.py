"""Losses over pairs on a GPU, and their sums by tiles and by one sort."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from _device import Device, Table
from _timing import Work
from _workloads import batch, forward_backward
from torch import nn

from aucmax import PairwiseAUCLoss, PartialAUCLoss
from aucmax.loss import _pairs_gpu
from aucmax.loss.surrogates import SURROGATES, Surrogate

try:
    import _libauc
except ImportError:
    _libauc = None  # type: ignore[assignment]

BCE = "BCEWithLogitsLoss"
IN_A_GRAPH = 5


def losses(device: Device) -> Iterator[tuple[str, Any]]:
    """Forward and backward over BCEWithLogitsLoss, and the memory that they take."""
    peaks: dict[str, dict[str, float]] = {}
    for n in (128, 1024, 8192, 65_536):
        size = device.size(n, 40)
        scores, target = batch(size, device.device)
        made: dict[str, nn.Module] = {BCE: nn.BCEWithLogitsLoss()}
        made |= {f"PairwiseAUCLoss, {name}": PairwiseAUCLoss(name) for name in SURROGATES}
        made["PairwiseAUCLoss, memory 4,096"] = PairwiseAUCLoss(memory=4096)
        made["PairwiseAUCLoss, partial"] = PairwiseAUCLoss(max_fpr=0.1)
        made["PartialAUCLoss"] = PartialAUCLoss(max_fpr=0.1)
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


def bounds(device: Device) -> Iterator[tuple[str, Table]]:
    """The squared hinge's sums by tiles over the same by a sort: where one takes over."""
    for n, groups in itertools.product((128, 1024, 4096, 8192, 16_384, 65_536), (1, 64)):
        scores, target = batch(device.size(n, 40), device.device)
        group = None if groups == 1 else torch.arange(len(target), device=device.device) % groups
        given = scores.detach()[None], target[None], 1.0 - target[None], group
        works: dict[str, Work] = {"sort": sums(given, 0), "tiles": sums(given, n * n)}
        title = f"N = {n:,}, groups: {groups}"
        yield title, device.compare(title, works, "sort", captured=IN_A_GRAPH)


def sums(given: tuple[Any, ...], most: int) -> Work:
    """By tiles up to so many pairs."""

    def run() -> None:
        with mock.patch.object(_pairs_gpu, "PAIRS", most):
            _pairs_gpu.pair_sums(*given, Surrogate())

    return run
