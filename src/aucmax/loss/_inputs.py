"""What the losses are given: shapes and values checked, labels and weights brought in form."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from aucmax import checks

DIVERGED = "; if training diverged, lower the learning rate"


def computable(dtype: torch.dtype) -> torch.dtype:
    """The dtype to compute in: single precision or better."""
    return torch.float32 if dtype in checks.LOW_PRECISION else dtype


def flatten(x: Tensor, dtype: torch.dtype) -> Tensor:
    """One dimension, the given dtype, no gradient; no operation that is not needed."""
    x = x.detach() if x.requires_grad else x
    x = x if x.ndim == 1 else x.reshape(-1)
    return x if x.dtype == dtype else x.to(dtype)


def as_shares(priors: Sequence[float] | Tensor, name: str = "priors") -> list[float]:
    """Shares as plain numbers, each checked."""
    values = priors.tolist() if isinstance(priors, Tensor) else priors
    if not isinstance(values, Sequence) or not values or isinstance(values, str):
        raise ValueError(f"{name} must be a sequence of shares in (0, 1), found {priors!r}")
    return [checks.share(f"{name}[{i}]", value) for i, value in enumerate(values)]


def check_tensors(scores: object, target: object) -> None:
    """Both are tensors."""
    for name, x in (("scores", scores), ("target", target)):
        if not isinstance(x, Tensor):
            raise ValueError(f"{name} must be a tensor, found {type(x).__name__}")


def check_binary_shapes(scores: Tensor, target: Tensor, weight: Tensor | None) -> None:
    """One score, one label and one weight per row."""
    check_tensors(scores, target)
    rows = scores.shape[:1]
    right_shape = scores.numel() > 0 and rows and scores.shape in (rows, (*rows, 1))
    if not (scores.is_floating_point() and right_shape):
        raise ValueError(
            f"scores must be floating point of shape (N,) or (N, 1), N >= 1, "
            f"found {scores.dtype} of shape {tuple(scores.shape)}"
        )
    if target.shape not in (rows, scores.shape):
        allowed = " or ".join(map(str, dict.fromkeys([tuple(rows), tuple(scores.shape)])))
        raise ValueError(
            f"target must have shape {allowed} to go with these scores, found {tuple(target.shape)}"
        )
    if weight is not None:
        check_weight_shape(weight, tuple(rows), tuple(scores.shape))


def check_table(scores: Tensor, columns: int) -> None:
    """A row of so many real numbers for each example."""
    right_shape = scores.ndim == 2 and scores.shape[1] == columns and len(scores) > 0
    if not (scores.is_floating_point() and right_shape):
        raise ValueError(
            f"scores must be floating point of shape (N, {columns}), N >= 1, "
            f"found {scores.dtype} of shape {tuple(scores.shape)}"
        )


def check_weight_shape(weight: Tensor, *allowed: tuple[int, ...]) -> None:
    """One of the allowed shapes."""
    if tuple(weight.shape) not in allowed:
        choices = " or ".join(map(str, dict.fromkeys(allowed)))
        raise ValueError(f"weight must have shape {choices}, found {tuple(weight.shape)}")


def check_row_numbers(name: str, values: object, rows: int) -> None:
    """An integer for each row, if any."""
    if values is None:
        return
    if not isinstance(values, Tensor) or values.shape != (rows,):
        found = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        raise ValueError(f"{name} must be a tensor of shape ({rows},), found {found}")
    if values.is_floating_point() or values.is_complex() or values.dtype == torch.bool:
        raise ValueError(f"{name} must hold integers, found dtype {values.dtype}")


def check_classes(
    scores: Tensor,
    target: Tensor,
    weight: Tensor | None,
    look: bool,
    zero_weights: bool = False,
) -> None:
    """Raise unless scores, classes and weights go together; ``look`` at their values too.

    ``zero_weights``: none needs to be positive.
    """
    check_table(scores, scores.shape[-1])
    if target.shape != scores.shape[:1]:
        raise ValueError(f"target must have shape ({len(scores)},), found {tuple(target.shape)}")
    if target.is_floating_point() or target.is_complex() or target.dtype == torch.bool:
        raise ValueError(f"target must hold integer classes, found dtype {target.dtype}")
    if weight is not None:
        check_weight_shape(weight, (len(scores),))
    if not look:
        return
    values = scores.to(computable(scores.dtype)).numpy(force=True)
    checks.check_finite("scores", values, hint=DIVERGED)
    low, high = (int(x) for x in target.long().aminmax())
    if low < 0 or high >= scores.shape[1]:
        raise ValueError(
            f"target must hold classes 0 to {scores.shape[1] - 1}, found {low} to {high}"
        )
    if weight is not None:
        checks.check_weights(weight.double().numpy(force=True), zero_weights)


def known_labels(
    scores: Tensor,
    target: Tensor,
    weight: Tensor | None,
    look: bool,
    zero_weights: bool = False,
) -> tuple[Tensor, Tensor]:
    """Labels of a table of scores, and their weights: both 0 where a label is missing (NaN).

    They have the dtype of the computation; ``look`` checks the values too.
    """
    if target.shape != scores.shape:
        raise ValueError(
            f"target must have the shape of scores, {tuple(scores.shape)}, "
            f"found {tuple(target.shape)}"
        )
    dtype = computable(scores.dtype)
    labels = target.to(dtype)
    known = (~labels.isnan()).to(dtype)
    labels = labels.nan_to_num(nan=0.0, posinf=math.inf, neginf=-math.inf)
    if weight is not None:
        check_weight_shape(weight, (len(scores),), tuple(scores.shape))
        weight = weight.detach().to(dtype).reshape(len(scores), -1)
    if look:
        check_binary_values(scores.to(dtype), labels[known > 0], weight, zero_weights)
    return labels, known if weight is None else known * weight


def check_binary_values(
    scores: Tensor, labels: Tensor, weight: Tensor | None, zero_weights: bool = False
) -> int:
    """Raise unless scores are finite, labels 0 or 1 and weights usable; count the positives."""
    checks.check_finite("scores", scores.numpy(force=True), hint=DIVERGED)
    if weight is not None:
        checks.check_weights(weight.numpy(force=True), zero_weights)
    return checks.check_labels(labels.numpy(force=True))


def means_of_classes(
    h: Tensor, labels: Tensor, weight: Tensor, whose: str
) -> tuple[Tensor, Tensor]:
    """Weighted means of h over positives and over negatives, along the first dimension."""
    positive, negative = weight * labels, weight * (1.0 - labels)
    mass = torch.stack([positive.sum(0), negative.sum(0)])
    if bool((mass == 0).any()):
        raise checks.MissingClassError(
            f"target must hold both classes among the {whose}, found weights "
            f"{mass[0].tolist()} of positives and {mass[1].tolist()} of negatives: "
            f"draw more, or as many of each class"
        )
    return (positive * h).sum(0) / mass[0], (negative * h).sum(0) / mass[1]
