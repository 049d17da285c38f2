"""The rows of a summary as plain text, reStructuredText and HTML."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

from aucmax.paper.settings import LineKey
from aucmax.paper.style import dataset_name, protocol_name
from aucmax.paper.summary import Row, Stat, by_setting

WHERE = ("Protocol", "Dataset", "Ratio")
HEADS = (
    "Method",
    "n",
    "Final, last iterate",
    "Final, average",
    "Chosen by validation",
    "Diverged",
    "Steps",
)
COMPARED = ("last", "average", "chosen")
NEAR = "†"
NOTE = (
    "Test AUC: mean ± standard deviation over n seeds; diverged runs count in no mean. "
    f"{{bold}}: the best mean under this protocol, on this dataset, at this ratio; {NEAR}: less "
    "than one standard error of the difference below it."
)


class Cell(NamedTuple):
    """A cell's text, whether it is the best of its setting, and whether it is near the best."""

    text: str
    best: bool = False
    near: bool = False


def text_table(rows: Sequence[Row]) -> str:
    """Plain text in columns; the best has a star.

    Args:
        rows: from :func:`aucmax.paper.summarize`.
    """
    lines = [list(WHERE + HEADS)]
    lines += [_where(row) + [_marked(cell, "{} *") for cell in cells_of(row, rows)] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])
    padded = (
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
    return "\n".join([*padded, "", NOTE.format(bold="*")]) + "\n"


def rst_table(rows: Sequence[Row]) -> str:
    """A ``list-table`` for Sphinx; the best is bold.

    Args:
        rows: from :func:`aucmax.paper.summarize`.
    """
    lines = [list(WHERE + HEADS)]
    for row in rows:
        cells = (
            _marked(cell, "**{}**", rst_text).replace(" ± ", "\u00a0±\u00a0")
            for cell in cells_of(row, rows)
        )
        lines.append([*map(rst_text, _where(row)), *cells])
    items = ["   * - " + "\n     - ".join(line) for line in lines]
    head = [".. list-table::", "   :header-rows: 1", ""]
    return "\n".join([*head, *items, "", NOTE.format(bold="Bold")]) + "\n"


def html_table(rows: Sequence[Row]) -> str:
    """A ``table`` with a heading for each setting; the best is ``strong``.

    Args:
        rows: from :func:`aucmax.paper.summarize`.
    """
    heads = "".join(f'<th scope="col">{escape(head)}</th>' for head in HEADS)
    parts = [f"<table>\n<thead><tr>{heads}</tr></thead>"]
    for group in by_setting(rows):
        title = escape(setting_name(group[0]))
        parts.append(f'<tbody>\n<tr><th colspan="{len(HEADS)}" scope="rowgroup">{title}</th></tr>')
        for row in group:
            cells = [_marked(c, "<strong>{}</strong>", escape) for c in cells_of(row, rows)]
            others = "".join(f"<td>{text}</td>" for text in cells[1:])
            parts.append(f'<tr><th scope="row">{cells[0]}</th>{others}</tr>')
        parts.append("</tbody>")
    return "\n".join([*parts, "</table>"])


def cells_of(row: Row, rows: Sequence[Row]) -> list[Cell]:
    """The cells of one of the rows, without those that say which setting it belongs to."""
    finished = row.seeds - row.diverged
    return [
        Cell(row.label),
        Cell(str(finished)),
        *(_compared(row, rows, name) for name in COMPARED),
        Cell(f"{row.diverged} of {row.seeds}" if row.diverged else "0"),
        Cell(f"{row.steps:,}"),
    ]


def _compared(row: Row, rows: Sequence[Row], name: str) -> Cell:
    """A mean and its spread, marked if it is the best of its setting or near it."""
    stat: Stat = getattr(row, name)
    finished = row.seeds - row.diverged
    if not stat.n:
        return Cell("–" if finished else "diverged")
    rivals: list[Stat] = [getattr(other, name) for other in rows if other.setting == row.setting]
    best = max((rival for rival in rivals if rival.n), key=lambda rival: rival.mean)
    text = stat_text(stat) + (f" (n = {stat.n})" if stat.n != finished else "")
    is_best = stat.mean == best.mean
    return Cell(text, is_best, not is_best and stat.is_near(best))


def setting_name(row: Row | LineKey) -> str:
    """Where a row belongs, in words."""
    return f"{dataset_name(row.dataset)}, {row.ratio}, {protocol_name(row.protocol)}"


def stat_text(stat: Stat) -> str:
    """Mean and spread; a dash for what is not known."""
    if not stat.n:
        return "–"
    return f"{stat.mean:.4f}" + ("" if math.isnan(stat.sd) else f" ± {stat.sd:.4f}")


def _where(row: Row) -> list[str]:
    return [row.protocol, dataset_name(row.dataset), row.ratio]


def _marked(cell: Cell, bold: str, escaped: Callable[[str], str] = str) -> str:
    text = escaped(cell.text)
    text = bold.format(text) if cell.best else text
    return f"{text} {NEAR}" if cell.near else text


def rst_text(text: str) -> str:
    """The text with a backslash before what reStructuredText would read as markup."""
    return re.sub(r"([\\*`|_])", r"\\\1", " ".join(text.split()))
