"""Tables whose rows carry groups: only rows of the same one are compared, and none is cut."""

import numpy as np
import pandas as pd
import pytest

from aucmax import AUCClassifier, metrics
from aucmax.cli import main
from aucmax.judge.evaluation import Evaluation
from aucmax.judge.peers import compare
from aucmax.tables import evaluate_file, fit_file, tune_file
from aucmax.tables.fit import TableFile
from aucmax.tables.labeled import read_labeled
from aucmax.tables.search import read_folds


def quick(**options):
    given = {"max_steps": 30, "members": 2, "width": 8, "random_state": 0, "n_jobs": 1}
    given["quality"] = "fast"
    return AUCClassifier(**given | options)


# ---- the classifier ------------------------------------------------------------------------------

X = np.random.default_rng(0).normal(size=(120, 3))
Y = (X[:, 0] + np.random.default_rng(1).normal(size=120) > 0.5).astype(int)
GROUPS = np.array([f"ward {i % 12}" for i in range(120)])


@pytest.mark.parametrize(
    ("groups", "options", "message"),
    [
        (GROUPS[:50], {}, "groups must have a value for each of 120 rows, found 50"),
        ([None, *GROUPS[1:]], {}, "groups must have no missing values .* found 1 among 120"),
        (Y, {}, "groups must have one with rows of two classes, found 2 with rows of one class"),
        (None, {"metric": "grouped_auc"}, "groups must be given for the metric 'grouped_auc'"),
        (GROUPS, {"objective": "pairwise", "balanced": True}, "balanced must be False for rows in"),
        (GROUPS, {"objective": "partial"}, "groups must go with"),
        (GROUPS, {"loss_options": 3}, "loss_options must be a mapping .* or None, found 3"),
    ],
)
def test_groups_that_cannot_be_raise(groups, options, message):
    with pytest.raises(ValueError, match=message):
        quick(**options).fit(X, Y, groups=groups)


def wards(rows=900, seed=0, numbers=range(80)):
    """Wards differ in how many are ill, which a column tells; within one it misleads."""
    random = np.random.default_rng(seed)
    ward = random.choice(numbers, rows)
    prevalence = np.random.default_rng(7).normal(size=200)[ward] * 3
    sign = random.normal(size=rows)
    ill = random.random(rows) < 1 / (1 + np.exp(-(prevalence + 1.2 * sign - 1)))
    return pd.DataFrame(
        {
            "ward": [f"w{k}" for k in ward],
            "sign": sign,
            "crowd": prevalence + random.normal(size=rows),
            "w": 1.0 + (np.arange(rows) % 3),
            "ill": np.where(ill, "yes", "no"),
        }
    )


@pytest.mark.parametrize("objective", ["auc", "pairwise"])
def test_training_within_groups_beats_cross_entropy(objective):
    table, new = wards(), wards(600, seed=1, numbers=range(100, 150))
    within = {}
    for name in ("ce", objective):
        model = quick(objective=name, max_steps=90, width=16)
        model.fit(table[["sign", "crowd"]], table["ill"], groups=table["ward"])
        assert model.metric_ == "grouped_auc"
        assert np.isnan(model.validation_auc_)
        assert 0.5 < model.validation_score_ < 1
        about = new[["sign", "crowd"]], new["ill"]
        within[name] = model.score(*about, groups=new["ward"])
        of_ward = metrics.grouped_auc(
            model.decision_function(about[0]), new["ill"] == "yes", new["ward"]
        )
        assert within[name] == pytest.approx(of_ward, abs=1e-12)
        weighted = model.score(*about, sample_weight=pd.Series([2.0] * 600), groups=new["ward"])
        assert weighted == pytest.approx(of_ward, abs=1e-12)
    assert within[objective] > within["ce"] + 0.02


def test_several_classes_within_groups(tmp_path):
    random = np.random.default_rng(0)
    y, group = random.integers(3, size=240), random.integers(20, size=240)
    x = random.normal(size=(240, 2)) + y[:, None]
    with pytest.raises(ValueError, match="groups must go with two classes"):
        quick().fit(x, y, groups=group)
    model = quick(objective="pairwise").fit(x, y, groups=group)
    assert model.score(x, y, groups=group) > 0.6
    assert AUCClassifier.load(model.save(tmp_path / "m")).metric_ == "grouped_auc"


def test_single_group_holds_nothing_out():
    with pytest.warns(UserWarning, match="no rows are held out: 1 groups, none of which may be"):
        model = quick(max_steps=4).fit(X, Y, groups=np.zeros(120))
    assert model.rows_["valid"] == [0, 0]


# ---- the commands --------------------------------------------------------------------------------

QUICK = {
    "quality": "fast",
    "max_steps": 30,
    "members": 2,
    "width": 8,
    "n_jobs": 1,
    "progress": False,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model of wards, its data, and new rows of other wards."""
    place = tmp_path_factory.mktemp("wards")
    wards().to_csv(place / "a.csv", index=False)
    wards(400, seed=1, numbers=range(100, 130)).to_csv(place / "new.csv", index=False)
    fitted = fit_file(place / "a.csv", "ill", out=place / "m", group="ward", weight="w", **QUICK)
    return place, fitted


def run(capsys, *arguments):
    main([str(x) for x in arguments])
    return capsys.readouterr()


def test_grouped_auc_of_a_file(folder):
    place, fitted = folder
    found = fitted.evaluation
    assert "ward" not in fitted.model.feature_names_in_
    train, test, _ = TableFile((str(place / "a.csv"),), "ill", group="ward", weight="w").split()
    assert not {*train.group} & {*test.group}
    assert found.parts["test"].rows == len(test.classes)
    within = metrics.grouped_auc(found.probability, test.classes, test.group, test.weight)
    assert found.groups.auc.value == pytest.approx(within, abs=1e-9)
    assert found.groups.auc.low < within < found.groups.auc.high
    assert (found.groups.column, found.groups.count) == ("ward", len({*test.group}))
    assert 0 < found.groups.compared <= found.groups.count
    assert found.metric == fitted.model.metric_ == "grouped_auc"
    assert all(peer.grouped_auc is not None for peer in found.peers)
    again = Evaluation.read(place / "m")
    assert again.groups == found.groups
    assert again.peers == found.peers
    model = AUCClassifier.load(place / "m")
    assert (model.metric, model.metric_) == (None, "grouped_auc")


def test_few_groups_have_no_p_value():
    random = np.random.default_rng(0)
    ours, theirs, truth = random.normal(size=60), random.normal(size=60), np.arange(60) % 2
    assert compare("other", theirs, truth, ours, group=np.arange(60) // 10).p_value is None
    group = np.arange(60) // 5
    found = compare("other", theirs, truth, ours, group=group)
    assert found.p_value == metrics.compare(ours, theirs, truth, rank_within=group).p_value
    assert found.compared_auc.value == metrics.grouped_auc(theirs, truth, group)


def test_groups_are_optional_in_evaluate(folder, capsys):
    place, _ = folder
    new = pd.read_csv(place / "new.csv")
    new.drop(columns=["ward", "w"]).to_csv(place / "none.csv", index=False)
    out, err = run(capsys, "evaluate", place / "m", place / "none.csv")
    assert "within groups" not in out
    assert "rows of all groups are compared here; in training those of the same 'ward'" in err
    run(capsys, "predict", place / "m", place / "none.csv", "--out", place / "p.csv")
    new.rename(columns={"ward": "site"}).to_csv(place / "site.csv", index=False)
    here = evaluate_file(place / "m", place / "site.csv", group="site")
    there = evaluate_file(place / "m", place / "new.csv")
    assert here.groups.auc == there.groups.auc
    assert here.groups.column == "site"
    new.assign(ward=new["ill"]).to_csv(place / "one.csv", index=False)
    alone = evaluate_file(place / "m", place / "one.csv")
    assert alone.groups is None
    assert "no group of 'ward' has rows of several labels" in " ".join(alone.notes)


def test_large_numbers_as_groups(tmp_path):
    """In double precision they would be one."""
    table = wards(60)
    table["ward"] = 2**60 + np.arange(60) % 30
    for name, write in (("a.csv", table.to_csv), ("a.parquet", table.to_parquet)):
        write(tmp_path / name, index=False)
        rows = read_labeled(tmp_path / name, "ill", group="ward")
        assert len({*rows.group}) == 30


def test_tune_does_not_cut_groups(folder):
    place, _ = folder
    tuned = tune_file(
        place / "a.csv", "ill", out=place / "t", group="ward", trials=2, workers=1, compare=False,
        progress=False, max_steps=6, members=2, width=8, blocks=1, quality="fast",
    )  # fmt: skip
    with pytest.raises(ValueError, match="group must be given for the metric 'grouped_auc'"):
        tune_file(place / "a.csv", "ill", out=place / "t", metric="grouped_auc")
    file = TableFile((str(place / "a.csv"),), "ill", group="ward")
    train, _, folds = read_folds(file, file.digest)
    parts = [{*train.group[held]} for held in folds.held.T]
    assert sum(map(len, parts)) == len(set.union(*parts)) == len({*train.group})
    assert tuned.tuning.metric.name == "grouped_auc"
    assert "balanced" not in tuned.tuning.searched
    assert tuned.tuning.best.test_auc == tuned.fitted.evaluation.groups.auc.value
