"""What holds of every metric of two classes, its interval and its paired test."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from errors import assert_names
from metric_infos import INFOS

from aucmax.metrics import (
    ConfidenceInterval,
    PairedTest,
    StreamingAUC,
    average_precision,
    precision_at,
    roc_curve,
)

each_metric = pytest.mark.parametrize("info", INFOS, ids=lambda info: info.name)
FORMS = {
    "list": lambda x: x.tolist(),
    "float32": lambda x: x.astype(np.float32),
    "column": lambda x: x[:, None],
    "reversed view": lambda x: x[::-1].copy()[::-1],
    "read only": lambda x: np.frombuffer(x.tobytes()),
    "tensor": lambda x: torch.tensor(x, dtype=torch.float32),
    "tensor with grad": lambda x: torch.tensor(x, requires_grad=True),
    "tensor column": lambda x: torch.tensor(x)[:, None] * 1,
}
LABELS = {
    "bool": lambda y: y,
    "float": lambda y: y.astype(float),
    "uint8 column": lambda y: y.astype(np.uint8)[:, None],
    "tensor int64": lambda y: torch.tensor(y, dtype=torch.int64),
    "tensor bool": torch.tensor,
    "tensor bfloat16": lambda y: torch.tensor(y, dtype=torch.bfloat16),
    "list": lambda y: y.tolist(),
}


def rows(n=80, seed=0):
    """Scores of two models with ties, labels, and weights of which one is zero."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 4 == 0
    a, b = (np.round(4 * (rng.standard_normal(n) + y)) / 4 for _ in range(2))
    return a, b, y, np.append(rng.uniform(0.5, 2.0, n - 1), 0.0)


@each_metric
def test_every_form_of_scores_and_labels_gives_the_same_float(info):
    a, b, y, w = rows()
    expected = info.value(a, y, 80), info.interval_of(a, y, 80), info.compare(a, b, y, 80)
    assert type(expected[0]) is float
    for convert in FORMS.values():
        assert info.value(convert(a), y, 80) == expected[0]
        assert info.interval_of(convert(a), y, 80) == expected[1]
        assert info.compare(convert(a), convert(b), y, 80) == expected[2]
    for convert in LABELS.values():
        assert info.value(a, convert(y), 80) == expected[0]
    weighted = info.value(a, y, 80, weight=w)
    assert info.value(a, y, 80, weight=torch.tensor(w)) == weighted
    assert info.value(a, y, 80, weight=w[:, None].tolist()) == weighted


@each_metric
def test_only_the_order_of_scores_counts(info):
    a, b, y, w = rows()
    mapped = [np.exp(2 * x - 3) for x in (a, b)]
    for weight in (None, w):
        assert info.value(mapped[0], y, 80, weight=weight) == info.value(a, y, 80, weight=weight)
        found = info.compare(*mapped, y, 80, weight=weight)
        assert found == pytest.approx(info.compare(a, b, y, 80, weight=weight), rel=1e-12)


@each_metric
def test_a_weight_repeats_a_row_at_any_scale(info):
    if info.name == "count":
        info = next(x for x in INFOS if x.name == "precision_at")  # of counts the scale matters
    a, _, y, _ = rows()
    times = np.arange(80) % 5
    repeated = info.value(np.repeat(a, times), np.repeat(y, times), times.sum())
    for scale in (1, 1e-300, 1e307):
        found = info.value(a, y, 80, weight=scale * times)
        assert found == pytest.approx(repeated, rel=1e-11)


@each_metric
def test_types_and_laws_of_intervals_and_paired_tests(info):
    for seed in range(5):
        a, b, y, _ = rows(seed=seed)
        found, test = info.interval_of(a, y, 80), info.compare(a, b, y, 80)
        assert (type(found), type(test)) == (ConfidenceInterval, PairedTest)
        assert {*map(type, found), *map(type, test)} == {float}
        assert found.value == pytest.approx(info.value(a, y, 80), rel=1e-12)
        assert 0 <= found.low <= found.value <= found.high <= 1
        assert found.low < found.high
        wider = info.interval_of(a, y, 80, level=0.99)
        assert wider.low <= found.low
        assert wider.high >= found.high
        assert test.difference == pytest.approx(found.value - info.value(b, y, 80), rel=1e-9)
        back = info.compare(b, a, y, 80)
        assert (test.z, test.difference) == (-back.z, -back.difference)
        assert info.compare(a, a, y, 80)[2:] == (0.0, 0.0, 0.0, 1.0)
        ones = info.interval_of(a, y, 80, weight=np.ones(80))
        if not info.grouped:
            assert ones == pytest.approx(found, rel=1e-9, abs=1e-12)


# ---- No answer ---------------------------------------------------------------------------------


@each_metric
@pytest.mark.parametrize("label", [0, 1])
def test_one_class_is_nan_and_warns_where_it_was_called(info, label):
    x, y = torch.linspace(0, 1, 70), torch.full((70,), label)
    calls = [lambda: info.interval_of(x, y, 70)[:4], lambda: info.compare(x, x, y, 70)]
    if label == 0 or info.function not in (average_precision, precision_at):  # need no negatives
        calls += [lambda: info.value(x, y, 70), lambda: info.value(x, y, 70, weight=torch.ones(70))]
    for call in calls:
        with pytest.warns(UserWarning, match=f"{70 * label} positives|no group has") as caught:
            assert np.isnan(call()).all()
        assert Path(caught[0].filename).name == "metric_infos.py"


# ---- Bad input ---------------------------------------------------------------------------------

SCORES, TARGET = [0.1, 0.4, 0.3, 0.8], [0, 0, 1, 1]
BAD_ROWS = {
    "NaN": ("scores", [math.nan, 1, math.nan, math.inf], TARGET),
    "infinite": ("scores", np.array([1, 2, 3, -np.inf], np.float32), TARGET),
    "a row": ("scores", [SCORES], [TARGET]),
    "a scalar": ("scores", 0.5, 1),
    "no rows": ("scores", [], []),
    "strings": ("scores", ["a", "b", "c", "d"], TARGET),
    "complex": ("scores", torch.ones(4) * 1j, TARGET),
    "signs": ("target", SCORES, [-1, -1, 1, 1]),
    "classes": ("target", SCORES, [0, 1, 2, 3]),
    "half": ("target", SCORES, torch.tensor([0, 1, 0.5, 1])),
    "NaN label": ("target", SCORES, [0, 1, math.nan, 1]),
    "short": ("target", SCORES, [0, 1]),
    "one label": ("target", SCORES, [1]),
    "two columns": ("target", SCORES, np.zeros((4, 2))),
}
BAD_WEIGHTS = [
    [1, 1, 1, -1],
    [1, 1, 1, math.nan],
    [1, 1, math.inf, math.inf],
    [0, 0, 0, 0],
    [1],
    [[1, 1, 1, 1]],
]


@each_metric
@pytest.mark.parametrize("bad", BAD_ROWS)
def test_bad_rows_are_named(info, bad):
    argument, scores, target = BAD_ROWS[bad]
    if info.grouped and bad == "no rows":
        argument = "group"
    rows = np.asarray(scores).size
    assert_names(argument, info.value, scores, target, rows)
    assert_names(argument, info.interval_of, scores, target, rows)
    if argument == "scores" and np.shape(scores) == (4,):
        assert_names("scores_a", info.compare, scores, SCORES, target)
        assert_names("scores_b", info.compare, SCORES, scores, target)


@pytest.mark.parametrize("function", [roc_curve, StreamingAUC().update], ids=["curve", "streaming"])
def test_bad_rows_of_curve_and_stream_are_named(function):
    for name, (argument, scores, target) in BAD_ROWS.items():
        if name != "no rows":
            assert_names(argument, function, scores, target)
    for weight in BAD_WEIGHTS:
        assert_names("weight", function, SCORES, TARGET, weight)


@each_metric
def test_bad_weights_levels_and_options_are_named(info):
    for weight in BAD_WEIGHTS:
        assert_names("weight", info.value, SCORES, TARGET, weight=weight)
        assert_names("weight", info.interval_of, SCORES, TARGET, weight=weight)
    for level in (0, 1, -0.5, 95, math.nan, "high"):
        assert_names("level", info.interval_of, SCORES, TARGET, level=level)
    for name, values in info.bad_options.items():
        for value in values:
            assert_names(name, info.value, SCORES, TARGET, **{name: value})
            assert_names(name, info.interval_of, SCORES, TARGET, **{name: value})
            assert_names(name, info.compare, SCORES, SCORES, TARGET, **{name: value})
