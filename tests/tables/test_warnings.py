"""Warnings beside results that may mislead: known test rows, one-label groups, a weak baseline."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from aucmax import AUCClassifier
from aucmax.cli import main
from aucmax.cli._words import summary
from aucmax.judge.evaluation import Evaluation, Peer
from aucmax.judge.interval import Interval
from aucmax.judge.peers import compare_with_peers
from aucmax.report import words
from aucmax.tables import evaluate_file, fit_file, preview_file
from aucmax.tables.columns import columns_of, rows_in

QUICK = {"quality": "fast", "max_steps": 20, "members": 2, "width": 8, "n_jobs": 1}


def noise(rows=100, seed=0):
    """Random numbers, and labels that do not depend on them."""
    X = np.random.default_rng(seed).normal(size=(rows, 3))
    return pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=np.arange(rows) % 4 // 3)


def fitted(tmp_path, data, **options):
    """The fit of a table, what the terminal says of it, and its report."""
    path = tmp_path / "data.csv"
    data.to_csv(path, index=False)
    given = {"compare": False, "progress": False, **QUICK, **options}
    fit = fit_file(path, "y", out=tmp_path / "model", **given)
    page = " ".join(fit.report.read_text(encoding="utf-8").split())
    return fit, summary(fit.evaluation).splitlines(), page


# ---- Test rows that also stand in training -------------------------------------------------------


@pytest.mark.parametrize("with_key", [False, True])
def test_duplicates_across_the_split_are_warned_of(tmp_path, with_key):
    data = pd.concat([noise()] * 3).sample(frac=1, random_state=0)
    if with_key:
        data.insert(0, "id", np.arange(len(data)))
    fit, lines, page = fitted(tmp_path, data)
    (warning,) = fit.evaluation.warnings
    share = float(warning.split("%")[0])
    assert 80 < share <= 100
    assert "% of the 60 test rows also stand in training" in warning
    assert "the AUC may be inflated" in warning
    assert lines.index(f"warning: {warning}") > [x[:4] for x in lines].index("AUC ")
    assert f"<b>Warning:</b> {warning}." in page
    assert Evaluation.read(fit.folder).warnings == (warning,)


def test_duplicates_on_one_side_of_the_split_are_not_warned_of(tmp_path):
    for data in (noise(), pd.concat([noise(), noise()[:40]])):
        fit, lines, page = fitted(tmp_path, data)
        assert fit.evaluation.warnings == ()
        assert "Warning:" not in page
        assert not [line for line in lines if line.startswith("warning")]


def test_rows_in_matches_a_search_row_by_row():
    random = np.random.default_rng(0)
    data = pd.DataFrame(
        {
            "number": random.choice([0.0, -0.0, 1.5, np.nan], 200),
            "flag": random.random(200) < 0.5,
            "date": random.choice(np.array(["2020-01-01", "2021-01-01", "NaT"], "M8[us]"), 200),
            "text": random.choice(np.array(["x", "y", None], object), 200),
            "other": random.normal(size=200),
        }
    )
    names = ["number", "flag", "date", "text"]
    table = columns_of(data)
    first, second = table.select(np.arange(150)), table.select(np.arange(150, 200))
    rows = [tuple(row) for row in data[names].fillna({"number": 7, "text": "-"}).astype(str).values]
    plain = [tuple("0.0" if x == "-0.0" else x for x in row) for row in rows]
    expected = [row in set(plain[150:]) for row in plain[:150]]
    assert 0 < sum(expected) < 150
    assert rows_in(first, second, names).tolist() == expected
    assert not rows_in(first, second, table.names).any()


# ---- Groups of one label -------------------------------------------------------------------------


def patients(mixed):
    """Forty groups of five rows, of which so many have rows of both labels."""
    group = np.repeat(np.arange(40), 5)
    data = noise(200).assign(patient=group)
    data["y"] = np.where(group < mixed, np.arange(200) % 2, group % 2)
    return data


def test_groups_of_one_label_are_warned_of(tmp_path, capsys):
    data = patients(mixed=12)
    fit, lines, page = fitted(tmp_path, data, group="patient")
    (warning,) = fit.evaluation.warnings
    said = (
        "only pairs within a group are compared, and 28 of 40 groups hold rows of one label only: "
        "140 of 200 rows are compared with no other"
    )
    assert warning.startswith(f"{said}; without --group all pairs are")
    assert f"warning: {warning}" in lines
    assert f"<b>Warning:</b> {warning}." in page
    path = tmp_path / "data.csv"
    assert preview_file(path, "y", group="patient").warnings == (warning,)
    assert evaluate_file(fit.folder, path).warnings == (said,)
    main(["evaluate", str(fit.folder), str(path), "--quiet"])
    assert capsys.readouterr().err == f"warning: {said}\n"
    with pytest.warns(UserWarning, match="28 of 40 groups hold rows of one label only"):
        AUCClassifier(**QUICK).fit(data[["a", "b"]], data["y"], groups=data["patient"])


@pytest.mark.filterwarnings("error")
def test_groups_of_both_labels_are_not_warned_of(tmp_path):
    data = patients(mixed=20)
    fit, _, _ = fitted(tmp_path, data, group="patient")
    assert fit.evaluation.warnings == ()
    AUCClassifier(**QUICK).fit(data[["a", "b"]], data["y"], groups=data["patient"])


# ---- Gradient boosting where a label is rare -----------------------------------------------------


@pytest.mark.parametrize(
    ("positives", "weight", "reliable"),
    [(4, 1, False), (5, 1, True), (4, 3, True), (5, 0.5, False)],
)
def test_gradient_boosting_is_no_reliable_baseline_below_half_a_percent(
    positives, weight, reliable
):
    random = np.random.default_rng(0)
    train = random.normal(size=(1000, 2)).astype(np.float32), np.zeros((1000, 0), np.int64)
    classes = (np.arange(1000) < positives).astype(np.int64)
    truth = np.arange(1000) % 2
    weights = np.where(classes == 1, weight, 1.0)
    peers, _ = compare_with_peers(
        train, classes, train, truth, [], random.normal(size=1000), (weights, None)
    )
    assert [(x.name, x.reliable) for x in peers] == [
        ("logistic regression", True),
        ("gradient boosting", reliable),
    ]


@pytest.mark.parametrize("reliable", [True, False])
@pytest.mark.parametrize(
    ("auc", "p_value", "found"), [(0.7, 0.01, "better"), (0.8, 0.5, "same"), (0.9, 0.01, "worse")]
)
def test_an_unreliable_peer_is_compared_only_if_it_is_ahead(auc, p_value, found, reliable):
    peer = Peer("x", Interval(auc, auc - 0.1, 1.0), p_value, reliable=reliable)
    expected = found if reliable or found == "worse" else None
    assert peer.comparison(0.81) == expected
    assert ("is no reliable baseline here" in words.verdict(0.81, [peer])) == (expected is None)


def test_no_verdict_against_an_unreliable_baseline(tmp_path):
    data = noise(6000).assign(y=(np.arange(6000) < 28).astype(int))
    data["a"] += 6 * data["y"]
    fit, lines, page = fitted(tmp_path, data, compare=True, test_share=0.5)
    logistic, boosting = fit.evaluation.peers
    assert [logistic.reliable, boosting.reliable] == [True, False]
    lower = Interval(0.6, 0.5, 0.7)
    evaluation = replace(
        fit.evaluation, peers=(logistic, replace(boosting, auc=lower, p_value=1e-9))
    )
    said = [x for x in summary(evaluation).splitlines() if "gradient boosting" in x]
    assert "gradient boosting: AUC 0.6000, 95% interval 0.5000 to 0.7000" in said
    assert not [x for x in said if "p =" in x or "better" in x]
    assert Evaluation.from_dict(evaluation.to_dict()).peers == evaluation.peers
    (warning,) = fit.evaluation.warnings
    assert warning.startswith("gradient boosting is no reliable baseline")
    assert f"warning: {warning}" in lines
    assert f"<b>Warning:</b> {warning}." in page
