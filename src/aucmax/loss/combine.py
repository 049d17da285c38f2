"""Parameter groups that say min-max in torch's own words."""

from __future__ import annotations

from typing import Any

from torch import nn

from aucmax import checks
from aucmax.loss.base import Loss, LossSum
from aucmax.loss.saddle import SaddleLoss


def saddle_part(loss: nn.Module) -> SaddleLoss | None:
    """Return the part of a loss that holds a, b and alpha, if it has one.

    Example:
        >>> from aucmax.loss import AUCLoss, CrossEntropy, saddle_part
        >>> auc = AUCLoss(0.1)
        >>> saddle_part(auc + CrossEntropy()) is auc, saddle_part(CrossEntropy())
        (True, None)
    """
    parts = loss.parts.values() if isinstance(loss, LossSum) else [loss]
    return next((part for part in parts if isinstance(part, SaddleLoss)), None)


def minmax_groups(
    model: nn.Module, loss: nn.Module, lr: float | None = None, saddle_lr: float | None = None
) -> list[dict[str, Any]]:
    """Return parameter groups that minimize over the model, a and b and maximize over alpha.

    They work with aucmax's optimizers and with every torch optimizer that has ``maximize``. The
    loss's own parameters get no weight decay, and ``bounds``, within which our optimizers keep a, b
    and alpha. Build the groups before a framework wraps the model.

    Args:
        model: the model whose parameters are trained.
        loss: one with saddle variables (parameters ``a``, ``b`` and ``alpha``), or a sum with one;
            all others are minimized as any loss is.
        lr: the step size, written into the groups; None leaves it to the optimizer.
        saddle_lr: the step size of the loss's own parameters, with ``lr``; None: the same. An
            optimizer whose steps hardly depend on the gradient's size, such as AdamW, follows the
            scores better with ten times ``lr``.

    Returns:
        Groups of the model's parameters; of a sum's learned scale and shift, if it has them; of a
        and b; and of alpha.

    Example:
        >>> import torch, aucmax
        >>> model, loss = torch.nn.Linear(3, 1), aucmax.AUCLoss(0.1)
        >>> groups = aucmax.minmax_groups(model, loss, lr=1e-3, saddle_lr=1e-2)
        >>> optimizer = torch.optim.AdamW(groups)
        >>> [(group["lr"], group["maximize"]) for group in optimizer.param_groups]
        [(0.001, False), (0.01, False), (0.01, True)]
    """
    saddle = saddle_part(loss)
    if saddle is None:
        hint = "pass the parameters of model and loss to the optimizer as they are"
        if isinstance(model, Loss):
            hint = "the order is (model, loss)"
        raise ValueError(
            f"loss must have saddle variables a, b and alpha, as AUCLoss has, found "
            f"{type(loss).__name__}: {hint}"
        )
    if not isinstance(model, nn.Module):
        raise ValueError(f"model must be a torch.nn.Module, found {type(model).__name__}")
    if saddle_lr is not None and lr is None:
        raise ValueError(
            f"saddle_lr must go with lr, found saddle_lr={saddle_lr!r} alone: it was a factor, and "
            f"is a step size now, as in minmax_groups(model, loss, lr=1e-3, saddle_lr=1e-2)"
        )
    own = {id(p) for p in loss.parameters()}  # the loss may be a part of the model
    weights = [p for p in model.parameters() if id(p) not in own]
    if not weights:
        raise ValueError(f"model must have parameters, found none in {type(model).__name__}")
    step: dict[str, Any] = {} if lr is None else {"lr": checks.positive("lr", lr)}
    own_step = step if saddle_lr is None else {"lr": checks.positive("saddle_lr", saddle_lr)}
    variables = {id(p) for p in (saddle.a, saddle.b, saddle.alpha)}
    learned = [p for p in loss.parameters() if id(p) not in variables]
    fixed = {"weight_decay": 0.0, **own_step}
    return [
        {"params": weights, **step},
        *([{"params": learned, **fixed}] if learned else []),
        {"params": [saddle.a, saddle.b], **fixed, "bounds": saddle.primal_bounds},
        {"params": [saddle.alpha], **fixed, "maximize": True, "bounds": saddle.dual_bounds},
    ]
