"""Labels worth checking: those that were changed are found, rare ones are left alone."""

import numpy as np
import pytest
from evaluations import make_classes, make_rows

from aucmax.judge.doubtful import BY_CHANCE, contradicted


def sharp_rows(classes, rows=1500, seed=0):
    """Probabilities that are right and mostly sure of themselves, and labels drawn by them."""
    rng = np.random.default_rng(seed)
    odds = 6 * rng.normal(size=(rows, classes))
    p = np.exp(odds) / np.exp(odds).sum(axis=1, keepdims=True)
    return p, (rng.random((rows, 1)) > p.cumsum(axis=1)[:, :-1]).sum(axis=1)


@pytest.mark.parametrize("classes", [2, 3])
def test_changed_labels_are_found(classes):
    p, y = sharp_rows(classes)
    changed = np.random.default_rng(1).choice(len(y), 40, replace=False)
    labels = y.copy()
    labels[changed] = (y[changed] + 1) % classes
    found = contradicted(p[:, 1] if classes == 2 else p, labels)
    assert np.isin(found, changed).sum() >= 25
    assert np.isin(found, changed).mean() > 0.6  # a third may be there by chance
    assert np.isin(found[:20], changed).mean() >= 0.95
    given = p[found, labels[found]]
    assert (np.diff(given) >= 0).all()
    assert (given < p[found].max(axis=1)).all()


@pytest.mark.parametrize("share", [0.01, 0.3])
def test_right_labels_are_left_alone(share):
    found = [len(contradicted(*make_rows(3000, share, seed))) for seed in range(100)]
    assert np.mean(np.array(found) > 0) <= 0.45
    assert np.mean(found) < 1
    several = make_classes(5, 3000)
    assert len(contradicted(several["probability"], several["classes"])) <= 2


def test_rows_match_the_rule_pair_by_pair():
    p, y = make_rows(300, 0.1, seed=3)
    y[np.argsort(p)[:4]] = 1
    both = np.stack([1 - p, p], axis=1)
    given = both[np.arange(300), y]
    cuts = [q for q in given if both[both <= q].sum() <= BY_CHANCE * (given <= q).sum()]
    expected = np.flatnonzero(given <= max(cuts))
    assert {*np.argsort(p)[:4]} <= {*contradicted(p, y)} == {*expected}


def test_weights_repeat_rows():
    p, y = make_rows(400, 0.1, seed=5)
    y[np.argsort(p)[:3]] = 1
    often = np.random.default_rng(0).integers(1, 4, 400)
    twins = contradicted(np.repeat(p, often), np.repeat(y, often))
    rows = np.repeat(np.arange(400), often)[twins]
    assert list(dict.fromkeys(rows)) == contradicted(p, y, often.astype(float)).tolist()
    assert len(rows) > 0
