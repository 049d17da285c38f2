"""The algorithms of the paper as torch optimizers, one per file."""

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
