"""The page of a classifier of several classes."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from aucmax.judge.binary import curves
from aucmax.judge.evaluation import Evaluation, Interval
from aucmax.judge.multiclass import ClassResult, MulticlassRows, class_results, mistakes
from aucmax.judge.training import training
from aucmax.report import figures, parts, sections, words
from aucmax.report.html import pair, paragraph, scrolled, shown, table
from aucmax.report.words import percent, plural, quoted, short

SECTIONS = {
    "answer": ("Result", "What it can do"),
    "classes": ("Classes", "How well each class is told from the others"),
    "predictions": ("Predictions", "What it predicts, and what is true"),
    "calibration": ("Calibration", "Can its probabilities be taken at their word?"),
    "training": ("Training", "How the training went"),
    "importance": ("Columns that matter", "Which columns matter"),
    "data": ("Data", "The data"),
    "made": ("How it was made", "How it was made"),
}
PANEL = 2.1  # inches
MOST_PANELS, MOST_CELLS, SMALL = 12, 20, 7  # classes with a curve, in a matrix, in half a page
MOST_MISTAKES = 3  # in words
DARKEST = 45  # percent of colour in a cell


def sections_of(rows: MulticlassRows, evaluation: Evaluation) -> list[str]:
    """All that stands below the title."""
    few = len(rows.labels) <= SMALL
    bodies = {
        "answer": _answer(rows, evaluation),
        "classes": _classes(rows),
        "predictions": _predictions(rows),
        "calibration": _calibration(rows, beside=not few),
        "training": sections.training(training(evaluation.history, evaluation.metric)),
        "importance": sections.importance(evaluation.importance),
        "data": _data(rows, evaluation),
        "made": parts.made(evaluation),
    }
    made = [parts.section(SECTIONS, key, bodies[key]) for key in SECTIONS]
    middle = [pair(*made[2:4])] if few else made[2:4]
    headline = paragraph(_headline(evaluation.auc), "headline")
    return [headline, parts.contents(SECTIONS), *made[:2], *middle, *made[4:]]


def _headline(auc: Interval) -> str:
    value, low, high = words.of_hundred(auc)
    return (
        f"Given a row of each of two classes, it tells which is which in {value} of 100 cases "
        f"({words.percent_of_level(auc.level)} interval {low} to {high}), on average over all "
        "pairs of classes."
    )


def _answer(rows: MulticlassRows, evaluation: Evaluation) -> str:
    auc = evaluation.auc
    meaning = (
        "of two classes, the share of pairs of one row of each that the probability of one of the "
        "classes ranks the right way round; the mean over all pairs of classes (Hand and Till)"
    )
    found = [
        paragraph(f"{words.against_guessing(auc)} {_on_size(rows)}".strip()),
        _cards(rows, auc),
        paragraph(words.verdict(auc.value, evaluation.peers), "verdict"),
        parts.peers(evaluation, meaning, "DeLong's paired test, carried over to this mean"),
    ]
    return "\n".join(filter(None, found))


def _on_size(rows: MulticlassRows) -> str:
    """A warning if a class is small."""
    counts = rows.confusion.sum(axis=1)
    few = [label for label, count in zip(rows.labels, counts, strict=True) if count < words.FEW]
    if not few:
        return ""
    said = "all numbers" if len(few) == len(rows.labels) else "numbers that depend on them"
    return (
        f"Fewer than {words.FEW} test rows are {words.listed(map(quoted, few))}: {said} are rough."
    )


def _cards(rows: MulticlassRows, auc: Interval) -> str:
    digits, counts = words.decimals(auc), rows.confusion.sum(axis=1)
    right = rows.confusion.diagonal()
    total, most = int(counts.sum()), int(counts.argmax())
    between = f"{auc.low:.{digits}f} to {auc.high:.{digits}f}"
    found = [
        ("AUC", f"{auc.value:.{digits}f}", between),
        ("Test rows", f"{total:,}", f"of {len(rows.labels)} classes"),
        ("Accuracy", percent(float(right.sum() / total)), "of the predicted labels are right"),
        ("Mean recall", percent(float((right / counts).mean())), "of a class gets its label"),
        ("Base rate", percent(counts[most] / total), f"are {quoted(rows.labels[most], 16)}"),
    ]
    note = (
        "A row gets the label with the largest probability. Base rate: the share of the most "
        "frequent class, which would be the accuracy of always saying it."
    )
    return parts.cards(found) + paragraph(note, "note")


def _classes(rows: MulticlassRows) -> str:
    """Every class against the rest: a table, and curves."""
    found = class_results(rows)
    drawn = found
    caption = "Each panel: the rows of one class against all others, ranked by its probability."
    if len(found) > MOST_PANELS:
        hardest = sorted(found, key=lambda x: x.auc)[:MOST_PANELS]
        drawn = [x for x in found if x in hardest]
        caption += f" Only the {MOST_PANELS} classes with the lowest AUC are drawn."
    caption += (
        " Up: the share of the class that is found; across: the share of the others that is "
        "flagged by mistake. The nearer to the upper left corner, the better; dashed: guessing. "
        f"Shaded: {words.percent_of_level(rows.level)} confidence at any one threshold (Wilson "
        "intervals of both shares together)."
    )
    digits = max(words.decimals(Interval(x.auc, x.low, x.high)) for x in found)
    panels = "\n".join(_panel(rows, x, digits) for x in drawn)
    box = "box" if len(found) > MOST_CELLS else ""
    return "\n".join(
        [
            scrolled(_class_table(rows, found, digits), box),
            f'<div class="many">\n{panels}\n</div>',
            paragraph(caption, "note"),
        ]
    )


def _class_table(rows: MulticlassRows, found: Sequence[ClassResult], digits: int) -> str:
    level = f"{words.percent_of_level(rows.level)} interval"
    heads = ("Class", "Test rows", "Share", "AUC against the rest", level, "Precision", "Recall")
    lines = []
    for x in found:
        between = f"{x.low:.{digits}f} to {x.high:.{digits}f}"
        share = percent(x.rows / len(rows.classes))
        rates = percent(x.precision), percent(x.recall)
        lines.append([short(x.label), f"{x.rows:,}", share, f"{x.auc:.{digits}f}", between, *rates])
    return table(heads, lines)


def _panel(rows: MulticlassRows, x: ClassResult, digits: int) -> str:
    lines = curves(rows.one_against_rest(x.place))
    area = f"{x.auc:.{digits}f}"
    label = f"ROC curve of {quoted(x.label)} with an area of {area}"
    drawn = figures.drawn(f"roc{x.place}", label, PANEL, figures.small_roc(lines), PANEL)
    name = shown(quoted(x.label))
    return f"<figure>\n{drawn}<figcaption>{name}, AUC&nbsp;{area}</figcaption>\n</figure>"


def _predictions(rows: MulticlassRows) -> str:
    """The confusion matrix, and the most frequent mistakes."""
    found = mistakes(rows, MOST_MISTAKES)
    said = [
        f"{quoted(truth)} taken for {quoted(label)} ({count:,} of {total:,})"
        for truth, label, count, total in found
    ]
    first = f"The most frequent mistakes: {'; '.join(said)}." if said else "No row is mistaken."
    if len(rows.labels) > MOST_CELLS:
        return paragraph(first)
    note = (
        "Each line holds the test rows of one class, and how many of them get which label; those "
        "on the diagonal are right. The stronger the colour, the larger the share of the line."
    )
    return "\n".join([paragraph(first), scrolled(_matrix(rows)), paragraph(note, "note")])


def _matrix(rows: MulticlassRows) -> str:
    names = [escape(short(label, 16)) for label in rows.labels]
    top = "".join(f'<th scope="col">{name}</th>' for name in names)
    lines = []
    for k, (name, counts) in enumerate(zip(names, rows.confusion, strict=True)):
        shares = DARKEST * counts / counts.sum()
        texts = [f"{count:,}" if count else "·" for count in counts]
        texts[k] = f"<strong>{texts[k]}</strong>"
        cells = "".join(
            f'<td style="--share: {share:.0f}%">{text}</td>'
            for share, text in zip(np.ceil(shares), texts, strict=True)
        )
        lines.append(f'<tr><th scope="row" class="text">{name}</th>{cells}</tr>')
    head = f'<thead><tr><th scope="col" class="text">Truth ↓ said →</th>{top}</tr></thead>'
    body = "\n".join(lines)
    return f'<table class="numbers matrix">\n{head}\n<tbody>\n{body}\n</tbody>\n</table>'


def _calibration(rows: MulticlassRows, beside: bool) -> str:
    held = rows.right_or_wrong()
    about = (
        "by the probability of the predicted label. Of rows with 80 %, about 80 in 100 should be "
        "right"
    )
    said = (
        f"On average the model gives the label that it predicts "
        f"{percent(float(held.probability.mean()))}; {percent(held.base_rate)} of these labels "
        "are right."
    )
    return sections.calibrated(held, about, said, "share of right labels", beside)


def _data(rows: MulticlassRows, evaluation: Evaluation) -> str:
    counts = {key: about.counts for key, about in evaluation.parts.items() if about.counts}
    known = {key: about for key, about in parts.PARTS.items() if key in counts}
    heads = ("Class", *(name for name, _ in known.values()))
    each = [counts[key] for key in known]
    names = ["all", *(short(label) for label in rows.labels)]
    lines = zip(names, *([sum(x), *x] for x in each), strict=True)
    cells = [[name, *(f"{count:,}" for count in line)] for name, *line in lines]
    purposes = "; ".join(f"{name}: {purpose}" for name, purpose in known.values())
    box = "box" if len(rows.labels) > MOST_CELLS else ""
    found = [
        paragraph(f"{plural(sum(map(sum, each)), 'row')}. {purposes}."),
        scrolled(table(heads, cells, own=0), box),
        parts.columns(evaluation.columns),
    ]
    return "\n".join(filter(None, found))
