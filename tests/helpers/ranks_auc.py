"""Each rank streams its share of every case and writes what it got; started by torchrun."""

import json
import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from aucmax.metrics import StreamingAUC


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


def streamed(scores, target, weight):
    """The AUC over all ranks; this one adds its rows in batches of seven."""
    metric = StreamingAUC()
    for start in range(0, len(scores), 7):
        rows = slice(start, start + 7)
        batch_weight = None if weight is None else weight[rows]
        metric.update(torch.tensor(scores[rows]), target[rows], batch_weight)
    return metric.compute()


def main(folder):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    values = {name: streamed(*parts[rank]) for name, parts in cases().items()}
    Path(folder, f"{rank}.json").write_text(json.dumps(values))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
