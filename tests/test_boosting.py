"""The objectives for boosting against pair by pair sums, and in the libraries they are for."""

import pickle

import numpy as np
import pytest
from errors import assert_names
from hypothesis import given
from hypothesis import strategies as st
from reference.boosting import gradient_and_curvature

from aucmax.boosting import AUCMetric, AUCObjective
from aucmax.loss.pairwise import SURROGATES
from aucmax.metrics import grouped_auc, partial_auc, roc_auc


@pytest.fixture(scope="module")
def lightgbm():
    return pytest.importorskip("lightgbm")


@pytest.fixture(scope="module")
def xgboost():
    return pytest.importorskip("xgboost")


def make_table(rows=600, seed=0):
    """Features, labels and groups; which group a row is in says more of its label than the rest.

    The first feature is the group's share of positives, the others rank within groups.
    """
    rng = np.random.default_rng(seed)
    group = np.sort(rng.integers(0, 12, rows))
    x = rng.normal(size=(rows, 4))
    logit = 3.0 * np.cos(group) + x[:, 1] + np.abs(x[:, 2])
    x[:, 0] = np.cos(group) + 0.1 * rng.normal(size=rows)
    return x, (rng.random(rows) < 1 / (1 + np.exp(2.0 - logit))) * 1, group


def sizes_of(group):
    return np.unique(group, return_counts=True)[1]


# ---- The definition ------------------------------------------------------------------------------


@given(
    seed=st.integers(0, 10_000),
    n=st.integers(2, 12),
    surrogate=st.sampled_from(SURROGATES),
    weighted=st.booleans(),
    grouped=st.booleans(),
    max_fpr=st.sampled_from([1.0, 0.3]),
    min_tpr=st.sampled_from([0.0, 0.6]),
    margin=st.sampled_from([0.5, 1.0]),
)
def test_gradient_and_curvature_are_those_of_the_pairs(
    seed, n, surrogate, weighted, grouped, max_fpr, min_tpr, margin
):
    rng = np.random.default_rng(seed)
    scores, y = rng.integers(-4, 5, n) / 4, rng.integers(0, 2, n)
    weight = rng.choice([0.0, 0.5, 1.0, 2.0], n) if weighted else np.ones(n)
    weight[0] = 1.0
    group = rng.integers(0, 3, n) if grouped else np.zeros(n)
    options = {"margin": margin, "scale": 1.5, "max_fpr": max_fpr, "min_tpr": min_tpr}
    objective = AUCObjective(surrogate, group=group if grouped else None, **options)
    wanted = gradient_and_curvature(surrogate, scores, y, weight, group, **options)
    if wanted is None:
        with pytest.raises(ValueError, match="must hold both classes"):
            objective(y, scores, weight)
        return
    for found, of_pairs in zip(objective(y, scores, weight), wanted, strict=True):
        np.testing.assert_allclose(found, of_pairs, rtol=1e-10, atol=1e-12)


def test_at_the_start_the_gradient_is_that_of_the_logistic_loss():
    """Which is p - y; the slope of the logistic of a pair at zero is one half."""
    y = np.arange(50) % 10 == 0
    gradient, _ = AUCObjective("logistic")(y, np.zeros(50))
    np.testing.assert_allclose(gradient, 0.5 * (y.mean() - y))
    _, curvature = AUCObjective("squared_hinge", max_fpr=0.2)(y, np.zeros(50))
    assert len(set(curvature[~y])) == 1  # tied, all negatives are alike


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_newtons_step_for_every_row_never_makes_it_worse(surrogate):
    """The curvature bounds the objective from above, or a row's step by itself, as for a leaf."""
    rng = np.random.default_rng(0)
    y = np.arange(40) % 4 == 0
    scores = rng.normal(size=40)
    objective, steps = AUCObjective(surrogate), []
    for _ in range(5):
        gradient, curvature = objective(y, scores)
        assert (curvature[gradient != 0] > 0).all()
        before = roc_auc(scores, y)
        scores = scores - gradient / np.where(gradient == 0, 1.0, curvature)
        steps.append(roc_auc(scores, y) - before)
    assert min(steps) >= 0
    assert roc_auc(scores, y) > 0.9


# ---- Whichever way a library calls ---------------------------------------------------------------


def test_each_way_of_lightgbm_to_call_gives_the_same(lightgbm):
    x, y, group = make_table()
    rng = np.random.default_rng(0)
    scores, weight = rng.normal(size=len(y)), rng.uniform(0.5, 2, len(y)).astype(np.float32)
    data = lightgbm.Dataset(x, y, weight=weight, group=sizes_of(group)).construct()
    wanted = AUCObjective(group=group)(y, scores, weight)
    for found in (
        AUCObjective()(scores, data),
        AUCObjective()(y, scores, weight, sizes_of(group)),
        AUCObjective(group=[f"site {number}" for number in group])(y, scores, weight),
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-11)  # groups in another order
    name, value, more_is_better = AUCMetric()(scores, data)
    assert (name, more_is_better) == ("auc", True)
    assert value == pytest.approx(grouped_auc(scores, y, group, weight), abs=1e-12)
    assert AUCMetric()(y, scores, weight, sizes_of(group)) == (name, value, True)


def test_each_way_of_xgboost_to_call_gives_the_same(xgboost):
    x, y, group = make_table()
    scores, of_groups = np.random.default_rng(0).normal(size=len(y)), np.arange(1.0, 13.0)
    plain = xgboost.DMatrix(x, y)
    wanted = AUCObjective()(y, scores)
    np.testing.assert_array_equal(AUCObjective()(scores, plain), wanted)
    assert AUCMetric(max_fpr=0.2)(scores, plain) == ("auc@0.2", partial_auc(scores, y, 0.2))
    grouped = xgboost.DMatrix(x, y, group=sizes_of(group), weight=of_groups)
    weight = np.repeat(of_groups, sizes_of(group))
    wanted = AUCObjective(group=group)(y, scores, weight)
    np.testing.assert_array_equal(AUCObjective()(scores, grouped), wanted)
    assert AUCMetric()(scores, grouped) == ("auc", grouped_auc(scores, y, group, weight))


# ---- Training ------------------------------------------------------------------------------------

QUIET = {"verbosity": -1, "num_threads": 1, "deterministic": True, "seed": 0}


@pytest.mark.parametrize(
    "objective",
    [AUCObjective(), AUCObjective("logistic"), AUCObjective("sigmoid"), AUCObjective("hinge")],
    ids=repr,
)
def test_lightgbm_learns_with_it_to_the_same_bits_each_time(lightgbm, objective):
    x, y, _ = make_table()
    x_test, y_test, _ = make_table(seed=1)
    parameters = {**QUIET, "objective": objective, "metric": "none"}
    found = []
    for _ in range(2):
        told = {}
        data, held_out = lightgbm.Dataset(x, y), lightgbm.Dataset(x_test, y_test)
        model = lightgbm.train(
            parameters,
            data,
            num_boost_round=30,
            valid_sets=[held_out],
            feval=AUCMetric(),
            callbacks=[lightgbm.record_evaluation(told)],
        )
        found.append(model.predict(x_test))
    assert roc_auc(found[0], y_test) > 0.8
    assert told["valid_0"]["auc"][-1] == roc_auc(found[0], y_test)
    np.testing.assert_array_equal(*found)


def test_lightgbms_estimator_takes_objective_and_metric(lightgbm):
    x, y, _ = make_table()
    x_test, y_test, _ = make_table(seed=1)
    model = lightgbm.LGBMClassifier(
        objective=AUCObjective(), n_estimators=200, n_jobs=1, verbosity=-1
    )
    model.fit(
        x, y,
        sample_weight=np.ones(len(y)),
        eval_X=x_test,
        eval_y=y_test,
        eval_metric=AUCMetric(max_fpr=0.5),
        callbacks=[lightgbm.early_stopping(5, verbose=False)],
    )  # fmt: skip
    assert model.best_iteration_ < 200
    assert roc_auc(model.predict(x_test, raw_score=True), y_test) > 0.8
    again = pickle.loads(pickle.dumps(model))
    assert repr(again.objective) == repr(model.objective)


def test_xgboost_learns_with_it_and_stops_by_it(xgboost):
    x, y, _ = make_table()
    x_test, y_test, _ = make_table(seed=1)
    held_out = xgboost.DMatrix(x_test, y_test)
    model = xgboost.train(
        {"nthread": 1, "seed": 0, "disable_default_eval_metric": True},
        xgboost.DMatrix(x, y),
        num_boost_round=200,
        evals=[(held_out, "test")],
        obj=AUCObjective(),
        custom_metric=AUCMetric(max_fpr=0.5),
        early_stopping_rounds=5,
        verbose_eval=False,
    )
    assert 3 < model.best_iteration < 190
    assert roc_auc(model.predict(held_out), y_test) > 0.8
    estimator = xgboost.XGBClassifier(
        objective=AUCObjective(), eval_metric=AUCMetric(), n_estimators=20, n_jobs=1
    )
    weight = np.ones(len(y))
    estimator.fit(x, y, sample_weight=weight, eval_set=[(x_test, y_test)], verbose=False)
    scores = estimator.predict(x_test, output_margin=True)
    told = estimator.evals_result()["validation_0"]["auc"][-1]
    assert told == pytest.approx(roc_auc(scores, y_test), abs=1e-6)
    assert told > 0.8


def test_within_groups_it_beats_the_logistic_loss(lightgbm):
    """A few small trees: what they spend on groups' shares of positives is lost for the ranks."""
    x, y, group = make_table(2000)
    x_test, y_test, group_test = make_table(2000, seed=1)
    aucs = []
    for objective in (AUCObjective(), "binary"):
        data = lightgbm.Dataset(x, y, group=sizes_of(group))
        parameters = {**QUIET, "objective": objective, "num_leaves": 4}
        model = lightgbm.train(parameters, data, num_boost_round=8)
        aucs.append(grouped_auc(model.predict(x_test), y_test, group_test))
    assert aucs[0] > aucs[1] + 0.05


def test_where_all_pairs_are_right_nothing_is_left_to_learn(lightgbm):
    x = np.arange(100.0)[:, None]
    y = x[:, 0] >= 80
    parameters = {**QUIET, "objective": AUCObjective(), "learning_rate": 0.5, "max_bin": 1000}
    data = lightgbm.Dataset(x, y, params={"min_data_in_bin": 1})
    scores = lightgbm.train(parameters, data, num_boost_round=50).predict(x)
    assert np.isfinite(scores).all()
    assert roc_auc(scores, y) == 1
    gradient, curvature = AUCObjective()(y, np.where(y, 1.0, -1.0))
    assert not gradient.any()
    assert not curvature.any()


# ---- Bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"surrogate": "cubic"},
        {"max_fpr": 0.0},
        {"min_tpr": 1},
        {"margin": -1},
        {"group": ["a", None]},
    ],
    ids=str,
)
def test_bad_options_are_named(options):
    (argument,) = options
    assert_names(argument, AUCObjective, **options)


@pytest.mark.parametrize(
    ("argument", "y", "scores", "weight", "options"),
    [
        ("target", [0, 1, 2], [0.0] * 3, None, {}),
        ("target", [1, 1, 1], [0.0] * 3, None, {}),
        ("scores", [0, 1], [0.0, np.nan], None, {}),
        ("scores", [0, 1], [[0.0, 1.0]] * 2, None, {}),
        ("group", [0, 1, 0], [0.0] * 3, None, {"group": [1, 2]}),
        ("target", [0, 1], [0.0] * 2, None, {"group": [1, 2]}),
        ("weight", [0, 1], [0.0] * 2, [1.0, -1.0], {}),
        ("weight", [0, 1], [0.0] * 2, [1.0] * 3, {}),
    ],
)
def test_bad_rows_are_named(argument, y, scores, weight, options):
    weight = None if weight is None else np.array(weight)
    assert_names(argument, AUCObjective(**options), np.array(y), np.array(scores), weight)


def test_there_is_no_partial_auc_within_groups():
    metric = AUCMetric(max_fpr=0.1)
    assert_names("max_fpr", metric, np.array([0, 1]), np.zeros(2), None, [2])
