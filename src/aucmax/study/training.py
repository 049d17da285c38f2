"""Train a run and judge it: networks by :func:`aucmax.fit`, trees by LightGBM."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from aucmax.boosting import AUCMetric, AUCObjective
from aucmax.data import count_classes, number_groups
from aucmax.history import Record
from aucmax.loss import PairwiseAUCLoss
from aucmax.models import mlp
from aucmax.paper.provenance import provenance
from aucmax.study.libauc import libauc_parts
from aucmax.study.pictures import fit_arguments, make_pictures, picture_scores
from aucmax.study.problems import Part, Problem, make_problem
from aucmax.study.settings import Regime, Run, loss_options, named_pictures
from aucmax.train import DivergedError, Sweep, fit
from aucmax.train.metrics import Scored, find_metric

BATCH, EVALUATIONS = 256, 20
JUDGED = ("roc_auc", "partial_auc@0.05", "tpr_at_fpr@0.01", "average_precision")
"""What is measured on the test rows of every run, beside the regime's metric."""

Scores = tuple[Any, Any]
"""Of the validation rows and of the test rows."""


def train_run(run: Run, regime: Regime, folder: Path) -> Record:
    """What came of a run, as the line of its file has it; of one that diverged, no values."""
    problem, (about, line) = _problem(run, regime, folder), _plan_of(run, regime)
    began = time.perf_counter()
    try:
        scores: Scores | None = TRAINERS[line["kind"]](problem, run, about, line, regime.metric)
    except DivergedError:
        scores = None
    return _record(run, regime, problem, scores, time.perf_counter() - began, "cpu")


def train_by_turns(
    runs: Iterable[Run], regime: Regime, folder: Path, device: str, at_once: int
) -> Iterator[tuple[Run, Record]]:
    """The same on a GPU, of networks for pictures: each run comes with its record as it ends."""
    under_way = dict[int, tuple[Run, Problem, float]]()
    problems = dict[Any, Problem]()

    def configs() -> Iterator[dict[str, Any]]:
        for number, run in enumerate(runs):
            rows = run.setting.dataset, run.setting.condition, run.seed
            if rows not in problems:
                problems.clear()
                problems[rows] = _problem(run, regime, folder)
            under_way[number] = run, problems[rows], time.perf_counter()
            plan = _plan_of(run, regime)
            yield fit_arguments(problems[rows], run, *plan, regime.metric, device)

    for number, outcome in Sweep(configs(), torch.device(device), at_once):
        run, problem, began = under_way.pop(number)
        scores = None
        if not isinstance(outcome, DivergedError):
            parts = (problem.valid, problem.test)
            valid, test = (picture_scores(outcome.model, part, device) for part in parts)
            scores = valid, test
        yield run, _record(run, regime, problem, scores, time.perf_counter() - began, device)


def _problem(run: Run, regime: Regime, folder: Path) -> Problem:
    dataset, condition = run.setting.dataset, regime.conditions[run.setting.condition]
    if dataset in named_pictures():
        return make_pictures(folder, dataset, condition, run.seed)
    return make_problem(folder, dataset, condition, run.seed, regime.columns.get(dataset))


def _plan_of(run: Run, regime: Regime) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """What the file says of the model, its steps perhaps the condition's, and of the line."""
    about, own = regime.models[run.setting.model], regime.conditions[run.setting.condition]
    steps = {"steps": own["steps"]} if "steps" in own else {}
    return {**about, **steps}, regime.lines[run.setting.model][run.line]


def _record(
    run: Run, regime: Regime, problem: Problem, scores: Scores | None, seconds: float, device: str
) -> Record:
    """The line of a run's file; scores are None of one that diverged."""
    judged = dict.fromkeys([*JUDGED, regime.metric])
    valid, test = scores or (torch.tensor([math.nan]),) * 2
    return {
        "key": run.key,
        **run.setting._asdict(),
        "line": run.line,
        "seed": run.seed,
        "options": dict(run.options),
        "valid": _judge(regime.metric, valid, problem.valid),
        "test": {name: _judge(name, test, problem.test) for name in judged},
        "counts": problem.counts(),
        "seconds": round(seconds, 2),
        **provenance(device),
    }


def _judge(metric: str, scores: Any, part: Part) -> float | None:
    scores = torch.as_tensor(scores)
    if not scores.isfinite().all():
        return None
    value = find_metric(metric)(Scored(scores, part.y, None, part.group), "binary")
    return value if math.isfinite(value) else None


def train_network(
    problem: Problem, run: Run, about: Mapping[str, Any], line: Mapping[str, Any], metric: str
) -> Scores:
    """AdamW, the same steps for every line; of a line that begins with cross-entropy half."""
    generator = torch.Generator().manual_seed(run.seed)
    model = mlp(problem.train.x.shape[1], about["hidden"], generator=generator)
    train = problem.train
    network: nn.Module = model
    if line.get("offset"):
        network, train = WithOffset(model), with_offsets(train)
    options = run.options
    positives = options.get("positives", "natural")

    def trained(steps: int, **how: Any) -> None:
        fit(
            network, train.for_fit, problem.valid.for_fit, steps=steps, metric=metric,
            batch_size=min(BATCH, len(train.y)), eval_every=max(1, steps // EVALUATIONS),
            positives=None if positives == "natural" else positives, seed=run.seed,
            progress=False, device="cpu", **how,
        )  # fmt: skip

    adamw: dict[str, Any] = {"method": "adamw", "lr": options["lr"]}
    if "decay" in options:
        adamw["optimizer_options"] = {"weight_decay": options["decay"]}
    first = about["steps"] // 2 if line.get("pretrained") else 0
    if first:
        trained(first, objective="ce", **adamw)
    if "libauc" in line:
        how = libauc_parts(line["libauc"], network, options["lr"], train.y)
    else:
        how = {"objective": line["objective"], "loss_options": loss_options(line), **adamw}
    trained(about["steps"] - first, **how)
    model.eval()
    with torch.no_grad():
        valid, test = (model(part.x).reshape(-1) for part in (problem.valid, problem.test))
    return valid, test


class WithOffset(nn.Module):
    """Adds the last input, an offset, to the model's score of the others, if it is there."""

    def __init__(self, model: nn.Sequential) -> None:
        super().__init__()
        self.model = model
        linear = next(layer for layer in model if isinstance(layer, nn.Linear))
        self.inputs = linear.in_features

    def forward(self, x: Tensor) -> Tensor:
        """The score: of rows to validate with, which have no offset, as it is."""
        score: Tensor = self.model(x[:, : self.inputs])
        return score + x[:, self.inputs :].sum(1, keepdim=True)


def with_offsets(part: Part) -> Part:
    """The rows with one more input: their group's log-odds, of its labels and one of each class."""
    assert part.group is not None
    number = number_groups(part.group)
    ones, zeros = count_classes(number, part.y)
    offset = ((ones + 1) / (zeros + 1)).log()[number].float()
    return part._replace(x=torch.cat([part.x, offset[:, None]], 1))


def train_trees(
    problem: Problem, run: Run, about: Mapping[str, Any], line: Mapping[str, Any], metric: str
) -> Scores:
    """LightGBM, stopped where the validation rows' AUC is best."""
    import lightgbm

    ours = AUCObjective(line["surrogate"]) if "surrogate" in line else None
    options = {
        "objective": ours or "binary",
        "metric": "none",
        "max_depth": about["depth"],
        "num_leaves": 2 ** about["depth"],
        "learning_rate": run.options["lr"],
        "min_data_in_leaf": run.options["least"],
        "is_unbalance": bool(line.get("balanced")),
        "seed": run.seed,
        "num_threads": 1,
        "verbose": -1,
        "deterministic": True,
    }
    rows = lightgbm.Dataset(problem.train.x.numpy(), problem.train.y.numpy())
    judged = lightgbm.Dataset(problem.valid.x.numpy(), problem.valid.y.numpy(), reference=rows)
    stop = lightgbm.early_stopping(about["steps"] // 5, verbose=False)
    model = lightgbm.train(
        options, rows, about["steps"], [judged], feval=AUCMetric(), callbacks=[stop]
    )
    valid, test = (
        model.predict(part.x.numpy(), raw_score=True) for part in (problem.valid, problem.test)
    )
    return valid, test


def train_logistic_regression(
    problem: Problem, run: Run, about: Mapping[str, Any], line: Mapping[str, Any], metric: str
) -> Scores:
    """That of scikit-learn."""
    w = _logistic_regression(problem, run.options["C"], run.options["balanced"])
    return _linear_scores(problem, w)


def _logistic_regression(problem: Problem, C: float, balanced: bool) -> Any:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=C, class_weight="balanced" if balanced else None, max_iter=2000)
    return model.fit(problem.train.x.numpy(), problem.train.y.numpy()).coef_[0]


def _linear_scores(problem: Problem, w: Any) -> Scores:
    """Without the intercept, which no order depends on."""
    w = torch.as_tensor(w, dtype=torch.float64)
    return problem.valid.x.double() @ w, problem.test.x.double() @ w


def train_least_squares(
    problem: Problem, run: Run, about: Mapping[str, Any], line: Mapping[str, Any], metric: str
) -> Scores:
    """Ridge regression of scikit-learn on labels 0 and 1."""
    from sklearn.linear_model import Ridge

    model = Ridge(alpha=run.options["penalty"])
    model.fit(problem.train.x.numpy(), problem.train.y.numpy())
    return _linear_scores(problem, model.coef_)


def train_on_all_pairs(
    problem: Problem, run: Run, about: Mapping[str, Any], line: Mapping[str, Any], metric: str
) -> Scores:
    r"""A linear model at the optimum of a loss on pairs, as logistic regression is at its own.

    With the mean over all pairs of a positive and a negative, and n rows, w minimizes

    .. math::

        C n \, \mathrm{mean} (1 - w^T x_+ + w^T x_-)_+^2 + \frac12 |w|^2
        \qquad\text{or}\qquad
        \mathrm{mean}\; \sigma(c\, w^T (x_- - x_+)) + \lambda |w - w_0|^2 .

    The second is not convex: it begins at :math:`w_0`, logistic regression, its scores' deviation
    being one, and lambda pulls it back there.
    """
    x, y = problem.train.x.double(), problem.train.y
    if line["surrogate"] == "sigmoid":
        start = torch.from_numpy(_logistic_regression(problem, C=1.0, balanced=False)).double()
        start /= (x @ start).std().clamp_min(1e-12)
        loss = PairwiseAUCLoss("sigmoid", scale=run.options["scale"])
        w = optimum(lambda w: loss(x @ w, y), start, run.options["pull"])
    else:
        loss, factor = PairwiseAUCLoss("squared_hinge"), run.options["C"] * len(y)
        start = torch.zeros(x.shape[1], dtype=torch.float64)
        w = optimum(lambda w: factor * loss(x @ w, y), start, 0.5)
    return _linear_scores(problem, w)


def optimum(loss: Callable[[Tensor], Tensor], start: Tensor, pull: float) -> Tensor:
    """What minimizes the loss and ``pull`` times the squared distance from the start, near it."""
    from scipy.optimize import minimize

    def objective(numbers: Any) -> tuple[float, Any]:
        w = torch.tensor(numbers, requires_grad=True)
        value = loss(w) + pull * (w - start).square().sum()
        (gradient,) = torch.autograd.grad(value, w)
        return value.item(), gradient.numpy()

    options = {"maxiter": 500}
    found = minimize(objective, start.numpy(), jac=True, method="L-BFGS-B", options=options)
    return torch.from_numpy(found.x)


def train_pictures(
    problem: Problem, run: Run, about: Mapping[str, Any], line: Mapping[str, Any], metric: str
) -> Scores:
    """A ResNet-20, on the CPU."""
    arguments = fit_arguments(problem, run, about, line, metric, "cpu")
    model = fit(**arguments, device="cpu", progress=False).model
    valid, test = (picture_scores(model, x, "cpu") for x in (problem.valid, problem.test))
    return valid, test


TRAINERS = {
    "pictures": train_pictures,
    "network": train_network,
    "trees": train_trees,
    "logistic regression": train_logistic_regression,
    "least squares": train_least_squares,
    "all pairs": train_on_all_pairs,
}
"""By the kind of a line."""
