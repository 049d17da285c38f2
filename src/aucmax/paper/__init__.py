"""The paper's experiments: data sets, settings, runs, figures and verdicts.

Each figure is a TOML file beside this one; results are JSON files, one per run::

    from aucmax import paper

    runs = paper.read_results("experiments/results/figure1")
    print(paper.text_table(paper.summarize(runs)))
    paper.write_page("figure1.html", runs, title="Figure 1", command="aucmax reproduce figure1")

Names are loaded when they are first used: the data sets need NumPy alone, and matplotlib is
imported when the first figure is drawn.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aucmax.paper import datasets, prepare
    from aucmax.paper.experiment import reproduce
    from aucmax.paper.figures import figure
    from aucmax.paper.page import caption_of_seconds, write_page
    from aucmax.paper.results import RunResult, read_results
    from aucmax.paper.settings import EXPERIMENTS, Plan
    from aucmax.paper.summary import Row, Stat, summarize
    from aucmax.paper.text_tables import html_table, rst_table, text_table
    from aucmax.report.drawing import svg

__all__ = [
    "EXPERIMENTS",
    "Plan",
    "Row",
    "RunResult",
    "Stat",
    "caption_of_seconds",
    "datasets",
    "figure",
    "html_table",
    "prepare",
    "read_results",
    "reproduce",
    "rst_table",
    "summarize",
    "svg",
    "text_table",
    "write_page",
]

_LATER = {
    "EXPERIMENTS": "aucmax.paper.settings",
    "Plan": "aucmax.paper.settings",
    "Row": "aucmax.paper.summary",
    "RunResult": "aucmax.paper.results",
    "Stat": "aucmax.paper.summary",
    "caption_of_seconds": "aucmax.paper.page",
    "figure": "aucmax.paper.figures",
    "html_table": "aucmax.paper.text_tables",
    "read_results": "aucmax.paper.results",
    "reproduce": "aucmax.paper.experiment",
    "rst_table": "aucmax.paper.text_tables",
    "summarize": "aucmax.paper.summary",
    "svg": "aucmax.report.drawing",
    "text_table": "aucmax.paper.text_tables",
    "write_page": "aucmax.paper.page",
}
"""Where names come from that are loaded when they are first used."""


def __getattr__(name: str) -> Any:
    if name in ("datasets", "prepare"):
        return import_module(f"aucmax.paper.{name}")
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module 'aucmax.paper' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
