"""Pages from Jinja2 templates: one HTML file that needs no network, no scripts, no fonts."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from aucmax.disk import write_text
from aucmax.report import words
from aucmax.report.style import PAGE_COLOURS

FILTERS = (
    words.capitalized, words.listed, words.percent, words.plural, words.quoted,
    words.short, words.thousands, words.unbroken,
)  # fmt: skip


@cache
def environment(*folders: Path) -> Environment:
    """Where templates are found: in these folders, then in this package's own.

    All text is escaped, and a name that a template was not given is an error.
    """
    own = Path(__file__).parent / "templates"
    environment = Environment(
        loader=FileSystemLoader([*folders, own]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {function.__name__: function for function in FILTERS}
    environment.globals["colours"] = PAGE_COLOURS
    return environment


def render(template: str, *folders: Path, **context: Any) -> Markup:
    """A template filled in; text of the context is escaped."""
    return Markup(environment(*folders).get_template(template).render(context))


def write_page(path: Path, template: str, *folders: Path, **context: Any) -> None:
    """Write a page, as a whole or not at all; the folder is made if it is not there."""
    content = render(template, *folders, **context)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, content)
