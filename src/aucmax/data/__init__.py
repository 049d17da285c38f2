"""Training data: batches, the order of their rows, and checks of their labels."""

from typing import NoReturn

from aucmax.data.labels import count_classes
from aucmax.data.sampling import BatchSampler
from aucmax.row_groups import number_groups

__all__ = ["BatchSampler", "count_classes", "number_groups"]


def __getattr__(name: str) -> NoReturn:
    if name == "augment":
        raise ImportError("aucmax.data.augment has moved: import from aucmax.images.augment")
    if name == "sources":
        raise ImportError("aucmax.data.sources has moved: import from aucmax.data.batches")
    raise AttributeError(f"module 'aucmax.data' has no attribute {name!r}")
