"""Compare every number on the pages of results and in the README with the frozen records.

A number is a fault if it differs from the records at the digits quoted, or if neither a
``[[quote]]`` nor a pattern of ``[not_measured]`` in ``quotes.toml`` covers it. A quote has the
``page``, the ``text`` with a ``{}`` for each number, and ``values``, a statistic for each.
``{row}`` stands for each name of ``rows`` in turn, ``[...]`` encloses what is empty where the
records have nothing. A quote, a row and a value may set these keys, the later winning:

    file      name of a file in results/
    column    the column, or "settings.lr" for an entry of a column of JSON text
    stat      n, mean, sd, median, min, max, sum, wins, losses (numbers above and below zero),
              low, high and p (t test), wilcoxon (its p), or value (of the only row)
    per       columns that make a unit: its rows are averaged first
    minus     filters that differ for what is subtracted, unit by unit
    choose    {by, of, within, among}: in each group of ``within`` only rows of that ``of`` with
              the highest mean of ``by``, among rows that pass the filters ``among``
    level     of the interval from low to high (0.95); ``scale``: a factor, 100 for percents

A filter is column = value, or a list of values. A quote has them in ``where``, a row and a value
among these keys; those of a row do not hold for a file without the column.
"""

from __future__ import annotations

import functools
import json
import math
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]

from experiments.stats import Difference

ROOT = Path(__file__).resolve().parent.parent
KEYS = ["file", "column", "stat", "per", "minus", "choose", "level", "scale"]
NUMBER = r"([+−-]?[\d,]*\.?\d+)"


@functools.cache
def read(name: str) -> pd.DataFrame:
    """Return a frozen file; runs of figures with two columns computed from their history."""
    rows = pd.read_parquet(ROOT / "experiments" / "results" / f"{name}.parquet")
    if "history_stage" in rows:
        rows["final_valid"] = [r[f"history_valid_auc_{r.iterate}"][-1] for _, r in rows.iterrows()]
        rows["course"] = [mean_over_steps(r) for _, r in rows.iterrows()]
    return rows[[name for name in rows if not name.startswith("history_")]]


def mean_over_steps(run: Any) -> float:
    """Return the mean test AUC of the returned iterate from step 1,000 to the end."""
    steps, auc = run["history_step"], run[f"history_test_auc_{run['iterate']}"]
    grid = np.union1d(steps[steps >= 1000], 1000)
    return float(np.trapezoid(np.interp(grid, steps, auc), grid) / (grid[-1] - grid[0]))


def column_of(rows: pd.DataFrame, name: str) -> Any:
    """Return a column, or an entry of a column of JSON text ("settings.lr")."""
    if name in rows or "." not in name:
        return rows[name]
    column, key = name.split(".", 1)
    return rows[column].map(lambda text: json.loads(text).get(key))


def select(rows: pd.DataFrame, filters: dict[str, Any]) -> pd.DataFrame:
    """Return the rows that have one of the values allowed in each column."""
    for name, wanted in filters.items():
        allowed = wanted if isinstance(wanted, list) else [wanted]
        found = column_of(rows, name)
        if isinstance(next(iter(found), None), np.ndarray):
            found = found.map(lambda cell: next((x for x in cell if x in allowed), None))  # noqa: B023
        rows = rows[found.isin(allowed)]
    return rows


def choose(rows: pd.DataFrame, rule: dict[str, Any]) -> pd.DataFrame:
    """Return, in each group, the rows of the candidate with the highest mean."""
    within, of = rule["within"], rule["of"]
    scores = select(rows, rule.get("among", {})).groupby([*within, *of])[rule["by"]].mean()
    best = scores.dropna().groupby(within).idxmax()
    return rows.merge(pd.DataFrame([*best], columns=[*within, *of]), on=[*within, *of])


@functools.cache
def units(spec: str) -> Any:
    """Return the values that a statistic is computed from, given as JSON."""
    filters, file, column, rule, per = json.loads(spec)
    rows = select(read(file), filters)
    rows = choose(rows, rule) if rule else rows
    values = column_of(rows, column)
    if per:
        values = values.groupby([rows[name] for name in per]).mean()
    return values.dropna()


def compute(spec: dict[str, Any]) -> float:
    """Return a value of the frozen records; nan if they have no row of it."""

    def values(filters: dict[str, Any]) -> Any:
        settings = [spec.get(key) for key in ("file", "column", "choose", "per")]
        return units(json.dumps([spec["where"] | filters, *settings]))

    x = values({})
    if "minus" in spec:
        x = (x - values(spec["minus"])).dropna()
    if not len(x):
        return math.nan
    return statistic(x, spec["stat"], spec.get("level", 0.95)) * float(spec.get("scale", 1))


def statistic(x: Any, stat: str, level: float) -> float:
    """Return a statistic of a column."""
    if stat in ("wins", "losses"):
        return float((x > 0 if stat == "wins" else x < 0).sum())
    if stat in ("low", "high", "p"):
        return float(getattr(Difference.paired(list(x), level), stat))
    if stat == "wilcoxon":
        return Difference.signed_rank(list(x), level).p
    return float(getattr(x, {"n": "count", "sd": "std", "value": "item"}.get(stat, stat))())


def merged(quote: dict[str, Any], row: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a value: later ones win, filters add up."""
    spec = {key: part[key] for part in (quote, row, value) for key in KEYS if key in part}
    columns = read(spec["file"]).columns
    of_row = {k: x for k, x in row.items() if k not in KEYS and k.split(".")[0] in columns}
    of_value = {k: x for k, x in value.items() if k not in KEYS}
    return spec | {"where": quote.get("where", {}) | of_row | of_value}


def pattern_of(text: str, row: str) -> str:
    """Return the regular expression of a quoted text, with a group for each number."""
    special = {"{}": NUMBER, "[": "(?:", "]": ")?", "{row}": re.escape(row)}
    parts = re.split(r"(\{\}|\{row\}|\[|\]|\s+)", text)
    return "".join(special.get(x, r"\s+" if x.isspace() else re.escape(x)) for x in parts)


def agrees(quoted: str | None, value: float) -> bool:
    """Say whether a quoted number is the value, rounded as quoted."""
    if quoted is None or math.isnan(value):
        return quoted is None and math.isnan(value)
    quoted = quoted.replace(",", "").replace("−", "-")
    return float(quoted) == round(value, len(quoted.partition(".")[2]))


def check_quote(quote: dict[str, Any], page: str, covered: set[int]) -> Iterator[str]:
    """Yield the faults of a quote, and mark what it covers."""
    for row, settings in quote.get("rows", {"": {}}).items():
        name = f"{quote['page']}: {quote['text'].replace('{row}', row)!r}"
        matches = [*re.finditer(pattern_of(quote["text"], row), page)]
        if not matches:
            yield f"{name} is not on the page"
        values = [{"stat": x} if isinstance(x, str) else x for x in quote["values"]]
        specs = [merged(quote, settings, value) for value in values]
        computed = [compute(spec) for spec in specs]
        for match in matches:
            covered.update(range(*match.span()))
            for spec, value, quoted in zip(specs, computed, match.groups(), strict=True):
                if not agrees(quoted, value):
                    yield f"{name}: {spec['stat']} is {value:.6g} in the records, not {quoted}"


def check(pages: dict[str, str], quotes: dict[str, Any]) -> list[str]:
    """Return every fault of the pages, given by name."""
    pages = {name: text.replace("**", "") for name, text in pages.items()}
    covered: dict[str, set[int]] = {name: set() for name in pages}
    faults: list[str] = []
    for quote in quotes["quote"]:
        faults += check_quote(quote, pages[quote["page"]], covered[quote["page"]])
    for where, patterns in quotes["not_measured"].items():
        for pattern in patterns:
            names = pages if where == "all" else [where]
            found = [(x, m) for x in names for m in re.finditer(pattern, pages[x], re.MULTILINE)]
            if not found:
                faults.append(f"not_measured, {where}: nothing matches {pattern!r}")
            for name, match in found:
                covered[name].update(range(*match.span()))
    for name, text in pages.items():
        for match in re.finditer(r"\S*\d\S*", text):
            if {i for i in range(*match.span()) if text[i].isdigit()} - covered[name]:
                line = text.count("\n", 0, match.start()) + 1
                faults.append(f"{name}, line {line}: no quote covers {match[0]!r}")
    return faults


def main() -> int:
    """Check the pages of this repository."""
    paths = [*sorted((ROOT / "docs" / "results").glob("*.rst")), ROOT / "README.md"]
    pages = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}
    quotes = tomllib.loads((ROOT / "experiments" / "quotes.toml").read_text(encoding="utf-8"))
    faults = check(pages, quotes)
    print("\n".join(faults) or f"{len(quotes['quote'])} quotes agree with the frozen records")
    return len(faults) > 0


if __name__ == "__main__":
    raise SystemExit(main())
