"""Time two source trees against each other, in turn: is the newer one slower anywhere?

    python benchmarks/against.py ../before/src src
    python benchmarks/against.py ../before/src src --device cuda --json ratios.json

For each workload two processes are started, one per tree, which prepare the work and warm up; then
they work in turn, first one and then the other leading, and each round gives a ratio new/old.
Shown are the median of the ratios and their quartiles. ``--processes`` repeats all of it with fresh
processes, since memory falls differently in each. Only what aucmax documents is called, so both
trees may be laid out as they like. Needs torch and NumPy; a workload that needs more, and does not
find it, is left out with a note. ``--tiny`` tries the code in sizes that say nothing. On a machine
that others use too, ``OMP_NUM_THREADS=1`` keeps threads from waiting for each other.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from _device import Device
from _timing import Work
from _workloads import (
    batch,
    forward_backward,
    mlp_task,
    parameters,
    resnet20_shapes,
    resnet20_task,
    resnet50_shapes,
)

ROUND_SECONDS = 0.2  # a round of a fast work is as many calls as take about so long
SLOWER = 1.05
IN_A_GRAPH = 10
Maker = Callable[[Device], Work]

# ---- What is timed, on either device -------------------------------------------------------------


def optimizer_step(name: str, shapes: list[tuple[int, ...]], captured: bool = False) -> Maker:
    """A step with fixed gradients."""

    def make(device: Device) -> Work:
        import aucmax

        of = device.size(shapes, [(4, 3), (4,)])
        extra = {"capturable": True} if captured and device.is_cuda else {}
        step = getattr(aucmax, name)(parameters(of, device.device), lr=1e-5, **extra).step
        return device.capture(step, IN_A_GRAPH) if captured else step

    return make


def loss(n: int, known: bool = True, captured: bool = False) -> Maker:
    """Forward and backward of AUCLoss."""

    def make(device: Device) -> Work:
        import aucmax

        scores, target = batch(device.size(n, 50), device.device)
        of = aucmax.AUCLoss(target.mean().item() if known else None).to(device.device)
        work = forward_backward(of, scores, target)
        return device.capture(work, IN_A_GRAPH) if captured else work

    return make


def several_classes(device: Device) -> Work:
    """Forward and backward of MulticlassAUCLoss, batch 128, 10 classes."""
    import aucmax

    scores = torch.randn(128, 10, device=device.device, requires_grad=True)
    target = (torch.arange(128) % 10).to(device.device)
    of = aucmax.MulticlassAUCLoss([0.1] * 10).to(device.device)
    return forward_backward(of, scores, target)


def metric(name: str, rows: int) -> Maker:
    """An exact metric of scores with a tenth of positives."""

    def make(device: Device) -> Work:
        from aucmax import metrics

        scores, target = batch(device.size(rows, 1000), device.device)
        scores = scores.detach()
        return lambda: getattr(metrics, name)(scores, target)

    return make


# ---- On a CPU ------------------------------------------------------------------------------------


def fit_steps(task: Callable[..., Any], rows: int, size: int, steps: int) -> Maker:
    """A call of fit that evaluates once, at its end."""

    def make(device: Device) -> Work:
        import aucmax

        model, x, y = task(str(device.device), device.size(rows, 32))
        n = device.size(steps, 2)
        stages = aucmax.stages.geometric(lr=0.01, steps=n, stages=1)
        return lambda: aucmax.fit(
            model, (x, y), steps=n, batch_size=device.size(size, 4), eval_every=n, probe=0,
            stages=stages, progress=False, device=device.device,
        )  # fmt: skip

    return make


def digits(method: str) -> Maker:
    """A whole run: stages, evaluations of both iterates, checkpoints, history, result."""

    def make(device: Device) -> Work:
        from sklearn.datasets import load_digits

        import aucmax

        images, labels = load_digits(return_X_y=True)
        x, y = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels == 0).float()
        steps = device.size(1000, 4)

        def run() -> None:
            torch.manual_seed(0)
            hidden = torch.nn.Linear(64, 64), torch.nn.ReLU()
            model = torch.nn.Sequential(*hidden, torch.nn.Linear(64, 1))
            with tempfile.TemporaryDirectory() as out:
                aucmax.fit(
                    model, (x[:1000], y[:1000]), (x[1000:], y[1000:]), method=method, steps=steps,
                    batch_size=32, out=out, progress=False, device=device.device,
                )  # fmt: skip

        return run

    return make


def swept(device: Device) -> Work:
    """Four runs of a small network."""
    import aucmax

    model, x, y = mlp_task(str(device.device), device.size(4096, 256))
    steps = device.size(100, 2)
    configs = [{"train": (x, y), "steps": steps, "batch_size": 64, "seed": k} for k in range(4)]
    layers = [(each.in_features, each.out_features) for each in model if hasattr(each, "weight")]

    def network() -> torch.nn.Module:
        return torch.nn.Sequential(
            *(layer for a, b in layers for layer in (torch.nn.Linear(a, b), torch.nn.ReLU()))
        )[:-1]

    return lambda: aucmax.sweep(
        [{"model": network, **config} for config in configs], device=device.device, progress=False
    )


def table(rows: int, seed: int = 0) -> tuple[Any, Any]:
    """Numbers, some missing, and a label that three of the columns decide."""
    import numpy as np

    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 20))
    y = x[:, :3].sum(axis=1) + rng.normal(size=rows) > 2
    x[rng.random(x.shape) < 0.02] = np.nan
    return x, y


def classifier_fit(**options: Any) -> Maker:
    """AUCClassifier.fit."""

    def make(device: Device) -> Work:
        import aucmax

        x, y = table(device.size(3000, 200))
        steps = device.size(150, 4)
        model = aucmax.AUCClassifier(
            max_steps=steps, random_state=0, device=str(device.device), **options
        )
        return lambda: model.fit(x, y)

    return make


def classifier_predict(**options: Any) -> Maker:
    """AUCClassifier.predict_proba."""

    def make(device: Device) -> Work:
        import aucmax

        x, y = table(500)
        model = aucmax.AUCClassifier(
            max_steps=10, random_state=0, device=str(device.device), **options
        ).fit(x, y)
        rows, _ = table(device.size(20_000, 200), seed=1)
        return lambda: model.predict_proba(rows)

    return make


def fresh(code: str) -> Maker:
    """An interpreter that runs some code and ends."""
    return lambda device: lambda: subprocess.run([sys.executable, "-c", code], check=True)


CPU: dict[str, Maker] = {
    "PPDSG step, ResNet-20": optimizer_step("PPDSG", resnet20_shapes()),
    "PPDSG step, 2.5 M numbers": optimizer_step("PPDSG", [(2_500_000,)]),
    "PPDAdaGrad step, ResNet-20": optimizer_step("PPDAdaGrad", resnet20_shapes()),
    "PPDAdaGrad step, 2.5 M numbers": optimizer_step("PPDAdaGrad", [(2_500_000,)]),
    "PGA step, ResNet-20": optimizer_step("PGA", resnet20_shapes()),
    "OAUC step, ResNet-20": optimizer_step("OAUC", resnet20_shapes()),
    "AUCLoss, N = 128": loss(128),
    "AUCLoss, N = 8,192": loss(8192),
    "AUCLoss, prior unknown, N = 128": loss(128, known=False),
    "MulticlassAUCLoss, N = 128": several_classes,
    "roc_auc, N = 100,000": metric("roc_auc", 100_000),
    "roc_auc_interval, N = 100,000": metric("roc_auc_interval", 100_000),
    "fit, ResNet-20, 8 steps": fit_steps(resnet20_task, 512, 128, 8),
    "fit, MLP, 512 steps": fit_steps(mlp_task, 1 << 15, 256, 512),
    "digits, whole run, ppd-sg": digits("ppd-sg"),
    "digits, whole run, adamw": digits("adamw"),
    "sweep, 4 x 100 steps": swept,
    "AUCClassifier.fit, 3,000 rows": classifier_fit(),
    "AUCClassifier.predict_proba, 20,000 rows": classifier_predict(),
    "import aucmax": fresh("import aucmax"),
    "import fit": fresh("from aucmax import fit"),
    "import AUCClassifier": fresh("from aucmax import AUCClassifier"),
    "aucmax --version": fresh("from aucmax.cli import main; main(['--version'])"),
}

# ---- On a GPU ------------------------------------------------------------------------------------


def resnet_steps(captured: bool, steps: int) -> Maker:
    """A call of fit on images of bytes in bfloat16, augmented, as the paper's runs are."""

    def make(device: Device) -> Work:
        from gpu_steps import Task

        run = Task(device, {}).fit(**({} if captured else {"cuda_graph": False}))
        return lambda: run(device.size(steps, 2))

    return make


def resnet_sweep(runs: int, steps: int) -> Maker:
    """Several such runs at once."""

    def make(device: Device) -> Work:
        from gpu_steps import Task, lasting

        import aucmax

        tasks = [Task(device, {}, seed) for seed in range(runs)]

        def run() -> None:
            options = lasting(device.size(steps, 2))
            configs = [task.config(seed=k, **options) for k, task in enumerate(tasks)]
            aucmax.sweep(configs, at_once=runs, device=device.device, progress=False)

        return run

    return make


CUDA: dict[str, Maker] = {
    **{
        f"{name} step, {model}, {how}": optimizer_step(name, shapes, how == "captured")
        for name in ("PPDSG", "PPDAdaGrad")
        for model, shapes in (("ResNet-20", resnet20_shapes()), ("ResNet-50", resnet50_shapes()))
        for how in ("captured", "eager")
    },
    **{
        f"AUCLoss, N = {n:,}, {how}": loss(n, captured=how == "captured")
        for n in (128, 8192, 1_000_000)
        for how in ("captured", "eager")
    },
    "AUCLoss, prior unknown, N = 128, captured": loss(128, known=False, captured=True),
    "fit, ResNet-20, 600 steps, captured": resnet_steps(captured=True, steps=600),
    "fit, ResNet-20, 60 steps, eager": resnet_steps(captured=False, steps=60),
    "sweep, 4 x 300 steps": resnet_sweep(4, 300),
    "roc_auc, N = 10,000,000": metric("roc_auc", 10_000_000),
    "roc_auc_interval, N = 10,000,000": metric("roc_auc_interval", 10_000_000),
    "AUCClassifier.fit, 3,000 rows, MLP": classifier_fit(hidden=(64, 64)),
    "AUCClassifier.predict_proba, 20,000 rows, MLP": classifier_predict(hidden=(64, 64)),
}

# ---- A process per tree --------------------------------------------------------------------------


class Worker:
    """A process that has prepared a work from one tree and does it when told.

    Args:
        source: the folder that aucmax is imported from.
        given: the options of this script.
        name: of the workload.
    """

    def __init__(self, source: Path, given: argparse.Namespace, name: str) -> None:
        command = [sys.executable, __file__, str(source), "-", "--device", given.device]
        command += ["--workloads", given.workloads, "--child", name]
        path = os.pathsep.join([str(source), os.environ.get("PYTHONPATH", "")])
        self.process = subprocess.Popen(
            command + (["--tiny"] if given.tiny else []),
            env=os.environ | {"PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def answer(self) -> Any:
        """The next line that the process writes."""
        line = self.process.stdout.readline()  # type: ignore[union-attr]
        return json.loads(line) if line else {"error": "the process ended"}

    def work(self) -> float:
        """Seconds of a round."""
        self.process.stdin.write("go\n")  # type: ignore[union-attr]
        self.process.stdin.flush()  # type: ignore[union-attr]
        return float(self.answer())

    def end(self) -> None:
        """Let the process go."""
        self.process.communicate()


def child(given: argparse.Namespace) -> None:
    """Prepare a work, and do it once for every line that comes."""
    device = Device(torch.device(given.device), given.tiny)
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever the work prints is no answer

    def timed(call: Work, times: int) -> float:
        begun = time.perf_counter()
        for _ in range(times):
            call()
        device.wait()
        return (time.perf_counter() - begun) / times

    try:
        import aucmax

        assert Path(aucmax.__file__).is_relative_to(given.old.resolve()), aucmax.__file__
        call = WORKLOADS[given.workloads][given.child](device)
        seconds = min(timed(call, 1) for _ in range(device.size(3, 1)))
        times = max(1, round(device.size(ROUND_SECONDS, 0.0) / seconds))
        timed(call, times)
    except Exception as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), file=replies)
        return
    print(json.dumps("ready"), file=replies)
    for _ in sys.stdin:
        print(timed(call, times), file=replies)


WORKLOADS = {"cpu": CPU, "cuda": CUDA}


def compare(given: argparse.Namespace, name: str) -> dict[str, Any]:
    """The ratios of a workload, or why there are none."""
    pairs: list[tuple[float, float]] = []
    for _ in range(given.processes):
        workers = [Worker(source, given, name) for source in (given.old, given.new)]
        answers = [worker.answer() for worker in workers]
        errors = [x["error"] for x in answers if x != "ready"]
        if not errors:
            for number in range(given.rounds):
                order = (0, 1) if number % 2 == 0 else (1, 0)
                seconds = {k: workers[k].work() for k in order}
                pairs.append((seconds[0], seconds[1]))
        for worker in workers:
            worker.end()
        if errors:
            return {"error": errors[0]}
    ratios = sorted(new / old for old, new in pairs)
    low, middle, high = (
        statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
    )
    old, new = (statistics.median(pair[k] for pair in pairs) for k in (0, 1))
    return {"ratio": middle, "low": low, "high": high, "n": len(ratios), "old": old, "new": new}


def main() -> None:
    """Compare, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path, help="the src folder of the older tree")
    parser.add_argument("new", type=Path, help="that of the newer one")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workloads", choices=WORKLOADS, help="by default those of the device")
    parser.add_argument("--only", nargs="+", default=[""], help="parts of workloads' names")
    parser.add_argument("--rounds", type=int, default=9, help="per pair of processes")
    parser.add_argument("--processes", type=int, default=3, help="pairs per workload")
    parser.add_argument("--json", type=Path, help="a file for the figures")
    parser.add_argument("--tiny", action="store_true", help="sizes that only try the code")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.workloads = given.workloads or torch.device(given.device).type
    if given.child:
        child(given)
        return
    given.old, given.new = given.old.resolve(), given.new.resolve()
    results = {}
    print(f"{'new / old':>9}  {'quartiles':^13}  {'old':>10}  workload")
    for name in WORKLOADS[given.workloads]:
        if not any(part in name for part in given.only):
            continue
        results[name] = row = compare(given, name)
        if "error" in row:
            print(f"{'-':>9}  {'':13}  {'':10}  {name}: {row['error']}", flush=True)
            continue
        slower = "  <-- slower" if row["ratio"] > SLOWER else ""
        print(
            f"{row['ratio']:9.3f}  {row['low']:.3f} {row['high']:.3f}".ljust(26)
            + f"{1e3 * row['old']:7.3f} ms  {name}{slower}",
            flush=True,
        )
        if given.json:
            given.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
