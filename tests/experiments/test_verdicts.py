"""The rules of the verdicts, on made-up records."""

import tomllib
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

verdicts = pytest.importorskip("experiments.verdicts", reason="an sdist has no experiments")
from experiments.stats import Difference, holm  # noqa: E402

CLAIMS = Path(__file__).parents[2] / "experiments" / "claims.toml"
RULES = tomllib.loads(CLAIMS.read_text(encoding="utf-8"))
LINES = ["ppd-sg", "ppd-adagrad", "pga", "oauc", "sgd", "adagrad"]
DATASETS = RULES["scopes"]["panels"]["dataset"]
LEVEL = {
    "ppd-sg": 0.81,
    "ppd-adagrad": 0.80,
    "pga": 0.77,
    "oauc": 0.71,
    "sgd": 0.75,
    "adagrad": 0.76,
}


def records(removed=(0.9,), sd=0.005, **level):
    """Rows of runs that search and report; a level is a number, or one for each data set."""
    level = LEVEL | {name.replace("_", "-"): x for name, x in level.items()}
    random, rows = np.random.default_rng(0), []
    for dataset, share, line in product(DATASETS, removed, LINES):
        mean = level[line][dataset] if isinstance(level[line], dict) else level[line]
        seeds = [10, 11, 12, 13, 14] if share == 0.9 else [10, 11, 12]
        cell = {"dataset": dataset, "removed": share, "line": line}
        cell["part"] = "A" if share == 0.9 else f"F-{dataset}"
        if share == 0.9:
            row = cell | {"seed": 6, "roles": ["search", "chosen", "chosen-9"]}
            rows.append(
                row | {"final_valid": mean, "final": 0.5, "chosen_test_auc": 0.5, "course": 0.5}
            )
        for seed in seeds:
            auc = mean + sd * random.normal()
            row = cell | {"seed": seed, "roles": ["report", "report-9"], "final_valid": auc}
            rows.append(row | {"final": auc, "chosen_test_auc": 0.8, "course": auc})
    return pd.DataFrame(rows)


def words(runs, measure="final", rules=RULES):
    judged = verdicts.judge(rules, runs, measure)
    return {
        (claim, scope): verdicts.verdict(
            [x for x in judged if (x.claim, x.scope) == (claim, scope)]
        )
        for claim in rules["claims"]
        for scope in rules["scopes"]
    }


def find(runs, scope, ours, rival, measure="final"):
    judged = verdicts.judge(RULES, runs, measure)
    (one,) = (x for x in judged if (x.scope, x.ours, x.rival) == (scope, ours, rival))
    return one


def test_clear_leads_hold_where_the_scope_is_complete():
    found = words(records())
    assert {found[claim, "strongest"] for claim in RULES["claims"]} == {"holds"}
    assert {found[claim, "panels"] for claim in RULES["claims"]} == {"open"}
    assert set(words(records(removed=(0.9, 0.8, 0.6))).values()) == {"holds"}


def test_scope_is_open_until_its_last_run_is_there():
    runs = records()
    last = runs[(runs.dataset == "stl10") & (runs.line == "sgd") & (runs.seed == 14)].index
    found = words(runs.drop(last))
    assert found["1", "strongest"] == found["2b", "strongest"] == "open"
    assert found["2a", "strongest"] == "holds"  # does not need this line


def test_seeds_and_parts_of_no_scope_do_not_count():
    runs = records()
    others = runs.assign(part="G-cifar10", final=0.0)
    more = runs.assign(seed=runs.seed + 100, final=0.0)
    first = find(runs, "strongest", "ppd-sg", "pga").difference
    assert find(pd.concat([runs, others, more]), "strongest", "ppd-sg", "pga").difference == first


def test_level_lines_are_not_shown_and_a_lead_of_the_rival_is_reversed():
    assert words(records(pga=0.805))["2a", "strongest"] == "not shown"
    found = words(records(pga=0.83))
    assert found["2a", "strongest"] == "reversed"
    assert found["2b", "strongest"] == "holds"


def test_a_lead_in_half_of_the_settings_does_not_hold():
    """One data set with a large lead makes the mean significant."""
    uneven = {"cifar10": 0.65, "catdog": 0.78, "cifar100": 0.82, "stl10": 0.82}
    one = find(records(sgd=uneven), "strongest", "ppd-sg", "sgd")
    assert one.difference.value > 0.03
    assert one.p < 0.05
    assert (one.leads, one.behind, one.settings) == (2, 2, 4)
    assert one.word == "not shown"
    uneven["stl10"] = 0.79
    assert find(records(sgd=uneven), "strongest", "ppd-sg", "sgd").word == "holds"


def test_unit_is_a_seed_within_a_data_set_averaged_over_its_ratios():
    runs = records(removed=(0.9, 0.8, 0.6))
    one = find(runs, "panels", "ppd-sg", "sgd")
    final = runs[runs.seed.isin([10, 11, 12]) & runs.roles.map(lambda x: "report" in x)]
    table = final.pivot_table("final", ["dataset", "seed"], "line")
    difference = table["ppd-sg"] - table["sgd"]
    expected = Difference.stratified([difference[name] for name in DATASETS])
    assert one.difference.n == 12
    assert one.difference.value == pytest.approx(expected.value)
    assert one.difference.p == pytest.approx(expected.p)


def test_searching_seeds_alone_choose_a_side():
    runs = records(pga={"cifar10": 0.7, "catdog": 0.7, "cifar100": 0.7, "stl10": 0.9})
    searched = runs.seed == 6
    runs.loc[searched & (runs.line == "oauc"), "final_valid"] = 0.99
    one = find(runs, "strongest", "ppd-sg/ppd-adagrad/pga/oauc", "sgd")
    assert one.difference.value == pytest.approx(LEVEL["oauc"] - LEVEL["sgd"], abs=0.01)
    runs.loc[searched & (runs.line == "oauc") & (runs.dataset == "stl10"), "final_valid"] = 0.1
    one = find(runs, "strongest", "ppd-sg/ppd-adagrad/pga/oauc", "sgd")
    mean = (3 * LEVEL["oauc"] + 0.9) / 4 - LEVEL["sgd"]
    assert one.difference.value == pytest.approx(mean, abs=0.01)


def test_claim_must_hold_with_the_first_nine_points_too():
    runs = records()
    cell = (runs.line == "ppd-sg") & (runs.dataset.isin(["cifar10", "catdog"])) & (runs.seed != 6)
    nine = runs[cell].assign(final=runs.final - 0.2)
    nine["roles"] = [["report-9"]] * len(nine)
    runs.loc[cell, "roles"] = pd.Series([["report"]] * cell.sum(), runs[cell].index)
    found = words(pd.concat([runs, nine]))
    assert found["2a", "strongest"] == found["2b", "strongest"] == "not shown"
    assert find(pd.concat([runs, nine]), "strongest", "ppd-adagrad", "pga").word == "holds"


def test_all_comparisons_of_both_scopes_are_corrected_together():
    runs = records(removed=(0.9, 0.8, 0.6), sd=0.03)
    judged = verdicts.compare_all(RULES, runs, "final", "")
    assert len(judged) == 2 * (1 + 4 + 4)
    raw = [one.difference.p for one in judged]
    assert [one.p for one in judged] == pytest.approx(holm(raw))


def test_completing_a_scope_never_revokes_a_verdict():
    runs = records(removed=(0.9, 0.8, 0.6), sd=0.03)
    early = verdicts.compare_all(RULES, runs[runs.removed == 0.9], "final", "")
    late = verdicts.compare_all(RULES, runs, "final", "")
    for before, after in zip(early, late, strict=True):
        if before.scope == "strongest":
            assert after.p <= before.p


def test_a_run_that_diverged_counts_as_chance():
    runs = records()
    one = (runs.line == "ppd-sg") & (runs.dataset == "stl10") & (runs.seed == 10)
    value = find(runs, "strongest", "ppd-sg", "sgd").difference.value
    change = (0.5 - runs[one].final.item()) / 5 / 4
    runs.loc[one, "final"] = np.nan
    now = find(runs, "strongest", "ppd-sg", "sgd").difference.value
    assert now == pytest.approx(value + change)


def test_measures_are_judged_apart():
    assert words(records(), "chosen_test_auc")["1", "strongest"] == "not shown"
    assert words(records(), "course")["1", "strongest"] == "holds"


def test_claims_name_lines_and_scopes_name_data_sets_of_the_plan():
    for claim in RULES["claims"].values():
        named = [*claim.get("best_of", []), *claim.get("each_of", []), *claim["rivals"]]
        assert {*named} <= {*RULES["lines"]}
    for scope in RULES["scopes"].values():
        assert {*scope["parts"]} <= {*RULES["parts"]}
        cells = set()
        for part in scope["parts"]:
            own = RULES["parts"][part]
            datasets = own["each"].get("dataset", [own["set"].get("dataset")])
            shares = own["each"].get("removed", [own["set"].get("removed")])
            cells |= {*product(datasets, shares)}
        assert cells == {*product(scope["dataset"], scope["removed"])}


def test_stratified_difference_is_welch_on_two_strata():
    from scipy import stats

    a, b = [0.01, 0.02, 0.03], [-0.05, -0.05, -0.08, -0.06]
    found = Difference.stratified([a, [-x for x in b]])
    welch = stats.ttest_ind(a, b, equal_var=False)
    assert found.p == pytest.approx(welch.pvalue)
    interval = welch.confidence_interval(0.95)
    assert (2 * found.low, 2 * found.high) == pytest.approx(tuple(interval))
    assert found.value == pytest.approx((np.mean(a) - np.mean(b)) / 2)
