"""Counts labels on every rank of a process group and writes what each rank knows.

    torchrun --nproc-per-node 2 tests/helpers/ranks_prior.py FOLDER

Started by test_prior_ranks.py, which holds the batches to the reference.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from aucmax import AUCLoss, StreamingPrior

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


def walk(rank):
    """What this rank knows after each step."""
    plain, weighted, loss = StreamingPrior(), StreamingPrior(), AUCLoss(None).double()
    found = {"plain": [], "weighted": [], "loss": [], "values": []}
    for scores, y, weight in batches(rank):
        scores, y, weight = map(torch.tensor, (scores, y, weight))
        plain.update(y)
        weighted.update(y, weight)
        found["values"].append(loss(scores, y).item())
        found["plain"].append(estimates(plain))
        found["weighted"].append(estimates(weighted))
        found["loss"].append(estimates(loss.prior))
    loss.eval()
    if rank == 0:  # no rank waits for another in evaluation
        loss(scores, y)
    found["after evaluation"] = estimates(loss.prior)
    return found


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    Path(sys.argv[1], f"{rank}.json").write_text(json.dumps(walk(rank)), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
