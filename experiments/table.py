"""Print tables of results: mean, standard deviation and number, and paired differences.

::

    python -m experiments.table runs/study.jsonl experiments/study.toml clean noise

Lines are compared on the same data set, condition, model and seed. The runs of a part come from one
version of the code and of torch.
"""

from __future__ import annotations

import argparse
import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd  # type: ignore[import-untyped]

from experiments.check import choose
from experiments.freeze import part_records
from experiments.plan import validation_score
from experiments.run import read_records
from experiments.stats import Difference, holm

CELL = ["dataset", "condition", "model", "seed"]
"""What two lines must have in common to be paired; each line has one row of a cell."""


def to_rows(records: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Return settings, ``valid`` and ``value`` of the test rows; both are nan of a diverged run."""
    rows = []
    for record in records:
        settings = record["settings"]
        if settings["kind"] == "table":
            value = record["test"][settings["metric"]]
        else:
            value = record.get("chosen", {}).get("test_auc", math.nan)
        rows.append({**settings, "valid": validation_score(record), "value": value})
    return pd.DataFrame(rows)


def by_cell(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the value of each cell, a column for each line."""
    return rows.pivot(index=CELL, columns="line", values="value")


def choose_line(rows: pd.DataFrame, lines: Sequence[str], label: str) -> pd.DataFrame:
    """Return the rows of the line that validation rows prefer, per data set, condition and model.

    Ties go to the first of ``lines``; a line with a diverged run is worst of all. The rows are
    renamed to ``label``.
    """
    rule = {"by": "valid", "of": ["line"], "within": ["dataset", "condition", "model"]}
    rows = rows[rows.line.isin(lines)].fillna({"valid": -math.inf})
    rows["line"] = pd.Categorical(rows.line, lines)  # in this order
    return choose(rows, rule).assign(line=label)


def compare(rows: pd.DataFrame, ours: str, theirs: str) -> Difference:
    """Return the paired difference of two lines over data sets, each the mean of its cells."""
    cells = by_cell(rows)
    differences = (cells[ours] - cells[theirs]).dropna()
    return Difference.paired(differences.groupby("dataset").mean())  # seeds share its rows


def summarize(rows: pd.DataFrame) -> pd.DataFrame:
    """Return mean, standard deviation and number of data sets of each line.

    Only cells that all lines have enter, so that means can be compared; ``diverged`` counts runs
    without a value, whose cells are left out as well.
    """
    common = by_cell(rows).dropna()
    means = common.groupby("dataset").mean()
    diverged = rows.value.isna().groupby(rows.line).sum()
    summary = {"mean": means.mean(), "sd": means.std(), "n": len(means), "runs": len(common)}
    return pd.DataFrame({**summary, "diverged": diverged})


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table per part of the plan, and the differences of all parts with Holm's p."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("records", type=Path, help="what experiments.run has written")
    parser.add_argument("plan", type=Path, help="the plan of these runs")
    parser.add_argument("parts", nargs="+", help="finished parts of the plan that compare lines")
    parser.add_argument("--code", help="hash of the code, if the records have several")
    options = parser.parse_args(arguments)
    records = read_records(options.records)
    plan = tomllib.loads(options.plan.read_text(encoding="utf-8"))
    ranking = [line for line, about in plan["lines"].items() if about.get("ranks")]
    likelihood = [line for line in plan["lines"] if line not in ranking]
    differences = []
    for part in options.parts:
        rows = to_rows(part_records(options.plan, part, records, options.code))
        for model, own in rows.groupby("model", sort=False):
            print(f"\n{part}, {model}\n\n{summarize(own).to_string(float_format='%.4f')}")
            objectives = {"ranking": ranking, "likelihood": likelihood}
            best = pd.concat([choose_line(own, lines, x) for x, lines in objectives.items()])
            for condition, here in best.groupby("condition", sort=False):
                d = compare(here, "ranking", "likelihood")
                row = {"part": part, "model": model, "condition": condition}
                row |= {"difference": d.value, "low": d.low, "high": d.high, "p": d.p, "n": d.n}
                differences.append(row)
    table = pd.DataFrame(differences)
    table["p (Holm)"] = holm(table["p"])
    text = table.to_string(index=False, float_format="%.4f")
    print(f"\nbest ranking objective minus best likelihood\n\n{text}")


if __name__ == "__main__":
    main()
