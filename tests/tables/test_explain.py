"""Why a row has its score: Shapley values by sampling, beside those over all sets of columns."""

import re

import numpy as np
import pandas as pd
import pytest
import torch
from reference.shapley import shapley

from aucmax import AUCClassifier
from aucmax.cli import main
from aucmax.tables import explain as module
from aucmax.tables import explain_rows, fit_file

QUICK = {
    "quality": "fast",
    "max_steps": 60,
    "members": 2,
    "width": 16,
    "n_jobs": 1,
    "random_state": 0,
}


def loans(rows=300, seed=0):
    """Columns of every kind, of which two have to come together."""
    random = np.random.default_rng(seed)
    income, owner = random.normal(size=rows), random.random(rows) < 0.5
    town = random.choice(["north", "south"], rows)
    default = (
        income * np.where(owner, 1, -1) + (town == "south") + 0.5 * random.normal(size=rows)
    ) > 1
    return pd.DataFrame(
        {
            "income": np.where(random.random(rows) < 0.1, np.nan, income),
            "owner": owner,
            "town": town,
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(random.integers(0, 400, rows), "D"),
        }
    ), default


@pytest.fixture(scope="module")
def fitted():
    table, default = loans()
    return AUCClassifier(**QUICK).fit(table, default), table


def log_odds(model, table):
    p = model.predict_proba(table)[:, 1]
    return np.log(p / (1 - p))


# ---- The values ----------------------------------------------------------------------------------


def test_sampled_values_approach_shapley_values(fitted):
    model, table = fitted
    few = table[:6]
    found = explain_rows(model, few, samples=4800)
    assert found.names == ["income", "owner", "town", "day"]

    def score(mixed):
        return log_odds(
            model, pd.DataFrame(mixed, columns=few.columns).astype(few.dtypes.to_dict())
        )

    raw = few.to_numpy(object)
    exact = np.stack([shapley(score, row, raw) for row in raw[:3]])
    assert np.abs(exact).max() > 0.3
    np.testing.assert_allclose(found.values[:3], exact, atol=0.03)
    rough = explain_rows(model, few, samples=24)
    error = np.abs(rough.values[:3] - exact).max()
    assert np.abs(found.values[:3] - exact).max() < error < 0.5


def test_two_columns_are_exact():
    X = np.random.default_rng(2).normal(size=(200, 2))
    model = AUCClassifier(**QUICK).fit(X, X[:, 0] * X[:, 1] > 0.3)
    found = explain_rows(model, X[:9], samples=2)
    other = X[:9][np.argsort(found.scores, kind="stable")[[4]]]
    exact = [shapley(lambda table: log_odds(model, table), row, other) for row in X[:9]]
    np.testing.assert_allclose(found.values, exact, atol=1e-9)


def test_values_add_up(fitted):
    model, table = fitted
    some = table[:40]
    scores = log_odds(model, some)
    for samples in (2, 8, 64):
        found = explain_rows(model, some, samples=samples)
        np.testing.assert_allclose(found.scores, scores, atol=1e-9)
        np.testing.assert_allclose(found.base + found.values.sum(axis=1), scores, atol=1e-9)
    others = np.sort(scores)[((np.arange(32) + 0.5) * 40 / 32).astype(int)]  # of 64 walks
    np.testing.assert_allclose(found.base, others.mean(), atol=1e-9)
    assert others.mean() == pytest.approx(scores.mean(), abs=0.05)


def test_values_of_several_classes_add_up():
    random = np.random.default_rng(0)
    kind = random.integers(0, 3, 240)
    X = np.stack([random.normal(kind, 0.5), random.normal(size=240)], axis=1)
    model = AUCClassifier(**QUICK).fit(X, kind)
    found = explain_rows(model, X[:50], samples=16)
    p = model.predict_proba(X[:50])
    np.testing.assert_array_equal(found.classes, p.argmax(axis=1))
    top = p.max(axis=1)
    np.testing.assert_allclose(found.scores, np.log(top / (1 - top)), atol=1e-6)
    np.testing.assert_allclose(found.base + found.values.sum(axis=1), found.scores, atol=1e-9)
    assert (np.abs(found.values[:, 0]) > np.abs(found.values[:, 1])).mean() > 0.9


class Linear(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(3, 1)

    def forward(self, x):
        return self.inner(x[0])[:, 0]


def test_linear_model_is_exact():
    """There no order matters: a column adds its own term less the mean of the others' terms."""
    X = np.random.default_rng(1).normal(size=(200, 3))
    given = {**QUICK, "backbone": lambda *_: Linear(), "max_steps": 5}
    model = AUCClassifier(**given).fit(X, X[:, 0] + X[:, 1] > 1)
    found = explain_rows(model, X[:30], samples=2)
    encoded = model.encoder_.transform(X[:30]).numeric.astype(float)
    slope = model.network_.inner.weight.detach().double().numpy()[0] * model.calibration_.slope
    other = encoded[np.argsort(found.scores, kind="stable")[15]]
    np.testing.assert_allclose(found.values, slope * (encoded - other), atol=1e-9)


@pytest.mark.parametrize("most", [{"BLOCK": 50, "FIRST": 7}, {"VALUES": 90}, {"VALUES": 25}])
def test_blocks_change_no_value(fitted, monkeypatch, most):
    model, table = fitted
    whole = explain_rows(model, table[:6], samples=4)
    for name, value in most.items():
        monkeypatch.setattr(module, name, value)
    again = explain_rows(model, table[:6], samples=4)
    np.testing.assert_allclose(again.values, whole.values, atol=1e-12)
    assert not np.allclose(explain_rows(model, table[:6], samples=4, seed=1).values, whole.values)


# ---- What it costs -------------------------------------------------------------------------------


def test_scorings_are_counted(fitted, monkeypatch):
    model, table = fitted
    seen, score = [], AUCClassifier.score_encoded

    def count(self, encoded):
        seen.append(len(encoded.numeric))
        return score(self, encoded)

    monkeypatch.setattr(AUCClassifier, "score_encoded", count)
    monkeypatch.setattr(module, "LONG", 1e9)  # of a busy machine nothing need be said
    found = explain_rows(model, table[:10])
    assert found.samples >= 32  # ten rows begin as many walks each
    assert found.scorings == sum(seen[1:]) == 10 * found.samples * 3
    width = sum(part.shape[1] for part in model.encoder_.transform(table))
    for values in (8 * width, 2 * width):  # of a walk 3 rows are scored
        seen.clear()
        monkeypatch.setattr(module, "VALUES", values)
        assert explain_rows(model, table[:10], samples=4).scorings == sum(seen[1:])
        assert max(seen[1:]) == {8: 6, 2: 2}[values // width]


def test_walks_by_number_of_rows():
    assert module._walks(100, 20, None) == 32
    assert module._walks(2_000, 20, None) == 12
    assert module._walks(50_000, 20, None) == 8
    with pytest.raises(ValueError, match=r"10,000,000 scorings, .* ask it of 65,789 rows"):
        module._walks(65_790, 20, None)


# ---- The shell -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("explain")
    table, default = loans()
    table.assign(default=np.where(default, "yes", "no")).to_csv(place / "loans.csv", index=False)
    loans(40, seed=1)[0].to_csv(place / "new.csv", index=False)
    options = {key: value for key, value in QUICK.items() if key != "random_state"}
    fit_file(place / "loans.csv", "default", out=place / "model", progress=False, **options)
    return place


def test_predict_explains(folder, capsys):
    call = ["predict", str(folder / "model"), str(folder / "new.csv")]
    main([*call, "--explain", "2"])
    out, err = capsys.readouterr()
    rows = pd.read_csv(pd.io.common.StringIO(out))
    assert [*rows] == ["probability of yes", "prediction", "because 1", "because 2"]
    assert re.search(
        r"note: what a column adds to a row's log-odds of 'yes', compared with the mean, "
        r"[-+]\d\.\d\d, of some rows .* scorings in \d", err,
    )  # fmt: skip
    model, table = AUCClassifier.load(folder / "model"), loans(40, seed=1)[0]
    found = explain_rows(model, table)
    for row in (0, 7):
        first, second = np.argsort(-np.abs(found.values[row]))[:2]
        for place, said in ((first, rows["because 1"][row]), (second, rows["because 2"][row])):
            name = found.names[place]
            assert re.match(rf"{name}(=| missing)", said)
            assert f"({found.values[row, place]:+.2f})" in said
    town = [said for said in rows["because 1"] if said.startswith("town=")]
    assert {said.split(" ")[0] for said in town} <= {"town=north", "town=south"}
    main([*call, "--explain", "2"])
    assert capsys.readouterr().out == out
