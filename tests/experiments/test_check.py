import tomllib

import pandas as pd
import pytest
from scipy import stats

check = pytest.importorskip("experiments.check", reason="the folder experiments is absent")

FIGURES = check.ROOT / "experiments" / "results" / "figures.parquet"
QUOTES = """
[not_measured]
all = ['CIFAR-10']

[[quote]]
page = "page"
text = "* - {row} - [{} ± {}]"
file = "figures"
where = {dataset = "cifar10", ratio = "91/9", protocol = "paper", steps = 20000}
column = "final"
values = ["mean", "sd"]
rows = {"PPD-SG" = {line = "ppd-sg"}, "LibAUC" = {line = "libauc"}}

[[quote]]
page = "page"
text = "ahead of PGA by {} ({} to {}; p = {}) in {} of {}"
file = "figures"
where = {dataset = ["cifar10", "catdog"], protocol = "paper", steps = 20000, line = "ppd-sg"}
minus = {line = "pga"}
per = ["dataset", "ratio"]
column = "final"
values = ["mean", "low", "high", "p", "wins", "n"]
"""


def read_figures(**filters):
    rows = pd.read_parquet(
        FIGURES, columns=["dataset", "ratio", "protocol", "line", "steps", "final"]
    )
    for name, value in filters.items():
        rows = rows[rows[name] == value]
    return rows


@pytest.fixture(scope="module")
def page():
    final = read_figures(
        dataset="cifar10", ratio="91/9", protocol="paper", line="ppd-sg", steps=20_000
    ).final
    means = read_figures(protocol="paper", steps=20_000).pivot_table(
        values="final", index=["dataset", "ratio"], columns="line"
    )
    d = (means["ppd-sg"] - means.pga).drop("digits", errors="ignore").dropna()
    test = stats.ttest_1samp(d, 0)
    low, high = test.confidence_interval(0.95)
    return f"""
CIFAR-10 is one of the two.

   * - PPD-SG
     - **{final.mean():.3f}** ± {final.std():.3f}
   * - LibAUC
     -

PPD-SG is ahead of PGA by {d.mean():+.4f}
({low:.4f} to {high:.4f}; p = {test.pvalue:.5f}) in {(d > 0).sum()} of {len(d)}.
"""


def faults_of(text, quotes=QUOTES):
    return check.check({"page": text}, tomllib.loads(quotes))


def test_pages_agree_with_frozen_records(capsys):
    assert check.main() == 0, capsys.readouterr().out


def test_values_match_scipy(page):
    assert faults_of(page) == []


def test_changed_digit_is_found(page):
    changed = page.replace("0.673", "0.674")
    assert changed != page
    assert len(faults_of(changed)) == 1
    assert "mean is 0.67" in faults_of(changed)[0]


def test_number_without_quote_is_found(page):
    assert faults_of(page + "\nand 7 more") == ["page, line 12: no quote covers '7'"]


def test_quote_missing_from_page_is_found(page):
    (fault,) = faults_of(page.replace("* - LibAUC", "* - libauc"))
    assert "is not on the page" in fault


def test_empty_cell_with_records_is_found(page):
    emptied = page.replace("**0.673** ± 0.011", "")
    assert emptied != page
    assert len(faults_of(emptied)) == 2


def test_unused_exception_is_found(page):
    (fault,) = faults_of(page, QUOTES.replace("['CIFAR-10']", "['CIFAR-10', 'STL-10']"))
    assert "STL-10" in fault


def test_choose_keeps_line_with_best_validation():
    rows = check.select(check.read("figures"), {"protocol": "strong", "dataset": "catdog"})
    rule = {"by": "final_valid", "of": ["line"], "within": ["ratio"]}
    kept = check.choose(rows, rule).groupby("ratio").line.unique()
    for ratio, lines in kept.items():
        scores = rows[rows.ratio == ratio].groupby("line").final_valid.mean()
        assert list(lines) == [scores.idxmax()]
    assert len(kept) == rows.ratio.nunique()


def test_mean_over_steps_of_straight_line():
    run = pd.Series(
        {
            "iterate": "last",
            "history_step": pd.array([500, 1500, 2000]).to_numpy(),
            "history_test_auc_last": pd.array([0.5, 0.7, 0.8]).to_numpy(),
        }
    )
    assert check.mean_over_steps(run) == pytest.approx(0.7)  # 0.6 at 1,000, 0.8 at 2,000
