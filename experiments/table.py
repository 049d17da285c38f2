"""Print tables of results: mean, standard deviation and number, and paired differences.

::

    python -m experiments.table runs/study.jsonl experiments/study.toml clean noise

Lines are compared on the same data set, condition, model and seed. Our runs of two versions of the
code are never put under one label, nor compared with each other; those of a peer may be frozen.
"""

from __future__ import annotations

import argparse
import math
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from experiments.figure_forest import forest
from experiments.plan import CELL, Plan, validation_score
from experiments.run import read_records
from experiments.stats import Difference, holm

Row = dict[str, Any]
PAIRED = tuple(name for name in CELL if name != "line")
"""What two lines must have in common to be paired; each line has one row of a cell."""
UNIT = ("dataset",)
"""What counts as one independent observation: seeds of a data set share its rows."""


def to_rows(records: Iterable[Mapping[str, Any]], metric: str | None = None) -> list[Row]:
    """Flatten records of the study: settings, ``valid``, ``value`` of the test rows, ``code``."""
    rows = []
    for record in records:
        settings = record["settings"]
        if "test" in record:
            value = record["test"][metric or settings["metric"]]
        else:  # an image run, nan if it diverged
            value = record.get("kept", {}).get("test_auc", math.nan)
        version = f"{record['code']} torch {record['torch']}"
        own = {"valid": validation_score(record), "value": value, "code": version}
        rows.append({**settings, **own})
    return rows


def check_one_code(rows: Sequence[Row], peers: Sequence[str] = ()) -> None:
    """Raise if rows that are not a peer's come from two versions of the code."""
    codes = defaultdict(set)
    for row in rows:
        if row["line"] not in peers:
            codes[row["code"]].add(row["line"])
    if len(codes) > 1:
        found = "; ".join(f"{code}: {', '.join(sorted(x))}" for code, x in sorted(codes.items()))
        raise ValueError(f"rows must come from one version of the code, found {found}")


def by_cell(rows: Sequence[Row], line: str) -> dict[tuple[Any, ...], Row]:
    """Return a line's rows by data set, condition, model and seed."""
    cells: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        if row["line"] == line:
            key = tuple(row.get(name) for name in PAIRED)
            if key in cells:
                raise ValueError(f"{line} must have one row of a cell, found two of {key}")
            cells[key] = row
    return cells


def means(cells: Mapping[tuple[Any, ...], float]) -> list[float]:
    """Return the mean of each unit, a data set."""
    units = defaultdict(list)
    for key, value in cells.items():
        units[tuple(x for name, x in zip(PAIRED, key, strict=True) if name in UNIT)].append(value)
    return [fmean(values) for values in units.values()]


def choose(rows: Sequence[Row], lines: Iterable[str], label: str) -> list[Row]:
    """Return the rows of the line that validation rows prefer, per data set, condition and model.

    Ties go to the first of ``lines``. The rows are renamed to ``label``.
    """
    groups: dict[tuple[Any, ...], dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        key = tuple(row.get(name) for name in PAIRED if name != "seed")
        groups[key][row["line"]].append(row)
    chosen = []
    for by_line in groups.values():
        # a line with a diverged run is worst of all
        scores = {x: fmean(row["valid"] for row in by_line[x]) for x in lines if x in by_line}
        if scores:
            best = max(scores, key=lambda x: -math.inf if math.isnan(scores[x]) else scores[x])
            chosen += [{**row, "line": label} for row in by_line[best]]
    return chosen


def compare(
    rows: Sequence[Row], ours: str, theirs: str, peers: Sequence[str] = (), level: float = 0.95
) -> Difference:
    """Return the paired difference of two lines over data sets, each the mean of its cells."""
    wanted = [row for row in rows if row["line"] in (ours, theirs)]
    check_one_code(wanted, peers)
    a, b = by_cell(wanted, ours), by_cell(wanted, theirs)
    cells = {key: a[key]["value"] - b[key]["value"] for key in a.keys() & b.keys()}
    return Difference.paired(
        means({k: x for k, x in sorted(cells.items()) if math.isfinite(x)}), level
    )


def summarize(rows: Sequence[Row], peers: Sequence[str] = ()) -> list[Row]:
    """Return mean, standard deviation and number of data sets of each line.

    Only cells that all lines have enter, so that means can be compared; ``diverged`` counts runs
    without a value, whose cells are left out as well.
    """
    check_one_code(rows, peers)
    lines = {line: by_cell(rows, line) for line in dict.fromkeys(row["line"] for row in rows)}
    finite = {
        line: {key for key, row in cells.items() if math.isfinite(row["value"])}
        for line, cells in lines.items()
    }
    common = set.intersection(*finite.values()) if finite else set()
    table = []
    for line, cells in lines.items():
        values = means({key: cells[key]["value"] for key in sorted(common, key=str)})
        table.append(
            {
                "line": line,
                "mean": fmean(values) if values else math.nan,
                "sd": stdev(values) if len(values) > 1 else math.nan,
                "n": len(values),
                "runs": len(common),
                "diverged": len(cells) - len(finite[line]),
            }
        )
    return table


def markdown(table: Sequence[Row]) -> str:
    """Format rows as a Markdown table, numbers with four digits."""

    def cell(value: Any) -> str:
        return f"{value:.4f}" if isinstance(value, float) else str(value)

    head = list(table[0])
    lines = [head, ["---"] * len(head), *([cell(row[name]) for name in head] for row in table)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def ranking_and_likelihood(rows: Sequence[Row], plan: Mapping[str, Any]) -> list[Row]:
    """Return the rows that validation rows choose: of ranking objectives, and of likelihoods."""
    ranking = [line for line, about in plan["lines"].items() if about.get("ranks")]
    likelihood = [line for line in plan["lines"] if line not in ranking]
    return choose(rows, ranking, "best ranking") + choose(rows, likelihood, "best likelihood")


def part_rows(
    plan: Mapping[str, Any], part: str, records: Mapping[str, Any], metric: str | None = None
) -> list[Row]:
    """Return the rows of a part's runs, of all versions of the code among the records."""
    rows = []
    for code, torch in sorted({(record["code"], record["torch"]) for record in records.values()}):
        runs = Plan(plan, code, torch).runs(part, records)
        rows += to_rows([records[run.id] for run in runs if run.id in records], metric)
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table per part of the plan, and the differences of all parts with Holm's p."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("records", type=Path, help="what experiments.run has written")
    parser.add_argument("plan", type=Path, help="the plan of these runs")
    parser.add_argument("parts", nargs="+", help="parts of the plan that compare lines")
    parser.add_argument("--metric", help="of the test rows, by default that of the part")
    parser.add_argument("--figure", type=Path, help="draw the differences there, as .svg or .png")
    options = parser.parse_args(arguments)
    records = read_records(options.records)
    plan = tomllib.loads(options.plan.read_text(encoding="utf-8"))
    differences = []
    for part in options.parts:
        rows = part_rows(plan, part, records, options.metric)
        for model in dict.fromkeys(row["model"] for row in rows):
            own = [row for row in rows if row["model"] == model]
            print(f"\n{part}, {model}\n\n{markdown(summarize(own))}")
            chosen = ranking_and_likelihood(own, plan)
            for condition in dict.fromkeys(row["condition"] for row in own):
                here = [row for row in chosen if row["condition"] == condition]
                d = compare(here, "best ranking", "best likelihood")
                named = {"part": part, "model": model, "condition": condition}
                found = {"difference": d.value, "low": d.low, "high": d.high, "p": d.p, "n": d.n}
                differences.append({**named, **found})
    for row, p in zip(differences, holm([row["p"] for row in differences]), strict=True):
        row["p (Holm)"] = p
    print(f"\nbest ranking - best likelihood\n\n{markdown(differences)}")
    if options.figure:
        forest(differences).savefig(options.figure)


if __name__ == "__main__":
    main()
