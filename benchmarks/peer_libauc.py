"""LibAUC 2.0.1 timed the same way, by an interpreter of its own environment (`make bench`).

Prints one JSON object: its losses against BCEWithLogitsLoss, its optimizer's step against fused
AdamW, its AUC against scikit-learn's, its import against torch's.
"""

from __future__ import annotations

import json
from typing import Any

import bench_import
import torch
from _libauc import AfterSigmoid, Partial, pesg_alone
from _libauc import pairwise as pairwise_loss
from _memory import grown
from _timing import against, alternate
from _workloads import SHAPES, batch, forward_backward, parameters
from libauc.metrics import auc_roc_score
from sklearn.metrics import roc_auc_score
from torch import nn

CPU = torch.device("cpu")


def loss() -> dict[str, Any]:
    """AUCMLoss over BCEWithLogitsLoss on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    found = {}
    for n in (128, 8192):
        scores, target = batch(n)
        runs = {
            "BCEWithLogitsLoss": forward_backward(nn.BCEWithLogitsLoss(), scores, target),
            "AUCMLoss": forward_backward(AfterSigmoid(CPU), scores, target),
        }
        found[f"N = {n:,}"] = against("BCEWithLogitsLoss", alternate(runs, rounds=11, calls=50))
    torch.set_num_threads(threads)
    return found


def pairwise() -> dict[str, Any]:
    """The losses over all pairs, and the partial AUC's, over BCEWithLogitsLoss on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    names = {"squared_hinge": "squared_hinge", "square": "squared", "logistic": "logistic"}
    found: dict[str, Any] = {}
    for n, rounds, calls in ((128, 11, 50), (8192, 3, 1)):
        scores, target = batch(n)
        losses = {"BCEWithLogitsLoss": nn.BCEWithLogitsLoss(), "max_fpr 0.1": Partial(n, CPU)}
        losses |= {name: pairwise_loss(theirs) for name, theirs in names.items()}
        runs = {name: forward_backward(loss, scores, target) for name, loss in losses.items()}
        medians = alternate(runs, rounds=rounds, calls=calls)
        found[f"N = {n:,}"] = against("BCEWithLogitsLoss", medians)
    for name in ("squared_hinge", "logistic"):
        loss = pairwise_loss(name)
        found.setdefault("memory", {})[name] = grown(
            lambda n, loss=loss: forward_backward(loss, *batch(n)), (4096, 16_384)
        )
    torch.set_num_threads(threads)
    return found


def optimizer() -> dict[str, Any]:
    """A step of PESG over a step of AdamW."""
    found = {}
    for name, shapes in SHAPES.items():
        pesg = pesg_alone(parameters(shapes), CPU)
        adamw = torch.optim.AdamW(parameters(shapes), lr=1e-5, fused=True)
        runs = {"AdamW(fused=True)": adamw.step, "PESG": pesg.step}
        large = "25 M" in name
        medians = alternate(runs, rounds=11, calls=1 if large else 10)
        found[name] = against("AdamW(fused=True)", medians)
    return found


def metric() -> dict[str, Any]:
    """The AUC of a million scores."""
    scores, target = (x.detach().numpy() for x in batch(1_000_000))
    runs = {
        "roc_auc_score": lambda: roc_auc_score(target, scores),
        "auc_roc_score": lambda: auc_roc_score(target, scores),
    }
    return {"N = 1,000,000": against("roc_auc_score", alternate(runs, rounds=7))}


if __name__ == "__main__":
    print(
        json.dumps(
            {
                "loss": loss(),
                "pairwise": pairwise(),
                "optimizer": optimizer(),
                "metric": metric(),
                "import": bench_import.measure("libauc.losses.auc, libauc.optimizers.pesg"),
            }
        )
    )
