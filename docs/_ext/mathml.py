"""Formulas as MathML, which browsers render themselves: no script, no network."""

import re
from html.entities import html5
from typing import Any
from xml.etree import ElementTree

from docutils import nodes
from docutils.utils.math import latex2mathml
from sphinx.application import Sphinx


def mathml(latex: str, block: bool) -> str:
    """The formula as a ``<math>`` element."""
    text = latex2mathml.tex2mathml(latex, as_block=block).replace(' xmlns="', ' data-xmlns="')
    math = ElementTree.fromstring(re.sub(r"&(\w+);", _entity, text))
    for node in math.iter("munderover"):
        _lower_the_index(node)
    return ElementTree.tostring(math, encoding="unicode").replace(' data-xmlns="', ' xmlns="')


def _entity(match: re.Match[str]) -> str:
    """HTML's named characters as they are; XML knows only its own few."""
    known = match[1] in ("amp", "lt", "gt", "quot", "apos")
    return match[0] if known else html5[f"{match[1]};"]


def _lower_the_index(node: ElementTree.Element) -> None:
    r"""Set the index of an accented letter, as in \bar v_k, beside it instead of below."""
    letter, index, accent = list(node)
    if accent.tag == "mo" and accent.text in ("ˉ", "^", "~"):
        node.tag = "msub"
        node[:] = [ElementTree.Element("mover"), index]
        node[0].extend([letter, accent])


def visit_inline(self: Any, node: nodes.math) -> None:
    """Write an inline formula."""
    self.body.append(mathml(node.astext(), block=False))
    raise nodes.SkipNode


def visit_block(self: Any, node: nodes.math_block) -> None:
    """Write a displayed formula."""
    self.body.append(f'<div class="math">{mathml(node.astext(), block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer as ``html_math_renderer = "mathml"``."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
