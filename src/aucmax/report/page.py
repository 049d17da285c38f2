"""One HTML page about a classifier, for people who know the data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from aucmax.judge.evaluation import Evaluation
from aucmax.report import rendering, sections, words
from aucmax.report.sections import Section


def write_model_page(
    path: Path,
    evaluation: Evaluation,
    more: Sequence[Section] = (),
    templates: Path | None = None,
    commands: str = "",
) -> None:
    """Write the page of a classifier: how well it ranks, which threshold to take, what it used.

    The file is there as a whole or not at all, and needs nothing but itself: no network, no
    scripts, no fonts. All numbers are computed from ``evaluation``, and all of its text is shown
    as text.

    Args:
        path: of the file; its folder is made if it is not there.
        evaluation: of the classifier.
        more: sections of what is judged, such as pictures, after those of how good it is.
        templates: the folder of their templates.
        commands: what the names of the commands for such a model end with.
    """
    rows, shared = evaluation.rows, sections.shared(evaluation, commands)
    layout = sections.layout(evaluation, more)
    folders = [] if templates is None else [templates]
    bodies = {
        section.key: rendering.render(
            f"{section.key}.html", *folders, **shared, **section.content(evaluation, rows)
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
