"""One HTML page about a classifier of a table's rows, for people who know the table."""

from __future__ import annotations

from pathlib import Path

from aucmax.disk import write_text
from aucmax.judge.binary import BinaryRows, curves
from aucmax.judge.evaluation import Evaluation, Interval
from aucmax.judge.training import training
from aucmax.report import base, classes, parts, sections, words
from aucmax.report.html import CSS, pair, paragraph, scrolled, table
from aucmax.report.words import percent, quoted

SECTIONS = {
    "answer": ("Result", "What it can do"),
    "roc": ("ROC curve", "Found, and flagged by mistake: ROC curve"),
    "precision": ("Precision and recall", "Found, and right: precision and recall"),
    "probabilities": ("Predictions", "What it predicts"),
    "calibration": ("Calibration", "Can its probabilities be taken at their word?"),
    "training": ("Training", "How the training went"),
    "thresholds": ("Thresholds", "Where to put the threshold"),
    "importance": ("Columns that matter", "Which columns matter"),
    "data": ("Data", "The data"),
    "made": ("How it was made", "How it was made"),
}


def write_model_page(path: Path, evaluation: Evaluation) -> None:
    """Write the page of a classifier: how well it ranks, which threshold to take, what it used.

    The file is there as a whole or not at all, and needs nothing but itself: no network, no
    scripts, no fonts. All numbers are computed from ``evaluation``, and all of its text is shown
    as text.

    Args:
        path: of the file; its folder is made if it is not there.
        evaluation: of the classifier.
    """
    rows = evaluation.rows
    if isinstance(rows, BinaryRows):
        found = _sections(rows, evaluation)
    else:
        found = classes.sections_of(rows, evaluation)
    title = f"Predicting {quoted(evaluation.target, 60)}"
    content = base.page(title, found)
    content = content.replace("</style>", f"{CSS}</style>", 1)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, content)


def _sections(rows: BinaryRows, evaluation: Evaluation) -> list[str]:
    lines, auc = curves(rows), evaluation.auc
    bodies = {
        "answer": _answer(rows, evaluation),
        "roc": sections.roc(rows, lines, auc),
        "precision": sections.precision_recall(rows, lines),
        "probabilities": sections.histogram(rows),
        "calibration": sections.calibration(rows),
        "training": sections.training(training(evaluation.history, evaluation.metric)),
        "thresholds": sections.thresholds(rows),
        "importance": sections.importance(evaluation.importance),
        "data": _data(rows, evaluation),
        "made": parts.made(evaluation),
    }
    first, *rest = (parts.section(SECTIONS, key, bodies[key]) for key in SECTIONS)
    headline = paragraph(words.headline(rows, auc), "headline")
    return [headline, parts.contents(SECTIONS), first, pair(*rest[:2]), pair(*rest[2:4]), *rest[4:]]


def _answer(rows: BinaryRows, evaluation: Evaluation) -> str:
    auc = evaluation.auc
    verdict = words.verdict(auc.value, evaluation.peers)
    first = f"{words.against_guessing(auc)} {words.on_size(rows)}".strip()
    meaning = (
        f"the share of pairs of one {quoted(rows.yes)} and one {quoted(rows.no)} that are ranked "
        "the right way round"
    )
    found = [
        paragraph(first),
        _cards(rows, auc),
        paragraph(verdict, "verdict"),
        parts.peers(evaluation, meaning, "DeLong's paired test"),
    ]
    return "\n".join(filter(None, found))


def _cards(rows: BinaryRows, auc: Interval) -> str:
    """The numbers to remember."""
    counts = rows.at_threshold
    digits, positives = words.decimals(auc), int(rows.positive.sum())
    between = f"{auc.low:.{digits}f} to {auc.high:.{digits}f}"
    right = "nothing is flagged" if counts.precision is None else "of the flagged rows are right"
    found = [
        ("AUC", f"{auc.value:.{digits}f}", between),
        ("Test rows", f"{counts.rows:,}", f"{positives:,} of them {quoted(rows.yes, 16)}"),
        ("Base rate", percent(rows.base_rate), f"{quoted(rows.yes, 16)} among the test rows"),
        ("Precision", percent(counts.precision), right),
        ("Recall", percent(counts.recall), f"of {quoted(rows.yes, 16)} are flagged"),
    ]
    cut = words.threshold_text(rows.threshold)
    note = f"Precision and recall are those at the model's own threshold, {cut}."
    return parts.cards(found) + paragraph(note, "note")


def _data(rows: BinaryRows, evaluation: Evaluation) -> str:
    heads = ("Part", "Rows", quoted(rows.yes), "Share", "What for")
    lines = [line for part in parts.PARTS if (line := _part(part, evaluation))]
    found = [scrolled(table(heads, lines, texts={4})), parts.columns(evaluation.columns)]
    return "\n".join(filter(None, found))


def _part(part: str, evaluation: Evaluation) -> list[str]:
    about = evaluation.parts.get(part)
    if about is None or not about.rows:
        return []
    name, purpose = parts.PARTS[part]
    if about.counts is None:
        return [name, f"{about.rows:,}", words.UNKNOWN, words.UNKNOWN, purpose]
    positives = about.counts[1]
    return [name, f"{about.rows:,}", f"{positives:,}", percent(positives / about.rows), purpose]
