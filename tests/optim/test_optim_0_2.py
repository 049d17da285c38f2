"""Optimizer states that version 0.2 saved load, and the run goes on as 0.2 did.

The file was written by version 0.2: with its sources first on the path,

    python tests/optim/test_optim_0_2.py tests/files/optim-0.2.pt
"""

import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from optim_helpers import make_params, set_grads

from aucmax import OAUC, PGA, PPDSG, PPDAdaGrad

SAVED = Path(__file__).parents[1] / "files" / "optim-0.2.pt"
CUT, STAGE_ENDS, LAST = 7, (4, 9), 12
CASES = {
    "PPDSG": (partial(PPDSG, lr=0.1, gamma=3.0), "average"),
    "PPDSG, last": (partial(PPDSG, lr=0.1, gamma=3.0, momentum=0.9, weight_decay=0.1), "last"),
    "PPDAdaGrad": (partial(PPDAdaGrad, lr=0.1, gamma=3.0), "average"),
    "PPDAdaGrad, last": (partial(PPDAdaGrad, lr=0.1, gamma=3.0), "last"),
    "PGA": (partial(PGA, lr=0.1, gamma=3.0, radius=2.0, dual_radius=0.5, seed=1), "average"),
    "OAUC": (partial(OAUC, lr=0.1), "average"),
}


def build(case):
    """Weights, one of which rests at times, a and b, alpha: groups in the order of 0.2."""
    params = make_params((4, 3), (3,), (1,), (1,), (1,))
    groups = [
        {"params": params[:2]},
        {"params": params[2:4], "weight_decay": 0.0, "lr": 0.2},
        {"params": params[4:], "weight_decay": 0.0, "maximize": True},
    ]
    return params, CASES[case][0](groups)


def walk(case, params, optimizer, first, last):
    for t in range(first, last):
        set_grads(params, t)
        if t % 3 == 1:
            params[1].grad = None
        optimizer.step()
        if t in STAGE_ENDS:
            optimizer.end_stage(CASES[case][1])


def values(params, optimizer):
    """Parameters, and the averages of those that have one."""
    return [p.detach().clone() for p in params], [x.clone() for _, x in optimizer.averages()]


@pytest.mark.parametrize("case", CASES)
def test_state_of_0_2_loads(case):
    saved = torch.load(SAVED, weights_only=True)[case]
    params, optimizer = build(case)
    with torch.no_grad():
        for p, value in zip(params, saved["params"], strict=True):
            p.copy_(value)
    optimizer.load_state_dict(saved["optimizer"])
    walk(case, params, optimizer, CUT, LAST)
    torch.testing.assert_close(values(params, optimizer), saved["end"], rtol=1e-13, atol=1e-13)


def write(path):
    """Save every case at the cut, and where it ends."""
    saved = {}
    for case in CASES:
        params, optimizer = build(case)
        walk(case, params, optimizer, 0, CUT)
        found = {"params": values(params, optimizer)[0], "optimizer": optimizer.state_dict()}
        torch.save(found, path)
        saved[case] = torch.load(path, weights_only=True)
        walk(case, params, optimizer, CUT, LAST)
        saved[case]["end"] = values(params, optimizer)
    torch.save(saved, path)


if __name__ == "__main__":
    write(sys.argv[1])
