"""Train PyTorch models to maximize AUC: to rank positives above negatives on imbalanced data."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from aucmax.version import __version__ as __version__

if TYPE_CHECKING:
    from aucmax import history, metrics, stages
    from aucmax.checkpoint import load_weights
    from aucmax.data import BatchSampler
    from aucmax.images.classifier import ImageClassifier
    from aucmax.loss import (
        AUCLoss,
        AveragePrecisionLoss,
        GroupedAUCLoss,
        MulticlassAUCLoss,
        MultilabelAUCLoss,
        PairwiseAUCLoss,
        PartialAUCLoss,
        minmax_groups,
    )
    from aucmax.loss.prior import StreamingPrior
    from aucmax.optim import OAUC, PGA, PPDSG, IterateAverage, PPDAdaGrad
    from aucmax.optim.average import averaged, update_batch_norm
    from aucmax.tables.classifier import AUCClassifier
    from aucmax.train import DivergedError, FitResult, evaluate, fit, sweep

__all__ = [
    "OAUC",
    "PGA",
    "PPDSG",
    "AUCClassifier",
    "AUCLoss",
    "AveragePrecisionLoss",
    "BatchSampler",
    "DivergedError",
    "FitResult",
    "GroupedAUCLoss",
    "ImageClassifier",
    "IterateAverage",
    "MulticlassAUCLoss",
    "MultilabelAUCLoss",
    "PPDAdaGrad",
    "PairwiseAUCLoss",
    "PartialAUCLoss",
    "StreamingPrior",
    "averaged",
    "evaluate",
    "fit",
    "history",
    "load_weights",
    "metrics",
    "minmax_groups",
    "stages",
    "sweep",
    "update_batch_norm",
]

_LATER = {
    "OAUC": "aucmax.optim",
    "PGA": "aucmax.optim",
    "PPDSG": "aucmax.optim",
    "AUCClassifier": "aucmax.tables",
    "AUCLoss": "aucmax.loss",
    "AveragePrecisionLoss": "aucmax.loss",
    "BatchSampler": "aucmax.data",
    "DivergedError": "aucmax.train",
    "FitResult": "aucmax.train",
    "GroupedAUCLoss": "aucmax.loss",
    "ImageClassifier": "aucmax.images",
    "IterateAverage": "aucmax.optim",
    "MulticlassAUCLoss": "aucmax.loss",
    "MultilabelAUCLoss": "aucmax.loss",
    "PPDAdaGrad": "aucmax.optim",
    "PairwiseAUCLoss": "aucmax.loss",
    "PartialAUCLoss": "aucmax.loss",
    "StreamingPrior": "aucmax.loss.prior",
    "averaged": "aucmax.optim",
    "evaluate": "aucmax.train",
    "fit": "aucmax.train",
    "load_weights": "aucmax.checkpoint",
    "minmax_groups": "aucmax.loss",
    "sweep": "aucmax.train",
    "update_batch_norm": "aucmax.optim",
}
"""Where names come from that are loaded when they are first used, to keep the import light; so a
command hears Ctrl-C while torch is still being loaded."""

_PACKAGES = (
    "boosting", "data", "history", "images", "judge", "loss", "metrics", "models", "optim",
    "stages", "tables",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"aucmax.{name}")
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    if name == "AUCWithCrossEntropy":
        return getattr(import_module("aucmax.loss"), name)  # which says what replaces it
    if name in ("paper", "study"):
        raise ImportError(f"aucmax.{name} is no longer a part of aucmax: see experiments/README.md")
    raise AttributeError(f"module 'aucmax' has no attribute {name!r}")


# help(aucmax) and a star look at every name: without extras, at those that can be loaded.
_OF_TABLES = ("sklearn", "scipy", "pyarrow", "tabm", "rtdl_num_embeddings", "jinja2", "matplotlib")
if not all(map(find_spec, _OF_TABLES)):
    __all__.remove("AUCClassifier")
if not all(map(find_spec, (*_OF_TABLES, "PIL"))):
    __all__.remove("ImageClassifier")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
