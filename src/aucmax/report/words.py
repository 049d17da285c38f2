"""What the page of a classifier says: numbers as people write them, and plain sentences."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence

from aucmax.judge.evaluation import SIGNIFICANT, Evaluation, Importance, Peer
from aucmax.judge.interval import FEWEST, NARROW, Interval, difference

LONGEST = 2000  # letters of a note, of the command, or of a name
MOST_NAMED = 4  # names in a sentence; the others are counted
UNKNOWN = "–"
NO_BREAK = "\N{NO-BREAK SPACE}"  # between a number and its unit
KINDS = {
    "better": "It ranks better than {}.",
    "same": "It is not distinguishable from {}: the difference may be chance.",
    "worse": "It ranks worse than {}.",
}


def short(text: object, most: int = 40) -> str:
    """One line of text without characters that cannot be shown, cut if it is long."""
    line = " ".join(str(text).split())
    line = "".join(letter for letter in line if letter.isprintable())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


def short_name(text: object, most: int = 40) -> str:
    """The same of a column's name, cut in its middle: names often differ at their end."""
    line = short(text, LONGEST)
    end = most // 2
    return line if len(line) <= most else f"{line[: most - 1 - end]}…{line[-end:]}"


def quoted(label: str, most: int = 24) -> str:
    """A label of the data, as one."""
    return f"“{short(label, most)}”"


def percent(value: float | None) -> str:
    """A share: 8.7 %, and more digits next to 0 and 100, which stand for exactly that."""
    if value is None:
        return UNKNOWN
    edge = 100 * min(value, 1 - value)
    return f"{100 * value:.{_digits(edge) if edge > 0 else 0}f}{NO_BREAK}%"


def threshold_text(value: float) -> str:
    """A probability with two digits at least, and no zero that says nothing: 12 %, 0.48 %."""
    edge = 100 * min(value, 1 - value)
    digits = max(1, 1 - math.floor(math.log10(edge))) if edge > 0 else 0
    number = f"{100 * value:.{digits}f}"
    return f"{number.rstrip('0').rstrip('.') if digits else number}{NO_BREAK}%"


def _digits(edge: float) -> int:
    return max(1, -math.floor(math.log10(edge)))


def of_hundred(auc: Interval) -> list[str]:
    """An AUC and its bounds as cases of 100, with as many digits as the interval is fine."""
    width = 100 * (auc.high - auc.low)
    digits = 0 if width >= 2 else 1 if width >= 0.2 else 2
    edge = 100 * min(auc.value, 1 - auc.value)
    digits = max(digits, _digits(edge)) if 0 < edge < 1 else digits
    return [f"{100 * x:.{digits}f}" for x in (auc.value, auc.low, auc.high)]


def decimals(auc: Interval) -> int:
    """Digits of an AUC: three, four where the interval is finer, more if it would look perfect."""
    digits = 3 if auc.high - auc.low >= 0.01 else 4
    while auc.value < 1 and digits < 8 and float(f"{auc.value:.{digits}f}") == 1:
        digits += 1
    return digits


def auc_texts(auc: Interval, digits: int | None = None) -> tuple[str, str]:
    """An AUC and its interval, with digits that suit them."""
    digits = decimals(auc) if digits is None else digits
    return f"{auc.value:.{digits}f}", f"{auc.low:.{digits}f} to {auc.high:.{digits}f}"


def signed(value: float, digits: int) -> str:
    """A difference with its sign."""
    text = f"{abs(value):.{digits}f}"
    return f"{'+' if value > 0 else '−'}{text}" if float(text) else text


def score(value: float | None) -> str:
    """A metric's value."""
    return UNKNOWN if value is None else f"{value:.3f}"


def p_text(p: float | None) -> str:
    """A p value, with more digits where it matters."""
    if p is None:
        return UNKNOWN
    if p < 0.001:
        return "< 0.001"
    near = abs(p - SIGNIFICANT) < 0.0005
    return f"{p:.4f}" if near else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def seconds_text(value: float | None) -> str:
    """A time in the unit that suits it."""
    if value is None:
        return UNKNOWN
    if value >= 5400:
        return f"{value / 3600:.1f}{NO_BREAK}h"
    if value >= 90:
        return f"{value / 60:.1f}{NO_BREAK}min"
    return f"{value:.2g}{NO_BREAK}s" if value < 10 else f"{value:.0f}{NO_BREAK}s"


def capitalized(text: str) -> str:
    """For the beginning of a sentence; "AUC" stays."""
    return text[:1].upper() + text[1:]


def thousands(count: int) -> str:
    """A whole number: 12,345."""
    return f"{count:,}"


def unbroken(text: str) -> str:
    """With spaces at which no line is broken around ± and =."""
    return re.sub(r" (±|=) ", rf"{NO_BREAK}\1{NO_BREAK}", text)


def plural(count: int, name: str) -> str:
    """A number with its noun."""
    return f"{count:,} {name}{'' if count == 1 else 's'}"


def listed(names: Iterable[object]) -> str:
    """Some names as a part of a sentence."""
    shown = [short(name) for name in names]
    if len(shown) > MOST_NAMED + 1:
        shown = [*shown[:MOST_NAMED], f"{len(shown) - MOST_NAMED} others"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def other_columns(rest: Sequence[Importance]) -> str:
    """What columns without a bar of their own lose; what is no loss is not called one."""
    drops = [round(x.drop, 4) + 0.0 for x in rest]  # no -0.0
    least, most = min(drops), max(drops)
    if len(rest) == 1:
        column = f"one more column, “{short_name(rest[0].column)}”,"
        if least >= 0:
            return f"{capitalized(column)} loses {least:.4f}."
        misled = "chance, or it misleads the model"
        return f"Shuffling {column} raises the AUC by {-least:.4f}: {misled}."
    lose = f"The other {len(rest):,} columns lose"
    if least >= 0:
        return f"{lose} from {least:.4f} to {most:.4f} each, {sum(drops):.4f} added up."
    lost = f"{most:.4f} each at most" if most > 0 else "nothing"
    raised = f"shuffling some of them raises the AUC, by {-least:.4f} at most"
    return f"{lose} {lost}; {raised}: chance, or they mislead the model."


def too_few(evaluation: Evaluation, quote: Callable[[str], str] = quoted) -> str:
    """Of test rows that cannot tell models apart: how few they are, and what would be needed."""
    counts, groups = evaluation.rows.counts, evaluation.groups
    if groups is not None and not evaluation.has_groups_enough:
        has = "has" if groups.compared == 1 else "have"
        return (
            f"only {groups.compared} of the {plural(groups.count, 'group')} to judge by {has} "
            f"both labels, too few to compare models within groups: {FEWEST} would do"
        )
    fewest = min(counts)
    label = quote(evaluation.labels[counts.index(fewest)])
    return (
        f"only {fewest} of the {sum(counts):,} {evaluation.noun}s to judge by "
        f"{'is' if fewest == 1 else 'are'} {label}, too few to compare models by: about "
        f"{evaluation.rows_needed:,} {label} would bring the interval of the AUC to ±{NARROW:g}"
    )


def promise_held(promised: Interval, test: Interval) -> str:
    """What test rows do to an AUC that was promised before they were looked at."""
    less = difference(promised, test)
    if less.low <= 0 <= less.high:
        return "agree, within chance"
    return f"{'fall short of' if less.value > 0 else 'exceed'} it, beyond chance"


def verdict(ours: float, peers: Sequence[Peer]) -> str:
    """Whether it was worth it, without making it look better than it is.

    Of test rows that are enough: see :func:`too_few`.
    """
    if not peers:
        return (
            "It was not compared with other models, so this page cannot say whether a simpler one "
            "would have done as well."
        )
    names: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for peer in sorted(peers, key=lambda x: -x.compared_auc.value):
        if comparison := peer.comparison(ours):
            names[comparison].append(peer.name)
    said = [KINDS[kind].format(listed(names[kind])) for kind in KINDS if names[kind]]
    skipped = [peer.name for peer in peers if peer.comparison(ours) is None]
    if names["worse"]:
        said.append(f"For ranking, {short(names['worse'][0])} is the better choice.")
    elif names["same"]:
        which = "that is" if len(names["same"]) == 1 else "one of these is"
        said.append(f"If {which} simpler to keep, it may serve as well.")
    elif not skipped:
        said.append("As far as ranking goes, it was worth it.")
    if skipped:
        said.append(f"{capitalized(listed(skipped))} is no reliable baseline here.")
    return " ".join(said)
