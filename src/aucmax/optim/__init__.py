"""The algorithms of the paper as torch optimizers, one per file."""

from typing import NoReturn

from aucmax.optim.average import IterateAverage, averaged, update_batch_norm
from aucmax.optim.oauc import OAUC
from aucmax.optim.pga import PGA
from aucmax.optim.ppd_adagrad import PPDAdaGrad
from aucmax.optim.ppd_sg import PPDSG

__all__ = [
    "OAUC",
    "PGA",
    "PPDSG",
    "IterateAverage",
    "PPDAdaGrad",
    "averaged",
    "update_batch_norm",
]


def __getattr__(name: str) -> NoReturn:
    if name == "iterate_average":
        raise ImportError("aucmax.optim.iterate_average has moved: import from aucmax.optim")
    raise AttributeError(f"module 'aucmax.optim' has no attribute {name!r}")
