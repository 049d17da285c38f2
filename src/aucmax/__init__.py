"""Train PyTorch models to maximize AUC: to rank positives above negatives on imbalanced data."""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from aucmax.loss import AUCLoss, MulticlassAUCLoss, MultilabelAUCLoss, minmax_groups
from aucmax.optim import OAUC, PGA, PPDSG, PPDAdaGrad, averaged, update_batch_norm
from aucmax.prior import StreamingPrior

if TYPE_CHECKING:
    from aucmax import metrics, stages

__version__ = "0.1.0"
__all__ = [
    "OAUC",
    "PGA",
    "PPDSG",
    "AUCLoss",
    "MulticlassAUCLoss",
    "MultilabelAUCLoss",
    "PPDAdaGrad",
    "StreamingPrior",
    "averaged",
    "metrics",
    "minmax_groups",
    "stages",
    "update_batch_norm",
]


def __getattr__(name: str) -> ModuleType:
    """Load ``metrics`` and ``stages`` when they are first used, to keep the import light."""
    if name in ("metrics", "stages"):
        return import_module(f"aucmax.{name}")
    raise AttributeError(f"module 'aucmax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
