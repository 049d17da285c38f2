"""Which rows make up a batch, from where, in an order fixed by a seed; images to try it on."""

from aucmax.data import augment, datasets, prepare
from aucmax.data.sampling import BatchSampler

__all__ = ["BatchSampler", "augment", "datasets", "prepare"]
