"""Networks: ResNet-20 of the paper, a plain MLP, and TabM for tables."""

from typing import NoReturn

from aucmax.models.mlp import Standardize, mlp
from aucmax.models.resnet import ResNet20, resnet20
from aucmax.models.tabular import TabularEnsemble, TabularMLP, tabm, tabular_mlp

__all__ = [
    "ResNet20",
    "Standardize",
    "TabularEnsemble",
    "TabularMLP",
    "mlp",
    "resnet20",
    "tabm",
    "tabular_mlp",
]


def __getattr__(name: str) -> NoReturn:
    if name == "side_by_side":
        raise ImportError("aucmax.models.side_by_side has moved: import from aucmax.models.tabular")
    raise AttributeError(f"module 'aucmax.models' has no attribute {name!r}")
