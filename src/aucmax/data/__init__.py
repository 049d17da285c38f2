"""Batches: which rows, from where, with which labels, how augmented; the order fixed by a seed."""

from aucmax.data import augment
from aucmax.data.groups import number_groups
from aucmax.data.sampling import BatchSampler

__all__ = ["BatchSampler", "augment", "number_groups"]
