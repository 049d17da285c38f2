"""What commands print."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from aucmax.judge.binary import BinaryRows
from aucmax.judge.calibration import are_alike
from aucmax.judge.evaluation import Evaluation, Part, compare_aucs
from aucmax.judge.interval import FEWEST, Interval
from aucmax.judge.multilabel import LabelEvaluations
from aucmax.judge.threshold import Rule
from aucmax.report import words
from aucmax.train.metrics import ROC_AUC, metric_in_records

if TYPE_CHECKING:
    from aucmax.images.fit import Preview as PicturePreview
    from aucmax.judge.evaluation import Column as ColumnRecord
    from aucmax.report.model_folder import Fitted
    from aucmax.tables import Preview, Tuning


def say_all(fitted: Fitted, text: str, quiet: bool) -> None:
    where = f"The model is in {fitted.folder}, its report is {fitted.report}"
    if quiet:
        print(*aucs_in_words(fitted.evaluation), where, sep="\n")
        warn(fitted.evaluation)
        return
    print(text)
    if fitted.replaced:
        print(f"note: the model that was in {fitted.folder} before is replaced")
    print(f"\n{where}")


def say_predictions(text: str | None, notes: Sequence[str], out: Path | None, quiet: bool) -> None:
    """Predictions, or where they are, and notes, the last of which comes after them."""
    *first, counts = notes
    tell(() if quiet else first)
    if text is not None:
        print(text, end="", flush=True)
    elif not quiet:
        print(f"The predictions are in {out}")
    if not quiet:
        print(counts, file=sys.stderr)


def say_evaluation(evaluation: Evaluation | LabelEvaluations, quiet: bool) -> None:
    """How good a model is on others than fit had."""
    warn(evaluation)
    if quiet:
        print(*aucs_in_words(evaluation), sep="\n")
        return
    tell(evaluation.notes)
    if isinstance(evaluation, LabelEvaluations):
        print(f"{evaluation.rows['test']:,} pictures")
        print(*aucs_in_words(evaluation), "", *labels_in_words(evaluation), sep="\n")
        return
    rows, labels = evaluation.rows, evaluation.labels
    counts = ", ".join(f"{n:,} {label!r}" for n, label in zip(rows.counts, labels, strict=True))
    print(f"{sum(rows.counts):,} {evaluation.noun}s: {counts}")
    print(*aucs_in_words(evaluation), sep="\n")
    if isinstance(rows, BinaryRows):
        at, (negatives, positives) = rows.at_threshold, rows.counts
        found, alone = f"{at.hits:,} of {positives:,}", f"{at.left_alone:,} of {negatives:,}"
        if rows.weight is not None:
            found = alone = "by weight"
        print(f"average precision {rows.average_precision:.4f}")
        of_model = metric_in_records(evaluation.metric)
        if "@" in of_model.name and evaluation.score is not None:
            print(f"{of_model.label} {evaluation.score:.4f}, which the model was chosen by")
        print(
            f"at the model's threshold: recall {at.recall:.3f} ({found}), "
            f"specificity {at.specificity:.3f} ({alone})"
        )
    if not evaluation.is_enough:
        print(words.too_few(evaluation, repr))


def labels_in_words(evaluation: LabelEvaluations) -> list[str]:
    """How well each label is ranked, in lines below each other, the best first."""
    lines = [["label", "AUC", "95% interval", "average precision", "positives", "negatives"]]
    for x in evaluation.best_first:
        auc = f"{x.auc.value:.4f}", f"{x.auc.low:.4f} to {x.auc.high:.4f}"
        negatives, positives = (f"{count:,}" for count in x.rows.counts)
        precision = f"{x.average_precision:.4f}"
        lines.append([words.short(x.target, 32), *auc, precision, positives, negatives])
    few = [repr(x.target) for x in evaluation.best_first if not x.is_enough]
    said = f"fewer than {FEWEST} positives or negatives to judge by, so that its AUC may be chance"
    return [*_aligned(lines, "<>>>>>"), *([f"{said}: {words.listed(few)}"] if few else [])]


def summary(evaluation: Evaluation | LabelEvaluations) -> str:
    """What a person wants to know first."""
    if isinstance(evaluation, LabelEvaluations):
        fit, test = (evaluation.rows[part] for part in ("fit", "test"))
        notes = [f"note: {note}" for note in evaluation.notes]
        counts = f"{fit:,} pictures to train on and to stop by, {test:,} to judge by"
        found = [*aucs_in_words(evaluation), "", *labels_in_words(evaluation)]
        return "\n".join([*notes, counts, *found])
    what = f"{evaluation.noun}s"
    parts = {"valid": Part(0), **evaluation.parts}
    train, valid, test = (parts[part].rows for part in ("train", "valid", "test"))
    described = train + valid if evaluation.parts["train"].counts else None
    which = "some of the" if described is None else f"the {described:,}"
    lines = []
    if evaluation.columns:
        lines += [f"columns of {which} rows to train on{' and to stop by' if valid else ''}:"]
        lines += columns_in_words(evaluation.columns[:MOST_LISTED], described)
        if (more := len(evaluation.columns) - MOST_LISTED) > 0:
            lines.append(f"and {more} more columns: --dry-run lists all")
        lines.append("")
    lines += [f"note: {note}" for note in evaluation.notes]
    lines += [
        f"note: objective {x.objective!r} was chosen from {len(evaluation.candidates)} by the rows "
        f"to stop by"
        for x in evaluation.candidates
        if x.chosen
    ]
    stop = f", {valid:,} to stop by" if valid else ""
    lines.append(f"{train:,} {what} to train on{stop}, {test:,} to judge by")
    rows, auc = evaluation.rows, evaluation.compared_auc
    within = auc is not evaluation.auc
    if isinstance(rows, BinaryRows):
        share = words.percent(rows.base_rate).replace(words.NO_BREAK, "")
        about = f"{rows.counts[1]:,} of {test:,}"
        by = "" if rows.weight is None else ", by weight,"
        lines.append(f"{share} of the {what} to judge by{by} are {rows.yes!r} ({about})")
    lines += [*models_in_words(evaluation), *aucs_in_words(evaluation)]
    lines += [f"warning: {warning}" for warning in evaluation.warnings]
    if (promised := evaluation.promised) is not None:
        held = words.promise_held(promised, auc)
        said = _auc_in_words(promised, within=within)
        lines.append(f"promised before: {said}; the test rows {held}")
    if evaluation.metric != ROC_AUC.name and evaluation.score is not None:
        peers = "".join(f", of {x.name} {x.score:.4f}" for x in evaluation.peers)
        label = metric_in_records(evaluation.metric).label
        lines.append(f"{label} {evaluation.score:.4f}{peers}")
    for x in evaluation.peers:
        if x.p_value is None or x.comparison(auc.value) is None:
            lines.append(f"{x.name}: {_auc_in_words(x.compared_auc, within=within)}")
        else:
            aucs = auc.value, x.compared_auc.value
            lines.append(_against(x.name, *aucs, x.p_value, within))
    if not evaluation.is_enough:
        lines.append(words.too_few(evaluation, repr))
    if are_alike(evaluation.probability):
        lines.append(
            f"all {what} to judge by get nearly the same probability: the ranking did not hold for "
            f"what the probabilities were fitted to, so that no threshold tells {what} apart"
        )
    if isinstance(rows, BinaryRows):
        by = f"{what} to {'stop by' if valid else 'train on'}"
        by += ", out of fold" * evaluation.is_cross_fitted
        lines.append(_threshold_in_words(rows, Rule.read(evaluation.threshold_rule), by, what))
    if evaluation.doubtful:
        first, count = evaluation.doubtful[0], words.plural(len(evaluation.doubtful), "label")
        lines.append(
            f"{count} worth checking: see the report; the first is {first.label!r} of row "
            f"{first.row:,}"
        )
    return "\n".join(lines)


MOST_LISTED = 30
"""Columns that are listed after training; --dry-run lists all."""


def columns_in_words(columns: Sequence[ColumnRecord], rows: int | None) -> list[str]:
    """What each column was taken for, in lines below each other.

    Args:
        columns: to list.
        rows: how many they describe; None if that is unknown.
    """
    table = [("column", "taken as", "missing", "values", "most often")]
    for x in columns:
        kind = f"{x.kind}, written {x.written}" if x.written else x.kind
        missing = f"{x.missing:.1%}"
        if rows is not None:
            missing = f"{round(x.missing * rows):,} ({missing})" if x.missing else "0"
        table.append((x.name, kind, missing, f"{x.distinct:,}", x.typical))
    return _aligned([[words.short(cell, 32) for cell in line] for line in table], "<<>><")


def models_in_words(evaluation: Evaluation) -> list[str]:
    """What each is worth, in lines below each other; nothing of one alone."""
    if len(evaluation.models) < 2:
        return []
    within = WITHIN * (evaluation.compared_auc is not evaluation.auc)
    judged = "out of fold" if evaluation.is_cross_fitted else "of the rows to stop by"
    lines = [["model", "weight", f"AUC{within} {judged}", ""]]
    for x in evaluation.models:
        auc = "" if x.auc is None else f"{x.auc.value:.4f}, {x.auc.low:.4f} to {x.auc.high:.4f}"
        weight = f"{x.weight:.0%}" if x.weight else ""
        left_out = f"left out: {words.short(x.left_out, 200)}" if x.left_out else ""
        lines.append([words.short(x.name, 32), weight, auc, left_out])
    return _aligned(lines, "<><<")


def _aligned(lines: Sequence[Sequence[str]], sides: str) -> list[str]:
    """Cells below each other, of each column at its left or right side."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(f"{x:{side}{n}}" for x, side, n in zip(line, sides, widths, strict=True)).rstrip()
        for line in lines
    ]


def preview_in_words(preview: Preview) -> str:
    """What is understood of a file."""
    rows = sum(preview.labels.values())
    counts = ", ".join(f"{n:,} {label!r}" for label, n in preview.labels.items())
    lines = [*columns_in_words(preview.columns, rows), "", f"{rows:,} rows: {counts}"]
    lines += [f"note: {note}" for note in preview.notes]
    return "\n".join([*lines, *(f"warning: {warning}" for warning in preview.warnings)])


def pictures_in_words(preview: PicturePreview) -> str:
    """What is understood of pictures."""
    lines = []
    pictures, judges = preview.pictures
    parts = ("", pictures - judges, preview.labels), (" to judge by", judges, preview.test)
    for which, count, labels in parts:
        if labels:
            counts = ", ".join(f"{n:,} {label!r}" for label, n in labels.items())
            lines.append(f"{count:,} pictures{which}: {counts}")
    some = [f"{n:,} of {w} x {h}" for (w, h), n in [*preview.sizes.items()][:MOST_SIZES]]
    if (more := len(preview.sizes) - MOST_SIZES) > 0:
        some.append(f"and {more:,} more")
    lines.append(f"pixels, wide and high: {', '.join(some)}")
    if preview.groups:
        count, most = len(preview.groups), max(preview.groups.values())
        lines.append(f"{count:,} groups, none of them cut, of up to {most:,} pictures")
    return "\n".join([*lines, *(f"note: {note}" for note in preview.notes)])


MOST_SIZES = 5
"""Of pictures, that are listed."""


def in_words(tuning: Tuning, within: bool = False) -> str:
    """The best options, and how they do beside the defaults, perhaps within groups."""
    best, defaults, trials = tuning.best, tuning.defaults, len(tuning.trials)
    chosen = {name: best.options[name] for name in tuning.searched}
    shown = ", ".join(
        f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in chosen.items()
    )
    if best.options == defaults.options:
        return f"of {trials} trials the defaults were the best: {shown}"
    known = defaults.validation_score
    before = "the defaults diverged" if known is None else f"of the defaults {known:.4f}"
    lines = [
        f"the best of {trials} trials: {shown}",
        f"validation {tuning.metric.label}, mean of {len(best.folds or [])} folds: "
        f"{best.validation_score:.4f}, "
        f"{before} (the best of many looks better than it is)",
    ]
    ours, theirs, p_value = best.test_auc, defaults.test_auc, defaults.p_value
    if ours and theirs:
        if p_value is None:
            lines.append(f"the defaults: AUC{WITHIN * within} {theirs:.4f}")
        else:
            lines.append(_against("the defaults", ours, theirs, p_value, within))
    return "\n".join(lines)


def aucs_in_words(evaluation: Evaluation | LabelEvaluations) -> list[str]:
    """A line on the AUC, and one on that within groups if rows have some."""
    if isinstance(evaluation, LabelEvaluations):
        count = words.plural(len(evaluation.by_label), "label")
        return [f"AUC {evaluation.mean_auc:.4f}, the mean of {count}"]
    groups, labels = evaluation.groups, evaluation.labels
    which = ", the mean over pairs of classes (Hand and Till)" if len(labels) > 2 else ""
    lines = [_auc_in_words(evaluation.auc) + which]
    if groups is not None and groups.auc is not None:
        has = "has" if groups.compared == 1 else "have"
        lines.append(
            f"{_auc_in_words(groups.auc, within=True)}: how often a {labels[1]!r} is ranked above "
            f"a {labels[0]!r} of the same {groups.column!r}; {groups.compared:,} of "
            f"{words.plural(groups.count, 'group')} {has} both"
        )
    return lines


def _auc_in_words(auc: Interval, within: bool = False) -> str:
    interval = f"{auc.level:.0%} interval {auc.low:.4f} to {auc.high:.4f}"
    return f"AUC{WITHIN * within} {auc.value:.4f}, {interval}"


WITHIN = " within groups"


def _threshold_in_words(rows: BinaryRows, rule: Rule, by: str, what: str) -> str:
    how = {"balanced": "the best balanced accuracy", "proba": "one half", "value": "as said"}
    chosen = how.get(rule.kind, str(rule)) + (f" of the {by}" if rule.needs_rows else "")
    at = rows.at_threshold
    precision = "none flagged" if at.precision is None else f"precision {at.precision:.3f}"
    return (
        f"{rows.yes!r} from {rows.threshold:.4g} on ({chosen}): recall {at.recall:.3f}, "
        f"{precision} of the {what} to judge by"
    )


def _against(name: str, ours: float, theirs: float, p_value: float, within: bool = False) -> str:
    said = compare_aucs(ours, theirs, p_value)
    return (
        f"against {name}, AUC{WITHIN * within} {theirs:.4f}: {ours - theirs:+.4f}, "
        f"p = {p_value:.2g}, {'no clear difference' if said == 'same' else said}"
    )


def warn(evaluation: Evaluation | LabelEvaluations) -> None:
    """Print why results may mislead, also where notes are not wanted."""
    for warning in () if isinstance(evaluation, LabelEvaluations) else evaluation.warnings:
        print(f"warning: {warning}", file=sys.stderr)


def tell(notes: Sequence[str]) -> None:
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
