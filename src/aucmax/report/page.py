"""One HTML page about a classifier of a table's rows, for people who know the table."""

from __future__ import annotations

from pathlib import Path

from aucmax.judge.evaluation import Evaluation
from aucmax.report import rendering, sections, words


def write_model_page(path: Path, evaluation: Evaluation) -> None:
    """Write the page of a classifier: how well it ranks, which threshold to take, what it used.

    The file is there as a whole or not at all, and needs nothing but itself: no network, no
    scripts, no fonts. All numbers are computed from ``evaluation``, and all of its text is shown
    as text.

    Args:
        path: of the file; its folder is made if it is not there.
        evaluation: of the classifier.
    """
    rows, shared = evaluation.rows, sections.shared(evaluation)
    layout = sections.layout(evaluation)
    bodies = {
        section.key: rendering.render(
            f"{section.key}.html", **shared, **section.content(evaluation, rows)
        )
        for line in layout
        for section in line
    }
    rendering.write_page(
        Path(path),
        "classifier.html",
        title=f"Predicting {words.quoted(evaluation.target, 60)}",
        cases=words.of_hundred(evaluation.auc),
        layout=layout,
        bodies=bodies,
        **shared,
    )
