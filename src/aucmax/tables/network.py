"""From an estimator's options and its table to a network, and back from plain JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from aucmax import checks
from aucmax.models.tabular import quantile_bins, tabm, tabular_mlp
from aucmax.random_state import drawing_from

Factory = Callable[[int, Sequence[int], int], nn.Module]
"""Makes a network of the numbers of numeric columns, of codes per category, and of scores."""

PIECES = 32
"""Of a numeric column's piecewise-linear embedding."""


def describe(
    numeric: torch.Tensor,
    cardinalities: list[int],
    outputs: int,
    hidden: Any,
    sizes: dict[str, Any],
) -> dict[str, Any]:
    """All that decides the network's shape, as plain JSON.

    Args:
        numeric: the training rows' numeric columns.
        cardinalities: codes of each categorical column.
        outputs: scores per row.
        hidden: widths of a plain MLP's layers; None for TabM.
        sizes: members, blocks, width and dropout of TabM.
    """
    shape = {"numeric": numeric.shape[1], "cardinalities": cardinalities, "outputs": outputs}
    if hidden is not None:
        widths = [hidden] if isinstance(hidden, int) else list(hidden)
        return {"kind": "mlp", **shape, "hidden": [checks.count("hidden", n) for n in widths]}
    bins = quantile_bins(numeric, PIECES) if numeric.shape[1] else None
    return {"kind": "tabm", **shape, "bins": bins, **sizes}


def build(
    spec: dict[str, Any], factory: Factory | None, generator: torch.Generator | None = None
) -> nn.Module:
    """The network that the description is of; one of the user's own by his factory."""
    about = dict(spec)
    kind, numeric, codes = (about.pop(key) for key in ("kind", "numeric", "cardinalities"))
    if factory is not None:
        with drawing_from(generator):
            model = factory(numeric, codes, about["outputs"])
        if not isinstance(model, nn.Module):
            raise ValueError(f"backbone must give a torch.nn.Module, found {type(model).__name__}")
        return model
    make: Callable[..., nn.Module] = tabm if kind == "tabm" else tabular_mlp
    return make(numeric, codes, generator=generator, **about)
