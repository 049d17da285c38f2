"""What the ranks of a real process group share: priors, hard rows, pairs, the AUC."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import ranks_core
from process import LIMIT
from reference import auc as reference
from reference import pairwise
from reference.average_precision import RunningAveragePrecision, squared_hinge
from reference.objective import batch_loss, sigmoid
from reference.prior import UnbiasedPrior

pytestmark = pytest.mark.ranks


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """What each of two ranks knows."""
    folder = tmp_path_factory.mktemp("ranks")
    command = [sys.executable, ranks_core.__file__, str(folder)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(2)]


def reference_walk(weighted):
    """The estimates before each step and after the last, from the labels of both ranks."""
    prior, estimates = UnbiasedPrior(), []
    for steps in zip(*map(ranks_core.batches, range(2)), strict=True):
        estimates.append([prior.p, prior.pq])
        for _, y, weight in steps:
            prior.update(y, weight if weighted else None)
    return [*estimates, [prior.p, prior.pq]]


@pytest.mark.parametrize(
    ("name", "weighted"), [("plain", False), ("weighted", True), ("loss", False)]
)
def test_the_labels_of_all_ranks_are_counted(ranks, name, weighted):
    np.testing.assert_allclose(ranks[0][name], reference_walk(weighted)[1:], rtol=1e-12)
    assert ranks[0][name] == ranks[1][name]


@pytest.mark.parametrize("rank", [0, 1])
def test_each_rank_weighs_its_batch_with_the_estimate_made_before_it(ranks, rank):
    for (scores, y, _), (p, pq), value in zip(
        ranks_core.batches(rank), reference_walk(False)[:-1], ranks[rank]["values"], strict=True
    ):
        expected = batch_loss(sigmoid(scores), y, 0.0, 0.0, 0.0, p, 1.0, True, pq=pq)
        assert value == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("rank", [0, 1])
def test_evaluation_counts_nothing_and_waits_for_no_one(ranks, rank):
    assert ranks[rank]["after evaluation"] == ranks[rank]["loss"][-1]


def test_a_bad_value_of_one_rank_is_told_on_all(ranks):
    first, *rest = ranks[0]["flags"]
    assert first.startswith("target must hold 0 and 1 only, found other values in batch 3 of 3")
    assert rest == ["", ""]
    assert ranks[1]["flags"] == ranks[0]["flags"]


def test_positives_are_ranked_among_the_rows_of_all_ranks(ranks):
    reference, both = RunningAveragePrecision(squared_hinge, 0.2), [0, 1]
    for step, sizes in enumerate(ranks_core.SIZES):
        parts = [ranks_core.batches(rank)[step] for rank in both]
        rows = np.concatenate([ranks_core.row_numbers(rank)[step] for rank in both])
        scores, y, weight = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        value, gradient = reference.step(scores, y, weight, index=rows)
        of_ranks = np.split(gradient, [sizes[0]])
        for found, wanted in zip(ranks, of_ranks, strict=True):
            found = found["average precision"]
            assert found["values"][step] == pytest.approx(value, rel=1e-10)
            # The mean over the ranks, which DDP takes, is then the whole gradient.
            np.testing.assert_allclose(found["gradients"][step], 2 * wanted, atol=1e-10)
    states = [found["average precision"]["estimates"] for found in ranks]
    assert states[0] == states[1]
    assert len(reference.known) > 3
    for row, known in reference.known.items():
        assert states[0][row] == pytest.approx(known, rel=1e-10)


def test_pairs_are_those_of_all_ranks(ranks):
    for step, sizes in enumerate(ranks_core.SIZES):
        turns = sorted((k, rank) for rank, n in enumerate(sizes) for k in range(n))
        parts = [ranks_core.batches(rank)[step] for rank in (0, 1)]
        groups = [ranks_core.row_numbers(rank)[step] % 2 for rank in (0, 1)]
        scores, y, weight = (np.array([parts[rank][i][k] for k, rank in turns]) for i in range(3))
        rows = (scores, weight * y, weight * (1 - y), [groups[rank][k] for k, rank in turns])
        value, gradient = pairwise.pairwise_loss("squared_hinge", *rows)
        for rank, found in enumerate(ranks):
            wanted = [2 * x for x, (_, owner) in zip(gradient, turns, strict=True) if owner == rank]
            assert found["pairs"]["values"][step] == pytest.approx(value, rel=1e-10)
            np.testing.assert_allclose(found["pairs"]["gradients"][step], wanted, atol=1e-10)
    assert any(ranks[0]["pairs"]["values"])
    assert ranks[0]["pairs"]["alone"] == 0.25


def test_the_hardest_rows_are_those_of_all_ranks(ranks):
    steps = zip(*map(ranks_core.batches, (0, 1)), strict=True)
    joined = [[np.concatenate(x) for x in zip(*parts, strict=True)] for parts in steps]
    alone = ranks_core.follow_the_top(joined)
    both = [found["partial"] for found in ranks]
    values = np.mean([found["values"] for found in both], axis=0)
    np.testing.assert_allclose(values, alone["values"], rtol=1e-10)
    assert any(np.abs(alone["values"]) > 0)
    for step, gradient in enumerate(alone["gradients"]):
        found = np.concatenate([rank["gradients"][step] for rank in both]) / 2
        np.testing.assert_allclose(found, gradient, atol=1e-10)
    assert both[0]["thresholds"] == both[1]["thresholds"]
    np.testing.assert_allclose(both[0]["thresholds"], alone["thresholds"], rtol=1e-10)


@pytest.mark.parametrize("case", ranks_core.cases())
def test_every_rank_gets_the_auc_of_all_rows(ranks, case):
    parts = ranks_core.cases()[case]
    x, y = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    w = np.concatenate([np.ones(len(s)) if w is None else w for s, _, w in parts])
    expected = reference.auc(x, y, w)
    assert 0 < expected < 1
    assert ranks[0]["auc"][case] == ranks[1]["auc"][case] == pytest.approx(expected, abs=1e-12)
