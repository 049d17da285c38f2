"""Counts labels and streams scores on two ranks of a process group; each writes what it knows.

    python tests/helpers/ranks_core.py FOLDER

Started by test_core_ranks.py, which holds the same rows to the references.
"""

import json
import os
import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from aucmax import (
    AUCLoss,
    AveragePrecisionLoss,
    PairwiseAUCLoss,
    PartialAUCLoss,
    StreamingPrior,
)
from aucmax.distributed import sum_over_ranks, world_size
from aucmax.metrics import StreamingAUC

SIZES = [(5, 3), (1, 8), (4, 4)]  # labels in each step on rank 0 and on rank 1


def batches(rank):
    """Scores, labels and weights of one rank, step by step; the ranks see different data."""
    rng = np.random.default_rng(rank)
    share = (0.7, 0.1)[rank]
    return [
        (rng.normal(size=n[rank]), (rng.random(n[rank]) < share) * 1, rng.uniform(0.5, 2, n[rank]))
        for n in SIZES
    ]


def estimates(prior):
    return [prior.p.item(), prior.p_one_minus_p.item()]


def count_labels(rank):
    """What this rank knows of the prior after each step."""
    plain, weighted, loss = StreamingPrior(), StreamingPrior(), AUCLoss(None).double()
    known = {"plain": [], "weighted": [], "loss": [], "values": []}
    for scores, y, weight in batches(rank):
        scores, y, weight = map(torch.tensor, (scores, y, weight))
        plain.update(y)
        weighted.update(y, weight)
        known["values"].append(loss(scores, y).item())
        known["plain"].append(estimates(plain))
        known["weighted"].append(estimates(weighted))
        known["loss"].append(estimates(loss.prior))
    loss.eval()
    if rank == 0:  # no rank waits for another in evaluation
        loss(scores, y)
    known["after evaluation"] = estimates(loss.prior)
    return known


def row_numbers(rank):
    """Of the rows of each step; some rows come on both ranks at once."""
    rng = np.random.default_rng(10 + rank)
    return [rng.integers(0, 6, n[rank]) for n in SIZES]


def rank_positives(rank):
    """Values and gradients of each step, and what is known of each row in the end."""
    loss = AveragePrecisionLoss(0.2, rows=6, surrogate="squared_hinge")
    found = {"values": [], "gradients": []}
    for (scores, y, weight), index in zip(batches(rank), row_numbers(rank), strict=True):
        s = torch.tensor(scores, requires_grad=True)
        value = loss(s, *map(torch.tensor, (y, weight)), index=torch.tensor(index))
        value.backward()
        found["values"].append(value.item())
        found["gradients"].append(s.grad.tolist())
    return {**found, "estimates": loss.estimates[:, 0].T.tolist()}


def compare_pairs(rank):
    """Values and gradients of each step, in groups."""
    loss, found = PairwiseAUCLoss(), {"values": [], "gradients": []}
    for (scores, y, weight), group in zip(batches(rank), row_numbers(rank), strict=True):
        s = torch.tensor(scores, requires_grad=True)
        value = loss(s, *map(torch.tensor, (y, weight)), group=torch.tensor(group % 2))
        value.backward()
        found["values"].append(value.item())
        found["gradients"].append(s.grad.tolist())
    if rank == 0:  # in evaluation mode no rank waits for another
        found["alone"] = loss.eval()(torch.tensor([1.0, 0.5]), torch.tensor([1, 0])).item()
    return found


def follow_the_top(steps):
    """Values and gradients of each step, and the thresholds after it.

    A rank's value counts as much as its rows weigh, as in a mean over the rows of all ranks.
    """
    loss = PartialAUCLoss(0.4, 0.3, prior=0.5).double()
    loss.reset_primal(torch.linspace(-2, 2, 20).double(), torch.arange(20) % 2)
    found = {"values": [], "gradients": [], "thresholds": []}
    for scores, y, weight in steps:
        s, y, weight = torch.tensor(scores, requires_grad=True), *map(torch.tensor, (y, weight))
        counts = weight.sum() / sum_over_ranks(weight.sum()) * world_size()
        value = loss(s, y, weight) * counts
        value.backward()
        found["values"].append(value.item())
        found["gradients"].append(s.grad.tolist())
        parts = (loss.hard_positives, loss.hard_negatives)
        found["thresholds"].append([part.threshold.item() for part in parts])
    return found


class Elsewhere(torch.Tensor):
    """A tensor that the host does not read at each batch, as one on an accelerator."""


def flag_bad_values(rank):
    """What each rank is told of a label that rank 1 alone has seen, in its third batch."""
    loss, scores = AUCLoss(0.5), torch.tensor([0.5, -0.5]).as_subclass(Elsewhere)
    for batch in range(3):
        label = 2.0 if rank == 1 and batch == 2 else 1.0
        loss(scores, torch.tensor([label, 0.0]).as_subclass(Elsewhere))
    if rank == 0:  # saving waits for no other rank
        loss.state_dict()
    told = []
    for ask in (loss.check, loss.check, lambda: loss.begin(scores, torch.tensor([1.0, 0.0]))):
        try:
            ask()
            told.append("")
        except ValueError as error:
            told.append(str(error))
    return told


def cases():
    """For each case a list with the (scores, target, weight) of either rank."""
    rng = np.random.default_rng(0)

    def part(rows, share, weighted=False):
        y = rng.random(rows) < share
        x = np.round(rng.standard_normal(rows) + y, 1)  # ties within and between the ranks
        return x, y, rng.random(rows) if weighted else None

    return {
        "uneven": [part(57, 0.3), part(10, 0.5)],
        "no positives on rank 1": [part(20, 0.5), part(31, 0.0)],
        "one class each": [part(20, 1.0), part(15, 0.0)],
        "rank 0 empty": [part(0, 0.0), part(40, 0.4)],
        "weights on rank 1": [part(25, 0.4), part(30, 0.4, weighted=True)],
    }


def stream_scores(scores, target, weight):
    """The AUC over all ranks; this one adds its rows in batches of seven."""
    metric = StreamingAUC()
    for start in range(0, len(scores), 7):
        rows = slice(start, start + 7)
        batch_weight = None if weight is None else weight[rows]
        metric.update(torch.tensor(scores[rows]), target[rows], batch_weight)
    return metric.compute()


def main(folder, rank):
    dist.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=2)
    known = count_labels(rank)
    known["average precision"] = rank_positives(rank)
    known["pairs"] = compare_pairs(rank)
    known["partial"] = follow_the_top(batches(rank))
    known["flags"] = flag_bad_values(rank)
    known["auc"] = {name: stream_scores(*parts[rank]) for name, parts in cases().items()}
    Path(folder, f"{rank}.json").write_text(json.dumps(known), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    other = os.fork()  # torch is imported but once
    main(sys.argv[1], 0 if other else 1)
    if other:
        sys.exit(os.waitpid(other, 0)[1] != 0)
