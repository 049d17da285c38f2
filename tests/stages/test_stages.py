"""The step-size rules against the paper's formulas, evaluated apart from the implementation."""

import math
from decimal import ROUND_CEILING, Decimal, localcontext
from fractions import Fraction
from functools import partial

import pytest
import torch
from errors import assert_names
from hypothesis import given
from hypothesis import strategies as st

from aucmax.stages import (
    Stage,
    geometric,
    plateau,
    polynomial,
    theory,
    theory_gamma,
    theory_stages,
)

SG = {"mu": 0.3, "L": 2.0, "lipschitz": 0.7, "G": 1.7, "sigma": 0.4, "p": 0.09, "lr": 0.05}
ADAGRAD = {"mu": 0.3, "L": 2.0, "d": 97, "sigma": 0.4, "p": 0.09, "lr": 0.05}


# ---- Stage -------------------------------------------------------------------------------------


def optimizer_of(*lrs):
    groups = [{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": lr} for lr in lrs]
    return torch.optim.SGD(groups)


def lrs_of(optimizer):
    return [float(group["lr"]) for group in optimizer.param_groups]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((1.0, 1.0), (0.25, 0.25)),
        ((0.125, 1.25, 0.0), (0.25, 2.5, 0.0)),  # ten times the first stays ten times the first
        ((0.0, 0.5), (0.25, 0.25)),  # zero has no ratio
    ],
)
def test_set_lr_keeps_ratios_of_groups(before, after):
    optimizer = optimizer_of(*before)
    Stage(index=1, lr=0.25, steps=10, dual_samples=0).set_lr(optimizer)
    assert lrs_of(optimizer) == pytest.approx(after)


def test_set_lr_twice_changes_nothing():
    """A run that was interrupted sets the step sizes once more."""
    optimizer = optimizer_of(0.3, 0.7, 0.1)
    for stage in geometric(0.1, stages=4):
        stage.set_lr(optimizer)
        before = lrs_of(optimizer)
        stage.set_lr(optimizer)
        assert lrs_of(optimizer) == before
    assert lrs_of(optimizer) == pytest.approx([0.1 / 27, 0.7 / 3 / 27, 0.1 / 3 / 27])


def test_set_lr_fills_tensors():
    tensor = torch.tensor(0.5, dtype=torch.float64)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=tensor)
    Stage(index=1, lr=0.25, steps=10, dual_samples=0).set_lr(optimizer)
    assert optimizer.param_groups[0]["lr"] is tensor
    assert tensor == 0.25


# ---- geometric and polynomial ------------------------------------------------------------------


def test_geometric_defaults_are_the_papers_eighty_thousand_points():
    rule = geometric()
    assert [stage.index for stage in rule] == [1, 2, 3, 4]
    assert [stage.lr for stage in rule] == pytest.approx([0.1, 0.1 / 3, 0.1 / 9, 0.1 / 27])
    assert [stage.steps + 1 for stage in rule] == [2000, 6000, 18000, 54000]
    assert [stage.dual_samples for stage in rule] == [384, 1152, 3456, 10368]
    assert all(stage.M is None for stage in rule)


def test_geometric_rounds_up():
    rule = geometric(steps=10, factor=1.5, stages=4, dual_samples=7)
    assert [stage.steps + 1 for stage in rule] == [10, 15, 23, 34]  # 10, 15, 22.5, 33.75
    assert [stage.dual_samples for stage in rule] == [7, 11, 16, 24]  # 7, 10.5, 15.75, 23.625


@given(
    steps=st.integers(1, 10_000),
    factor=st.sampled_from(["1.1", "1.2", "1.3", "1.7", "2.4", "3", "3.3", "10"]),
)
def test_geometric_is_exact_where_decimals_are(steps, factor):
    """1.1 is not a binary fraction: 100 * 1.1**2 is 121.00000000000001 and must become 121."""
    exact = [math.ceil(steps * Fraction(factor) ** k) for k in range(5)]
    rule = geometric(steps=steps, factor=float(factor), stages=5)
    assert [stage.steps for stage in rule] == [max(1, points - 1) for points in exact]


def test_polynomial_is_algorithm_1():
    rule = polynomial(lr=0.6, steps=50, stages=3)
    expected = [Stage(1, 0.6, 50, 0), Stage(2, 0.3, 200, 0), Stage(3, 0.6 / 3, 450, 0)]
    assert rule == expected


# ---- theory ------------------------------------------------------------------------------------


def exact_constants(mu, L, sigma, p):
    """The rate (mu/L) / (5 + mu/L) and 2 (sigma^2 + C) / (p (1 - p)), with C as printed."""
    rate = mu / (5 * L + mu)
    larger = max(p, 1 - p)
    one_over_log = 1 / (1 / larger).ln()
    C = 2 * one_over_log * larger**one_over_log
    return rate, 2 * (sigma**2 + C) / (p * (1 - p))


def round_up(x):
    return int(x.to_integral_value(rounding=ROUND_CEILING))


@pytest.mark.parametrize("p", [0.09, 0.5, 0.8])
@pytest.mark.parametrize("lipschitz", [0.1, 0.7])  # either side of max(2, 16 lipschitz^2)
def test_theorem_2(p, lipschitz):
    constants = SG | {"p": p, "lipschitz": lipschitz}
    rule = theory("ppd-sg", **constants, stages=80)
    with localcontext(prec=40):
        c = {name: Decimal(str(value)) for name, value in constants.items()}
        rate, variance = exact_constants(c["mu"], c["L"], c["sigma"], c["p"])
        coupling = max(Decimal(2), 16 * c["lipschitz"] ** 2)
        for k, stage in enumerate(rule, start=1):
            eta = c["lr"] * (-(k - 1) * rate).exp()
            T = coupling / (c["L"] * eta)  # eta_k T_k L = max(2, 16 lipschitz^2)
            next_eta, next_T = eta * (-rate).exp(), T * rate.exp()
            m = variance / (next_eta**2 * c["G"] ** 2 * next_T)  # Lemma 2, for the next stage
            assert stage.index == k
            assert stage.lr == pytest.approx(float(eta), rel=1e-12)
            assert stage.steps == round_up(T) - 1
            assert stage.dual_samples == round_up(m)
            assert stage.M is None


@pytest.mark.parametrize("p", [0.09, 0.5, 0.8])
def test_theorem_3(p):
    constants = ADAGRAD | {"p": p}
    rule = theory("ppd-adagrad", **constants, stages=80)
    with localcontext(prec=40):
        c = {name: Decimal(str(value)) for name, value in constants.items()}
        rate, variance = exact_constants(c["mu"], c["L"], c["sigma"], c["p"])
        for k, stage in enumerate(rule, start=1):
            eta = c["lr"] * (-(k - 1) * rate / 2).exp()
            M = 4 / ((c["d"] + 3).sqrt() * c["L"] * eta)  # eta_k M_k L = 4 c
            next_eta = c["lr"] * (-k * rate / 2).exp()
            m = variance / ((c["d"] + 3) * next_eta**2)  # Lemma 3, for the next stage
            assert stage.index == k
            assert (stage.lr, stage.M) == pytest.approx((float(eta), float(M)), rel=1e-12)
            assert stage.dual_samples == round_up(m)
            assert stage.steps is None


def test_theory_rounds_up_whole_numbers_to_themselves():
    """T_1 = 16 lipschitz^2 / (L lr) may be whole and lifted by the last digit of a float."""
    lifted = 0
    for L in range(1, 100):
        for lr in ["0.1", "0.05", "0.01", "0.008", "0.005"]:
            constants = SG | {"mu": 0.05, "L": L / 10, "lr": float(lr), "lipschitz": 1.1}
            [stage] = theory("ppd-sg", **constants, stages=1)
            T = Fraction("19.36") / (Fraction(L, 10) * Fraction(lr))
            assert stage.steps + 1 == math.ceil(T)
            lifted += math.ceil(16 * 1.1**2 / (L / 10 * float(lr))) > math.ceil(T)
    assert lifted > 10


def test_theory_trains_a_step_and_sees_both_classes():
    """Where the formulas ask for less than an algorithm can do, the least it can do is done."""
    constants = SG | {"mu": 1.0, "lr": 50.0, "G": 100.0, "p": 0.5}
    [stage] = theory("ppd-sg", **constants, stages=1)
    assert (stage.steps, stage.dual_samples) == (1, 2)
    [stage] = theory("ppd-adagrad", **ADAGRAD | {"lr": 50.0, "p": 0.5}, stages=1)
    assert stage.dual_samples == 2


def test_theory_bears_the_rarest_positives():
    """With p this small 1 - p is 1 in floating point, and its logarithm would be 0."""
    [stage] = theory("ppd-sg", **SG | {"p": 1e-20}, stages=1)
    assert stage.dual_samples > 1e40


def test_theory_gamma():
    assert theory_gamma(L=3) == pytest.approx(1 / 6)


# ---- theory_stages -----------------------------------------------------------------------------


def satisfies(K, noise, *, mu, L, epsilon, initial_gap):
    """The condition on K before it is solved for K: exp(-K r) <= min(...)."""
    shrinkage = math.exp(-K * mu / (5 * L + mu))
    return shrinkage <= min(epsilon / (2 * initial_gap), epsilon / (K * noise))


@given(
    mu=st.floats(0.02, 1.0),
    lr=st.floats(0.001, 1.0),
    epsilon=st.floats(1e-4, 1.0),
    initial_gap=st.floats(0.01, 10.0),
    size=st.integers(1, 20),
)
def test_theory_stages_is_the_smallest_that_satisfies_the_condition(
    mu, lr, epsilon, initial_gap, size
):
    problem = {"mu": mu, "L": 1.0, "epsilon": epsilon, "initial_gap": initial_gap}
    noise = {"ppd-sg": 48 * size**2 * lr / 5, "ppd-adagrad": 3 * lr**2 * (size + 3) / 5}
    for algorithm, level in noise.items():
        K = theory_stages(algorithm, **problem, lr=lr, G=size, d=size)
        assert satisfies(K, level, **problem)
        assert not any(satisfies(smaller, level, **problem) for smaller in range(1, K))


def test_one_stage_is_enough_when_the_start_is_good_enough():
    problem = {"mu": 0.1, "L": 1.0, "lr": 1e-6, "epsilon": 1.0, "initial_gap": 0.1}
    assert theory_stages("ppd-sg", **problem, G=1.0) == 1


def gap_after(stages, noise_of, rate, initial_gap):
    """The bound on the gap that the proofs of Theorems 2 and 3 carry from stage to stage."""
    gap = initial_gap
    for k in range(1, stages + 1):
        gap = (1 - rate) * (gap + noise_of(k))
    return gap


def test_theorem_2s_stages_reach_epsilon():
    mu, L, lr, G, epsilon, initial_gap = 0.01, 1.0, 0.1, 1.0, 0.1, 5.0
    K = theory_stages("ppd-sg", mu=mu, L=L, lr=lr, G=G, epsilon=epsilon, initial_gap=initial_gap)
    rate = mu / (5 * L + mu)
    gap = gap_after(K, lambda k: 24 / 5 * G**2 * lr * math.exp(-(k - 1) * rate), rate, initial_gap)
    assert epsilon / 3 < gap <= epsilon


def test_theorem_3_needs_the_factor_three_that_it_does_not_print():
    """With the printed condition the proof's own recursion ends above epsilon."""
    mu, L, lr, d, epsilon, initial_gap = 0.01, 1.0, 0.5, 7, 0.1, 0.001
    problem = {"mu": mu, "L": L, "epsilon": epsilon, "initial_gap": initial_gap}
    rate, c = mu / (5 * L + mu), (d + 3) ** -0.5

    def noise_of(k):
        eta = lr * math.exp(-(k - 1) / 2 * rate)
        M = 4 * c / (L * eta)
        return 6 * eta / (5 * c * M)

    K = theory_stages("ppd-adagrad", **problem, lr=lr, d=d)
    assert gap_after(K, noise_of, rate, initial_gap) <= epsilon
    printed = next(k for k in range(1, K + 1) if satisfies(k, lr**2 * L / (5 * c**2), **problem))
    assert printed < K
    assert gap_after(printed, noise_of, rate, initial_gap) > 1.4 * epsilon


# ---- plateau -----------------------------------------------------------------------------------


def test_plateau_gives_stages_without_a_length():
    expected = [Stage(s.index, s.lr, None, s.dual_samples) for s in geometric(lr=0.3, factor=2)]
    assert list(plateau(lr=0.3, factor=2)) == expected
    assert len(plateau(stages=3)) == 3


def test_plateau_ends_a_stage_after_patience_reports_without_gain():
    rule = plateau(patience=2)
    next(iter(rule))
    reports = [0.7, 0.8, 0.8, 0.9, 0.85, 0.9]  # the stale count begins again at 0.9
    assert [rule.report(auc) for auc in reports] == [False] * 5 + [True]


def test_plateau_needs_more_than_min_gain():
    rule = plateau(patience=1, min_gain=0.125)
    next(iter(rule))
    assert [rule.report(auc) for auc in [0.5, 0.75, 0.875]] == [False, False, True]


def test_small_gains_that_add_up_count():
    rule = plateau(patience=3, min_gain=0.1)
    next(iter(rule))
    assert [rule.report(auc) for auc in [0.5, 0.58, 0.66, 0.70]] == [False] * 4


def test_each_stage_has_its_own_best():
    """The average's AUC may fall when a stage begins; that must not end the stage at once."""
    rule = plateau(patience=1, stages=2)
    answers = []
    for _ in rule:
        answers += [rule.report(auc) for auc in ([0.9, 0.9] if not answers else [0.5, 0.6, 0.6])]
    assert answers == [False, True, False, False, True]


def test_a_caller_may_cut_a_stage_short_and_begin_again():
    rule = plateau(stages=3, patience=2)
    for _ in rule:
        assert not rule.report(0.5)
    assert [stage.index for stage in rule] == [1, 2, 3]


@pytest.mark.parametrize("score", [math.nan, math.inf, None, "0.9", True])
def test_plateau_rejects_what_is_no_score(score):
    rule = plateau()
    next(iter(rule))
    with pytest.raises(ValueError, match=f"auc must be a finite number, found {score!r}"):
        rule.report(score)


def test_a_score_need_not_be_an_auc():
    rule = plateau(patience=1)
    assert [rule.report(score) for score in (-2.0, -1.5, -1.5)] == [False, False, True]


# ---- Bad arguments are named when the rule is called, not when it is used ----------------------

PROBLEM = {"mu": 0.1, "L": 1.0, "lr": 0.1, "epsilon": 0.1, "initial_gap": 1.0}
BAD = [
    *[(rule, {}, {"lr": [0, math.nan, "0.1"]}) for rule in (geometric, polynomial, plateau)],
    *[(rule, {}, {"stages": [0, 2.0]}) for rule in (geometric, polynomial, plateau)],
    *[(rule, {}, {"steps": [0, 2e3]}) for rule in (geometric, polynomial)],
    *[(rule, {}, {"factor": [1, math.inf]}) for rule in (geometric, plateau)],
    *[(rule, {}, {"dual_samples": [1, 384.0]}) for rule in (geometric, plateau)],
    (plateau, {}, {"patience": [0], "min_gain": [-0.1, 1.0, math.nan]}),
    (
        partial(theory, "ppd-sg"),
        {**SG, "stages": 1},
        {
            "mu": [0, 2.5],
            "L": [-1],
            "sigma": [-1],
            "p": [0, 1.0],
            "lr": [0],
            "stages": [0],
            "lipschitz": [None, 0],
            "G": [None],
        },
    ),
    (partial(theory, "ppd-adagrad"), {**ADAGRAD, "stages": 1}, {"d": [None, 0]}),
    (theory, {**SG, "stages": 1}, {"algorithm": ["sgd"]}),
    (
        partial(theory_stages, "ppd-sg"),
        {**PROBLEM, "G": 1.0},
        {"mu": [2], "lr": [0], "epsilon": [0], "initial_gap": [-1], "G": [None]},
    ),
    (partial(theory_stages, "ppd-adagrad"), PROBLEM, {"d": [None]}),
    (theory_stages, PROBLEM, {"algorithm": ["sgd"]}),
    (theory_gamma, {}, {"L": [0]}),
]


@pytest.mark.parametrize(("rule", "arguments", "bad"), BAD)
def test_bad_arguments_are_named(rule, arguments, bad):
    for name, values in bad.items():
        for value in values:
            assert_names(name, rule, **{**arguments, name: value})
