"""Train a run and judge it: networks by :func:`aucmax.fit`, trees by LightGBM."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from aucmax.boosting import AUCMetric, AUCObjective
from aucmax.models import mlp
from aucmax.paper.provenance import provenance
from aucmax.study.problems import Problem, make_problem
from aucmax.study.settings import Regime, Run
from aucmax.train import DivergedError, fit
from aucmax.train.metrics import find_metric

BATCH = 256
OF_LOSS = ("link", "q", "focus", "surrogate")
JUDGED = ("roc_auc", "partial_auc@0.05", "tpr_at_fpr@0.01", "average_precision")
"""What is measured on the test rows of every run."""

Scores = tuple[Any, Any]
"""Of the validation rows and of the test rows."""


def train_run(run: Run, regime: Regime, folder: Path) -> dict[str, Any]:
    """What came of a run, as the line of its file has it; of one that diverged, no values."""
    condition = regime.conditions[run.setting.condition]
    problem = make_problem(folder, run.setting.dataset, condition, run.seed)
    about = regime.models[run.setting.model]
    line = regime.lines[run.setting.model][run.line]
    began = time.perf_counter()
    try:
        valid, test = TRAINERS[line["kind"]](problem, run, about, line, regime.metric)
    except DivergedError:
        valid, test = (np.full(len(part[1]), math.nan) for part in (problem.valid, problem.test))
    return {
        "key": run.key,
        **run.setting._asdict(),
        "line": run.line,
        "seed": run.seed,
        "options": dict(run.options),
        "valid": _judge(regime.metric, valid, problem.valid[1]),
        "test": {name: _judge(name, test, problem.test[1]) for name in JUDGED},
        "counts": problem.counts(),
        "seconds": round(time.perf_counter() - began, 2),
        **provenance("cpu"),
    }


def _judge(metric: str, scores: Any, y: Tensor) -> float | None:
    if not np.isfinite(np.asarray(scores)).all():
        return None
    return float(find_metric(metric).binary(torch.as_tensor(scores), y, None))


def train_network(
    problem: Problem, run: Run, about: Mapping[str, Any], line: Mapping[str, Any], metric: str
) -> Scores:
    """AdamW, the same steps for every line; of a line that begins with cross-entropy half."""
    generator = torch.Generator().manual_seed(run.seed)
    model = mlp(problem.train[0].shape[1], about["hidden"], generator=generator)
    positives = run.options["positives"]

    def trained(objective: str, steps: int, options: Mapping[str, Any]) -> None:
        result = fit(
            model, problem.train, problem.valid, method="adamw", objective=objective,
            loss_options=options or None, steps=steps, lr=run.options["lr"], metric=metric,
            batch_size=min(BATCH, len(problem.train[1])), eval_every=max(1, steps // 20),
            positives=None if positives == "natural" else positives, seed=run.seed,
            progress=False, device="cpu",
        )  # fmt: skip
        model.load_state_dict(result.model.state_dict())

    first = about["steps"] // 2 if line.get("pretrained") else 0
    if first:
        trained("ce", first, {})
    trained(line["objective"], about["steps"] - first, {x: line[x] for x in OF_LOSS if x in line})
    with torch.no_grad():
        valid, test = (model(part[0]).reshape(-1) for part in (problem.valid, problem.test))
    return valid, test


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
    rows = lightgbm.Dataset(problem.train[0].numpy(), problem.train[1].numpy())
    judged = lightgbm.Dataset(problem.valid[0].numpy(), problem.valid[1].numpy(), reference=rows)
    stop = lightgbm.early_stopping(about["steps"] // 5, verbose=False)
    model = lightgbm.train(
        options, rows, about["steps"], [judged], feval=AUCMetric(), callbacks=[stop]
    )
    valid, test = (
        model.predict(part[0].numpy(), raw_score=True) for part in (problem.valid, problem.test)
    )
    return valid, test


def train_logistic_regression(
    problem: Problem, run: Run, about: Mapping[str, Any], line: Mapping[str, Any], metric: str
) -> Scores:
    """That of scikit-learn."""
    from sklearn.linear_model import LogisticRegression

    weight = "balanced" if run.options["balanced"] else None
    model = LogisticRegression(C=run.options["C"], class_weight=weight, max_iter=2000)
    model.fit(*(values.numpy() for values in problem.train))
    valid, test = (
        model.decision_function(part[0].numpy()) for part in (problem.valid, problem.test)
    )
    return valid, test


TRAINERS = {
    "network": train_network,
    "trees": train_trees,
    "logistic regression": train_logistic_regression,
}
"""By the kind of a line."""
