"""The paper's experiments: data sets, settings, runs, figures and verdicts.

Each figure is a TOML file beside this one; results are JSON files, one per run::

    from aucmax import paper

    runs = paper.read_results("experiments/results/figure1")
    print(paper.text_table(paper.summarize(runs)))
    paper.write_page("figure1.html", runs, title="Figure 1", command="aucmax reproduce figure1")

Figures need matplotlib, which is imported when the first is drawn.
"""

from aucmax.paper import datasets, prepare
from aucmax.paper.figures import figure
from aucmax.paper.page import caption_of_seconds, write_page
from aucmax.paper.plan import EXPERIMENTS, Plan
from aucmax.paper.reproduce import reproduce
from aucmax.paper.results import Row, Stat, read_results, summarize
from aucmax.paper.text_tables import html_table, rst_table, text_table
from aucmax.report.drawing import svg

__all__ = [
    "EXPERIMENTS",
    "Plan",
    "Row",
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
