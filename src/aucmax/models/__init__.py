"""Networks: the paper's ResNet-20 for images, and those for tables."""

from aucmax.models.mlp import mlp
from aucmax.models.resnet import ResNet20, resnet20
from aucmax.models.standardize import Standardize
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
