"""StreamingAUC in two real processes against the AUC of the pooled rows."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import ranks_auc
from reference import auc as reference

pytestmark = pytest.mark.xdist_group("metrics_ranks")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


@pytest.fixture(scope="module")
def streamed(tmp_path_factory):
    """What rank 0 and rank 1 got, by the name of the case."""
    folder = tmp_path_factory.mktemp("ranks")
    command = [*TORCHRUN, str(Path(ranks_auc.__file__)), str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1)]


@pytest.mark.parametrize("case", ranks_auc.cases())
def test_every_rank_gets_the_auc_of_all_rows(streamed, case):
    parts = ranks_auc.cases()[case]
    x, y = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    w = np.concatenate([np.ones(len(s)) if w is None else w for s, _, w in parts])
    expected = reference.auc(x, y, w)
    assert 0 < expected < 1
    assert streamed[0][case] == streamed[1][case] == pytest.approx(expected, abs=1e-12)
