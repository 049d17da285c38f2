"""Does training with rare positives explode, and is an alpha that is minimized warned of?

    python benchmarks/rare_positives.py [--seeds 3] [--steps 2000] [--minimized] [--out FILE]

Shares of positives from 1e-2 to 1e-4, batches of 32 to 512 rows as they come and balanced ones, and
four optimizers at three step sizes each. A cell fails if a, b or alpha is not finite or is out of
its range after ``project()``; if the mean AUC with batches as they come is below 0.45, although
balanced batches reach 0.8 and at least 20 positives were seen; or if an alpha that is maximized is
warned of. With ``--minimized`` the same cells minimize alpha, in a plain group of all parameters
and in the groups of ``minmax_groups`` without ``maximize``, and the script says how many were
warned of, and within how many steps.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import aucmax

SHARES = (1e-2, 1.7e-3, 5e-4, 1e-4)
BATCHES = (32, 128, 512)
STEP_SIZES = (0.03, 0.1, 0.3)
OPTIMIZERS: dict[str, tuple[Any, tuple[float, ...]]] = {
    "PPDSG": (aucmax.PPDSG, STEP_SIZES),
    "PPDAdaGrad": (aucmax.PPDAdaGrad, STEP_SIZES),
    "SGD": (torch.optim.SGD, STEP_SIZES),
    "AdamW": (torch.optim.AdamW, (1e-3, 3e-3, 1e-2)),
}
ENOUGH = 20


def rows(positives: int, negatives: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return rows of ten numbers, of which positives have higher ones, and their labels."""
    y = torch.cat([torch.ones(positives), torch.zeros(negatives)])
    return torch.randn(len(y), 10, generator=generator) + 0.9 * y[:, None], y


def train(cell: dict[str, Any], steps: int, minimized: str = "") -> dict[str, Any]:
    """Train one cell and return its test AUC, a, b, alpha, the warning's step and the error.

    ``minimized`` is "plain" for one group of all parameters, "groups" for those of minmax_groups
    without ``maximize``, "" for training as it should be.
    """
    p, size = cell["p"], cell["batch"]
    generator = torch.Generator().manual_seed(cell["seed"])
    positives = max(ENOUGH, round(4000 * p))
    x, y = rows(positives, round(positives / p) - positives, generator)
    x_test, y_test = rows(1000, 4000, generator)
    torch.manual_seed(cell["seed"])
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
    loss = aucmax.AUCLoss(0.5 if cell["balanced"] else p)
    start = torch.randint(len(x), (4000,), generator=generator)
    start[:positives] = torch.arange(positives)
    loss.begin(model(x[start]), y[start])
    make, _ = OPTIMIZERS[cell["optimizer"]]
    groups = aucmax.minmax_groups(model, loss)
    if minimized == "plain":
        groups = [{"params": [*model.parameters(), *loss.parameters()]}]
    elif minimized:
        groups = [{**group, "maximize": False} for group in groups]
    optimizer = make(groups, lr=cell["lr"])
    found: dict[str, Any] = {**cell, "warned": None, "error": ""}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(steps):
            if cell["balanced"]:
                picked = torch.randint(positives, (size,), generator=generator)
                others = torch.randint(positives, len(x), (size // 2,), generator=generator)
                picked[size // 2 :] = others
            else:
                picked = torch.randint(len(x), (size,), generator=generator)
            optimizer.zero_grad()
            try:
                loss(model(x[picked]), y[picked]).backward()
            except ValueError as error:
                found["error"] = str(error)
                break
            optimizer.step()
            if any("alpha is minimized" in str(warning.message) for warning in caught):
                found["warned"] = step + 1
                if minimized:
                    break
                caught.clear()
    loss.project()
    own = [p.item() for p in (loss.a, loss.b, loss.alpha)]
    bounds = ((0.0, 1.0), (0.0, 1.0), (-1.0, 1.0))
    inside = all(low <= v <= high for v, (low, high) in zip(own, bounds, strict=True))
    with torch.no_grad():
        auc = aucmax.metrics.roc_auc(model(x_test)[:, 0], y_test)
    return {**found, "auc": auc, "inside": inside, "steps": steps}


def judge(results: list[dict[str, Any]], steps: int) -> list[str]:
    """Return what is wrong."""
    faults = [f"{r['warned']=} {r}" for r in results if r["warned"] is not None]
    faults += [f"out of range: {r}" for r in results if not r["inside"]]
    means: dict[tuple[Any, ...], dict[bool, list[float]]] = defaultdict(lambda: defaultdict(list))
    errors = set()
    for r in results:
        key = r["optimizer"], r["lr"], r["p"], r["batch"]
        means[key][r["balanced"]].append(r["auc"])
        if r["error"]:
            errors.add((*key, r["balanced"]))
    for key, by in means.items():
        *_, p, batch = key
        natural, balanced = (statistics.mean(by[x]) if by[x] else 0.0 for x in (False, True))
        counts = steps * batch * p >= ENOUGH and balanced > 0.8
        if counts and natural < 0.45 and (*key, False) not in errors:
            faults.append(f"{key}: AUC {natural:.3f} with natural, {balanced:.3f} with balanced")
    return faults


def main() -> None:
    """Train every cell and print what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--minimized", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    cells = [
        {"seed": seed, "p": p, "batch": batch, "balanced": balanced, "optimizer": name, "lr": lr}
        for seed, name in itertools.product(range(options.seeds), OPTIMIZERS)
        for lr, p in itertools.product(OPTIMIZERS[name][1], SHARES)
        for batch, balanced in itertools.product(BATCHES, (False, True))
    ]
    results = []
    for cell in cells:
        for how in ("plain", "groups") if options.minimized else ("",):
            results.append({**train(cell, options.steps, how), "minimized": how})
            if options.out is not None:
                with options.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(results[-1]) + "\n")
    print(f"{len(results)} runs of at most {options.steps} steps")
    if not options.minimized:
        faults = judge(results, options.steps)
        print("\n".join(faults) or "nothing is wrong")
        for balanced in (False, True):
            aucs = [r["auc"] for r in results if r["balanced"] == balanced]
            words = "balanced" if balanced else "natural"
            print(f"{words}: AUC mean {statistics.mean(aucs):.3f}, least {min(aucs):.3f}")
        return
    for how, balanced in itertools.product(("plain", "groups"), (True, False)):
        part = [r for r in results if r["minimized"] == how and r["balanced"] == balanced]
        late = [r["warned"] for r in part if r["warned"] is not None]
        soon = sum(step <= 50 for step in late)
        words = "balanced" if balanced else "natural"
        print(f"{how}, {words}: {len(late)} of {len(part)} warned of, {soon} within 50 steps")
        for r in part if balanced else ():
            if r["warned"] is None or r["warned"] > 50:
                print("   ", r)


if __name__ == "__main__":
    main()
