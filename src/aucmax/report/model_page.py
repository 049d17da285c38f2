"""One HTML page about a classifier of a table's rows, for people who know the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from aucmax.checkpoint import replacing
from aucmax.report import model_numbers as numbers
from aucmax.report import model_sections as sections
from aucmax.report import model_words as words
from aucmax.report import page
from aucmax.report.model_html import CSS, pair, paragraph, scrolled, shown, table
from aucmax.report.model_numbers import Held, known
from aucmax.report.model_words import UNKNOWN, percent, plural, quoted, short

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
"""What each is called in the contents, and above itself."""
PARTS = {
    "train": ("Training", "the model learned from them"),
    "valid": ("Validation", "chose the weights to keep"),
    "test": ("Test", "all results on this page"),
}
LONGEST = 2000  # letters of a note, or of the command


def write_model_page(path: Path, evaluation: Mapping[str, Any]) -> None:
    """Write the page of a classifier: how well it ranks, which threshold to take, what it used.

    The file is there as a whole or not at all, and needs nothing but itself: no network, no
    scripts, no fonts. All numbers are computed from ``evaluation``, and all of its text is shown
    as text.

    Args:
        path: of the file; its folder is made if it is not there.
        evaluation: "target" and "labels" (negative, positive); "rows" and "positives" by part of
            the data ("train", "valid", "test"); "probability" and "classes" (0, 1) of the test
            rows; their "auc" with "value", "low", "high" and "level"; "peers", "history",
            "threshold", "importance", "columns", "notes", "seconds", "command" and "made".

    Raises:
        ValueError: if something is not there or cannot be right.
    """
    rows = numbers.held(evaluation)
    title = f"Predicting {quoted(evaluation['target'], 60)}"
    content = page._page(title, _sections(rows, evaluation))
    content = content.replace("</style>", f"{CSS}</style>", 1)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(content, encoding="utf-8")


def _sections(rows: Held, evaluation: Mapping[str, Any]) -> list[str]:
    curves, auc = numbers.curves(rows), evaluation["auc"]
    bodies = {
        "answer": _answer(rows, evaluation),
        "roc": sections.roc(rows, curves, auc),
        "precision": sections.precision_recall(rows, curves),
        "probabilities": sections.histogram(rows),
        "calibration": sections.calibration(rows),
        "training": sections.training(evaluation["history"]),
        "thresholds": sections.thresholds(rows),
        "importance": sections.importance(evaluation["importance"]),
        "data": _data(rows, evaluation),
        "made": _made(evaluation),
    }
    first, *rest = (_section(key, bodies[key]) for key in SECTIONS)
    headline = paragraph(words.headline(rows, auc), "headline")
    return [headline, _contents(), first, pair(*rest[:2]), pair(*rest[2:4]), *rest[4:]]


def _contents() -> str:
    items = (f'<li><a href="#{key}">{name}</a></li>' for key, (name, _) in SECTIONS.items())
    return f'<nav aria-label="Contents">\n<ul>\n{"".join(items)}\n</ul>\n</nav>'


def _section(key: str, body: str) -> str:
    return f'<section id="{key}">\n<h2>{escape(SECTIONS[key][1])}</h2>\n{body}\n</section>'


def _answer(rows: Held, evaluation: Mapping[str, Any]) -> str:
    auc, peers = evaluation["auc"], evaluation["peers"]
    verdict = words.verdict(auc["value"], peers)
    first = f"{words.against_guessing(auc)} {words.on_size(rows)}".strip()
    parts = [paragraph(first), _cards(rows, auc), paragraph(verdict, "verdict")]
    if peers:
        parts.append(scrolled(_peers(rows, auc, peers, evaluation["seconds"])))
        note = (
            f"AUC: the share of pairs of one {quoted(rows.yes)} and one {quoted(rows.no)} that "
            "are ranked the right way round, on the same test rows for every model. Difference: "
            "this model less the other. p value: how often chance alone would make a difference "
            f"this large between models that rank equally well; below {words.SIGNIFICANT:g} "
            "counts as a difference (DeLong's paired test)."
        )
        parts.append(paragraph(note, "note"))
    return "\n".join(parts)


def _cards(rows: Held, auc: Mapping[str, Any]) -> str:
    """The numbers to remember."""
    counts = numbers.counts_at(rows, rows.threshold)
    digits, positives = words.decimals(auc), int(rows.positive.sum())
    between = f"{auc['low']:.{digits}f} to {auc['high']:.{digits}f}"
    right = "nothing is flagged" if counts.precision is None else "of the flagged rows are right"
    cards = [
        ("AUC", f"{auc['value']:.{digits}f}", between),
        ("Test rows", f"{counts.rows:,}", f"{positives:,} of them {quoted(rows.yes, 16)}"),
        ("Base rate", percent(rows.base_rate), f"{quoted(rows.yes, 16)} among the test rows"),
        ("Precision", percent(counts.precision), right),
        ("Recall", percent(counts.recall), f"of {quoted(rows.yes, 16)} are flagged"),
    ]
    items = (
        f"<div><dt>{shown(name)}</dt><dd><b>{shown(value)}</b> {shown(about)}</dd></div>"
        for name, value, about in cards
    )
    cut = words.threshold_text(rows.threshold)
    note = f"Precision and recall are those at the model's own threshold, {cut}."
    return f'<dl class="cards">\n{"".join(items)}\n</dl>\n{paragraph(note, "note")}'


def _peers(
    rows: Held, auc: Mapping[str, Any], peers: Sequence[Mapping[str, Any]], seconds: Any
) -> str:
    digits = words.decimals(auc)
    level = words.percent_of_level(rows.level)
    heads = ("Model", "AUC", f"{level} interval", "Difference", "p value", "Time to fit")
    ours = {**auc, "name": "this model", "auc": auc["value"], "seconds": seconds}
    cells = [_peer(peer, digits, auc["value"]) for peer in (ours, *peers)]
    cells[0][3] = UNKNOWN
    return table(heads, cells, own=0)


def _peer(peer: Mapping[str, Any], digits: int, ours: float) -> list[str]:
    value, low, high = (known(peer.get(name)) for name in ("auc", "low", "high"))
    seconds, p = known(peer.get("seconds")), known(peer.get("p_value"))
    return [
        short(peer["name"]),
        UNKNOWN if value is None else f"{value:.{digits}f}",
        UNKNOWN if low is None or high is None else f"{low:.{digits}f} to {high:.{digits}f}",
        words.signed(None if value is None else ours - value, digits),
        words.p_text(p),
        words.seconds_text(seconds),
    ]


def _data(rows: Held, evaluation: Mapping[str, Any]) -> str:
    columns = evaluation["columns"]
    heads = ("Part", "Rows", quoted(rows.yes), "Share", "What for")
    lines = [line for part in PARTS if (line := _part(part, evaluation))]
    parts = [scrolled(table(heads, lines, texts={4}))]
    if columns:
        kinds = Counter(short(column["kind"]) for column in columns)
        several = ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common())
        parts.append(paragraph(f"{plural(len(columns), 'column')}: {several}."))
        parts.append(scrolled(_columns(columns), "box"))
    return "\n".join(parts)


def _part(part: str, evaluation: Mapping[str, Any]) -> list[str]:
    rows, positives = evaluation["rows"].get(part), evaluation["positives"].get(part)
    if not rows or positives is None:
        return []
    name, purpose = PARTS[part]
    return [name, f"{rows:,}", f"{positives:,}", percent(positives / rows), purpose]


def _columns(columns: Iterable[Mapping[str, Any]]) -> str:
    heads = ("Column", "Kind", "Missing", "Distinct values", "Typical value")
    lines = []
    for column in columns:
        distinct = known(column.get("distinct"))
        typical = column.get("typical")
        cells = [
            short(column["name"]),
            short(column["kind"]),
            percent(known(column.get("missing"))),
            UNKNOWN if distinct is None else f"{distinct:,.0f}",
            UNKNOWN if typical is None else short(typical, 30),
        ]
        lines.append(cells)
    return table(heads, lines, texts={1, 4})


def _made(evaluation: Mapping[str, Any]) -> str:
    facts = {"Time": words.seconds_text(known(evaluation["seconds"]))}
    facts |= {short(name): short(value, 200) for name, value in evaluation["made"].items()}
    notes = "".join(f"<li>{shown(short(note, LONGEST))}</li>\n" for note in evaluation["notes"])
    command = f"<pre><code>{escape(short(evaluation['command'], LONGEST))}</code></pre>"
    return "\n".join(
        [
            command if evaluation["command"] else "",
            page._facts(facts),
            f"<h3>Notes</h3>\n<ul>\n{notes}</ul>" if notes else "",
        ]
    )
