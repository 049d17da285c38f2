"""LibAUC's loss and optimizer as they are timed here; importing this needs LibAUC."""

from __future__ import annotations

import contextlib
import io

import torch
from libauc.losses.auc import AUCMLoss, PairwiseAUCLoss, pAUC_CVaR_Loss
from libauc.optimizers.pesg import PESG
from torch import Tensor, nn


class AfterSigmoid(nn.Module):
    """AUCMLoss on raw scores: it wants them after the sigmoid."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.loss = AUCMLoss(device=device)

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """The loss."""
        value: Tensor = self.loss(scores.sigmoid(), target)
        return value


def pairwise(surrogate: str) -> nn.Module:
    """The mean over a batch's pairs; theirs has "logistic", "squared" and "squared_hinge"."""
    loss: nn.Module = PairwiseAUCLoss(surrogate)
    return loss


class Partial(nn.Module):
    """The partial AUC at a false positive rate of 0.1, of rows that are numbered as they come."""

    def __init__(self, rows: int, device: torch.device) -> None:
        super().__init__()
        self.loss = pAUC_CVaR_Loss(rows, rows, beta=0.1, device=device)
        self.index = torch.arange(rows, device=device)

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """The loss."""
        value: Tensor = self.loss(scores, target, self.index)
        return value


def pesg(parameters: list[Tensor], loss: AUCMLoss, lr: float = 1e-5) -> torch.optim.Optimizer:
    """PESG with its defaults: momentum 0.9."""
    with contextlib.redirect_stdout(io.StringIO()):
        optimizer: torch.optim.Optimizer = PESG(
            parameters, loss_fn=loss, lr=lr, verbose=False, device=loss.device
        )
    return optimizer


def pesg_alone(parameters: list[Tensor], device: torch.device) -> torch.optim.Optimizer:
    """PESG whose loss has gradients too, ready for a step."""
    loss = AUCMLoss(device=device)
    for p in loss.parameters():
        p.grad = torch.zeros_like(p)
    return pesg(parameters, loss)
