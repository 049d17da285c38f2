"""Options that several commands have, and what the help says of their values."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from aucmax.train.metrics import FORMS, MetricName

# Options that need not be given: their help says what is done then.
Count = Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="")]
Seconds = Annotated[float | None, tyro.conf.arg(metavar="SECONDS", help_behavior_hint="")]
Folder = Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="")]


def named(metavar: str) -> Any:
    """An option's value in the help, which says nothing of a default."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint="")


Files = Annotated[
    tuple[Path, ...],
    tyro.conf.Positional,
    tyro.conf.arg(metavar="FILE ...", help_behavior_hint="(required)"),
]
Model = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
Label = Annotated[str | None, named("LABEL")]
Target = Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")]
Column = Annotated[str | None, named("COLUMN")]
Id = Annotated[str | None, tyro.conf.arg(name="id", metavar="COLUMN", help_behavior_hint="")]
Threshold = Annotated[
    str | None,
    named("VALUE|cost=R|recall=S|precision=S"),
]
Names = Annotated[tuple[str, ...], named("COLUMN ...")]
Quality = Literal["fast", "good", "best"]
Kinds = tuple[Literal["network", "ce-network", "boosting", "forest", "logistic"], ...]
More = Annotated[tuple[Path, ...], named("FILE ...")]
Metric = Annotated[MetricName | None, named("|".join(FORMS))]

TEST_SHARE = 0.2
