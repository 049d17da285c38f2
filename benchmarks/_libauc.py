"""LibAUC's losses and optimizer, adapted to the calls that are timed; needs ``libauc``."""

from __future__ import annotations

import contextlib
import io

import torch
from libauc.losses.auc import AUCMLoss, PairwiseAUCLoss, pAUC_CVaR_Loss
from libauc.optimizers.pesg import PESG
from torch import Tensor, nn


class AfterSigmoid(nn.Module):
    """AUCMLoss of raw scores: it expects probabilities."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.loss = AUCMLoss(device=device)

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        value: Tensor = self.loss(scores.sigmoid(), target)
        return value


class Partial(nn.Module):
    """pAUC_CVaR_Loss at a false positive rate of 0.1; rows are numbered in order."""

    def __init__(self, rows: int, device: torch.device) -> None:
        super().__init__()
        self.loss = pAUC_CVaR_Loss(rows, rows, beta=0.1, device=device)
        self.index = torch.arange(rows, device=device)

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        value: Tensor = self.loss(scores, target, self.index)
        return value


def losses(rows: int, device: torch.device) -> dict[str, nn.Module]:
    """Return the losses that match those of aucmax, by name."""
    return {
        "LibAUC AUCMLoss": AfterSigmoid(device),
        "LibAUC squared_hinge": PairwiseAUCLoss("squared_hinge"),
        "LibAUC logistic": PairwiseAUCLoss("logistic"),
        "LibAUC partial": Partial(rows, device),
    }


def pesg(parameters: list[Tensor], loss: AUCMLoss, lr: float = 1e-5) -> torch.optim.Optimizer:
    """Return PESG with its defaults, momentum 0.9 among them."""
    with contextlib.redirect_stdout(io.StringIO()):
        optimizer: torch.optim.Optimizer = PESG(
            parameters, loss_fn=loss, lr=lr, verbose=False, device=loss.device
        )
    return optimizer


def pesg_with_gradients(parameters: list[Tensor], device: torch.device) -> torch.optim.Optimizer:
    """Return PESG ready for a step: its loss has gradients as well."""
    loss = AUCMLoss(device=device)
    for p in loss.parameters():
        p.grad = torch.zeros_like(p)
    return pesg(parameters, loss)
