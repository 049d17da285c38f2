"""One HTML page per experiment that needs nothing but itself: no network, no scripts, no fonts."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from aucmax.paper import figures, sentences, text_tables
from aucmax.paper.panels import MOST_LINES
from aucmax.paper.ratio_figure import summary_figure
from aucmax.paper.results import RunResult
from aucmax.paper.settings import Wanted
from aucmax.paper.style import dataset_name, protocol_name
from aucmax.paper.summary import Row, grouped, labels, summarize, timed_alike
from aucmax.report import drawing, rendering
from aucmax.report.drawing import Drawing

TEMPLATES = Path(__file__).parent / "templates"

SUMMARY_CAPTION = (
    "Points are means over seeds, and bars reach from the lowest seed to the highest. A panel has "
    f"at most {MOST_LINES} methods, those with the highest means; all are in the table."
)
CAPTION = (
    "Lines are means over seeds, and bands reach from the lowest seed to the highest. Columns are "
    "named by the positives and negatives of the training data, before any label is made wrong. "
    "The first, noisy evaluations may lie below a panel."
)


def write_page(
    path: str | Path,
    runs: Sequence[RunResult],
    *,
    title: str,
    command: str = "",
    wanted: Wanted | None = None,
    svgs: Mapping[str, str] | None = None,
) -> None:
    """Write the page of an experiment: what was found, curves, tables, and every run's settings.

    The file is there as a whole or not at all.

    Args:
        path: of the file; its folder is made if it is not there.
        runs: results of one experiment, from :func:`aucmax.paper.read_results`.
        title: what the page is about; seeds and steps are added, and what they lack.
        command: what to type to repeat the experiment.
        wanted: what the whole experiment has; None says that this is all.
        svgs: the figures "summary", by "step" and by "seconds" as :func:`svg` gives them; one that
            is not there is drawn.
    """
    rows = summarize(runs)
    rendering.write_page(
        Path(path),
        "experiment.html",
        TEMPLATES,
        title=sentences.full_title(title, runs, wanted),
        overview=sentences.overview(rows),
        findings=sentences.findings(rows),
        figures=_figures(runs, rows, svgs or {}),
        numbers=Markup(text_tables.html_table(rows)),
        note=text_tables.NOTE.format(bold="Bold"),
        counts=_counts(runs),
        command=command,
        origins=_origins(runs),
        runs=_settings(runs),
    )


def _figures(
    runs: Sequence[RunResult], rows: Sequence[Row], svgs: Mapping[str, str]
) -> list[tuple[str, Drawing | None, str]]:
    """Title, figure and caption: by ratio, by iteration, and by time if it was recorded."""

    def drawn(name: str, label: str) -> Drawing:
        text = svgs.get(name)
        if text is None:
            is_summary = name == "summary"
            text = drawing.svg(summary_figure(rows) if is_summary else figures.figure(runs, name))
        return drawing.for_page(text, name, label)

    by_time, caption = None, ""
    if not all(math.isnan(run.seconds_per_step) for run in runs):
        by_time = drawn("seconds", "Test AUC against seconds of training")
        caption = caption_of_seconds(runs)
    by_ratio = drawn("summary", "Final test AUC against the ratio")
    return [
        ("Final test AUC by ratio", by_ratio, SUMMARY_CAPTION),
        ("Test AUC by iteration", drawn("step", "Test AUC against iterations"), CAPTION),
        ("Test AUC by time", by_time, caption),
    ]


def caption_of_seconds(runs: Sequence[RunResult]) -> str:
    """What stands below a figure by seconds: how the seconds were measured."""
    shown = timed_alike(runs)
    most = max(run.at_once for run in shown)
    shared = f", with up to {most} runs at once on the machine" if most > 1 else ", timed alone"
    said = f"The same curves by the seconds of their training steps{shared}; evaluation left out."
    alone = " Where some lines were timed alone on the machine, only these are shown."
    return said + (alone if len(shown) < len(runs) else "")


def _counts(runs: Sequence[RunResult]) -> list[tuple[str, ...]]:
    """How many positives and negatives there were, once for each way the data was prepared."""

    def in_part(run: RunResult, part: str) -> str:
        pair = run.counts.get(part)
        return f"{pair[0]:,} + {pair[1]:,}" if pair else "–"

    lines: dict[tuple[str, ...], None] = {}  # a set that keeps its order
    for key, group in grouped(runs).items():
        where = dataset_name(key.dataset), key.ratio, protocol_name(key.protocol)
        for run in group:
            lines[*where, *(in_part(run, part) for part in ("train", "valid", "test"))] = None
    return list(lines)


def _origins(runs: Sequence[RunResult]) -> dict[str, str]:
    """Commits, versions, machines and days, each once."""

    def versions(run: RunResult) -> str:
        return ", ".join(f"{key} {value}" for key, value in flat(run.versions).items())

    origins: dict[str, list[str | None]] = {
        "Commit": [run.commit for run in runs],
        "Versions": [versions(run) for run in runs],
        "Hardware": [run.hardware for run in runs],
        "Date": [run.date for run in runs],
    }
    return {
        name: ", ".join(dict.fromkeys(str(value) for value in each if value)) or "–"
        for name, each in origins.items()
    }


def _settings(runs: Sequence[RunResult]) -> list[tuple[str, dict[str, str]]]:
    """The name of each run, and all that is known of it."""
    names, settings = labels(runs), []
    for key, group in grouped(runs).items():
        for run in group:
            name = f"{names[key.line]}, seed {run.seed}: {text_tables.setting_name(key)}"
            about = {x: getattr(run, x) for x in ("error", "commit", "hardware", "date", "seconds")}
            if math.isnan(run.seconds):
                del about["seconds"]
            known = {
                **{x: str(value) for x, value in about.items() if value is not None},
                **flat(run.versions, "version of "),
                "iterate": run.iterate,
                "steps": f"{run.steps:,}",
                **flat(run.configuration),
            }
            settings.append((f"{name} (diverged)" if run.has_diverged else name, known))
    return settings


def flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested options as one level: {"stages": {"T0": 5}} gives {"stages.T0": "5"}."""
    options: dict[str, str] = {}
    for key, inner in value.items():
        if isinstance(inner, dict) and inner:
            options |= flat(inner, f"{prefix}{key}.")
        else:
            plain = inner if isinstance(inner, str) else json.dumps(inner, default=str)
            options[f"{prefix}{key}"] = plain
    return options
