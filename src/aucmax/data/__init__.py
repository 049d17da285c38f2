"""Batches: which rows, from where, with which labels, how augmented; the order fixed by a seed."""

from aucmax.data import augment
from aucmax.data.groups import count_classes, number_groups
from aucmax.data.sampling import BatchSampler

__all__ = ["BatchSampler", "augment", "count_classes", "number_groups"]
