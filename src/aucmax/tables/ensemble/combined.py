"""Several models as one: which of them count, and their scores on one scale."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from aucmax import metrics
from aucmax.judge.calibration import Platt, Temperature, softmax
from aucmax.tables.encoder import Encoded
from aucmax.tables.ensemble.base import CrossFitted, Scores, TableModel
from aucmax.tables.ensemble.weights import likeliest_weights
from aucmax.tables.scoring import Rows, fit_calibration
from aucmax.train.metrics import Metric, Scored

LEAST = 0.05
"""A model's share in what moves the mean: with less it takes time and changes nothing."""


class Standing(NamedTuple):
    """How one of several models came out.

    Attributes:
        name: of the model.
        weight: its share in what moves the mean; 0 if it was left out.
        score: the metric out of fold; NaN if it was not fitted, or nothing was held out.
        p_value: of a paired test against the best; NaN of the best, and where there is no test.
        seconds: that fitting took; NaN if it was not fitted.
        left_out: why, if it was.
    """

    name: str
    weight: float
    score: float
    p_value: float = math.nan
    seconds: float = math.nan
    left_out: str = ""

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Standing:
        """What JSON held of it, null where there is no number."""
        known: dict[str, Any] = {k: math.nan if x is None else x for k, x in content.items()}
        return cls(**known)


@dataclass(frozen=True)
class Ensemble:
    """Models whose scores, each on the scale of log-odds, are averaged.

    Attributes:
        models: those that count, by name.
        weights: of each one's log-odds, of which the sum is one.
        scales: what brings each one's scores to log-odds; of one model alone, none.
    """

    models: Mapping[str, TableModel]
    weights: Mapping[str, float]
    scales: Mapping[str, Platt | Temperature]

    def score(self, rows: Encoded, fold: int | None = None) -> Scores:
        """Raw scores (N, outputs); of one fold's fits alone, if that is asked for."""
        return self.combine({name: each.score(rows, fold) for name, each in self.models.items()})

    def combine(self, scores: Mapping[str, Scores]) -> Scores:
        """The mean of the models' raw scores."""
        if not self.scales:
            (only,) = self.models
            return scores[only]
        return _mean(self.weights, {x: self.scales[x].logit(scores[x]) for x in self.models})


def combine(
    fitted: Mapping[str, CrossFitted], rows: Rows, metric: Metric
) -> tuple[Ensemble, list[Standing]]:
    """Weigh models by how they score rows out of fold, without those that hardly move the mean.

    The weights are the likeliest, or equal ones, if the metric of the mean is better by these. Of
    rows in groups, of which a likelihood knows nothing, the best model alone may be better, too.

    Args:
        fitted: the models, by name.
        rows: that were scored; those that no fit was judged by have no part.
        metric: what they are judged by.
    """
    first = next(iter(fitted.values())).scores
    judged = np.flatnonzero(~np.isnan(first[:, 0]))
    known = rows.select(judged)
    scores = {name: each.scores[judged] for name, each in fitted.items()}
    scales = (
        {name: fit_calibration(x, known) for name, x in scores.items()} if len(scores) > 1 else {}
    )
    # Of several classes an AUC depends on the scale, which must be that of the mean.
    scores = {name: scales[name].logit(x) if scales else x for name, x in scores.items()}
    values = {name: score_of(x, known, metric) for name, x in scores.items()}
    best = min(values, key=lambda name: (math.isnan(values[name]), -values[name]))
    weights = _weigh(scores, known, metric, best) if scales else {best: 1.0}
    ensemble = Ensemble(
        {name: fitted[name].model for name in weights},
        weights,
        {name: scales[name] for name in weights} if len(weights) > 1 else {},
    )
    shares = _shares(weights, scores) if scales else weights
    standings = [
        Standing(
            name,
            shares.get(name, 0.0),
            values[name],
            math.nan if name == best else _p_value(scores[best], scores[name], known, metric),
            each.seconds,
            "" if name in weights else "it hardly moves the average",
        )
        for name, each in fitted.items()
    ]
    return ensemble, standings


def _weigh(scores: Mapping[str, Scores], rows: Rows, metric: Metric, best: str) -> dict[str, float]:
    """Weights by name, of those that count, the best among them."""
    kept = list(scores)
    while True:
        found = likeliest_weights([scores[name] for name in kept], rows.classes, rows.weight)
        likeliest = dict(zip(kept, found.tolist(), strict=True))
        shares = _shares(likeliest, scores)
        last = min((name for name in kept if name != best), key=shares.__getitem__, default=best)
        if last == best or shares[last] >= LEAST:
            break
        kept.remove(last)
    tried = [likeliest, dict.fromkeys(kept, 1 / len(kept))]
    if rows.group is not None:
        tried.append({best: 1.0})
    return max(tried, key=lambda weights: score_of(_mean(weights, scores), rows, metric))


def _mean(weights: Mapping[str, float], scores: Mapping[str, Scores]) -> Scores:
    return np.asarray(sum(weights[name] * scores[name] for name in weights), np.float64)


def _shares(weights: Mapping[str, float], scores: Mapping[str, Scores]) -> dict[str, float]:
    """How much each model moves the mean: one whose log-odds hardly differ does not."""
    moves = {name: weight * _spread(scores[name]) for name, weight in weights.items()}
    total = math.fsum(moves.values())
    return {name: x / total for name, x in moves.items()} if total else dict(weights)


def _spread(scores: Scores) -> float:
    """Between rows; of several classes what is added to all of a row's scores has no part."""
    if scores.shape[1] > 1:
        scores = scores - scores.mean(axis=1, keepdims=True)
    return math.sqrt(scores.var(axis=0).mean())


def score_of(scores: Scores, rows: Rows, metric: Metric) -> float:
    """The metric of raw scores of rows; NaN without rows."""
    if not len(rows):
        return math.nan
    binary = scores.shape[1] == 1
    given = torch.from_numpy(scores[:, 0] if binary else scores)
    return metric(Scored(given, *_about(rows)), "binary" if binary else "multiclass")


def _about(rows: Rows) -> tuple[Any, ...]:
    columns = (rows.classes, rows.weight, rows.group)
    return tuple(None if x is None else torch.from_numpy(x) for x in columns)


def _p_value(best: Scores, other: Scores, rows: Rows, metric: Metric) -> float:
    """Of the difference; by the AUC where the metric has no test."""
    if not len(rows):
        return math.nan
    if best.shape[1] > 1:
        weight = None if rows.weight is None else rows.weight.astype(np.float64)
        tables = softmax(best), softmax(other)
        return metrics.compare(*tables, rows.classes, "hand_till", weight=weight).p_value
    target, weight, group = _about(rows)
    first, second = (torch.from_numpy(x[:, 0]) for x in (best, other))
    test = metric.test(first, second, target, weight, group)
    if test is None:
        test = metrics.compare(first, second, target, weight=weight)
    return test.p_value
