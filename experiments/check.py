"""Compare every number on the pages of results and in the README with the frozen records.

A number is a fault if it differs from the records at the digits quoted, or if neither a
``[[quote]]`` nor a pattern of ``[not_measured]`` in ``quotes.toml`` covers it. A quote has the
``page``, the ``text`` with a ``{}`` for each number, and ``values``, a statistic for each.
``{row}`` stands for each name of ``rows`` in turn, ``[...]`` encloses what is empty where the
records have nothing. A quote, a row and a value may set these keys, the later winning:

    file      name of a file in results/; "claims-*" are all files whose names match
    column    name of the column; "settings.lr" is an entry of a column of JSON text
    stat      n, mean, sd, median, min, max, sum, wins, losses (numbers above and below zero),
              low, high and p (t test; of strata if ``strata`` names the column of a unit that has
              them), wilcoxon (its p), value (of the only row), or near (how many are within 0.02
              of the highest)
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
KEYS = ["file", "column", "stat", "per", "strata", "minus", "choose", "level", "scale"]
NUMBER = r"([+−-]?[\d,]*\.?\d+)"


@functools.cache
def read(name: str) -> pd.DataFrame:
    """Return the frozen files of a name; image runs with columns computed from their history."""
    folder = ROOT / "experiments" / "results"
    paths = sorted(folder.glob(f"{name}.parquet"))
    rows = pd.concat([pd.read_parquet(path) for path in paths], ignore_index=True)
    if "final_last" in rows:
        ended = rows.final.notna()
        rows["final_valid"] = math.nan
        rows["course"] = math.nan
        for number, run in rows[ended].iterrows():
            rows.loc[number, "final_valid"] = run[f"history_valid_auc_{run.iterate}"][-1]
            rows.loc[number, "course"] = mean_over_steps(run)
    if "processes" in rows:
        rows["hours"] = rows.seconds / rows.processes / 3600
    return rows[[name for name in rows if not name.startswith("history_")]]


def mean_over_steps(run: Any) -> float:
    """Return the mean test AUC of the returned iterate from step 1,000 to the end."""
    steps, auc = run["history_step"], run[f"history_test_auc_{run['iterate']}"]
    grid = np.union1d(steps[steps >= 1000], 1000)
    return float(np.trapezoid(np.interp(grid, steps, auc), grid) / (grid[-1] - grid[0]))


def column_of(rows: pd.DataFrame, name: str) -> Any:
    """Return a column, or an entry of a column of JSON text."""
    column, _, key = name.partition(".")
    if not key or name in rows:
        return rows[name]
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


def values_of(spec: dict[str, Any], filters: dict[str, Any]) -> Any:
    """Return the values that a statistic is computed from, under more filters."""
    rows = select(read(spec["file"]), spec["where"] | filters)
    if "choose" in spec:
        rows = choose(rows, spec["choose"])
    values = column_of(rows, spec["column"])
    if "per" in spec:
        values = values.groupby([rows[name] for name in spec["per"]]).mean()
    return values.dropna()


def compute(spec: dict[str, Any]) -> float:
    """Return a value of the frozen records; nan if they have no row of it."""
    x, stat, level = values_of(spec, {}), spec["stat"], spec.get("level", 0.95)
    if "minus" in spec:
        x = (x - values_of(spec, spec["minus"])).dropna()
    if x.empty:
        return math.nan
    if stat in ("low", "high", "p") and "strata" in spec:
        strata = [own.to_numpy() for _, own in x.groupby(spec["strata"])]
        value = getattr(Difference.stratified(strata, level), stat)
    elif stat in ("low", "high", "p"):
        value = getattr(Difference.paired(x, level), stat)
    elif stat == "wilcoxon":
        value = Difference.signed_rank(x, level).p
    elif stat in ("wins", "losses"):
        value = (x > 0 if stat == "wins" else x < 0).sum()
    elif stat == "near":
        value = (x > x.max() - 0.02).sum()
    else:
        value = getattr(x, {"n": "count", "sd": "std", "value": "item"}.get(stat, stat))()
    return float(value) * float(spec.get("scale", 1))


def read_quotes() -> dict[str, Any]:
    """Return what quotes.toml says of the numbers on the pages."""
    return tomllib.loads((ROOT / "experiments" / "quotes.toml").read_text(encoding="utf-8"))


def merged(
    quote: dict[str, Any], row: dict[str, Any], value: str | dict[str, Any]
) -> dict[str, Any]:
    """Return the settings of a value, or of a statistic's name: later ones win, filters add up."""
    value = {"stat": value} if isinstance(value, str) else value
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
        specs = [merged(quote, settings, value) for value in quote["values"]]
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
    quotes = read_quotes()
    faults = check(pages, quotes)
    print("\n".join(faults) or f"{len(quotes['quote'])} quotes agree with the frozen records")
    return len(faults) > 0


if __name__ == "__main__":
    raise SystemExit(main())
