"""The report of a model of pictures: what that of a table has, and the pictures."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from markupsafe import Markup

from aucmax.images.sheets import Sheets, Shown, parts_by_score
from aucmax.images.sheets import read as read_sheets
from aucmax.judge.binary import BinaryRows
from aucmax.judge.evaluation import Evaluation
from aucmax.judge.multilabel import LabelEvaluations, read_evaluation
from aucmax.report import rendering, words
from aucmax.report import sections as usual
from aucmax.report.page import write_model_page
from aucmax.report.sections import Content, Section, section
from aucmax.report.words import LONGEST, percent, quoted, short, short_name

TEMPLATES = Path(__file__).parent / "templates"
COMMANDS = "-images"
"""What the names of the commands end with."""


def write_report(folder: str | Path) -> Path:
    """Write ``report.html`` of a model's folder, which has its evaluation and pictures."""
    folder = Path(folder)
    path, evaluation, shown = folder / "report.html", read_evaluation(folder), read_sheets(folder)
    if isinstance(evaluation, LabelEvaluations):
        _write_page_by_label(path, evaluation, shown)
    else:
        write_model_page(path, evaluation, _sections(shown), TEMPLATES, COMMANDS)
    return path


def _sections(sheets: Sheets) -> list[Section]:
    """Those that show the pictures."""

    @section("Likely mistakes", "Pictures whose labels are worth checking")
    def mistakes(evaluation: Evaluation, rows: Any) -> Content:
        binary = len(evaluation.labels) == 2
        titles = [f"Labelled {quoted(label)}, but least like it" for label in evaluation.labels]
        if binary:
            no, yes = map(quoted, evaluation.labels)
            titles = [f"Labelled {no}, scored highest", f"Labelled {yes}, scored lowest"]
        each = [[_figure(x, evaluation) for x in sheet] for sheet in sheets.mistakes]
        return {"sheets": [*zip(titles, each, strict=True)]}

    @section("By score", "Pictures by their score")
    def by_score(evaluation: Evaluation, rows: Any) -> Content:
        shown = []
        parts = parts_by_score(evaluation.probability)
        for part, sheet in zip(parts, sheets.quantiles, strict=True):
            low, high = (percent(f(x.probability for x in sheet)) for f in (min, max))
            yes = f"{int(evaluation.classes[part].sum()):,} of {len(part):,}"
            shown.append((f"{low} to {high}", yes, [_figure(x, evaluation) for x in sheet]))
        return {"parts": shown}

    @section("Where it looked", "Where the network looked")
    def looked(evaluation: Evaluation, rows: Any) -> Content:
        return {
            "pairs": [(_figure(x, evaluation), _uri(x.lit)) for x in sheets.looked],
        }

    more = [*([by_score] if sheets.quantiles else []), *([looked] if sheets.looked else [])]
    return [mistakes, *more]


def _figure(x: Shown, evaluation: Evaluation) -> dict[str, Any]:
    """A picture for a template: its bytes, and what is said of it."""
    label = evaluation.labels[x.label]
    said = percent(x.probability)
    alt = f"{short_name(x.name, 80)}, labelled {quoted(label)}, {said}"
    name = Markup("/<wbr>").join(short_name(x.name, 32).split("/"))  # lines end after a folder
    return {
        "uri": _uri(x.picture), "name": name, "file": short(x.name, LONGEST), "alt": alt,
        "label": short(label), "probability": said, "framed": x.label == 1,
    }  # fmt: skip


def _uri(picture: bytes) -> str:
    """A picture as a part of the page."""
    kind = "png" if picture.startswith(b"\x89PNG") else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(picture).decode()}"


# ---- Several labels ------------------------------------------------------------------------------


def _write_page_by_label(path: Path, judged: LabelEvaluations, shown: Sheets) -> None:
    """A table of the labels, a section for each, the best first, and how the model was made."""

    @section("Labels", "How well each label is ranked")
    def labels(evaluation: Evaluation, rows: Any) -> Content:
        digits = max(words.decimals(x.auc) for x in judged.by_label)
        panels = usual.roc_panels([(x.target, x.auc, _rows(x)) for x in judged.best_first], digits)
        return {"lines": [_line(x, digits) for x in judged.best_first], "panels": panels}

    by_auc = sorted(range(len(judged.by_label)), key=lambda k: -judged.by_label[k].auc.value)
    least = min(judged.by_label, key=lambda x: min(x.parts["valid"].counts or (0,)))
    parts: list[tuple[Section, Evaluation, str]] = [(labels, judged.by_label[0], "labels")]
    for k in by_auc:
        evaluation, name = judged.by_label[k], judged.by_label[k].target
        about = _label_section(f"label{k}", name, shown.mistakes[2 * k : 2 * k + 2])
        parts.append((about, evaluation, "label"))
    parts += [(usual.training, least, "training"), (usual.made, least, "made")]
    bodies = {
        part.key: rendering.render(
            f"{template}.html", TEMPLATES, **usual.shared(evaluation, COMMANDS),
            **part.content(evaluation, evaluation.rows),
        )
        for part, evaluation, template in parts
    }  # fmt: skip
    names = words.listed(quoted(x.target) for x in judged.by_label)
    rendering.write_page(
        path,
        "several_labels.html",
        TEMPLATES,
        title=f"Predicting {names}",
        mean=f"{100 * judged.mean_auc:.1f}",
        count=len(judged.by_label),
        rows=judged.rows["test"],
        warnings=[],
        layout=[[part] for part, _, _ in parts],
        bodies=bodies,
    )


def _line(evaluation: Evaluation, digits: int) -> list[str]:
    """Of the table of labels."""
    rows = _rows(evaluation)
    (negatives, positives), at = rows.counts, rows.at_threshold
    return [
        short(evaluation.target), *words.auc_texts(evaluation.auc, digits),
        words.score(rows.average_precision), f"{positives:,}", f"{negatives:,}",
        percent(at.precision), percent(at.recall),
    ]  # fmt: skip


def _rows(evaluation: Evaluation) -> BinaryRows:
    """Of a label, which a picture has or not."""
    assert isinstance(evaluation.rows, BinaryRows)
    return evaluation.rows


def _label_section(key: str, name: str, pictures: list[list[Shown]]) -> Section:
    """One label: how well it is ranked, what is worth checking, and which thresholds there are."""

    def content(evaluation: Evaluation, rows: BinaryRows) -> Content:
        of_thresholds = usual.thresholds.content(evaluation, rows)
        shared = usual.shared(evaluation, COMMANDS)
        titles = [f"Labelled {quoted(evaluation.labels[0])}, scored highest"]
        titles += [f"Labelled {quoted(evaluation.labels[1])}, scored lowest"]
        each = [[_figure(x, evaluation) for x in sheet] for sheet in pictures]
        return {
            "interval": evaluation.auc,
            "average_precision": words.score(rows.average_precision),
            "flagged": rows.at_threshold,
            "threshold": words.threshold_text(rows.threshold),
            "few": "" if evaluation.is_enough else words.capitalized(words.too_few(evaluation)),
            "sheets": [(title, x) for title, x in zip(titles, each, strict=True) if x],
            "thresholds": rendering.render("thresholds.html", **shared, **of_thresholds),
        }

    return Section(key, short_name(name, 24), quoted(name, 60), content)
