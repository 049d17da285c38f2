"""Networks that the experiments train: the paper's ResNet-20, and a plain one for tables."""

from aucmax.models.mlp import mlp
from aucmax.models.resnet import ResNet20, resnet20
from aucmax.models.standardize import Standardize

__all__ = ["ResNet20", "Standardize", "mlp", "resnet20"]
