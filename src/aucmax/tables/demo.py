"""A table that comes with scikit-learn, as a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from aucmax.disk import atomic_write


def write_demo_table(path: Path) -> Path:
    """Write the Wisconsin breast cancer data as CSV: 569 tumours, 30 measurements each.

    Args:
        path: of the file.
    """
    import pyarrow
    import pyarrow.csv
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    columns = dict(zip(map(str, data.feature_names), data.data.T, strict=True))
    malignant = np.where(data.target == 0, "yes", "no")
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as temporary:
        pyarrow.csv.write_csv(pyarrow.table({**columns, "malignant": malignant}), temporary)
    return path
