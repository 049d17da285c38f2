"""Networks: ResNet-20 of the paper, a plain MLP, and TabM for tables."""

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
