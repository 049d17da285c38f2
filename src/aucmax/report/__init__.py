"""Figures, tables and one self-contained HTML page from the results of an experiment.

Results are JSON files, one per run::

    from aucmax import report

    runs = report.read_results("experiments/results/figure1")
    print(report.text_table(report.summarize(runs)))
    report.write_page("figure1.html", runs, title="Figure 1", command="aucmax reproduce figure1")

Figures need matplotlib, which is imported when the first is drawn.
"""

from aucmax.report.curves import figure, svg
from aucmax.report.page import caption_of_seconds, write_page
from aucmax.report.summary import Row, Stat, read_results, summarize
from aucmax.report.tables import html_table, rst_table, text_table

__all__ = [
    "Row",
    "Stat",
    "caption_of_seconds",
    "figure",
    "html_table",
    "read_results",
    "rst_table",
    "summarize",
    "svg",
    "text_table",
    "write_page",
]
