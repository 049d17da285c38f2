"""Pieces of a classifier's page: text, tables and figures as HTML, and what they look like."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

from aucmax.report.base import LEAST_REM
from aucmax.report.figures import WIDTH

MOST_REM = 7.0  # per inch of a figure
CSS = """
main { max-width: 72rem; }
h2 { scroll-margin-top: 1rem; }
h3 { font-size: 1rem; margin: 1.25rem 0 0.5rem; }
a { color: var(--line-0); }
.headline { font-size: 1.35rem; line-height: 1.4; max-width: 44rem; margin: 0 0 1.25rem; }
.verdict { font-weight: 600; }
nav ul { display: flex; flex-wrap: wrap; gap: 0.25rem 1.1rem; list-style: none; padding: 0; }
nav ul { max-width: none; border-block: 1px solid var(--grid); padding: 0.5rem 0; margin: 0; }
nav li { margin: 0; }
.cards { grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: 0.75rem; }
.cards div { border: 1px solid var(--grid); border-radius: 6px; padding: 0.6rem 0.8rem; }
.cards dd { font-size: 0.85rem; }
.cards b { display: block; font-size: 1.5rem; line-height: 1.3; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); }
.pair { column-gap: 3rem; }
.pair > section, .beside > * { min-width: 0; }
figcaption { opacity: 1; font-size: inherit; max-width: 40rem; }
figcaption p { margin: 0.6rem 0; }
.numbers th, .numbers td { text-align: right; padding: 0.35rem 0.5rem 0.35rem 0.9rem; }
.numbers .text { text-align: left; }
.numbers th.text:first-child { padding-left: 0.5rem; }
.numbers thead th { font-weight: 600; white-space: normal; }
.numbers .own > * { font-weight: 700; background: color-mix(in srgb, var(--ink) 8%, transparent); }
.box { max-height: 26rem; overflow: auto; border: 1px solid var(--grid); border-radius: 4px; }
.box { width: fit-content; max-width: 100%; }
.box thead th { position: sticky; top: 0; background: var(--paper); }
.box thead th { border-bottom: 0; box-shadow: inset 0 -1px var(--ink); }
.many { display: grid; grid-template-columns: repeat(auto-fill, minmax(13rem, 1fr)); gap: 1rem; }
.many figure { margin: 0; max-width: 19rem; }
.many figcaption { text-align: center; margin: 0; }
.matrix { --share: 0%; max-width: 100%; width: fit-content; }
.matrix td { text-align: center; min-width: 2.2rem; padding: 0.35rem; }
.matrix td { background: color-mix(in srgb, var(--line-0) var(--share), transparent); }
.matrix thead th { text-align: center; }
#made pre { white-space: pre-wrap; overflow-wrap: anywhere; }
@media (max-width: 40rem) {
  .numbers { font-size: 0.82rem; }
  .numbers th, .numbers td { padding-inline: 0.35rem; }
  .numbers .text { white-space: normal; }
  .numbers th.text:first-child { position: sticky; left: 0; max-width: 10rem; }
  .numbers th.text:first-child { background: var(--paper); overflow-wrap: break-word; z-index: 1; }
  .numbers .own th.text:first-child { background: var(--grid); }
  .box thead th.text:first-child { z-index: 2; }
}
@media (min-width: 56rem) {
  .beside { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); gap: 3rem; }
}
@media print {
  nav { display: none; }
  a { color: inherit; }
  .box { max-height: none; overflow: visible; border: 0; }
  .box thead th { position: static; box-shadow: none; border-bottom: 1px solid var(--ink); }
  details:not([open]) { display: none; }
  .beside { display: grid; grid-template-columns: 3fr 2fr; gap: 1.5rem; }
  .pair { grid-template-columns: 1fr 1fr; gap: 1.5rem; }
  .pair, .cards, figure { break-inside: avoid; }
  .pair svg { max-width: 19rem; }
  .numbers tbody { break-inside: auto; }
  .numbers tr { break-inside: avoid; }
  h2 { margin-top: 1.5rem; }
  .numbers th, .numbers td { white-space: normal; }
}
"""


class Html(str):
    """Text that is HTML already; any other is escaped where it is shown."""

    __slots__ = ()


def shown(text: str) -> str:
    """Escaped; no line is broken between a number and its unit."""
    if isinstance(text, Html):
        return text
    return re.sub(r"(?<=\d) (?=(%|s|min|h)(\W|$))", "&nbsp;", escape(text))


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph of one class."""
    name = f' class="{kind}"' if kind else ""
    return f"<p{name}>{shown(text)}</p>\n"


def pair(*sections: str) -> str:
    """Side by side where there is room."""
    return "\n".join(['<div class="pair">', *sections, "</div>"])


def scrolled(body: str, kind: str = "") -> str:
    """What may be wider than the page, or with the kind "box" longer than one looks at."""
    name = f"scroll {kind}".strip()
    return f'<div class="{name}" tabindex="0">\n{body}\n</div>'


def figure(drawn: str, caption: str, said: str = "", beside: bool = False) -> str:
    """A figure, what it says, and how to read it: below it, or beside it where there is room."""
    size = f"--least: {WIDTH * LEAST_REM:.1f}rem; --most: {WIDTH * MOST_REM:.1f}rem"
    about = (paragraph(said) if said else "") + paragraph(caption, "note")
    kind = ' class="beside"' if beside else ""
    return (
        f'<figure{kind}>\n<div class="scroll" style="{size}">\n{drawn}</div>\n'
        f"<figcaption>\n{about}</figcaption>\n</figure>"
    )


def table(
    heads: Sequence[str],
    lines: Iterable[Sequence[str]],
    own: int | None = None,
    texts: Iterable[int] = (),
) -> str:
    """A table.

    Args:
        heads: names of the columns.
        lines: cells, the first of which names the line.
        own: the line that stands out.
        texts: columns that hold no numbers, next to the first.
    """
    left = {0, *texts}
    top = "".join(_cell(text, "th", "col", i in left) for i, text in enumerate(heads))
    body = []
    for number, (first, *others) in enumerate(lines):
        cells = "".join(_cell(text, "td", "", i in left) for i, text in enumerate(others, 1))
        kind = ' class="own"' if number == own else ""
        body.append(f"<tr{kind}>{_cell(first, 'th', 'row', True)}{cells}</tr>")
    start = f'<table class="numbers">\n<thead><tr>{top}</tr></thead>\n<tbody>'
    return "\n".join([start, *body, "</tbody>\n</table>"])


def _cell(text: str, tag: str, scope: str, left: bool) -> str:
    about = (f' scope="{scope}"' if scope else "") + (' class="text"' if left else "")
    return f"<{tag}{about}>{shown(text)}</{tag}>"
