"""Parameter groups that say min-max in torch's own words."""

from __future__ import annotations

from typing import Any

from torch import nn

from aucmax import checks
from aucmax.loss.combined import saddle_part


def minmax_groups(
    model: nn.Module, loss: nn.Module, *, saddle_lr: float = 1.0
) -> list[dict[str, Any]]:
    """Parameter groups that minimize over the model, a and b and maximize over alpha.

    They work with aucmax's optimizers and with every torch optimizer that has ``maximize``. The
    saddle variables get no weight decay. Build them before a framework wraps the model.

    Args:
        model: the model whose parameters are trained.
        loss: one with saddle variables (parameters ``a``, ``b`` and ``alpha``), or a sum with one;
            all others are minimized as any loss is.
        saddle_lr: by how much larger the loss's own step sizes are; heeded where a stage's
            ``set_lr`` sets them. An optimizer whose steps hardly depend on the gradient's size,
            such as AdamW, follows the scores better with 10.

    Example:
        >>> import torch, aucmax
        >>> groups = aucmax.minmax_groups(torch.nn.Linear(3, 1), aucmax.AUCLoss(0.1))
        >>> optimizer = torch.optim.AdamW(groups, lr=1e-3)
        >>> [group["maximize"] for group in optimizer.param_groups]
        [False, False, True]
    """
    saddle = saddle_part(loss)
    if saddle is None:
        raise ValueError(
            f"loss must have saddle variables a, b and alpha, as AUCLoss has, found "
            f"{type(loss).__name__}: pass the parameters of model and loss to the optimizer as "
            f"they are"
        )
    if not isinstance(model, nn.Module):
        raise ValueError(f"model must be a torch.nn.Module, found {type(model).__name__}")
    scale = {"lr_scale": checks.positive("saddle_lr", saddle_lr)} if saddle_lr != 1 else {}
    own = {id(p) for p in loss.parameters()}  # the loss may be a part of the model
    weights = [p for p in model.parameters() if id(p) not in own]
    if not weights:
        raise ValueError(f"model must have parameters, found none in {type(model).__name__}")
    minimized = [p for p in loss.parameters() if p is not saddle.alpha]
    return [
        {"params": weights},
        {"params": minimized, "weight_decay": 0.0, **scale},
        {"params": [saddle.alpha], "weight_decay": 0.0, "maximize": True, **scale},
    ]
