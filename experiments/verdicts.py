"""Give a verdict on each claim of the paper, by the rules that the plan fixes beforehand.

::

    python -m experiments.verdicts experiments/claims.toml

The rules are the tables ``verdicts``, ``scopes`` and ``claims``; the records are the frozen parts.
"""

from __future__ import annotations

import argparse
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd  # type: ignore[import-untyped]

from experiments.stats import Difference, holm

CHANCE = 0.5
"""What a run that diverged counts as."""


@dataclass(frozen=True)
class Comparison:
    """A line against a rival in a scope.

    Attributes:
        claim: key of the claim in the plan.
        scope: key of the scope.
        ours: the line, or the names of those among which searching seeds chose, joined by "/".
        rival: the line that it is compared with.
        difference: mean over data sets; None if a run of the scope is missing.
        leads: number of settings, a data set at a ratio, whose mean difference is above zero.
        behind: number of settings whose mean difference is below zero.
        settings: number of settings in the scope.
        p: the p-value, corrected for all comparisons of all claims and scopes.
        word: "holds", "reversed", "not shown" or "open".
    """

    claim: str
    scope: str
    ours: str
    rival: str
    difference: Difference | None
    leads: int
    behind: int
    settings: int
    p: float = math.nan
    word: str = "open"


def judge(rules: Mapping[str, Any], runs: pd.DataFrame, measure: str) -> list[Comparison]:
    """Compare all lines that the claims name, with all points and with the first nine.

    Args:
        rules: the plan's content.
        runs: one row a run that searched or reports, with ``part``, ``dataset``, ``removed``,
            ``line``, ``seed``, ``roles`` (see :func:`experiments.search.roles`), ``final_valid``
            and the measures; nan marks a run that diverged.
        measure: name of a column, such as "final".
    """
    with_all = compare_all(rules, runs, measure, "")
    with_nine = compare_all(rules, runs, measure, "-9")
    judged = []
    for one, other in zip(with_all, with_nine, strict=True):
        word = one.word if one.word == other.word else "not shown"
        judged.append(Comparison(**{**vars(one), "word": word}))
    return judged


def compare_all(
    rules: Mapping[str, Any], runs: pd.DataFrame, measure: str, suffix: str
) -> list[Comparison]:
    """Compare with the points that a suffix of the roles names, and correct the p-values."""
    found = [
        compare(rules, runs, measure, suffix, (claim, scope, ours, rival))
        for scope in rules["scopes"]
        for claim, about in rules["claims"].items()
        for ours in ([about["best_of"]] if "best_of" in about else [[x] for x in about["each_of"]])
        for rival in about["rivals"]
    ]
    known = [one.difference.p if one.difference else 1.0 for one in found]
    limits = rules["verdicts"]
    part, of = limits["lead"]
    judged = []
    for one, p in zip(found, holm(known), strict=True):
        if one.difference is None:
            judged.append(one)
            continue
        word, mean = "not shown", one.difference.value
        if p < limits["p"] and mean > 0 and one.leads * of >= one.settings * part:
            word = "holds"
        elif p < limits["p"] and mean < 0 and one.behind * of >= one.settings * part:
            word = "reversed"
        judged.append(Comparison(**{**vars(one), "p": p, "word": word}))
    return judged


def compare(
    rules: Mapping[str, Any],
    runs: pd.DataFrame,
    measure: str,
    suffix: str,
    which: tuple[str, str, Sequence[str], str],
) -> Comparison:
    """Compare one line, or the best of several, with a rival in one scope."""
    claim, name, ours, rival = which
    scope = rules["scopes"][name]
    runs = runs[runs.part.isin(scope["parts"])]
    settings = len(scope["dataset"]) * len(scope["removed"])
    reports = with_role(runs, "report", suffix)
    reports = reports[reports.seed.isin(scope["seed"])]
    auc = reports.assign(auc=reports[measure].fillna(CHANCE)).pivot(
        index=["dataset", "removed", "seed"], columns="line", values="auc"
    )
    lines = [*ours, rival]
    cells = len(scope["seed"]) * settings
    complete = {*lines} <= {*auc.columns} and len(auc[lines].dropna()) == cells
    if not complete:
        return Comparison(claim, name, "/".join(ours), rival, None, 0, 0, settings)
    chosen = dict.fromkeys(scope["dataset"], ours[0])
    if len(ours) > 1:  # by the seeds that searched, on each data set
        searched = with_role(runs[runs.line.isin(ours)], "chosen", suffix)
        score = searched.groupby(["dataset", "line"]).final_valid.mean()
        chosen = {dataset: score[dataset][ours].idxmax() for dataset in scope["dataset"]}
    differences = pd.concat(
        [auc.loc[[dataset], line] - auc.loc[[dataset], rival] for dataset, line in chosen.items()]
    )
    seeds = differences.groupby(["dataset", "seed"]).mean()
    strata = [seeds[dataset] for dataset in scope["dataset"]]
    means = differences.groupby(["dataset", "removed"]).mean()
    leads, behind = int((means > 0).sum()), int((means < 0).sum())
    difference = Difference.stratified(strata)
    return Comparison(claim, name, "/".join(ours), rival, difference, leads, behind, settings)


def with_role(runs: pd.DataFrame, role: str, suffix: str) -> pd.DataFrame:
    """Return the runs of a role with a suffix, or without it in cells that have none of these."""
    cell = ["dataset", "removed", "line"]
    plain = runs[runs.roles.map(lambda roles: role in roles)]
    own = runs[runs.roles.map(lambda roles: role + suffix in roles)]
    others = plain.set_index(cell).index.isin(own.set_index(cell).index)
    return pd.concat([own, plain[~others]])


def verdict(comparisons: Sequence[Comparison]) -> str:
    """Return the word for a claim in a scope, from the words of its comparisons."""
    words = [one.word for one in comparisons]
    if "open" in words:
        return "open"
    if "reversed" in words:
        return "reversed"
    return "holds" if {*words} == {"holds"} else "not shown"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print every verdict with its comparisons."""
    from experiments.check import read

    parser = argparse.ArgumentParser(prog="python -m experiments.verdicts", description=__doc__)
    parser.add_argument("plan", type=Path)
    options = parser.parse_args(arguments)
    rules = tomllib.loads(options.plan.read_text(encoding="utf-8"))
    runs = read(f"{options.plan.stem}-*")
    for measure in rules["verdicts"]["measures"]:
        judged = judge(rules, runs, measure)
        for scope, about in rules["scopes"].items():
            for claim in rules["claims"]:
                own = [one for one in judged if (one.claim, one.scope) == (claim, scope)]
                print(f"{measure}, {about['title']}, claim {claim}: {verdict(own)}")
                for one in own:
                    if (d := one.difference) is not None:
                        ahead = f"ahead in {one.leads} of {one.settings}"
                        interval = f"{d.value:+.4f} ({d.low:+.4f} to {d.high:+.4f})"
                        corrected = f"p (Holm) {one.p:.2g}, {one.word}"
                        print(f"  {one.ours} - {one.rival}: {interval}, {ahead}, {corrected}")


if __name__ == "__main__":
    main()
