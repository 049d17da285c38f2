"""The rows of a summary as plain text, reStructuredText and HTML."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from aucmax.paper.style import dataset_name, protocol_name
from aucmax.paper.summary import Row, Stat

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


@dataclass(frozen=True)
class Cell:
    """A cell's text, whether it is the best of its block, and whether it is near the best."""

    text: str
    best: bool = False
    near: bool = False


def text_table(rows: Sequence[Row]) -> str:
    """Plain text in columns; the best has a star.

    Args:
        rows: from :func:`aucmax.paper.summarize`.
    """
    lines = [list(WHERE + HEADS)]
    for row, cells in zip(rows, cells_of(rows), strict=True):
        lines.append(_where(row) + [_marked(cell, "{} *") for cell in cells])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = [_join(line, widths) for line in lines]
    rule = _join(["-" * width for width in widths], widths)
    return "\n".join([padded[0], rule, *padded[1:], "", NOTE.format(bold="*")]) + "\n"


def rst_table(rows: Sequence[Row]) -> str:
    """A ``list-table`` for Sphinx; the best is bold.

    Args:
        rows: from :func:`aucmax.paper.summarize`.
    """
    lines = [".. list-table::", "   :header-rows: 1", ""]
    lines += _rst_line(WHERE + HEADS)
    for row, cells in zip(rows, cells_of(rows), strict=True):
        escaped = [Cell(_rst(cell.text), cell.best, cell.near) for cell in cells]
        lines += _rst_line(
            [_rst(x) for x in _where(row)] + [_marked(cell, "**{}**") for cell in escaped]
        )
    return "\n".join([*lines, "", NOTE.format(bold="Bold")]) + "\n"


def html_table(rows: Sequence[Row]) -> str:
    """A ``table`` with a heading for each block; the best is ``strong``.

    Args:
        rows: from :func:`aucmax.paper.summarize`.
    """
    heads = "".join(f'<th scope="col">{html.escape(head)}</th>' for head in HEADS)
    parts = [f"<table>\n<thead><tr>{heads}</tr></thead>"]
    pairs = zip(rows, cells_of(rows), strict=True)
    for _, block in groupby(pairs, key=lambda pair: pair[0].setting):
        members = list(block)
        title = html.escape(setting_name(members[0][0]))
        parts.append(
            f'<tbody>\n<tr><th colspan="{len(HEADS)}" scope="rowgroup">{title}</th></tr>\n'
            + "".join(_html_line(cells) for _, cells in members)
            + "</tbody>"
        )
    return "\n".join([*parts, "</table>"])


def cells_of(rows: Sequence[Row]) -> list[list[Cell]]:
    """The cells of each row, without those that say which block it belongs to."""
    return [_cells(row, [other for other in rows if other.setting == row.setting]) for row in rows]


def setting_name(row: Row) -> str:
    """Where the row belongs, in words."""
    return f"{dataset_name(row.dataset)}, {row.ratio}, {protocol_name(row.protocol)}"


def stat_text(stat: Stat) -> str:
    """Mean and spread; a dash for what is not known."""
    if not stat.n:
        return "–"
    return f"{stat.mean:.4f}" + ("" if math.isnan(stat.sd) else f" ± {stat.sd:.4f}")


def _cells(row: Row, block: list[Row]) -> list[Cell]:
    finished = row.seeds - row.diverged
    compared = [_compared(row, block, name) for name in COMPARED]
    diverged = f"{row.diverged} of {row.seeds}" if row.diverged else "0"
    return [
        Cell(row.label),
        Cell(str(finished)),
        *compared,
        Cell(diverged),
        Cell(f"{row.steps:,}"),
    ]


def _compared(row: Row, block: list[Row], name: str) -> Cell:
    stats: list[Stat] = [getattr(other, name) for other in block]
    stat: Stat = getattr(row, name)
    finished = row.seeds - row.diverged
    if not stat.n:
        return Cell("–" if finished else "diverged")
    best = max((x for x in stats if x.n), key=lambda x: x.mean)
    text = stat_text(stat) + (f" (n = {stat.n})" if stat.n != finished else "")
    is_best = stat.mean == best.mean
    return Cell(text, is_best, not is_best and stat.is_near(best))


def _where(row: Row) -> list[str]:
    return [row.protocol, dataset_name(row.dataset), row.ratio]


def _marked(cell: Cell, bold: str) -> str:
    text = bold.format(cell.text) if cell.best else cell.text
    return f"{text} {NEAR}" if cell.near else text


def _join(line: Sequence[str], widths: Sequence[int]) -> str:
    padded = (text.ljust(width) for text, width in zip(line, widths, strict=True))
    return "  ".join(padded).rstrip()


def _rst_line(texts: Sequence[str]) -> list[str]:
    return [f"   {'* -' if i == 0 else '  -'} {text}" for i, text in enumerate(texts)]


def _rst(text: str) -> str:
    """The text with a backslash before what reStructuredText would read as markup."""
    return re.sub(r"([\\*`|_])", r"\\\1", " ".join(text.split()))


def _html_line(cells: Sequence[Cell]) -> str:
    first, *others = cells
    head = f'<th scope="row">{html.escape(first.text)}</th>'
    return f"<tr>{head}{''.join(map(_html_cell, others))}</tr>\n"


def _html_cell(cell: Cell) -> str:
    text = html.escape(cell.text)
    if cell.best:
        text = f"<strong>{text}</strong>"
    return f"<td>{text}{f' {NEAR}' if cell.near else ''}</td>"
