"""What the numbers say, in sentences: who is ahead, by how much, and where nobody is."""

from __future__ import annotations

from collections.abc import Sequence

from aucmax.paper.results import RunResult
from aucmax.paper.settings import Wanted
from aucmax.paper.style import AUC_METHODS, CROSS_ENTROPY, is_a
from aucmax.paper.summary import Row, Stat, by_setting, grouped
from aucmax.paper.text_tables import setting_name, stat_text


def full_title(title: str, runs: Sequence[RunResult], wanted: Wanted | None = None) -> str:
    """The title with the seeds and steps of the lines, and what they lack of those wanted."""
    groups = grouped(runs)
    ratios = dict.fromkeys(key.ratio for key in groups)
    seeds = _span("seed", [len(group) for group in groups.values()], wanted and wanted.seeds)
    steps = _span("step", [group[0].steps for group in groups.values()], wanted and wanted.steps)
    missing = wanted is not None and not ratios.keys() >= {*wanted.ratios}
    alone = f"{', '.join(ratios)} alone, " if missing else ""
    return f"{title} — {alone}{seeds}, {steps}"


def _span(what: str, counts: list[int], wanted: int | None) -> str:
    """The lowest count and the highest, and the one wanted if that is more than the lowest."""
    low, high = min(counts), max(counts)
    said = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    if wanted is not None and low < wanted:
        said, high = f"{said} of {wanted:,}", wanted
    return f"{said} {what}{'' if high == 1 else 's'}"


def findings(rows: Sequence[Row]) -> list[str]:
    """A sentence or two for each protocol, dataset and ratio.

    Compared is the final test AUC of the iterate that a line's curve shows.
    """
    return [
        f"{setting_name(group[0])}: {_finding(group)}{_by_choice(group)}{_diverged(group)}"
        for group in by_setting(rows)
    ]


def overview(rows: Sequence[Row]) -> str:
    """In how many settings AUC maximization is ahead of cross-entropy, and in which it is not."""
    pairs = contest(rows)
    if not pairs:
        return ""
    ahead = [(auc, plain) for auc, plain in pairs if auc.shown.minus(plain.shown) > 0]
    behind = [setting_name(auc) for auc, plain in pairs if auc.shown.minus(plain.shown) <= 0]
    said = (
        "The AUC method that does best on validation data is, by mean final test AUC, ahead of the "
        "cross-entropy line that does best there "
        f"in {len(ahead)} of {_settings(pairs)}{_how_clearly(ahead)}."
    )
    if behind and ahead:
        said += f" It is not ahead in: {'; '.join(behind)}."
    chosen = contest(rows, by="valid")
    if not chosen:
        return said
    won = sum(auc.chosen.minus(plain.chosen) > 0 for auc, plain in chosen)
    by_choice = f"With the weights that validation data chose, it is ahead in {won}"
    return f"{said} {by_choice} of {_settings(chosen)}."


def _settings(pairs: list[tuple[Row, Row]]) -> str:
    return f"{len(pairs)} setting{'' if len(pairs) == 1 else 's'}"


def contest(
    rows: Sequence[Row],
    names: tuple[str, ...] = AUC_METHODS,
    rivals: tuple[str, ...] = CROSS_ENTROPY,
    by: str = "final_valid",
) -> list[tuple[Row, Row]]:
    """Of each side the line that validation prefers, in each setting that has both sides.

    To take the best of several by their test AUC would flatter the side that has more of them.

    Args:
        rows: from :func:`aucmax.paper.summarize`.
        names: the lines of one side, with their variants.
        rivals: those of the other side.
        by: the validation AUC that counts, "final_valid" or, of the weights chosen, "valid".
    """
    pairs = [
        (_preferred(group, names, by), _preferred(group, rivals, by)) for group in by_setting(rows)
    ]
    return [(one, other) for one, other in pairs if one is not None and other is not None]


def _preferred(group: list[Row], names: tuple[str, ...], by: str) -> Row | None:
    """The line with the highest validation AUC, over the seeds that all have if there are any."""
    known: list[tuple[Row, Stat]] = [
        (row, stat) for row in group if is_a(row.line, names) and (stat := getattr(row, by)).n
    ]
    if not known:
        return None
    seeds = set.intersection(*(set(stat.by_seed) for _, stat in known))
    return max(known, key=lambda pair: pair[1].over(seeds))[0]


def _how_clearly(ahead: list[tuple[Row, Row]]) -> str:
    if not ahead:
        return ""
    single = sum(
        len(auc.shown.by_seed.keys() & plain.shown.by_seed.keys()) < 2 for auc, plain in ahead
    )
    if single:
        of_them = "" if single == len(ahead) else f"{single} of them "
        return f", {of_them}on one seed, which says nothing about chance"
    clear = sum(not plain.shown.is_near(auc.shown) for auc, plain in ahead)
    return f", {clear} of them by more than one standard error of the difference"


def _finding(group: list[Row]) -> str:
    """Which line is best, and how the other kind of line compares with it."""
    best, auc, plain = _best(group), _best(group, AUC_METHODS), _best(group, CROSS_ENTROPY)
    if best is None:
        return "no line has a result."
    spread = f"{stat_text(best.shown)} ({best.iterate} iterate, n = {best.shown.n})"
    said = f"{best.label} is best with {spread}"
    if is_a(best.line, CROSS_ENTROPY):
        if auc is None:
            return f"{said}. It minimizes cross-entropy; there is no result of an AUC method."
        behind = f"{auc.label} is {_difference(auc, best)} it"
        if auc.shown.minus(best.shown) > 0:
            return f"{said}, but {behind}."
        return f"{said}. AUC maximization does not win: {behind}{_if_near(auc, best)}."
    if plain is None:
        return f"{said}; there is no result of cross-entropy to compare it with."
    said += f", {_difference(best, plain)} cross-entropy ({plain.label}, {plain.iterate} iterate)"
    below = [
        row.label
        for row in group
        if is_a(row.line, AUC_METHODS) and row.shown.n and row.shown.minus(plain.shown) < 0
    ]
    others = f" Below {plain.label}: {', '.join(below)}." if below else ""
    return f"{said}{_if_near(plain, best)}.{others}"


def _by_choice(group: list[Row]) -> str:
    """The same contest between the weights that validation data chose."""
    pairs = contest(group, by="valid")
    if not pairs:
        return ""
    shown = [f"{row.label} {stat_text(row.chosen)}" for row in pairs[0]]
    return f" With the weights that validation chose: {', '.join(shown)}."


def _diverged(group: list[Row]) -> str:
    lost = [f"{row.label} {row.diverged} of {row.seeds}" for row in group if row.diverged]
    return f" Diverged: {', '.join(lost)}." if lost else ""


def _difference(row: Row, other: Row) -> str:
    difference = row.shown.minus(other.shown)
    seeds, others = row.shown.by_seed.keys(), other.shown.by_seed.keys()
    where = "on shared seeds " if seeds != others and seeds & others else ""
    if f"{abs(difference):.4f}" == "0.0000":
        return f"{where}level with"
    return f"{where}{abs(difference):.4f} {'above' if difference > 0 else 'below'}"


def _if_near(row: Row, best: Row) -> str:
    return ", which is within one standard error" if row.shown.is_near(best.shown) else ""


def _best(group: list[Row], names: tuple[str, ...] = ()) -> Row | None:
    """The row with the highest mean, of all or of those that are one of ``names``."""
    known = [row for row in group if row.shown.n and (not names or is_a(row.line, names))]
    return max(known, key=lambda row: row.shown.mean, default=None)
