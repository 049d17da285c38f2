"""Which class a kind of model is, as a model file names it."""

from __future__ import annotations

from aucmax.tables.ensemble.base import TableModel
from aucmax.tables.ensemble.boosting import Boosting
from aucmax.tables.ensemble.linear import Logistic

KINDS: dict[str, type[TableModel]] = {kind.kind: kind for kind in (Boosting, Logistic)}
