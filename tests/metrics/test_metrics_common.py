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
    roc_auc,
    roc_curve,
)
from aucmax.metrics import rows as reading

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


def draw(n=80, seed=0):
    """Scores of two models with ties, labels, and weights of which one is zero."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 4 == 0
    a, b = (np.round(4 * (rng.standard_normal(n) + y)) / 4 for _ in range(2))
    return a, b, y, np.append(rng.uniform(0.5, 2.0, n - 1), 0.0)


def close(value):
    return pytest.approx(value, rel=1e-11, abs=1e-12)


@each_metric
def test_every_form_of_scores_and_labels_gives_the_same_float(info):
    a, b, y, w = draw()
    expected = info.value(a, y), info.interval(a, y), info.compare(a, b, y)
    assert type(expected[0]) is float
    for convert in FORMS.values():
        assert info.value(convert(a), y) == expected[0]
        assert info.interval(convert(a), y) == expected[1]
        assert info.compare(convert(a), convert(b), y) == expected[2]
    for convert in LABELS.values():
        assert info.value(a, convert(y)) == expected[0]
    weighted = info.value(a, y, weight=w)
    assert info.value(a, y, weight=torch.tensor(w)) == weighted
    assert info.value(a, y, weight=w[:, None].tolist()) == weighted


@each_metric
def test_tensors_of_an_accelerator_give_the_same(info, monkeypatch):
    """Here on the CPU, sorted by torch as they would be there."""
    a, b, y, w = draw()
    for weight in (None, w):
        options = {} if weight is None else {"weight": weight}
        expected = info.value(a, y, **options), info.interval(a, y, **options)
        with monkeypatch.context() as patch:
            patch.setattr(reading, "HOSTS", ())
            tensors = {key: torch.tensor(x) for key, x in options.items()}
            x = torch.tensor(a)
            assert info.value(x, torch.tensor(y), **tensors) == close(expected[0])
            assert info.value(x.float()[:, None], torch.tensor(y), **tensors) == close(expected[0])
            assert info.interval(x, torch.tensor(y), **tensors) == close(expected[1])
    monkeypatch.setattr(reading, "HOSTS", ())
    expected = info.compare(a, b, y)
    assert info.compare(*map(torch.tensor, (a, b, y))) == close(expected)


@each_metric
def test_only_the_order_of_scores_counts(info):
    a, b, y, w = draw()
    mapped = [np.exp(2 * x - 3) for x in (a, b)]
    for weight in (None, w):
        assert info.value(mapped[0], y, weight=weight) == info.value(a, y, weight=weight)
        found = info.compare(*mapped, y, weight=weight)
        assert found == pytest.approx(info.compare(a, b, y, weight=weight), rel=1e-12)


@each_metric
def test_a_weight_repeats_a_row_at_any_scale(info):
    if "k" in info.options:
        info = next(x for x in INFOS if "share" in x.options)  # of counts the scale matters
    a, _, y, _ = draw()
    times = np.arange(80) % 5
    groups = {"group": np.repeat(info.group(y), times)} if info.grouped else {}
    repeated = info.value(np.repeat(a, times), np.repeat(y, times), **groups)
    for scale in (1, 1e-300, 1e307):
        assert info.value(a, y, weight=scale * times) == pytest.approx(repeated, rel=1e-11)


@each_metric
def test_types_and_laws_of_intervals_and_paired_tests(info):
    for seed in range(5):
        a, b, y, _ = draw(seed=seed)
        found, test = info.interval(a, y), info.compare(a, b, y)
        assert (type(found), type(test)) == (ConfidenceInterval, PairedTest)
        assert {*map(type, found), *map(type, test)} == {float}
        assert found.value == pytest.approx(info.value(a, y), rel=1e-12)
        assert 0 <= found.low <= found.value <= found.high <= 1
        assert found.low < found.high
        wider = info.interval(a, y, level=0.99)
        assert wider.low <= found.low
        assert wider.high >= found.high
        assert test.difference == pytest.approx(found.value - info.value(b, y), rel=1e-9)
        back = info.compare(b, a, y)
        assert (test.z, test.difference) == (-back.z, -back.difference)
        assert info.compare(a, a, y)[2:] == (0.0, 0.0, 0.0, 1.0)
        ones = info.interval(a, y, weight=np.ones(80))
        assert ones == pytest.approx(found, rel=1e-9, abs=1e-12)


@each_metric
def test_clusters_of_what_was_drawn_change_nothing(info):
    a, b, y, w = draw()
    alone = info.group(y) + 7 if info.grouped else np.arange(80) + 7
    for weight in (None, w):
        expected = info.interval(a, y, weight=weight)
        assert info.interval(a, y, weight=weight, groups=alone) == close(expected)
        expected = info.compare(a, b, y, weight=weight)
        assert info.compare(a, b, y, weight=weight, groups=alone) == close(expected)


# ---- No answer ---------------------------------------------------------------------------------


@each_metric
@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("hosts", [(), reading.HOSTS], ids=["accelerator", "host"])
def test_one_class_is_nan_and_warns_where_it_was_called(info, label, hosts, monkeypatch):
    monkeypatch.setattr(reading, "HOSTS", hosts)
    x, y = torch.linspace(0, 1, 70), torch.full((70,), label)
    for call in (
        lambda: info.interval(x, y)[:4],
        lambda: info.compare(x, x, y),
        lambda: info.value(x, y),
        lambda: info.value(x, y, weight=torch.ones(70)),
    ):
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
    "infinite label": ("target", SCORES, [0, 1, math.inf, 1]),
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
    0.1,
]


def message(function, *args, **options):
    """Return what the ValueError of a call says."""
    with pytest.raises(ValueError, match=r"\w") as caught:
        function(*args, **options)
    return str(caught.value)


@each_metric
@pytest.mark.parametrize("bad", BAD_ROWS)
def test_bad_rows_are_named(info, bad):
    argument, scores, target = BAD_ROWS[bad]
    group = {"group": np.zeros(np.asarray(scores).size or 1)} if info.grouped else {}
    within = {"rank_within": group["group"]} if info.grouped else {}
    if info.grouped and bad == "no rows":
        argument = "(group|rank_within)"
    assert_names(argument, info.value, scores, target, **group)
    assert_names(argument, info.interval, scores, target, **within)
    if argument == "scores" and np.shape(scores) == (4,):
        assert_names("a", info.compare, scores, SCORES, target, **within)
        assert_names("b", info.compare, SCORES, scores, target, **within)


@each_metric
@pytest.mark.parametrize("bad", BAD_ROWS)
def test_bad_rows_raise_the_same_on_every_device(info, bad, monkeypatch):
    _, scores, target = BAD_ROWS[bad]
    if bad == "strings":
        return
    tensors = torch.as_tensor(scores), torch.as_tensor(target)
    group = {"group": np.zeros(tensors[0].numel() or 1)} if info.grouped else {}
    expected = message(info.value, *tensors, **group)
    monkeypatch.setattr(reading, "HOSTS", ())
    assert message(info.value, *tensors, **group) == expected


@each_metric
@pytest.mark.parametrize("weight", BAD_WEIGHTS, ids=str)
def test_bad_weights_are_named_on_every_device(info, weight, monkeypatch):
    assert_names("weight", info.value, SCORES, TARGET, weight=weight)
    assert_names("weight", info.interval, SCORES, TARGET, weight=weight)
    assert_names("weight", info.compare, SCORES, SCORES, TARGET, weight=weight)
    tensors = torch.tensor(SCORES), torch.tensor(TARGET)
    expected = message(info.value, *tensors, weight=torch.tensor(weight))
    monkeypatch.setattr(reading, "HOSTS", ())
    assert message(info.value, *tensors, weight=torch.tensor(weight)) == expected


@pytest.mark.parametrize("function", [roc_curve, StreamingAUC().update], ids=["curve", "streaming"])
def test_bad_rows_of_curve_and_stream_are_named(function):
    for name, (argument, scores, target) in BAD_ROWS.items():
        if name != "no rows":
            assert_names(argument, function, scores, target)
    for weight in BAD_WEIGHTS:
        assert_names("weight", function, SCORES, TARGET, weight)


@each_metric
def test_bad_levels_and_options_are_named(info):
    for level in (0, 1, -0.5, 95, math.nan, "high"):
        assert_names("level", info.interval, SCORES, TARGET, level=level)
    for groups in ([1, 1], [1, math.nan, 1, 1], ["a", None, None, "b"]):
        assert_names("groups", info.interval, SCORES, TARGET, groups=groups)
        assert_names("groups", info.compare, SCORES, SCORES, TARGET, groups=groups)
    for name, values in info.bad_options.items():
        for value in values:
            assert_names(name, info.value, SCORES, TARGET, **{name: value})


@each_metric
def test_swapped_arguments_are_named(info):
    """Labels that are no labels, beside scores that could be, are another library's order."""
    for call in (info.value, info.interval, lambda y, x: info.compare(y, y, x)):
        said = message(call, TARGET, SCORES)
        assert "y_true, y_score" in said
        assert "y_true" not in message(call, SCORES, SCORES)
    assert "the order is (a, b, target)" in message(info.compare, SCORES, TARGET, SCORES)


def test_columns_of_two_and_of_several_classes_are_told_what_to_do():
    assert "column 1, [:, 1]" in message(roc_auc, np.ones((4, 2)), TARGET)
    assert "metrics.hand_till" in message(roc_auc, np.ones((4, 3)), TARGET)


def test_options_are_keywords():
    with pytest.raises(ValueError, match=r"weight must .* share, k and mean are keywords"):
        roc_auc(SCORES, TARGET, 0.1)
    with pytest.raises(ValueError, match="either k, in rows, or share, found neither"):
        precision_at(SCORES, TARGET)
    with pytest.raises(ValueError, match=r"either k, in rows, or share, found k=2 and share=0\.1"):
        precision_at(SCORES, TARGET, k=2, share=0.1)
    assert average_precision(SCORES, TARGET, [1, 1, 1, 1]) == average_precision(SCORES, TARGET)
