"""Batches: which rows, from where, and in an order that a seed fixes for good."""

from aucmax.data.sampling import BatchSampler

__all__ = ["BatchSampler"]
