"""The frame of every page: one HTML file that needs no network, no scripts, no fonts."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from pathlib import Path

from aucmax.report.style import COLOURS, GRID, INK, PAPER

GROUND = {INK: ("ink", "#e4e4e4"), PAPER: ("paper", "#15181d"), GRID: ("grid", "#3a3f47")}
LEAST_REM, MOST_REM = 4.5, 7.5  # per inch of a figure: its text stays as large as the page's


def page(title: str, sections: Iterable[str]) -> str:
    """A whole page."""
    style = (Path(__file__).parent / "page.css").read_text(encoding="utf-8")
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{escape(title)}</title>",
            f"<style>\n{_variables()}{style}</style>",
            "</head>",
            "<body>",
            "<main>",
            f"<h1>{escape(title)}</h1>",
            *sections,
            "</main>",
            "</body>",
            "</html>\n",
        ]
    )


def facts(facts: dict[str, str]) -> str:
    """Names and what they are."""
    lines = (f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts.items())
    return "<dl>\n" + "\n".join(lines) + "\n</dl>"


def colour_names() -> dict[str, str]:
    """The variable of the style sheet that stands for each colour of a figure."""
    lines = {light: f"line-{i}" for i, (light, _) in enumerate(COLOURS)}
    return {**lines, **{light: name for light, (name, _) in GROUND.items()}}


def _variables() -> str:
    """Each colour on a light ground and in print, and on a dark ground."""
    names = colour_names()
    dark = dict(COLOURS) | {x: y for x, (_, y) in GROUND.items()}
    by_day = " ".join(f"--{name}: {light};" for light, name in names.items())
    by_night = " ".join(f"--{name}: {dark[light]};" for light, name in names.items())
    night = "@media screen and (prefers-color-scheme: dark)"
    return f":root {{ {by_day} }}\n{night} {{ :root {{ {by_night} }} }}\n"
