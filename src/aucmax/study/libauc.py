"""LibAUC's losses, each with the optimizer that its documentation has for it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from aucmax.paper.libauc import OnScores, require_libauc

MOST_FPR = 0.05


def libauc_parts(name: str, model: nn.Module, lr: float, y: torch.Tensor) -> dict[str, Any]:
    """Loss and optimizer for :func:`aucmax.fit`.

    Options are the library's defaults, but for the range of the partial AUC, and that PESG steps as
    Adam does, which the others do by default.

    Args:
        name: "aucm", "partial" or "ap".
        model: whose parameters are trained.
        lr: the step size.
        y: the labels of all training rows.
    """
    require_libauc()
    from libauc.losses.auc import AUCMLoss, AveragePrecisionLoss, pAUC_CVaR_Loss
    from libauc.optimizers.pesg import PESG
    from libauc.optimizers.soap import SOAP
    from libauc.optimizers.sopa import SOPA

    cpu, rows, positives = torch.device("cpu"), len(y), int(y.sum())
    given = {"lr": lr, "device": cpu, "verbose": False}
    if name == "aucm":
        loss = AUCMLoss(device=cpu)
        return {
            "loss": OnScores(loss),
            "optimizer": PESG(model.parameters(), loss_fn=loss, mode="adam", **given),
        }
    if name == "partial":
        loss = pAUC_CVaR_Loss(rows, positives, beta=MOST_FPR, device=cpu)
        return {"loss": OnScores(loss, True), "optimizer": SOPA(model.parameters(), **given)}
    loss = AveragePrecisionLoss(rows, device=cpu)
    return {"loss": OnScores(loss, True), "optimizer": SOAP(model.parameters(), **given)}
