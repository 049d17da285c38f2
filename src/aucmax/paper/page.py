"""One HTML page per experiment that needs nothing but itself: no network, no scripts, no fonts."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from aucmax.checks import count
from aucmax.disk import write_text
from aucmax.paper import figures, text_tables, verdicts
from aucmax.paper.results import RunResult
from aucmax.paper.style import dataset_name, protocol_name
from aucmax.paper.summary import grouped, labels, summarize, timed_alike
from aucmax.report import base, drawing
from aucmax.report.base import LEAST_REM, MOST_REM, colour_names

CAPTION = (
    "Lines are means over seeds, and bands reach from the lowest seed to the highest. Columns are "
    "named by the positives and negatives of the training data. The first, noisy evaluations may "
    "lie below a panel."
)
PARTS = ("train", "valid", "test")


def write_page(
    path: str | Path,
    runs: Sequence[RunResult],
    *,
    title: str,
    text: str = "",
    command: str = "",
    wanted_seeds: int = 3,
    wanted_steps: int | None = None,
) -> None:
    """Write the page of an experiment: what was found, curves, tables, and every run's settings.

    The file is there as a whole or not at all.

    Args:
        path: of the file; its folder is made if it is not there.
        runs: results of one experiment, from :func:`aucmax.paper.read_results`.
        title: what the page is about; seeds and steps are added if they are fewer than wanted.
        text: plain paragraphs with an empty line between them, shown below the title.
        command: what to type to repeat the experiment.
        wanted_seeds: how many each line ought to have.
        wanted_steps: how many each run ought to have; None for as many as it has.
    """
    count("wanted_seeds", wanted_seeds)
    if wanted_steps is not None:
        count("wanted_steps", wanted_steps)
    full = verdicts.full_title(title, runs, wanted_seeds, wanted_steps)
    page = base.page(full, _sections(runs, text, command))
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, page)


def _sections(runs: Sequence[RunResult], text: str, command: str) -> list[str]:
    rows = summarize(runs)
    lead = verdicts.overview(rows)
    found = "".join(f"<li>{_tight(said)}</li>\n" for said in verdicts.findings(rows))
    paragraphs = [part for part in text.split("\n\n") if part.strip()]
    repeat = f"<pre><code>{escape(command)}</code></pre>" if command else ""
    return [
        f'<p class="lead">{_tight(lead)}</p>' if lead else "",
        *(f"<p>{escape(part.strip())}</p>" for part in paragraphs),
        _section("What was found", f"<ul>\n{found}</ul>"),
        _section("Test AUC by iteration", _figure(runs, "step")),
        _section("Test AUC by time", _figure(runs, "seconds")),
        _section("Numbers", _scroll(text_tables.html_table(rows)) + _note()),
        _section("Positives and negatives", _scroll(_counts(runs))),
        _section("How to repeat it", repeat + _made_with(runs)),
        _section("Runs", _runs(runs)),
    ]


def _section(title: str, body: str) -> str:
    return f"<section>\n<h2>{escape(title)}</h2>\n{body}\n</section>"


def _tight(text: str) -> str:
    """Escaped, with spaces that no line is broken at inside numbers."""
    return re.sub(r" (±|=) ", r"&nbsp;\1&nbsp;", escape(text))


def _scroll(body: str) -> str:
    return f'<div class="scroll" tabindex="0">\n{body}\n</div>'


def _note() -> str:
    return f'<p class="note">{escape(text_tables.NOTE.format(bold="Bold"))}</p>'


def _figure(runs: Sequence[RunResult], by: str) -> str:
    """The figure, in colours that follow the page's."""
    if by == "seconds" and all(math.isnan(run.seconds_per_step) for run in runs):
        return "<p>No run has recorded its time.</p>"
    figure = figures.figure(runs, by)
    drawn, width = drawing.svg(figure, prefix=f"{by}-"), figure.get_figwidth()
    label = "Test AUC against " + ("iterations" if by == "step" else "seconds of training")
    drawn = drawn.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
    for colour, name in colour_names().items():
        drawn = drawn.replace(colour, f"var(--{name})")
    caption = CAPTION if by == "step" else caption_of_seconds(runs)
    size = f"--least: {LEAST_REM * width:.1f}rem; --most: {MOST_REM * width:.1f}rem"
    return (
        f'<figure>\n<div class="scroll" tabindex="0" style="{size}">\n{drawn}</div>\n'
        f"<figcaption>{escape(caption)}</figcaption>\n</figure>"
    )


def caption_of_seconds(runs: Sequence[RunResult]) -> str:
    """What stands below a figure by seconds: how the seconds were measured."""
    shown = timed_alike(runs)
    most = max(run.at_once for run in shown)
    shared = f", with up to {most} runs at once on the machine" if most > 1 else ""
    said = f"The same curves by the seconds of their training steps{shared}; evaluation left out."
    alone = " Where some lines were timed alone on the machine, only these are shown."
    return said + (alone if len(shown) < len(runs) else "")


def _counts(runs: Sequence[RunResult]) -> str:
    """How many positives and negatives there were, once for each way the data was prepared."""
    found = dict.fromkeys(
        (dataset_name(key.dataset), key.ratio, protocol_name(key.protocol), *_of_parts(run))
        for key, group in grouped(runs).items()
        for run in group
    )
    names = ("Dataset", "Ratio", "Protocol", "Training", "Validation", "Test")
    heads = "".join(f'<th scope="col">{name}</th>' for name in names)
    cells = ("".join(f"<td>{escape(text)}</td>" for text in line) for line in found)
    body = "\n".join(f"<tr>{line}</tr>" for line in cells)
    return f"<table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def _of_parts(run: RunResult) -> list[str]:
    pairs = [run.counts.get(part) for part in PARTS]
    return [f"{pair[0]:,} + {pair[1]:,}" if pair else "–" for pair in pairs]


def _made_with(runs: Sequence[RunResult]) -> str:
    """Commits, versions, machines and days, each once."""
    facts: dict[str, list[Any]] = {
        "Commit": [run.commit for run in runs],
        "Versions": [_flat_text(run.versions) for run in runs],
        "Hardware": [run.hardware for run in runs],
        "Date": [run.date for run in runs],
    }
    return base.facts(
        {name: ", ".join(dict.fromkeys(_known(x))) or "–" for name, x in facts.items()}
    )


def _known(values: Iterable[Any]) -> list[str]:
    return [str(value) for value in values if value]


def _runs(runs: Sequence[RunResult]) -> str:
    names = labels(runs)
    parts = [_run(run, names[key.line]) for key, group in grouped(runs).items() for run in group]
    summary = f"<summary>Settings of all {len(runs)} runs</summary>" if len(runs) > 1 else ""
    body = "\n".join(parts)
    return f"<details>\n{summary}\n{body}\n</details>" if summary else body


def _run(run: RunResult, label: str) -> str:
    where = f"{dataset_name(run.dataset)}, {run.ratio}, {protocol_name(run.protocol)}"
    name = f"{label}, seed {run.seed}: {where}{' (diverged)' if run.has_diverged else ''}"
    about = {
        "error": run.error,
        "commit": run.commit,
        "hardware": run.hardware,
        "date": run.date,
        "seconds": None if math.isnan(run.seconds) else run.seconds,
    }
    facts = {
        **{key: str(value) for key, value in about.items() if value is not None},
        **flat(run.versions, "version of "),
        "iterate": run.iterate,
        "steps": f"{run.steps:,}",
        **flat(run.configuration),
    }
    return f"<details>\n<summary>{escape(name)}</summary>\n{base.facts(facts)}\n</details>"


def flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested options as one level: {"stages": {"T0": 5}} gives {"stages.T0": "5"}."""
    found: dict[str, str] = {}
    for key, inner in value.items():
        if isinstance(inner, dict) and inner:
            found |= flat(inner, f"{prefix}{key}.")
        else:
            plain = inner if isinstance(inner, str) else json.dumps(inner, default=str)
            found[f"{prefix}{key}"] = plain
    return found


def _flat_text(value: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {inner}" for key, inner in flat(value).items())
