"""Do bad inputs have the same outcome on a CPU and on an accelerator?

    python benchmarks/bad_inputs.py [--device cuda]

Every line is a loss and a fault: the error, or the value where there is none. On an accelerator
the fault comes in the third batch, where no step waits, and ``loss.check()`` raises.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

import aucmax
from aucmax.loss import CrossEntropy

N = 8
SCORES, LABELS = torch.linspace(-1, 1, N), torch.arange(N) % 2
CLASSES, GROUP, WEIGHT = torch.arange(N) % 3, torch.arange(N) % 2, torch.ones(N)

Batch = tuple[Tensor, Tensor, Tensor | None, dict[str, Tensor]]
LOSSES: dict[str, tuple[Callable[[], Any], Batch]] = {
    "AUCLoss": (lambda: aucmax.AUCLoss(0.5), (SCORES, LABELS, WEIGHT, {})),
    "AUCLoss, prior unknown": (aucmax.AUCLoss, (SCORES, LABELS, WEIGHT, {})),
    "PartialAUCLoss": (lambda: aucmax.PartialAUCLoss(prior=0.5), (SCORES, LABELS, WEIGHT, {})),
    "MulticlassAUCLoss": (
        lambda: aucmax.MulticlassAUCLoss([0.4, 0.3, 0.3]),
        (SCORES[:, None].repeat(1, 3), CLASSES, WEIGHT, {}),
    ),
    "MultilabelAUCLoss": (
        lambda: aucmax.MultilabelAUCLoss([0.5, 0.5]),
        (SCORES[:, None].repeat(1, 2), LABELS[:, None].repeat(1, 2).float(), WEIGHT, {}),
    ),
    "GroupedAUCLoss": (
        lambda: aucmax.GroupedAUCLoss([2.0, 2.0], [2.0, 2.0]),
        (SCORES, CLASSES % 2, WEIGHT, {"group": GROUP}),
    ),
    "PairwiseAUCLoss": (aucmax.PairwiseAUCLoss, (SCORES, LABELS, WEIGHT, {})),
    "AveragePrecisionLoss": (aucmax.AveragePrecisionLoss, (SCORES, LABELS, WEIGHT, {})),
    "CrossEntropy": (CrossEntropy, (SCORES, LABELS, WEIGHT, {})),
    "AUCLoss + CrossEntropy": (
        lambda: aucmax.AUCLoss(0.5) + CrossEntropy(),
        (SCORES, LABELS, WEIGHT, {}),
    ),
}


def entry(x: Tensor, value: float) -> Tensor:
    """Return ``x`` with its first entry changed."""
    x = x.clone() if math.isfinite(value) and not isinstance(value, bool) else x.float()
    x = x.clone()
    x.view(-1)[0] = value
    return x


def faults(batch: Batch) -> Iterator[tuple[str, Batch]]:
    """Yield bad batches and what is wrong with them."""
    scores, target, weight, more = batch
    assert weight is not None
    for value in (math.nan, math.inf):
        yield f"a score of {value}", (entry(scores, value), target, weight, more)
    for value in (-1, 3):
        yield f"a label of {value}", (scores, entry(target, value), weight, more)
    if target.is_floating_point():
        yield "an infinite label", (scores, entry(target, math.inf), weight, more)
    for value in (-1.0, math.nan, math.inf):
        yield f"a weight of {value}", (scores, target, entry(weight, value), more)
    yield "weights all zero", (scores, target, 0 * weight, more)
    yield "weights of other rows", (scores, target, weight[:1], more)
    yield "a target of other rows", (scores, target[:3], weight, more)
    yield "no rows", (scores[:0], target[:0], weight[:0], more)
    yield "one class", (scores, torch.ones_like(target), weight, more)
    if more:
        yield "a group beyond", (scores, target, weight, {"group": GROUP + 1})


def outcome(make: Callable[[], Any], good: Batch, bad: Batch, device: torch.device) -> str:
    """Return the error's kind and the argument it names, or that there is none."""
    loss = make().to(device)

    def call(batch: Batch) -> float:
        scores, target, weight, more = batch
        moved = (None if x is None else x.to(device) for x in (scores, target, weight))
        value: Tensor = loss(*moved, **{name: x.to(device) for name, x in more.items()})
        return value.item()

    try:
        call(good)
        call(good)
        value = call(bad)
        loss.check()
    except ValueError as error:
        return f"{type(error).__name__}: {str(error).split(',')[0]}"
    return f"no error, {'finite' if math.isfinite(value) else 'not finite'}"


def main() -> None:
    """Print the outcome of every fault; with a device, those that differ from the CPU's."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(parser.parse_args().device)
    differ = 0
    for name, (make, good) in LOSSES.items():
        for fault, bad in faults(good):
            places = [torch.device("cpu")] + [device] * (device.type != "cpu")
            found = [outcome(make, good, bad, place) for place in places]
            alike = len(set(found)) == 1
            differ += not alike
            print(f"{'' if alike else 'DIFFERS '}{name}, {fault}: {' | '.join(found)}")
    print(f"{differ} differ")


if __name__ == "__main__":
    main()
