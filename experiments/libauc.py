"""LibAUC's AUCM loss and its optimizer PESG, for :func:`aucmax.fit`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class OnScores(nn.Module):
    """A loss of LibAUC, which takes probabilities and sometimes the rows' numbers."""

    def __init__(self, loss: nn.Module, needs_index: bool = False) -> None:
        super().__init__()
        self.loss, self.needs_index = loss, needs_index

    def forward(self, scores: Tensor, target: Tensor, **index: Tensor) -> Tensor:
        """Return the loss of raw scores."""
        value: Tensor = self.loss(torch.sigmoid(scores.reshape(-1, 1)), target, **index)
        return value.reshape(())


def loss_and_optimizer(settings: dict[str, Any], model: nn.Module, device: str) -> dict[str, Any]:
    """Return ``loss`` and ``optimizer`` with a run's settings.

    At each of ``drops``, shares of the steps, the step size and the regularizer are renewed as in
    the loop of LibAUC's tutorial.
    """
    from libauc.losses.auc import AUCMLoss
    from libauc.optimizers.pesg import PESG

    drops = {round(share * settings["steps"]) for share in settings["drops"]}

    class Scheduled(PESG):  # type: ignore[misc]
        def step(self, closure: Any = None) -> Any:
            value = super().step(closure)
            if self.steps in drops:
                self.update_regularizer(decay_factor=10)
            return value

    model.to(device)
    names = ("lr", "margin", "epoch_decay", "momentum", "weight_decay")
    options = {name: float(settings[name]) for name in names}
    where = torch.device(device)
    loss = AUCMLoss(margin=options["margin"], device=where)
    with torch.random.fork_rng():
        torch.manual_seed(settings["seed"])  # its reference point begins as noise
        optimizer = Scheduled(
            model.parameters(), loss_fn=loss, device=where, verbose=False, **options
        )
    return {"loss": OnScores(loss), "optimizer": optimizer}
