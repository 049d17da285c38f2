"""A table made so that groups differ in prevalence and the inputs tell which group a row is of."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

GROUPS, SIZE = 80, 100
SPREAD = 1.5
"""The standard deviation of the groups' log-odds."""


def simulate() -> pa.Table:
    """8,000 rows: four columns that tell a row's label, four that tell its group's prevalence.

    With u the log-odds of a row's group, the label is 1 with the log-odds
    ``z0 + z1 * z2 + |z3| + u - 3``; z are standard normal, and the other columns are smooth
    functions of u with noise. A likelihood gains by learning u; the order within groups does not.

    Example:
        >>> simulate().num_rows
        8000
    """
    random = np.random.RandomState(0)
    group = np.repeat(np.arange(GROUPS), SIZE)
    u = random.normal(size=GROUPS)[group] * SPREAD
    z, noise = random.normal(size=(2, len(group), 4))
    source = np.stack([u, np.sin(u), np.tanh(u), u**2 / 3], axis=1) + noise
    log_odds = z[:, 0] + z[:, 1] * z[:, 2] + np.abs(z[:, 3]) + u - 3
    target = (random.uniform(size=len(group)) < 1 / (1 + np.exp(-log_odds))).astype(np.int64)
    columns = {f"z{k}": z[:, k] for k in range(4)} | {f"s{k}": source[:, k] for k in range(4)}
    return pa.table(columns | {"group": group, "target": target})
