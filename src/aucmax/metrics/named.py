"""Metrics by name: "roc_auc", "partial_auc@0.1", "precision_at@k=50"."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from aucmax.metrics.curve import (
    average_precision,
    check_fpr,
    check_range,
    check_top,
    partial_auc,
    precision_at,
    roc_auc,
    tpr_at_fpr,
)
from aucmax.metrics.grouped import grouped_auc
from aucmax.metrics.multiclass import hand_till


class Named(NamedTuple):
    """A metric with the options that its name may give.

    Attributes:
        function: Of scores, labels and weights; the options are keywords.
        form: How the name is written.
        options: The names of the numbers after "@", in order; any may be written as ``name=...``.
        check: Raises unless the options are right.
    """

    function: Callable[..., float]
    form: str
    options: tuple[str, ...] = ()
    check: Callable[..., object] | None = None


METRICS: Mapping[str, Named] = {
    "roc_auc": Named(roc_auc, "roc_auc"),
    "average_precision": Named(average_precision, "average_precision"),
    "grouped_auc": Named(grouped_auc, "grouped_auc"),
    "partial_auc": Named(
        partial_auc, "partial_auc@MAX_FPR[,MIN_TPR]", ("max_fpr", "min_tpr"), check_range
    ),
    "tpr_at_fpr": Named(tpr_at_fpr, "tpr_at_fpr@FPR", ("fpr",), check_fpr),
    "precision_at": Named(
        precision_at, "precision_at@SHARE|precision_at@k=ROWS", ("share", "k"), check_top
    ),
    "hand_till": Named(hand_till, "hand_till"),
}


def read_name(metric: str) -> tuple[str, dict[str, Any]]:
    """Return the name of the function, and the options that the metric's name gives.

    Example:
        >>> from aucmax.metrics.named import read_name
        >>> read_name("partial_auc@0.1,0.5")
        ('partial_auc', {'max_fpr': 0.1, 'min_tpr': 0.5})
        >>> read_name("precision_at@k=50")
        ('precision_at', {'k': 50})
    """
    name, _, text = metric.partition("@") if isinstance(metric, str) else ("", "", "")
    if name not in METRICS:
        forms = ", ".join(row.form for row in METRICS.values())
        raise ValueError(f"metric must be one of {forms}, found {metric!r}")
    row = METRICS[name]
    wrong = f"metric must be written {row.form}, found {metric!r}"
    if name == "grouped_auc" and text == "mean":
        return name, {"mean": True}
    options: dict[str, Any] = {}
    for place, part in enumerate(text.split(",") if text else []):
        option, equals, value = part.strip().rpartition("=")
        if not equals:
            option = row.options[place] if place < len(row.options) else ""
        if option not in row.options or option in options:
            raise ValueError(wrong)
        if option == "share" and value.isdecimal():
            raise ValueError(f"{wrong}: a number of rows is written precision_at@k={value}")
        options[option] = _read_number(value)
    if row.check is not None:
        if not options:
            raise ValueError(f"{wrong}: {row.options[0]} is missing")
        try:
            row.check(**options)
        except ValueError as error:
            raise ValueError(f"{wrong}: {error}") from None
    return name, {option: options[option] for option in row.options if option in options}


def write_name(name: str, options: Mapping[str, Any]) -> str:
    """Return the name of a metric with its options, the same however they were written.

    Example:
        >>> from aucmax.metrics.named import read_name, write_name
        >>> write_name(*read_name("partial_auc@.10,min_tpr=0.5"))
        'partial_auc@0.1,0.5'
    """
    if options == {"mean": True}:
        return f"{name}@mean"
    words = []
    for place, (option, value) in enumerate(options.items()):
        in_place = METRICS[name].options[place] == option
        words.append(str(value) if in_place else f"{option}={value}")
    return name + "@" * bool(words) + ",".join(words)


def _read_number(text: str) -> float | str:
    """Read a number; the check of the option names any other text."""
    try:
        return int(text) if text.isdecimal() else float(text)
    except ValueError:
        return text
