"""The streaming prior over the ranks of a real process group."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import ranks_prior
from reference.objective import batch_loss, sigmoid
from reference.prior import UnbiasedPrior

pytestmark = pytest.mark.xdist_group("prior_ranks")
SCRIPT = Path(ranks_prior.__file__)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What each of two ranks knows after each step."""
    folder = tmp_path_factory.mktemp("ranks")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    result = subprocess.run(
        [*launch, str(SCRIPT), str(folder)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return [json.loads((folder / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(2)]


def reference_walk(weighted):
    """The estimates before each step and after the last, from the labels of both ranks."""
    prior, estimates = UnbiasedPrior(), []
    for steps in zip(*map(ranks_prior.batches, range(2)), strict=True):
        estimates.append([prior.p, prior.pq])
        for _, y, weight in steps:
            prior.update(y, weight if weighted else None)
    return [*estimates, [prior.p, prior.pq]]


@pytest.mark.parametrize(
    ("name", "weighted"), [("plain", False), ("weighted", True), ("loss", False)]
)
@pytest.mark.parametrize("rank", [0, 1])
def test_the_labels_of_all_ranks_are_counted(found, rank, name, weighted):
    np.testing.assert_allclose(found[rank][name], reference_walk(weighted)[1:], rtol=1e-12)


def test_the_ranks_agree_bit_for_bit(found):
    for name in ("plain", "weighted", "loss", "after evaluation"):
        assert found[0][name] == found[1][name]


@pytest.mark.parametrize("rank", [0, 1])
def test_each_rank_weighs_its_batch_with_the_estimate_made_before_it(found, rank):
    for (scores, y, _), (p, pq), value in zip(
        ranks_prior.batches(rank), reference_walk(False)[:-1], found[rank]["values"], strict=True
    ):
        wanted = batch_loss(sigmoid(scores), y, 0.0, 0.0, 0.0, p, 1.0, True, pq=pq)
        assert value == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("rank", [0, 1])
def test_evaluation_counts_nothing_and_waits_for_no_one(found, rank):
    assert found[rank]["after evaluation"] == found[rank]["loss"][-1]
