"""How every figure is drawn, and written as an SVG that can stand in a page."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from markupsafe import Markup, escape

from aucmax.report.style import MATPLOTLIB, PAGE_COLOURS

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Drawing(NamedTuple):
    """A figure as an ``<svg>`` element for a page, and its width in inches."""

    svg: Markup
    width: float


def for_page(text: str, name: str, label: str) -> Drawing:
    """A figure from :func:`svg` in the colours of a page's style sheet.

    Args:
        text: the ``<svg>`` element.
        name: put before every id, so that several figures can stand on one page.
        label: what is read aloud in its place.
    """
    width = re.search(r'\swidth="([\d.]+)pt"', text)
    assert width is not None
    text = _with_prefix(text, f"{name}-")
    for colour in PAGE_COLOURS:
        text = text.replace(colour.light, f"var(--{colour.name})")
    text = text.replace("<svg ", f'<svg role="img" aria-label="{escape(label)}" ', 1)
    return Drawing(Markup(text), float(width[1]) / 72)


def svg(figure: Figure, prefix: str = "") -> str:
    """The figure as an ``<svg>`` element; the same runs give the same text.

    Args:
        figure: from :func:`figure`.
        prefix: put before every id, so that several figures can stand on one page.
    """
    target = io.StringIO()
    with plot_style():
        figure.savefig(target, format="svg", metadata=dict.fromkeys(("Date", "Creator")))
    text = target.getvalue()
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)

    def rounded(path: re.Match[str]) -> str:  # to hundredths of a point, finer than any screen
        return re.sub(r"-?\d+\.\d+", lambda number: f"{float(number[0]):.2f}", path[0])

    text = re.sub(r'(?<=\sd=")[^"]+', rounded, text)
    return _with_prefix("\n".join(line.rstrip() for line in text.splitlines()) + "\n", prefix)


def _with_prefix(text: str, prefix: str) -> str:
    return re.sub(r'(\sid="|url\(#|href="#)', rf"\g<1>{prefix}", text)


def short(value: float) -> str:
    """A number for an axis: 500, 20k, 1.5M."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


@contextmanager
def plot_style() -> Iterator[None]:
    """Our settings, whatever the user's are, for a while."""
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(MATPLOTLIB)
        yield
