"""The sections of a classifier's page: each a function that gives its template what it shows.

A section ``roc`` is shown by ``templates/roc.html``, which also knows what :func:`shared` gives. To
add one, write both and give it a place in :func:`layout`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from aucmax.judge.binary import BinaryRows, calibration_groups, curves
from aucmax.judge.calibration import are_alike
from aucmax.judge.evaluation import SIGNIFICANT, Evaluation, Model, Part, Peer
from aucmax.judge.interval import Interval, are_enough
from aucmax.judge.multiclass import MulticlassRows, class_results, mistakes
from aucmax.judge.threshold import COST_RATIOS, Rule, thresholds_to_show
from aucmax.judge.training import training as training_scores
from aucmax.report import figures, words
from aucmax.report.words import UNKNOWN, capitalized, percent, quoted, short, too_few
from aucmax.train import Candidate
from aucmax.train.metrics import ROC_AUC, metric_in_records

Content = dict[str, Any]
Rows = BinaryRows | MulticlassRows

PARTS = {
    "train": ("Training", "the model learned from them"),
    "valid": ("Validation", "chose the weights to keep"),
    "test": ("Test", "judged the model, and chose nothing"),
}
PANEL = 2.1  # inches
MOST_PANELS, MOST_CELLS, SMALL = 12, 20, 7  # classes with a curve, in a matrix, in half a page
FEW = 30  # rows of a class
MOST_MISTAKES = 3  # in words
DARKEST = 45  # percent of colour in a cell


class Section(NamedTuple):
    """A part of the page.

    Attributes:
        key: the name of its element and of its template.
        name: in the list of contents.
        title: its heading.
        content: what its template is given, from an evaluation and its rows.
    """

    key: str
    name: str
    title: str
    content: Callable[[Evaluation, Any], Content]


def section(name: str, title: str) -> Callable[[Callable[[Evaluation, Any], Content]], Section]:
    """Make a section of the function that gives its content."""
    return lambda content: Section(content.__name__, name, title, content)


def shared(evaluation: Evaluation, commands: str = "") -> Content:
    """What every section's template knows; the names of commands may end with something."""
    rows, (auc, interval) = evaluation.rows, words.auc_texts(evaluation.auc)
    names = {}
    if isinstance(rows, BinaryRows):
        names = {"yes": quoted(rows.yes), "no": quoted(rows.no)}
    return {
        "rows": rows,
        "noun": evaluation.noun,
        "commands": commands,
        "enough": evaluation.is_enough,
        "weight_column": evaluation.weight_column,
        "warnings": [short(warning, words.LONGEST) for warning in evaluation.warnings],
        "within": evaluation.groups if evaluation.compared_auc is not evaluation.auc else None,
        "multiclass": isinstance(rows, MulticlassRows),
        "auc": auc,
        "auc_interval": interval,
        "level": f"{100 * rows.level:g}{words.NO_BREAK}%",
        **names,
    }


@section("Result", "What it can do")
def answer(evaluation: Evaluation, rows: Rows) -> Content:
    """What the AUC says, the numbers to remember, and whether other models do as well."""
    auc = evaluation.auc
    verdict = words.verdict(evaluation.compared_auc.value, evaluation.peers)
    if not evaluation.is_enough:
        verdict = f"{capitalized(too_few(evaluation))}."
    more_heads, lines = _beside_peers(evaluation)
    content = {
        "interval": auc,
        "grouped_auc": words.auc_texts(evaluation.compared_auc),
        "few": FEW,
        "verdict": verdict,
        "significant": SIGNIFICANT,
        "more_heads": more_heads,
        "peers": lines if evaluation.peers else [],
    }
    if isinstance(rows, BinaryRows):
        threshold = words.threshold_text(rows.threshold)
        return {**content, "flagged": rows.at_threshold, "threshold": threshold}
    counts, right = rows.confusion.sum(axis=1), rows.confusion.diagonal()
    most = int(counts.argmax())
    return {
        **content,
        "accuracy": right.sum() / counts.sum(),
        "mean_recall": (right / counts).mean(),
        "base_rate": counts[most] / counts.sum(),
        "most_frequent": rows.labels[most],
        "small": [quoted(x) for x, n in zip(rows.labels, rows.counts, strict=True) if n < FEW],
    }


def _beside_peers(evaluation: Evaluation) -> tuple[list[str], list[list[str]]]:
    """Heads and lines of a table, this model's first; without tests if the rows are too few."""
    ours, digits = evaluation.compared_auc.value, words.decimals(evaluation.compared_auc)
    tests = ["Difference", "p value"] if evaluation.is_enough else []
    metric = []
    if evaluation.metric != ROC_AUC.name and evaluation.score is not None:
        metric = [capitalized(metric_in_records(evaluation.metric).label)]

    def line(name: str, model: Evaluation | Peer, *tested: str) -> list[str]:
        shown = [*tested[: len(tests)], *[words.score(model.score)][: len(metric)]]
        auc = words.auc_texts(model.compared_auc, digits)
        return [name, *auc, *shown, words.seconds_text(model.seconds)]

    lines = [line("this model", evaluation, UNKNOWN, UNKNOWN)]
    for peer in evaluation.peers:
        difference = words.signed(ours - peer.compared_auc.value, digits)
        p_value = peer.p_value if peer.comparison(ours) else None
        lines.append(line(short(peer.name), peer, difference, words.p_text(p_value)))
    return [*tests, *metric], lines


@section("ROC curve", "Found, and flagged by mistake: ROC curve")
def roc(evaluation: Evaluation, rows: BinaryRows) -> Content:
    """The ROC curve, and how to read it."""
    label = f"ROC curve with an area of {words.auc_texts(evaluation.auc)[0]}"
    return {"drawing": figures.draw("roc", label, figures.roc, rows, curves(rows))}


@section("Precision and recall", "Found, and right: precision and recall")
def precision(evaluation: Evaluation, rows: BinaryRows) -> Content:
    """Precision against recall."""
    average = f"{rows.average_precision:.3f}"
    label = f"Precision against recall, average precision {average}"
    drawing = figures.draw("precision", label, figures.precision_recall, rows, curves(rows))
    return {"drawing": drawing, "average_precision": average}


@section("Predictions", "What it predicts")
def probabilities(evaluation: Evaluation, rows: BinaryRows) -> Content:
    """The probabilities of both classes."""
    label = f"Histograms of the probabilities of {quoted(rows.yes)} and {quoted(rows.no)}"
    return {
        "drawing": figures.draw("probabilities", label, figures.histogram, rows, evaluation.noun),
        "by_odds": figures.is_by_odds(rows.probability),
        "alike": are_alike(rows.probability),
        "least": figures.LEAST,
    }


@section("Classes", "How well each class is told from the others")
def classes(evaluation: Evaluation, rows: MulticlassRows) -> Content:
    """Every class against the rest: a table, and curves of the hardest."""
    results = class_results(rows)
    digits = max(words.decimals(x.auc) for x in results)
    lines = []
    for label, count, x in zip(rows.labels, rows.counts, results, strict=True):
        about = short(label), f"{count:,}", percent(count / len(rows.classes))
        auc = words.auc_texts(x.auc, digits)
        lines.append([*about, *auc, percent(x.precision), percent(x.recall)])
    against_rest = (rows.one_against_rest(k) for k in range(len(results)))
    each = zip(rows.labels, (x.auc for x in results), against_rest, strict=True)
    panels = roc_panels([*each], digits)
    return {"lines": lines, "panels": panels, "boxed": len(results) > MOST_CELLS}


def roc_panels(each: Sequence[tuple[str, Interval, BinaryRows]], digits: int) -> list[Content]:
    """Small curves of those with the lowest AUC, of each its label, AUC and rows."""
    hardest = sorted(range(len(each)), key=lambda k: each[k][1].value)[:MOST_PANELS]
    panels = []
    for k in sorted(hardest):
        label, auc, rows = each[k]
        area, _ = words.auc_texts(auc, digits)
        drawing = figures.draw(
            f"roc{k}", f"ROC curve of {quoted(label)} with an area of {area}",
            figures.small_roc, curves(rows), height=PANEL, width=PANEL,
        )  # fmt: skip
        panels.append({"label": label, "auc": area, "svg": drawing.svg})
    return panels


@section("Predictions", "What it predicts, and what is true")
def predictions(evaluation: Evaluation, rows: MulticlassRows) -> Content:
    """The confusion matrix, and the most frequent mistakes."""
    matrix = []
    if len(rows.labels) <= MOST_CELLS:
        strengths = np.ceil(DARKEST * rows.confusion / rows.confusion.sum(axis=1, keepdims=True))
        matrix = np.rint(np.stack([rows.confusion, strengths], axis=-1)).astype(int).tolist()
    return {"mistakes": mistakes(rows, MOST_MISTAKES), "matrix": matrix}


@section("Calibration", "Can its probabilities be taken at their word?")
def calibration(evaluation: Evaluation, rows: Rows) -> Content:
    """Predicted against observed shares; of several classes, of the labels that are predicted."""
    if isinstance(rows, BinaryRows):
        judged, observed = rows, f"share of {quoted(rows.yes, 16)} observed"
    else:
        judged, observed = rows.right_or_wrong(), "share of right labels"
    groups, lines = calibration_groups(judged), []
    for group in groups:
        interval = f"{percent(group.low)} to {percent(group.high)}"
        count = f"{group.positives:,} of {group.rows:,}"
        lines.append([percent(group.predicted), percent(group.observed), interval, count])
    label = "Observed shares against predicted probabilities"
    shown = (figures.calibration, judged, groups, observed, evaluation.noun)
    return {
        "drawing": figures.draw("calibration", label, *shown),
        "beside": isinstance(rows, MulticlassRows) and len(rows.labels) > SMALL,
        "judged": judged,
        "mean": np.average(judged.probability, weights=judged.weight),
        "groups": groups,
        "stretched": figures.is_crowded(judged.probability),
        "lines": lines,
    }


@section("Models", "The models that it averages")
def models(evaluation: Evaluation, rows: Rows) -> Content:
    """Each model's weight and AUC out of fold, and what was promised beside what came."""
    promised, test = evaluation.promised, evaluation.compared_auc
    fitted = [x.auc for x in evaluation.models if x.auc is not None]
    digits = max(map(words.decimals, [test, *fitted]))
    compared_by = ROC_AUC.name if test is evaluation.auc else "grouped_auc"
    scored = evaluation.metric != compared_by and any(x.score for x in evaluation.models)
    some_left_out = any(x.left_out for x in evaluation.models)

    def line(x: Model) -> list[str]:
        weight = percent(x.weight) if x.weight else UNKNOWN
        auc = (UNKNOWN, UNKNOWN) if x.auc is None else words.auc_texts(x.auc, digits)
        score = [words.score(x.score)] * scored
        tested = words.p_text(x.p_value), words.seconds_text(x.seconds)
        why = [short(x.left_out, 200)] * some_left_out
        return [short(x.name), weight, *auc, *score, *tested, *why]

    lines = [*map(line, evaluation.models)]
    if promised is not None:
        score = evaluation.promised_score
        whole = Model("this model", 1, promised, seconds=evaluation.seconds, score=score)
        lines.insert(0, line(whole))
    judged = "out of fold" if evaluation.is_cross_fitted else "on the validation rows"
    label, height = f"AUC of each model {judged}", 1.1 + 0.25 * len(lines)
    return {
        "judged": judged,
        "cross_fitted": evaluation.is_cross_fitted,
        "drawing": figures.draw("models", label, figures.models, evaluation, height=height),
        "promised": promised and words.auc_texts(promised, digits),
        "came": words.auc_texts(test, digits),
        "held": promised and words.promise_held(promised, test),
        "metric": [capitalized(metric_in_records(evaluation.metric).label)] * scored,
        "lines": lines,
        "left_out": ["Left out"] * some_left_out,
        "significant": SIGNIFICANT,
    }


@section("Labels", "Labels worth checking")
def doubtful(evaluation: Evaluation, rows: Rows) -> Content:
    """The rows whose labels are contradicted most."""
    found = evaluation.doubtful or ()
    named = [short(evaluation.id_column)] if any(x.name is not None for x in found) else []
    lines = []
    for x in found:
        name = [short(x.name or UNKNOWN)] * len(named)
        labels = quoted(x.label), quoted(x.likelier), percent(x.probability)
        lines.append([f"{x.row:,}", *name, *labels])
    return {"heads": ["Row", *named, "Label", "Likelier", "Probability"], "lines": lines}


@section("Training", "How the network was trained")
def training(evaluation: Evaluation, rows: Rows) -> Content:
    """Validation score by step, or why there is none, and the objectives that were chosen from."""
    scores = training_scores(evaluation.history, evaluation.metric, evaluation.steady)
    noun = evaluation.noun
    judged = f"{noun}s out of fold" if evaluation.is_cross_fitted else f"validation {noun}s"
    drawing = None
    if scores.evaluations > 1:
        label, shown = f"Validation {scores.label} by training step", (scores, judged)
        drawing = figures.draw("training", label, figures.training, *shown, height=figures.FLAT)
    valid = evaluation.parts.get("valid", Part(0)).counts
    few = min(valid) if valid and not are_enough(valid) else None
    return {
        "drawing": drawing,
        "scores": scores,
        "judged": judged,
        "cross_fitted": evaluation.is_cross_fitted,
        "iterates": figures.ITERATES,
        "few": few,
        "candidates": [_candidate_line(x) for x in evaluation.candidates],
        "tested": any(not math.isnan(x.p_value) for x in evaluation.candidates),
        "significant": SIGNIFICANT,
    }


def _candidate_line(candidate: Candidate) -> list[str]:
    """An objective's score, how far it is behind, and whether a test sees that."""
    known = [candidate.score, candidate.behind, candidate.p_value]
    score, behind, p = (None if math.isnan(x) else x for x in known)
    return [
        short(candidate.objective),
        UNKNOWN if score is None else f"{score:.4f}",
        UNKNOWN if behind is None or candidate.chosen else f"{behind:.4f}",
        words.p_text(p),
        candidate.verdict,
    ]


@section("Thresholds", "Where to put the threshold")
def thresholds(evaluation: Evaluation, rows: BinaryRows) -> Content:
    """What each threshold does, and what it costs."""
    shown = thresholds_to_show(rows.probability, rows.positive, rows.threshold)
    own = 1 + shown.index(rows.threshold)
    names = ["flag nothing", *map(words.threshold_text, shown), "flag everything"]
    names[own] += " (the model's)"
    counts = [rows.counts_at(threshold) for threshold in (2.0, *shown, -1.0)]
    costs = np.array([[x.cost(ratio) for ratio in COST_RATIOS] for x in counts])
    lines = []
    for name, x, line in zip(names, counts, costs, strict=True):
        rates = (x.flagged, x.precision, x.recall, x.specificity)
        cells = [
            Markup("<strong>★ {}</strong>").format(f"{cost:,.1f}") if least else f"{cost:,.1f}"
            for cost, least in zip(line, line == costs.min(axis=0), strict=True)
        ]
        lines.append([name, *map(percent, rates), *cells])
    heads = [f"Cost at {ratio}×" for ratio in COST_RATIOS]
    rule = Rule.read(evaluation.threshold_rule)
    part = "validation" if evaluation.parts.get("valid", Part(0)).rows else "training"
    by = f"{part} {evaluation.noun}s{', out of fold' * evaluation.is_cross_fitted}"
    chosen = {"rule": str(rule), "by_rows": f"of the {by}" if rule.needs_rows else ""}
    return {"ratios": COST_RATIOS, "costs": heads, "lines": lines, "own": own, **chosen}


@section("Columns that matter", "Which columns matter")
def importance(evaluation: Evaluation, rows: Rows) -> Content:
    """The columns that the model uses most."""
    columns = sorted(evaluation.importance, key=lambda x: -x.drop)
    top, rest = columns[: figures.MOST_BARS], columns[figures.MOST_BARS :]
    drawing, others = None, words.other_columns(rest) if rest else ""
    by = "AUC within groups" if shared(evaluation)["within"] else "AUC"
    if top:
        label, height = f"Loss of {by} by shuffled column", 0.7 + 0.23 * len(top)
        drawing = figures.draw("importance", label, figures.importance, top, height=height)
    return {"drawing": drawing, "others": others, "by": by}


@section("Data", "The data")
def data(evaluation: Evaluation, rows: Rows) -> Content:
    """How many rows each part has, and what the columns are like."""
    columns = []
    for x in evaluation.columns:
        digits = x.kind == "number" and "." in x.typical
        typical = f"{float(x.typical):.6g}" if digits else short(x.typical, 30)
        values = percent(x.missing), f"{x.distinct:,}", typical
        kind = f"{x.kind}, written {short(x.written, 30)}" if x.written else x.kind
        columns.append([words.short_name(x.name), short(kind, 60), *values])
    kinds = Counter(short(column.kind) for column in evaluation.columns).most_common()
    in_words = ", ".join(f"{count:,} {kind}" for kind, count in kinds)
    by = _rows_by_part if isinstance(rows, BinaryRows) else _rows_by_class
    return {**by(evaluation), "columns": columns, "kinds": in_words}


def _parts(evaluation: Evaluation) -> dict[str, tuple[str, str]]:
    """The parts' names, and what each was for."""
    if not evaluation.is_cross_fitted:
        return PARTS
    return {**PARTS, "train": ("Training", "the models learned from them, and were chosen by them")}


def _rows_by_part(evaluation: Evaluation) -> Content:
    """A line for each part, with its positives where these were counted."""
    lines = []
    for key, (name, purpose) in _parts(evaluation).items():
        part = evaluation.parts.get(key, Part(0))
        if not part.rows:
            continue
        positives, share = UNKNOWN, UNKNOWN
        if part.counts is not None:
            positives, share = f"{part.counts[1]:,}", percent(part.counts[1] / part.rows)
        lines.append([name, f"{part.rows:,}", positives, share, purpose])
    return {"lines": lines}


def _rows_by_class(evaluation: Evaluation) -> Content:
    """A line for all classes and one for each, with a column for each part."""
    counts = {key: part.counts for key, part in evaluation.parts.items() if part.counts}
    parts = {key: about for key, about in _parts(evaluation).items() if key in counts}
    columns = [[sum(counts[key]), *counts[key]] for key in parts]
    names = ["all", *map(short, evaluation.labels)]
    return {
        "lines": [
            [name, *map(words.thousands, line)] for name, *line in zip(names, *columns, strict=True)
        ],
        "boxed": len(evaluation.labels) > MOST_CELLS,
        "parts": parts,
        "total": sum(column[0] for column in columns),
    }


@section("How it was made", "How it was made")
def made(evaluation: Evaluation, rows: Rows) -> Content:
    """The command, versions and notes."""
    versions = [(short(name), short(value, 200)) for name, value in evaluation.versions.items()]
    return {
        "command": short(evaluation.command, words.LONGEST),
        "facts": [("Time", words.seconds_text(evaluation.seconds)), *versions],
        "notes": [short(note, words.LONGEST) for note in evaluation.notes],
    }


def layout(evaluation: Evaluation, more: Sequence[Section] = ()) -> list[list[Section]]:
    """The sections in their order; those of one list stand side by side where there is room.

    Those that somebody adds come where a table's columns would.
    """
    rows = evaluation.rows
    of_models = [] if len(evaluation.models) < 2 else [[models]]
    labels = [] if evaluation.doubtful is None else [[doubtful]]
    of_network = [[training]] if evaluation.history or not evaluation.models else []
    of_columns = [[importance]] if evaluation.columns or not more else []
    end = [*([x] for x in more), *of_columns, *labels, [data], [made]]
    if isinstance(rows, BinaryRows):
        pairs = [[roc, precision], [probabilities, calibration]]
        return [[answer], *pairs, *of_models, *of_network, [thresholds], *end]
    middle = [[predictions, calibration]]
    if len(rows.labels) > SMALL:
        middle = [[predictions], [calibration]]
    return [[answer], [classes], *middle, *of_models, *of_network, *end]
