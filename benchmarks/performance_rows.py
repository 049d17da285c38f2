"""The lines of the performance page: what is shown, the goal set before measuring, the peers."""

from __future__ import annotations

import math
from typing import NamedTuple

Place = tuple[str, ...]  # keys, the last of which says what the number is


class Goal(NamedTuple):
    """An interval that a figure should lie in."""

    high: float
    low: float = -math.inf
    unit: str = ""

    def reached(self, value: float) -> bool:
        """Whether it does, by the four digits that are shown of all.

        A goal in milliseconds is for a value in seconds.
        """
        bounds = (self.low, 1e3 * value if self.unit == "ms" else value, self.high)
        low, shown, high = (float(f"{x:.4g}") for x in bounds)
        return low <= shown <= high

    def __str__(self) -> str:
        if math.isinf(self.low):
            return f"<= {self.high:.4g} {self.unit}".strip()
        return f"{self.low:g} to {self.high:g}"


class Row(NamedTuple):
    """A line: its title, the place of its figure, the goal, and the places of the peers'."""

    title: str
    place: Place
    goal: Goal | None = None
    beside: tuple[tuple[str, Place], ...] = ()


NO_SLOWER = Goal(1 / 0.95)  # at least 0.95 of the speed of the loop by hand
LINEAR = Goal(1.05, 0.95)
ADAMW, BCE = "over ``AdamW(fused=True)``", "over ``BCEWithLogitsLoss``"
SGD = "SGD(fused=True), momentum"


# ---- CPU -----------------------------------------------------------------------------------------


def libauc(*place: str) -> tuple[tuple[str, Place], ...]:
    """LibAUC's ratio to the same peer."""
    return (("LibAUC", ("libauc", *place, "ratio")),)


def losses() -> list[Row]:
    """The loss on one thread, its checks on."""
    known = [
        Row(f"``AUCLoss`` {BCE}, {n}", ("loss", n, "AUCLoss", "ratio"), Goal(goal),
            libauc("loss", n, "AUCMLoss"))
        for n, goal in (("N = 128", 3.0), ("N = 8,192", 2.7))
    ]  # fmt: skip
    place = ("loss", "N = 128", "AUCLoss, prior unknown", "ratio")
    return [*known, Row(f"``AUCLoss()``, prior unknown, {BCE}, N = 128", place)]


def pairs() -> list[Row]:
    """The losses over pairs on one thread, and how their memory grows."""
    rows = [
        Row(f"``PairwiseAUCLoss`` {BCE}, {n}", ("pairwise", n, "squared_hinge", "ratio"),
            Goal(goal), libauc("pairwise", n, "squared_hinge"))
        for n, goal in (("N = 128", 5.0), ("N = 8,192", 12.0))
    ]  # fmt: skip
    for name, title in (("logistic", '"logistic"'), ("squared_hinge, max_fpr 0.1", "max_fpr=0.1")):
        theirs = libauc("pairwise", "N = 8,192", name.removeprefix("squared_hinge, "))
        place = ("pairwise", "N = 8,192", name, "ratio")
        rows.append(Row(f"``PairwiseAUCLoss({title})`` {BCE}, N = 8,192", place, None, theirs))
    for name in ("squared_hinge", "logistic"):
        peer = (("LibAUC", ("libauc", "pairwise", "memory", name, "exponent")),)
        place = ("pairwise", "memory", name, "exponent")
        title = f'memory of ``PairwiseAUCLoss("{name}")``, exponent in N'
        rows.append(Row(title, place, Goal(LINEAR.high), peer))
    return rows


def optimizers() -> list[Row]:
    """Steps with fixed gradients."""
    rows = []
    goals = {"PPDSG": (1.0, 1.2, 1.7), "PPDAdaGrad": (2.5, 5.5, 4.0)}
    models = ("ResNet-20", "MLP 512", "one tensor of 25 M")
    for name, limits in goals.items():
        for model, limit in zip(models, limits, strict=True):
            peers: tuple[tuple[str, Place], ...] = ()
            if name == "PPDSG":
                peers = (("SGD", ("optimizer", model, SGD, "ratio")),)
                peers += libauc("optimizer", model, "PESG")
            place = ("optimizer", model, name, "ratio")
            rows.append(Row(f"``{name}`` step {ADAMW}, {model}", place, Goal(limit), peers))
    compiled = ("optimizer", models[-1], "PPDAdaGrad, compiled", "ratio")
    title = f"``PPDAdaGrad`` step compiled {ADAMW}, {models[-1]}"
    return [*rows, Row(title, compiled, Goal(2.0))]


def metrics() -> list[Row]:
    """On a million scores."""
    of, weighted = "N = 1,000,000", "N = 1,000,000, weighted"
    peers = (("torchmetrics", ("metric", of, "torchmetrics", "ratio")),)
    peers += libauc("metric", of, "auc_roc_score")
    return [
        Row(f"``roc_auc`` over scikit-learn's, {of}", ("metric", of, "roc_auc", "ratio"),
            Goal(0.15), peers),
        Row("``roc_auc`` with weights over scikit-learn's",
            ("metric", weighted, "roc_auc", "ratio")),
        Row("``roc_auc_interval`` over scikit-learn's AUC",
            ("metric", of, "roc_auc_interval", "ratio")),
    ]  # fmt: skip


def fits() -> list[Row]:
    """A step of fit over the same loop by hand, and a whole run that is short."""
    rows = [
        Row(f"step of ``fit`` over the same loop by hand, {task}",
            ("fit", task, "aucmax.fit", "ratio"), NO_SLOWER,
            (("BCE + SGD by hand", ("fit", task, "by hand, BCE + SGD", "ratio")),))
        for task in ("ResNet-20, batch 128", "MLP, batch 256", "digits, batch 32")
    ]  # fmt: skip
    whole = ("fit", "digits, batch 32, whole run", "aucmax.fit", "ratio")
    title = "``fit`` on the digits, set-up and all, over the same loop by hand"
    return [*rows, Row(title, whole, NO_SLOWER)]


def growth() -> list[Row]:
    """Exponents of the cost in the rows."""
    titles = {
        "loss": "``AUCLoss``, forward and backward",
        "metric": "``roc_auc``, over log n",
        "epoch of fit": "an epoch of ``fit``, batches of 256",
    }
    return [
        Row(f"growth with the rows n, 1e4 to 1e7: {title}", ("growth", name, "exponent"), LINEAR,
            (("slope with the fixed part", ("growth", name, "slope")),))
        for name, title in titles.items()
    ]  # fmt: skip


def reading() -> list[Row]:
    """A file to an Arrow table."""
    rows = []
    for name, goal in (("clean", 1.5), ("marks in three columns", 2.0)):
        of = ("reading", f"{name}, 1,000,000 rows", "read_table")
        title = f"``read_table`` over ``pyarrow.csv.read_csv``, a million rows, {name}"
        memory = (("its peak memory over theirs", (*of, "peak ratio")),)
        rows.append(Row(title, (*of, "ratio"), Goal(goal), memory))
    return rows


def boosting() -> list[Row]:
    """A hundred trees on a hundred thousand rows."""
    of = ("boosting", "100,000 rows, 100 trees")
    beside = tuple(
        (title, (*of, f"AUCObjective, {title}", "ratio")) for title in ("hinge", "max_fpr 0.1")
    )
    title = "LightGBM with ``AUCObjective`` over its binary objective, 100,000 rows"
    return [Row(title, (*of, "AUCObjective", "ratio"), Goal(3.0), beside)]


CPU_ROWS = [
    *losses(), *pairs(), *optimizers(), *metrics(), *fits(), *growth(), *boosting(), *reading(),
    Row("``import aucmax`` over ``import torch``", ("import", "import", "aucmax", "ratio"),
        Goal(1.05), libauc("import", "import", "libauc.losses.auc, libauc.optimizers.pesg")),
]  # fmt: skip


# ---- GPU -----------------------------------------------------------------------------------------


def gpu_optimizers() -> list[Row]:
    """With the host's time, and in a graph without it."""
    rows = []
    kinds = {
        "PPDSG": "``PPDSG`` step",
        "PPDSG, momentum": "``PPDSG(momentum=0.9)`` step",
        "PPDAdaGrad": "``PPDAdaGrad`` step",
    }
    for model, limit in (("one tensor of 100 M", 0.75), ("ResNet-20", 0.8), ("ResNet-50", 0.8)):
        for of in (f"{model}, captured", f"{model}, eager"):
            peers = tuple(
                (title, ("optimizer", of, name, "ratio"))
                for title, name in (("SGD", SGD), ("LibAUC", "PESG"))
            )
            rows += [
                Row(f"{title} {ADAMW}, {of}", ("optimizer", of, name, "ratio"),
                    Goal(limit) if name == "PPDSG" else None, peers if name == "PPDSG" else ())
                for name, title in kinds.items()
            ]  # fmt: skip
    copied = tuple(
        (title, ("optimizer", "memory", name, "bytes_per_second"))
        for title, name in (("a copy", "copy"), ("a multiplication", "multiplication"))
    )
    place = ("optimizer", "memory", "PPDSG", "bytes_per_second")
    return [*rows, Row("memory that a step of ``PPDSG`` moves, 100 M", place, None, copied)]


def gpu_losses() -> list[Row]:
    """Forward and backward."""
    return [
        Row(f"``AUCLoss`` {BCE}, {of}", ("loss", of, "AUCLoss", "ratio"),
            Goal(2.0) if n == 128 else None,
            (("LibAUC", ("loss", of, "AUCMLoss", "ratio")),
             ("prior unknown", ("loss", of, "AUCLoss, prior unknown", "ratio"))))
        for n in (128, 8192, 1_000_000)
        for of in (f"N = {n:,}, captured", f"N = {n:,}, eager")
    ]  # fmt: skip


def gpu_pairs() -> list[Row]:
    """Losses over pairs, forward and backward."""
    goals = {"N = 128, captured": Goal(1.5), "N = 65,536, captured": Goal(20.0)}
    ours = ("hinge", "square", "logistic", "sigmoid", "generalized", "memory 4,096", "partial")
    theirs = ("squared_hinge", "logistic", "partial")
    return [
        Row(f"``PairwiseAUCLoss`` {BCE}, {of}",
            ("pairs", of, "PairwiseAUCLoss, squared_hinge", "ratio"), goals.get(of),
            (*((name, ("pairs", of, f"PairwiseAUCLoss, {name}", "ratio")) for name in ours),
             ("``PartialAUCLoss``", ("pairs", of, "PartialAUCLoss", "ratio")),
             *((f"LibAUC, {x}", ("pairs", of, f"LibAUC, {x}", "ratio")) for x in theirs)))
        for n in (128, 1024, 8192, 65_536)
        for of in (f"N = {n:,}, captured", f"N = {n:,}, eager")
    ]  # fmt: skip


def gpu_metrics() -> list[Row]:
    """Exact AUCs over the time to sort the scores."""
    of, over = "N = 10,000,000", "over ``torch.sort``, N = 10,000,000"
    peers = tuple(
        (title, ("metric", of, name, "ratio"))
        for title, name in (
            ("torchmetrics", "torchmetrics"),
            ("scikit-learn on the CPU", "scikit-learn, on the CPU"),
        )
    )
    more = {
        "``roc_auc`` with weights": "roc_auc, weights",
        "``roc_auc_interval``": "roc_auc_interval",
        "``delong_test``": "delong_test",
    }
    return [
        Row(f"``roc_auc`` {over}", ("metric", of, "roc_auc", "ratio"), Goal(1.5), peers),
        Row(f"``roc_auc``, scores of two decimals, {over}",
            ("metric", f"{of}, ties", "roc_auc", "ratio")),
        *(Row(f"{title} {over}", ("metric", of, name, "ratio")) for title, name in more.items()),
    ]  # fmt: skip


def gpu_steps() -> list[Row]:
    """ResNet-20, batch 128, bfloat16, images augmented: as ratios and in milliseconds."""
    rows, peer = [], "BCE + SGD by hand"
    for of in ("ResNet-20, captured", "ResNet-20, plain layers, captured", "ResNet-20, eager"):
        captured, ours = of.endswith("captured"), of == "ResNet-20, captured"
        fused = ("step", of, "BCE + SGD(fused=True) by hand", "seconds")
        theirs = (
            (peer, ("step", of, peer, "seconds")),
            ("with SGD(fused=True)", fused),
            ("SGD by fit", ("step", of, "SGD by fit", "seconds")),
            ("LibAUC by hand", ("step", of, "LibAUC by hand", "seconds")),
        )
        for way in ("PPD-SG by hand", "PPD-SG by fit"):
            title, place = f"{way}, {of}", ("step", of, way)
            ratio = Goal(1.03) if captured else None
            rows.append(Row(f"step of {title}, over {peer}", (*place, "ratio"), ratio))
            absolute = Goal(1.2, unit="ms") if ours else None
            rows.append(Row(f"step of {title}", (*place, "seconds"), absolute, theirs))
    images = ("step", "images alone, captured", "gather + CropAndFlip", "seconds")
    return [*rows, Row("images of a step alone: gather + ``CropAndFlip``, captured", images)]


def gpu_runs() -> list[Row]:
    """Of several runs that share the GPU, each one's step."""
    return [
        Row("step of a run alone, ResNet-20" if n == 1 else
            f"{n} runs at once, ResNet-20: time over the steps of all of them",
            ("at_once", "ResNet-20", f"{n} at once", "seconds"),
            Goal(0.6, unit="ms") if n == 8 else None)
        for n in (1, 2, 4, 8, 16)
    ]  # fmt: skip


GPU_ROWS = [
    *gpu_steps(),
    *gpu_runs(),
    *gpu_optimizers(),
    *gpu_losses(),
    *gpu_pairs(),
    *gpu_metrics(),
]
