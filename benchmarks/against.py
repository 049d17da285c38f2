"""Is one source tree slower than another anywhere?

    python benchmarks/against.py ../before/src src
    python benchmarks/against.py ../before/src src --device cuda --json ratios.jsonl

For each workload two processes are started, one per tree, which prepare the work and warm up. Then
they work in alternation, and each round gives a ratio new/old. Shown are the median ratio and its
quartiles. ``--processes`` repeats this with fresh processes, since memory falls differently in
each. Workloads call only what is documented, so both trees may be laid out as they like; one that a
tree cannot run is left out with a note.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _timing import Bench, Results, Work, parser
from _workloads import (
    batch,
    forward_backward,
    mlp_task,
    parameters,
    resnet20_shapes,
    resnet20_task,
    resnet50_shapes,
)

ROUND_SECONDS = 0.2
SLOWER = 1.05
IN_A_GRAPH = 10
Maker = Callable[[Bench], Work]


def optimizer_step(name: str, shapes: list[tuple[int, ...]], captured: bool = False) -> Maker:
    """Make a step with fixed gradients."""

    def make(bench: Bench) -> Work:
        import aucmax

        extra: dict[str, Any] = {"capturable": True} if captured and bench.cuda else {}
        moved = parameters(bench.size(shapes, [(4, 3), (4,)]), bench.device)
        step: Work = getattr(aucmax, name)(moved, lr=1e-5, **extra).step
        return bench.capture(step, IN_A_GRAPH) if captured else step

    return make


def loss(n: int, known: bool = True, captured: bool = False) -> Maker:
    """Make forward and backward of AUCLoss."""

    def make(bench: Bench) -> Work:
        import aucmax

        scores, target = batch(bench.size(n, 50), bench.device)
        made = aucmax.AUCLoss(target.mean().item() if known else None).to(bench.device)
        work = forward_backward(made, scores, target)
        return bench.capture(work, IN_A_GRAPH) if captured else work

    return make


def multiclass_loss(bench: Bench) -> Work:
    """Make forward and backward of MulticlassAUCLoss, batch 128, 10 classes."""
    import aucmax

    scores = torch.randn(128, 10, device=bench.device, requires_grad=True)
    target = (torch.arange(128) % 10).to(bench.device)
    made = aucmax.MulticlassAUCLoss([0.1] * 10).to(bench.device)
    return forward_backward(made, scores, target)


def auc(rows: int) -> Maker:
    """Make the exact AUC of scores, a tenth of them positive."""

    def make(bench: Bench) -> Work:
        from aucmax.metrics import roc_auc

        scores, target = batch(bench.size(rows, 1000), bench.device)
        scores = scores.detach()
        return lambda: roc_auc(scores, target)

    return make


def fit_steps(task: Callable[..., Any], rows: int, size: int, steps: int) -> Maker:
    """Make a call of fit that evaluates once, at its end."""

    def make(bench: Bench) -> Work:
        import aucmax

        model, x, y = task(str(bench.device), bench.size(rows, 32))
        n = bench.size(steps, 2)
        options = {"steps": n, "batch_size": bench.size(size, 4), "eval_every": n}
        stages = aucmax.stages.geometric(lr=0.01, steps=n, stages=1)
        more = {"stages": stages, "progress": False, "device": bench.device}
        return lambda: aucmax.fit(model, (x, y), **options, **more)

    return make


def digits(method: str) -> Maker:
    """Make a whole run: stages, evaluations of both iterates, checkpoints, result."""

    def make(bench: Bench) -> Work:
        from sklearn.datasets import load_digits

        import aucmax

        images, labels = load_digits(return_X_y=True)
        x, y = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels == 0).float()
        steps = bench.size(1000, 4)

        def run() -> None:
            torch.manual_seed(0)
            hidden = torch.nn.Linear(64, 64), torch.nn.ReLU()
            model = torch.nn.Sequential(*hidden, torch.nn.Linear(64, 1))
            train, valid = (x[:1000], y[:1000]), (x[1000:], y[1000:])
            options: dict[str, Any] = {"method": method, "steps": steps, "batch_size": 32}
            with tempfile.TemporaryDirectory() as out:
                aucmax.fit(
                    model, train, valid, out=out, progress=False, device=bench.device, **options
                )

        return run

    return make


def table(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return numbers, some missing, and a label that three of the columns decide."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 20))
    y = x[:, :3].sum(axis=1) + rng.normal(size=rows) > 2
    x[rng.random(x.shape) < 0.02] = np.nan
    return x, y


def classifier(predict: bool, **options: Any) -> Maker:
    """Make AUCClassifier.fit, or predict_proba of a fitted one."""

    def make(bench: Bench) -> Work:
        import aucmax

        steps = 10 if predict else bench.size(150, 4)
        model = aucmax.AUCClassifier(
            max_steps=steps, random_state=0, device=str(bench.device), **options
        )
        x, y = table(500 if predict else bench.size(3000, 200))
        if not predict:
            return lambda: model.fit(x, y)
        model.fit(x, y)
        rows, _ = table(bench.size(20_000, 200), seed=1)
        return lambda: model.predict_proba(rows)

    return make


def fresh(code: str) -> Maker:
    """Make an interpreter that runs code and ends."""
    return lambda bench: lambda: subprocess.run([sys.executable, "-c", code], check=True)


WORKLOADS: dict[str, dict[str, Maker]] = {
    "cpu": {
        **{
            f"{name} step, {model}": optimizer_step(name, shapes)
            for name in ("PPDSG", "PPDAdaGrad", "PGA", "OAUC")
            for model, shapes in (
                ("ResNet-20", resnet20_shapes()),
                ("2.5 M numbers", [(2_500_000,)]),
            )
        },
        "AUCLoss, N = 128": loss(128),
        "AUCLoss, N = 8,192": loss(8192),
        "AUCLoss, prior unknown, N = 128": loss(128, known=False),
        "MulticlassAUCLoss, N = 128": multiclass_loss,
        "roc_auc, N = 100,000": auc(100_000),
        "fit, ResNet-20, 8 steps": fit_steps(resnet20_task, 512, 128, 8),
        "fit, MLP, 512 steps": fit_steps(mlp_task, 1 << 15, 256, 512),
        "digits, whole run, ppd-sg": digits("ppd-sg"),
        "digits, whole run, adamw": digits("adamw"),
        "AUCClassifier.fit, 3,000 rows": classifier(predict=False),
        "AUCClassifier.predict_proba, 20,000 rows": classifier(predict=True),
        "import aucmax": fresh("import aucmax"),
        "import AUCClassifier": fresh("from aucmax import AUCClassifier"),
        "aucmax --version": fresh("from aucmax.cli import main; main(['--version'])"),
    },
    "cuda": {
        **{
            f"{name} step, {model}, {how}": optimizer_step(name, shapes, how == "captured")
            for name in ("PPDSG", "PPDAdaGrad")
            for model, shapes in (
                ("ResNet-20", resnet20_shapes()),
                ("ResNet-50", resnet50_shapes()),
            )
            for how in ("captured", "eager")
        },
        **{
            f"AUCLoss, N = {n:,}, {how}": loss(n, captured=how == "captured")
            for n in (128, 8192, 1_000_000)
            for how in ("captured", "eager")
        },
        "fit, ResNet-20, 600 steps": fit_steps(resnet20_task, 5000, 128, 600),
        "roc_auc, N = 10,000,000": auc(10_000_000),
        "AUCClassifier.fit, 3,000 rows, MLP": classifier(predict=False, hidden=(64, 64)),
    },
}


class Worker:
    """A process that prepares a workload with one tree, and runs it when told.

    Args:
        source: the folder that aucmax is imported from.
        given: the command line.
        name: of the workload.
    """

    def __init__(self, source: Path, given: argparse.Namespace, name: str) -> None:
        command = [sys.executable, __file__, str(source), "-", "--device", given.device]
        path = os.pathsep.join([str(source), os.environ.get("PYTHONPATH", "")])
        self.process = subprocess.Popen(
            [*command, "--child", name, *(["--tiny"] if given.tiny else [])],
            env=os.environ | {"PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def answer(self) -> Any:
        """Return what the process writes next."""
        line = self.process.stdout.readline()  # type: ignore[union-attr]
        return json.loads(line) if line else {"error": "the process ended"}

    def work(self) -> float:
        """Return the seconds of a round."""
        self.process.stdin.write("go\n")  # type: ignore[union-attr]
        self.process.stdin.flush()  # type: ignore[union-attr]
        return float(self.answer())


def child(given: argparse.Namespace) -> None:
    """Prepare a workload, and run it once for every line that arrives."""
    bench = Bench(given.device, given.tiny)
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what the workload prints is no reply
    try:
        import aucmax

        assert Path(aucmax.__file__).is_relative_to(given.old.resolve()), aucmax.__file__
        work = WORKLOADS[bench.device.type][given.child](bench)
        seconds = min(bench.seconds(work) for _ in range(bench.size(3, 1)))
        calls = max(1, round(bench.size(ROUND_SECONDS, 0.0) / seconds))
        bench.seconds(work, calls)
    except Exception as error:  # the other tree may be able to
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), file=replies)
        return
    print(json.dumps("ready"), file=replies)
    for _ in sys.stdin:
        print(bench.seconds(work, calls), file=replies)


def compare(given: argparse.Namespace, name: str) -> dict[str, Any]:
    """Return the ratios of a workload, or why there are none."""
    pairs: list[tuple[float, float]] = []
    for _ in range(given.processes):
        workers = [Worker(source.resolve(), given, name) for source in (given.old, given.new)]
        answers = [worker.answer() for worker in workers]
        errors = [x["error"] for x in answers if x != "ready"]
        if not errors:
            for number in range(given.rounds):
                order = (0, 1) if number % 2 == 0 else (1, 0)
                seconds = {k: workers[k].work() for k in order}
                pairs.append((seconds[0], seconds[1]))
        for worker in workers:
            worker.process.communicate()
        if errors:
            return {"error": errors[0]}
    ratios = sorted(new / old for old, new in pairs)
    low, middle, high = (
        statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
    )
    old, new = (statistics.median(pair[k] for pair in pairs) for k in (0, 1))
    return {"ratio": middle, "low": low, "high": high, "n": len(ratios), "old": old, "new": new}


def main() -> None:
    """Compare, print and save."""
    options = parser(__doc__)
    options.add_argument("old", type=Path, help="the src folder of the older tree")
    options.add_argument("new", type=Path, help="that of the newer one")
    options.add_argument("--device", default="cpu")
    options.add_argument("--only", nargs="+", default=[""], help="parts of workloads' names")
    options.add_argument("--rounds", type=int, default=9, help="per pair of processes")
    options.add_argument("--processes", type=int, default=3, help="pairs per workload")
    options.add_argument("--child", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.child:
        child(given)
        return
    results, rows = Results(given, given.device), []
    print(f"{'new / old':>9}  {'quartiles':^13}  {'old':>10}  workload")
    for name in WORKLOADS[torch.device(given.device).type]:
        if not any(part in name for part in given.only):
            continue
        row = compare(given, name)
        rows.append({"workload": name, **row})
        if "error" in row:
            print(f"{'-':>9}  {'':13}  {'':10}  {name}: {row['error']}", flush=True)
            continue
        slower = "  <-- slower" if row["ratio"] > SLOWER else ""
        print(
            f"{row['ratio']:9.3f}  {row['low']:.3f} {row['high']:.3f}".ljust(26)
            + f"{1e3 * row['old']:7.3f} ms  {name}{slower}",
            flush=True,
        )
    results.add(rows=rows)


if __name__ == "__main__":
    main()
