"""LibAUC's AUCM loss and PESG optimizer in the same harness, where LibAUC is installed.

Settings are those of its CIFAR-10 tutorial: margin 1, epoch decay 0.003, weight decay 1e-4, step
size and regularizer renewed after 1/2 and 3/4 of the training, a fifth of each batch from the
minority.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class OnScores(nn.Module):
    """A loss of LibAUC, which takes probabilities, and of some the rows' numbers."""

    def __init__(self, loss: nn.Module, needs_index: bool = False) -> None:
        super().__init__()
        self.loss, self.needs_index = loss, needs_index

    def forward(self, scores: Tensor, target: Tensor, **index: Tensor) -> Tensor:
        """The mean over the batch."""
        value: Tensor = self.loss(torch.sigmoid(scores.reshape(-1, 1)), target, **index)
        return value.reshape(())


def require_libauc() -> None:
    """Raise unless LibAUC is installed."""
    try:
        import libauc.losses.auc
        import libauc.optimizers.pesg  # noqa: F401
    except ImportError as error:
        raise ValueError(
            f"the line 'libauc' needs the package libauc, version 2.0.1: {error}"
        ) from None


def with_libauc(options: dict[str, Any], model: nn.Module, device: str) -> dict[str, Any]:
    """The arguments of fit with LibAUC's loss and optimizer in place of a method's."""
    require_libauc()
    from libauc.losses.auc import AUCMLoss
    from libauc.optimizers.pesg import PESG

    class Scheduled(PESG):  # type: ignore[misc]
        """Calls ``update_regularizer`` itself, as the tutorial's loop does between epochs."""

        drops = (options["steps"] // 2, 3 * options["steps"] // 4)

        def step(self, closure: Any = None) -> Any:
            value = super().step(closure)
            if self.steps in self.drops:
                self.update_regularizer(decay_factor=10)
            return value

    model.to(device)
    loss = AUCMLoss(margin=1.0, device=torch.device(device))
    with torch.random.fork_rng():
        torch.manual_seed(options["seed"])  # its reference begins as noise
        optimizer = Scheduled(
            model.parameters(), loss_fn=loss, lr=options["lr"], margin=1.0, momentum=0.9,
            epoch_decay=0.003, weight_decay=1e-4, verbose=False, device=torch.device(device),
        )  # fmt: skip
    dropped = ("method", "lr", "loss_options", "optimizer_options", "save_every")
    kept = {key: value for key, value in options.items() if key not in dropped}
    return {**kept, "loss": OnScores(loss), "optimizer": optimizer, "out": None}
