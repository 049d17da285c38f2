"""The paper's experiments: data sets, settings, runs, figures and verdicts.

Each figure is a TOML file beside this one; results are JSON files, one per run::

    from aucmax import paper

    runs = paper.read_results("experiments/results/figure1")
    print(paper.text_table(paper.summarize(runs)))
    paper.write_page("figure1.html", runs, title="Figure 1", command="aucmax reproduce figure1")

The data sets and their preparation need NumPy alone; other names are loaded when they are first
used, and matplotlib is imported when the first figure is drawn.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from aucmax.extras import needed
from aucmax.paper import datasets, prepare

if TYPE_CHECKING:
    from aucmax.paper.experiment import reproduce
    from aucmax.paper.figures import figure
    from aucmax.paper.page import caption_of_seconds, write_page
    from aucmax.paper.ratio_figure import summary_figure
    from aucmax.paper.results import RunResult, read_results
    from aucmax.paper.settings import EXPERIMENTS, Plan, Wanted
    from aucmax.paper.summary import Row, Stat, summarize
    from aucmax.paper.text_tables import html_table, rst_table, text_table
    from aucmax.report.drawing import svg

__all__ = [
    "EXPERIMENTS",
    "Plan",
    "Row",
    "RunResult",
    "Stat",
    "Wanted",
    "caption_of_seconds",
    "datasets",
    "figure",
    "html_table",
    "prepare",
    "read_results",
    "reproduce",
    "rst_table",
    "summarize",
    "summary_figure",
    "svg",
    "text_table",
    "write_page",
]

_NAMES = {
    "aucmax.paper.experiment": ["reproduce"],
    "aucmax.paper.figures": ["figure"],
    "aucmax.paper.ratio_figure": ["summary_figure"],
    "aucmax.paper.page": ["caption_of_seconds", "write_page"],
    "aucmax.paper.results": ["RunResult", "read_results"],
    "aucmax.paper.settings": ["EXPERIMENTS", "Plan", "Wanted"],
    "aucmax.paper.summary": ["Row", "Stat", "summarize"],
    "aucmax.paper.text_tables": ["html_table", "rst_table", "text_table"],
    "aucmax.report.drawing": ["svg"],
}
"""Of each module; loaded when first used."""


def __getattr__(name: str) -> Any:
    for module, names in _NAMES.items():
        if name in names:
            with needed(name, "all"):
                return getattr(import_module(module), name)
    raise AttributeError(f"module 'aucmax.paper' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
