"""How much each of several models counts."""

import numpy as np
import pytest
from reference.weights import likeliest

from aucmax import metrics
from aucmax.judge.calibration import softmax
from aucmax.tables.encoder import Encoded
from aucmax.tables.ensemble.base import CrossFitted
from aucmax.tables.ensemble.combined import combine
from aucmax.tables.ensemble.linear import Linear, Logistic
from aucmax.tables.ensemble.weights import PULL, likeliest_weights
from aucmax.tables.scoring import Rows
from aucmax.train.metrics import find_metric

ROWS = 200
ENCODED = Encoded(np.zeros((ROWS, 1), np.float32), np.zeros((ROWS, 0), np.int64))
CLASSES = (np.arange(ROWS) % 5 == 0).astype(np.int64)
AUC = find_metric("roc_auc")


def noise(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def fitted_of(**scores):
    model = Logistic("", Linear(*(np.zeros((1, 1)),) * 2, np.zeros(0, np.int64), np.zeros(1)), [])
    return {name: CrossFitted(model, x[:, None], 1.0) for name, x in scores.items()}


@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize("outputs", [1, 3])
def test_weights_match_the_reference(outputs, is_weighted):
    rows = 60
    classes = np.arange(rows) % max(2, outputs)
    signal = classes[:, None] if outputs == 1 else np.eye(3)[classes]
    scores = [signal * k + noise(rows, outputs, seed=k) for k in range(3)]
    weight = np.linspace(0.5, 1.5, rows) if is_weighted else np.ones(rows)
    full = [np.hstack([0 * x, x]) if outputs == 1 else x for x in scores]
    wanted = likeliest([x.tolist() for x in full], classes.tolist(), weight.tolist(), PULL)
    found = likeliest_weights(scores, classes, 7 * weight if is_weighted else None)
    np.testing.assert_allclose(found, wanted, atol=2e-3)
    assert found.sum() == pytest.approx(1)


def test_weights_shrink_to_equal_for_few_rows():
    def weight_of_noise(rows):
        classes = (np.arange(rows) % 4 == 0).astype(np.int64)
        good = 2 * classes + noise(rows)
        return likeliest_weights([good[:, None], noise(rows, 1, seed=1)], classes)[1]

    few, many = weight_of_noise(12), weight_of_noise(4000)
    assert many < 0.04 < 0.4 < few < 0.5


def test_reversed_models_have_equal_weights():
    wrong = -3.0 * (CLASSES[:, None] - 0.5) + 0.1 * noise(ROWS, 1)
    assert likeliest_weights([wrong, 2 * wrong], CLASSES).tolist() == [0.5, 0.5]


def test_useless_model_is_left_out():
    good = CLASSES + 0.8 * noise(2, ROWS)
    found = fitted_of(a=good[0], b=noise(ROWS, seed=3), c=3 * good[1])
    for x in found.values():
        x.scores[:20] = np.nan  # which no fit was judged by
    ensemble, standings = combine(found, Rows.of(ENCODED, CLASSES, None), AUC)
    assert list(ensemble.weights) == ["a", "c"]
    assert [x.name for x in standings if x.left_out] == ["b"]
    assert sum(x.weight for x in standings) == pytest.approx(1)
    total = ensemble.combine({name: x.scores[20:] for name, x in found.items()})
    best = max(metrics.roc_auc(found[x].scores[20:, 0], CLASSES[20:]) for x in "ac")
    assert metrics.roc_auc(total[:, 0], CLASSES[20:]) > best


def test_equal_weights_if_better_by_the_metric():
    found = fitted_of(a=CLASSES + 0.5 * noise(ROWS), b=CLASSES + 2 * noise(ROWS, seed=4))
    rows = Rows.of(ENCODED, CLASSES, None)
    by_auc, _ = combine(found, rows, AUC)
    assert by_auc.weights["a"] > 0.55

    def narrow(scores, target, weight):
        return -float(scores.std())

    ensemble, standings = combine(found, rows, find_metric(narrow))
    assert ensemble.weights == {"a": 0.5, "b": 0.5}
    assert standings[1].weight < 0.4  # for its log-odds differ less


def test_several_classes_are_compared_on_one_scale():
    """Else one as good as the best is left out, for an AUC depends on the classes' shifts."""
    classes = np.repeat([0, 1, 2], [140, 45, 15])
    scores = np.eye(3)[classes] + noise(ROWS, 3, seed=1) * [1.0, 1.0, 0.5]
    found = {name: x._replace(scores=scores) for name, x in fitted_of(a=CLASSES, b=CLASSES).items()}
    raw = metrics.hand_till(softmax(scores), classes)
    ensemble, standings = combine(found, Rows.of(ENCODED, classes, None), AUC)
    assert ensemble.weights == pytest.approx({"a": 0.5, "b": 0.5})
    both = metrics.hand_till(softmax(ensemble.combine({"a": scores, "b": scores})), classes)
    assert [x.score for x in standings] == pytest.approx([both, both])
    assert both < raw - 0.002


def test_model_of_class_shares_is_left_out():
    classes = np.repeat([0, 1, 2], [140, 45, 15])
    good = 3 * np.eye(3)[classes] + noise(ROWS, 3, seed=1)
    found = {
        name: x._replace(scores=scores)
        for (name, x), scores in zip(
            fitted_of(a=CLASSES, b=CLASSES, c=CLASSES).items(),
            (good, good + noise(ROWS, 3, seed=2), 0.01 * noise(ROWS, 3, seed=3)),
            strict=True,
        )
    }
    ensemble, standings = combine(found, Rows.of(ENCODED, classes, None), AUC)
    assert list(ensemble.weights) == ["a", "b"]
    assert standings[2].left_out


def test_single_best_model_within_groups():
    """The likelihood is that of one which knows how many positives a group has, and no more."""
    group = np.arange(ROWS) // 20
    rate = np.where(group % 2, 0.9, 0.1)
    random = np.random.default_rng(0)
    classes = (random.random(ROWS) < rate).astype(np.int64)
    between = np.log(rate / (1 - rate)) + 3 * random.normal(size=ROWS)
    within = classes + 0.3 * random.normal(size=ROWS) - 9.0 * (group % 2)
    rows = Rows.of(ENCODED, classes, None, group)
    ensemble, standings = combine(fitted_of(a=between, b=within), rows, find_metric("grouped_auc"))
    assert list(ensemble.weights) == ["b"]
    assert standings[0].left_out


def test_one_model_keeps_its_scores():
    found = fitted_of(a=np.linspace(-9, 9, ROWS))
    ensemble, (standing,) = combine(found, Rows.of(ENCODED, CLASSES, None), AUC)
    assert np.array_equal(ensemble.combine({"a": found["a"].scores}), found["a"].scores)
    assert standing.weight == 1.0
