"""One run on a table: rows, a network, trees or a linear model, and the scores of the test rows."""

from __future__ import annotations

import math
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, QuantileTransformer
from torch import Tensor, nn

import aucmax
from aucmax import metrics
from aucmax.boosting import AUCMetric, AUCObjective
from aucmax.models import mlp
from experiments.plan import Run
from experiments.prepare import mislabel, split

Settings = dict[str, Any]
Labels = NDArray[np.int64]
JUDGED = {
    "roc_auc": metrics.roc_auc,
    "partial_auc@0.05": partial(metrics.partial_auc, max_fpr=0.05),
    "tpr_at_fpr@0.01": partial(metrics.tpr_at_fpr, fpr=0.01),
    "average_precision": metrics.average_precision,
}
"""Metrics of the test rows of every run; where rows are ranked within groups also "grouped_auc"."""
BATCH, EVALUATIONS = 256, 20
RARE = 0.1
"""When a table is cut, positives up to this share of the remaining rows are all kept."""
LOSS_OPTIONS = ("link", "alpha_min", "q", "focus", "surrogate")


class Part(NamedTuple):
    """Rows: inputs, labels 0 and 1, and groups where rows are ranked within groups."""

    x: Tensor
    y: Tensor
    group: Tensor | None = None

    @property
    def for_fit(self) -> tuple[Tensor | None, ...]:
        """The rows as :func:`aucmax.fit` takes them: inputs, labels, weights, groups."""
        return (self.x, self.y) if self.group is None else (self.x, self.y, None, self.group)


class Parts(NamedTuple):
    """Training, validation and test rows; labels of test rows are always right."""

    train: Part
    valid: Part
    test: Part


def train(run: Run, data: Path, device: str, folder: Path) -> dict[str, Any]:
    """Train as a run's settings say, and return the metrics of validation and test rows.

    Args:
        run: of the kind "table".
        data: folder with ``tables/NAME.csv.gz``, each with a column "target".
        device: not used, tables are trained on a CPU.
        folder: not used, runs take seconds.
    """
    settings = run.settings
    parts = make_parts(settings, data)
    metric, error = settings["metric"], None
    try:
        valid, test = TRAINERS[settings["trainer"]](settings, parts)
    except aucmax.DivergedError as diverged:
        error, valid, test = str(diverged), None, None
    counts = {
        name: [int(part.y.sum()), int((1 - part.y).sum())] for name, part in parts._asdict().items()
    }
    return {
        "valid": judge(metric, valid, parts.valid),
        "test": {name: judge(name, test, parts.test) for name in dict.fromkeys([*JUDGED, metric])},
        "counts": counts,
        "error": error,
    }


def judge(metric: str, scores: Any, part: Part) -> float:
    """Return a metric of scores, nan of a run that diverged."""
    if scores is None:
        return math.nan
    scores = torch.as_tensor(scores).double()
    if metric == "grouped_auc":
        return float(metrics.grouped_auc(scores, part.y, part.group))
    return float(JUDGED[metric](scores, part.y))


# --- rows -----------------------------------------------------------------------------------------


def make_parts(settings: Settings, data: Path) -> Parts:
    """Read a table, split it, thin and mislabel what is trained on, and encode it."""
    without = tuple(settings.get("without", ()))
    table, y = read(data, settings["dataset"], without, settings["rows"])
    seed, group = settings["seed"], None
    if "column" in settings:
        group, _ = pd.factorize(table[settings["column"]], sort=True, use_na_sentinel=False)
        table = table.drop(columns=settings["column"])
    whole = group if settings.get("unseen") else None
    rest, test = split_rows(np.arange(len(y)), y, settings["test"], seed, whole)
    if "most" in settings:
        positives = np.random.RandomState(seed).permutation(rest[y[rest] == 1])
        rest = np.sort(np.concatenate([positives[: settings["most"]], rest[y[rest] == 0]]))
    known = y.copy()
    if "wrong" in settings:
        positives, both = y[rest].mean(), settings["negatives"] == "even"
        negatives = settings["wrong"] * positives / (1 - positives) if both else 0.0  # as many
        known[rest] = mislabel(y[rest], (negatives, settings["wrong"]), seed)
    rows, valid = split_rows(rest, known, settings["valid"], seed, whole)
    encoder = make_encoder(len(rows)).fit(table.iloc[rows])

    def part(rows: Labels, labels: Labels) -> Part:
        x = torch.from_numpy(np.asarray(encoder.transform(table.iloc[rows]), dtype=np.float32))
        groups = None if group is None else torch.from_numpy(group[rows])
        return Part(x, torch.from_numpy(labels[rows]).float(), groups)

    return Parts(part(rows, known), part(valid, known), part(test, y))


@lru_cache(maxsize=2)
def read(data: Path, name: str, without: tuple[str, ...], most: int) -> tuple[pd.DataFrame, Labels]:
    """Return a table without repeated rows and its labels; a large table is cut."""
    table = pd.read_csv(data / "tables" / f"{name}.csv.gz").drop(columns=[*without])
    table = table.drop_duplicates(ignore_index=True)
    y = table.pop("target").to_numpy(dtype=np.int64)
    if len(y) > most:
        random, positives = np.random.RandomState(0), int(y.sum())
        kept = max(round(most * positives / len(y)), min(positives, round(most * RARE)))
        drawn = [
            random.permutation(np.flatnonzero(y == value))[:count]
            for value, count in ((1, kept), (0, most - kept))
        ]
        rows = np.sort(np.concatenate(drawn))
        table, y = table.iloc[rows].reset_index(drop=True), y[rows]
    return table, y


def split_rows(
    rows: Labels, y: Labels, share: float, seed: int, group: Labels | None
) -> tuple[Labels, Labels]:
    """Split off a share of the rows: of each class, or nearly so many in whole groups."""
    if group is None:
        first, second = split(y[rows], share, seed)
        return rows[first], rows[second]
    names = np.random.RandomState(seed).permutation(np.unique(group[rows]))
    sizes = np.array([(group[rows] == name).sum() for name in names])
    nearest = int(np.abs(sizes.cumsum() - share * len(rows)).argmin()) + 1
    apart = np.isin(group[rows], names[: min(len(names) - 1, nearest)])
    return rows[~apart], rows[apart]


def make_encoder(rows: int) -> Any:
    """Return a transformer: numbers to normal scores, texts one-hot, missing values flagged."""
    numbers = make_pipeline(
        QuantileTransformer(
            n_quantiles=min(1000, rows), output_distribution="normal", subsample=None
        ),
        SimpleImputer(strategy="median", add_indicator=True),
    )
    texts = OneHotEncoder(
        handle_unknown="infrequent_if_exist", max_categories=50, sparse_output=False
    )
    return make_column_transformer(
        (numbers, make_column_selector(dtype_include="number")),
        (texts, make_column_selector(dtype_exclude="number")),
    )


# --- models: each returns the scores of validation and test rows ----------------------------------

Scores = tuple[Any, Any]


def train_network(settings: Settings, parts: Parts) -> Scores:
    """Train with AdamW, all lines for the same steps; some begin with cross-entropy."""
    generator = torch.Generator().manual_seed(settings["seed"])
    model = mlp(parts.train.x.shape[1], settings["hidden"], generator=generator)
    rows, network = parts.train, model
    if settings.get("offset"):
        network, rows = WithOffset(model, rows.x.shape[1]), with_offsets(rows)
    options = {"weight_decay": settings["decay"]} if "decay" in settings else None
    positives = settings.get("positives", "natural")

    common = {
        "method": "adamw",
        "lr": settings["lr"],
        "optimizer_options": options,
        "metric": settings["metric"],
        "batch_size": min(BATCH, len(rows.y)),
        "positives": None if positives == "natural" else positives,
        "seed": settings["seed"],
        "progress": False,
        "device": "cpu",
    }

    def fit(steps: int, objective: str, **loss_options: Any) -> None:
        own = {"steps": steps, "eval_every": max(1, steps // EVALUATIONS)}
        own |= {"objective": objective, "loss_options": loss_options}
        aucmax.fit(network, rows.for_fit, parts.valid.for_fit, **common, **own)

    first = settings["steps"] // 2 if settings.get("pretrained") else 0
    if first:
        fit(first, "ce")
    loss_options = {name: settings[name] for name in LOSS_OPTIONS if name in settings}
    fit(settings["steps"] - first, settings["loss"], **loss_options)
    model.eval()
    with torch.no_grad():
        return model(parts.valid.x).reshape(-1), model(parts.test.x).reshape(-1)


class WithOffset(nn.Module):
    """Adds an input after the model's own, an offset, to the score; rows without one have none."""

    def __init__(self, model: nn.Module, inputs: int) -> None:
        super().__init__()
        self.model, self.inputs = model, inputs

    def forward(self, x: Tensor) -> Tensor:
        """Return the score."""
        score: Tensor = self.model(x[:, : self.inputs])
        return score + x[:, self.inputs :].sum(1, keepdim=True)


def with_offsets(part: Part) -> Part:
    """Append each row's log-odds of its group, with one row of each class added to the group."""
    number = np.unique(part.group, return_inverse=True)[1]
    positives = np.bincount(number, part.y)
    negatives = np.bincount(number, 1 - part.y)
    offset = np.log((positives + 1) / (negatives + 1))[number]
    return part._replace(x=torch.cat([part.x, torch.tensor(offset[:, None]).float()], 1))


def train_trees(settings: Settings, parts: Parts) -> Scores:
    """Train LightGBM, stopped where the validation rows' AUC is best."""
    import lightgbm

    options = {
        "objective": AUCObjective(settings["surrogate"]) if "surrogate" in settings else "binary",
        "metric": "none",
        "max_depth": settings["depth"],
        "num_leaves": 2 ** settings["depth"],
        "learning_rate": settings["lr"],
        "min_data_in_leaf": settings["least"],
        "is_unbalance": settings.get("balanced", False),
        "seed": settings["seed"],
        "num_threads": 1,
        "verbose": -1,
        "deterministic": True,
    }
    rows = lightgbm.Dataset(parts.train.x.numpy(), parts.train.y.numpy())
    valid = lightgbm.Dataset(parts.valid.x.numpy(), parts.valid.y.numpy(), reference=rows)
    stop = lightgbm.early_stopping(settings["steps"] // 5, verbose=False)
    model = lightgbm.train(
        options, rows, settings["steps"], [valid], feval=AUCMetric(), callbacks=[stop]
    )
    return tuple(model.predict(x.x.numpy(), raw_score=True) for x in (parts.valid, parts.test))


def train_linear(settings: Settings, parts: Parts) -> Scores:
    r"""Train a linear model to its optimum: logistic regression, least squares, hinge on pairs.

    On all pairs of a positive and a negative, with n rows, w minimizes
    :math:`C n \, \mathrm{mean} (1 - w^T x_+ + w^T x_-)_+^2 + \frac12 |w|^2`.
    """
    x, y, kind = parts.train.x.double(), parts.train.y, settings["loss"]
    if kind == "logistic":
        weight = "balanced" if settings["balanced"] else None
        model = LogisticRegression(C=settings["C"], class_weight=weight, max_iter=2000)
        w = model.fit(x, y).coef_[0]
    elif kind == "squares":
        w = Ridge(alpha=settings["penalty"]).fit(x, y).coef_
    else:
        loss, factor = aucmax.PairwiseAUCLoss("squared_hinge"), settings["C"] * len(y)

        def value_and_gradient(numbers: Any) -> tuple[float, Any]:
            w = torch.tensor(numbers, requires_grad=True)
            value = factor * loss(x @ w, y) + w.square().sum() / 2
            (gradient,) = torch.autograd.grad(value, w)
            return value.item(), gradient.numpy()

        start, options = np.zeros(x.shape[1]), {"maxiter": 500}
        w = minimize(value_and_gradient, start, jac=True, method="L-BFGS-B", options=options).x
    return tuple(part.x.double().numpy() @ w for part in (parts.valid, parts.test))


TRAINERS = {"network": train_network, "trees": train_trees, "linear": train_linear}
