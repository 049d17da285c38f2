"""Parts that the pages of all classifiers have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from aucmax.judge.evaluation import SIGNIFICANT, Column, Evaluation, Peer
from aucmax.report import base, words
from aucmax.report.html import paragraph, scrolled, shown, table
from aucmax.report.words import UNKNOWN, percent, plural, short

Names = Mapping[str, tuple[str, str]]
"""What each section is called in the contents, and above itself."""
PARTS = {
    "train": ("Training", "the model learned from them"),
    "valid": ("Validation", "chose the weights to keep"),
    "test": ("Test", "all results on this page"),
}
LONGEST = 2000  # letters of a note, or of the command


def contents(names: Names) -> str:
    """Links to all sections."""
    items = (f'<li><a href="#{key}">{name}</a></li>' for key, (name, _) in names.items())
    return f'<nav aria-label="Contents">\n<ul>\n{"".join(items)}\n</ul>\n</nav>'


def section(names: Names, key: str, body: str) -> str:
    """A section with its heading."""
    return f'<section id="{key}">\n<h2>{escape(names[key][1])}</h2>\n{body}\n</section>'


def cards(found: Iterable[tuple[str, str, str]]) -> str:
    """The numbers to remember: each with its name, and what it is about."""
    items = (
        f"<div><dt>{shown(name)}</dt><dd><b>{shown(value)}</b> {shown(about)}</dd></div>"
        for name, value, about in found
    )
    return f'<dl class="cards">\n{"".join(items)}\n</dl>\n'


def peers(evaluation: Evaluation, meaning: str, test: str) -> str:
    """This model beside others on the same rows; nothing if there are none.

    Args:
        evaluation: of the classifier.
        meaning: of the AUC.
        test: the name of the test that gives the p values.
    """
    auc, others = evaluation.auc, evaluation.peers
    if not others:
        return ""
    digits = words.decimals(auc)
    level = words.percent_of_level(auc.level)
    heads = ("Model", "AUC", f"{level} interval", "Difference", "p value", "Time to fit")
    ours = Peer("this model", auc.value, auc.low, auc.high, None, evaluation.seconds)
    cells = [_peer(peer, digits, auc.value) for peer in (ours, *others)]
    cells[0][3] = UNKNOWN
    note = (
        f"AUC: {meaning}, on the same test rows for every model. Difference: this model less the "
        "other. p value: how often chance alone would make a difference this large between models "
        f"that rank equally well; below {SIGNIFICANT:g} counts as a difference ({test})."
    )
    return "\n".join([scrolled(table(heads, cells, own=0)), paragraph(note, "note")])


def _peer(peer: Peer, digits: int, ours: float) -> list[str]:
    value, low, high = peer.auc, peer.low, peer.high
    return [
        short(peer.name),
        UNKNOWN if value is None else f"{value:.{digits}f}",
        UNKNOWN if low is None or high is None else f"{low:.{digits}f} to {high:.{digits}f}",
        words.signed(None if value is None else ours - value, digits),
        words.p_text(peer.p_value),
        words.seconds_text(peer.seconds),
    ]


def columns(found: Sequence[Column]) -> str:
    """How many there are of each kind, and what is known of each."""
    if not found:
        return ""
    kinds = Counter(short(column.kind) for column in found)
    several = ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common())
    said = paragraph(f"{plural(len(found), 'column')}: {several}.")
    return "\n".join([said, scrolled(_columns(found), "box")])


def _columns(columns: Iterable[Column]) -> str:
    heads = ("Column", "Kind", "Missing", "Distinct values", "Typical value")
    lines = []
    for column in columns:
        cells = [
            short(column.name),
            short(column.kind),
            percent(column.missing),
            UNKNOWN if column.distinct is None else f"{column.distinct:,.0f}",
            UNKNOWN if column.typical is None else short(column.typical, 30),
        ]
        lines.append(cells)
    return table(heads, lines, texts={1, 4})


def made(evaluation: Evaluation) -> str:
    """The command, versions and notes."""
    facts = {"Time": words.seconds_text(evaluation.seconds)}
    facts |= {short(name): short(value, 200) for name, value in evaluation.versions.items()}
    notes = "".join(f"<li>{shown(short(note, LONGEST))}</li>\n" for note in evaluation.notes)
    command = f"<pre><code>{escape(short(evaluation.command, LONGEST))}</code></pre>"
    return "\n".join(
        [
            command if evaluation.command else "",
            base.facts(facts),
            f"<h3>Notes</h3>\n<ul>\n{notes}</ul>" if notes else "",
        ]
    )
