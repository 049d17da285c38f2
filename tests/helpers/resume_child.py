"""Training that can be cut anywhere. As a script: go on from every checkpoint in a folder."""

import sys
from functools import partial
from pathlib import Path

import torch
from optim_helpers import end_stage, make_batch, make_task, set_lr, train_step

from aucmax import OAUC, PGA, PPDSG, PPDAdaGrad

LRS, STAGE_ENDS, LAST = (0.3, 0.1, 0.03), (5, 12), 18

CASES = {
    "ppdsg": (partial(PPDSG, gamma=3.0), "average"),
    "ppdsg-last": (partial(PPDSG, gamma=3.0), "last"),
    "ppdsg-momentum": (partial(PPDSG, gamma=3.0, momentum=0.9, weight_decay=0.1), "average"),
    "ppdadagrad": (partial(PPDAdaGrad, gamma=3.0), "average"),
    "ppdadagrad-last": (partial(PPDAdaGrad, gamma=3.0), "last"),
    "pga": (partial(PGA, gamma=3.0, radius=2.2, dual_radius=0.05, seed=1), "average"),
    "oauc": (OAUC, "average"),
}


def build(case, seed, dtype=torch.float64):
    """A task with an estimated prior, and its optimizer."""
    task = make_task(seed=seed, prior=None, dtype=dtype)
    return task, CASES[case][0](task.groups())


def train(case, task, optimizer, first, last):
    """Steps first to last - 1 of the run; a stage ends right after its last step."""
    for t in range(first, last):
        set_lr(optimizer, LRS[sum(t >= end for end in STAGE_ENDS)])
        train_step(task, optimizer, make_batch(t))
        if t + 1 in STAGE_ENDS:
            end_stage(task, optimizer, make_batch(100 + t, both_classes=True), CASES[case][1])


def save(path, task, optimizer, **notes):
    parts = {"model": task.model, "loss": task.loss, "optimizer": optimizer}
    torch.save({name: part.state_dict() for name, part in parts.items()} | notes, path)


def load(path, task, optimizer):
    """Load all three; returns the notes that were saved beside them."""
    saved = torch.load(path, weights_only=True)
    task.model.load_state_dict(saved.pop("model"))
    task.loss.load_state_dict(saved.pop("loss"))
    optimizer.load_state_dict(saved.pop("optimizer"))
    return saved


def main(folder):
    for path in sorted(Path(folder).glob("*.cut")):
        case = path.stem.split(".")[0]
        task, optimizer = build(case, seed=99)  # nothing of the run but what the file says
        notes = load(path, task, optimizer)
        train(case, task, optimizer, notes["step"], LAST)
        save(path.with_suffix(".end"), task, optimizer)


if __name__ == "__main__":
    main(sys.argv[1])
