"""How many of our own functions run in one loss with its backward, and in one optimizer step?

    python benchmarks/calls.py

Comprehensions and generator expressions are not counted, nor torch's own functions. A small number
says that a reader can follow a call; it says nothing of time.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import torch

import aucmax

SOURCE = str(Path(aucmax.__file__).parent)
INNER = ("<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>")


def calls_of(work: Callable[[], object]) -> Counter[tuple[str, str]]:
    """Return how often each of our functions is called by ``work``, by file and name."""
    found: Counter[tuple[str, str]] = Counter()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(SOURCE) and code.co_name not in INNER:
            found[code.co_filename.removeprefix(SOURCE + "/"), code.co_qualname] += 1

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return found


def report(title: str, found: Counter[tuple[str, str]]) -> None:
    """Print the calls, those of each file together."""
    files = sorted({file for file, _ in found})
    print(f"{title}: {found.total()} calls in {len(files)} files")
    for (file, name), count in sorted(found.items()):
        print(f"    {file}: {name}" + (f" x {count}" if count > 1 else ""))


def main() -> None:
    """Count after the first call, which sets things up."""
    torch.manual_seed(0)
    x, y = torch.randn(128, 20), (torch.rand(128) < 0.3).float()
    model = torch.nn.Sequential(torch.nn.Linear(20, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    for loss in (aucmax.AUCLoss(0.3), aucmax.AUCLoss(), aucmax.PairwiseAUCLoss()):
        scores = model(x).detach().requires_grad_()
        loss(scores, y).backward()
        name = f"{type(loss).__name__}({'0.3' if getattr(loss, 'prior', None) == 0.3 else ''})"
        report(
            f"{name}, forward and backward", calls_of(lambda f=loss, s=scores: f(s, y).backward())
        )  # type: ignore[misc]
    for kind in (aucmax.PPDSG, aucmax.PPDAdaGrad):
        loss = aucmax.AUCLoss(0.3)
        optimizer = kind(aucmax.minmax_groups(model, loss), lr=0.01)
        for _ in range(2):
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
        report(f"{kind.__name__}.step()", calls_of(optimizer.step))


if __name__ == "__main__":
    main()
