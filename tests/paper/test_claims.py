"""The paper's claims: differences and intervals are those of the formulas, verdicts of the rule."""

import math

import numpy as np
import pytest
from scipy import stats

from aucmax.paper import claims, claims_page
from aucmax.paper.claims import (
    AS_JUDGED,
    BASELINES,
    CLAIMS,
    HOLDS,
    IN_PART,
    NOT_HERE,
    NOT_MEASURED,
    OTHERWISE,
    PPD,
    VERDICTS,
    Comparison,
    Difference,
    Rate,
    judge,
)
from aucmax.paper.results import Chosen, Reached, RunResult
from aucmax.paper.settings import make_plan
from aucmax.paper.style import CROSS_ENTROPY, is_a

(
    AUC_WINS,
    PPD_WINS,
    SGD_WINS_BALANCED,
    ADAGRAD_FASTER,
    PRETRAINING,
    FASTER,
    FASTER_BY_SECONDS,
    AUC_WINS_BALANCED,
) = CLAIMS
STEPS = (100, 200, 300, 400)


def make_run(line="ppd-sg", auc=0.9, seed=0, valid=None, curve=None, **changes):
    """A run whose final test AUC is ``auc`` for the iterate shown, and far from it for the other.

    The curve has four evaluations; it is level unless it is given. ``valid`` is the validation AUC
    at the end; before it, of the other iterate and at the best step it says the opposite.
    """
    iterate = "last" if line in ("sgd", "adagrad") else "average"
    other = {"last": "average", "average": "last"}[iterate]
    aucs = [auc] * len(STEPS) if curve is None else curve
    valid = auc if valid is None else valid
    history = [
        {
            "step": step,
            "phase": line,
            f"test_auc_{iterate}": x,
            f"test_auc_{other}": 0.1,
            f"valid_auc_{iterate}": valid if step == STEPS[-1] else 1 - valid,
            f"valid_auc_{other}": 1 - valid,
        }
        for step, x in zip(STEPS, aucs, strict=True)
    ]
    chosen = Chosen(300, iterate, 1 - valid, 0.2)
    return RunResult(
        **{
            "experiment": "figure1",
            "protocol": "paper",
            "dataset": "cifar10",
            "ratio": "91/9",
            "line": line,
            "label": line.upper(),
            "seed": seed,
            "steps": STEPS[-1],
            "iterate": iterate,
            "history": history,
            "result": Reached({iterate: auc, other: 0.1}, chosen),
            "seconds_per_step": 0.01,
            "at_once": 1,
            **changes,
        }
    )


def make_pairs(line, rival, gains, **changes):
    """Runs of two lines, the first of which is above the other by one of ``gains`` per seed."""
    return [
        run
        for seed, gain in enumerate(gains)
        for run in (
            make_run(line, 0.8 + gain, seed, **changes),
            make_run(rival, 0.8, seed, **changes),
        )
    ]


def setting(*gains, dataset="cifar10", ratio="91/9"):
    by_seed = dict(enumerate(gains))
    return Comparison("paper", dataset, ratio, "A", "B", by_seed, len(gains), 400)


def settings_of(*settings):
    """Each on a data set of its own, whose seeds are then counted for themselves."""
    return [setting(*gains, dataset=f"set {index}") for index, gains in enumerate(settings)]


def only(found):
    assert len(found) == 1
    return found[0]


# ---- Differences and intervals -------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 3, 5, 24])
def test_the_interval_is_that_of_students_t(n):
    values = np.random.default_rng(n).normal(0.01, 0.02, n)
    found = Difference.of(values.tolist())
    half = stats.t.ppf(0.975, n - 1) * values.std(ddof=1) / math.sqrt(n)
    assert found.n == n
    assert found.mean == pytest.approx(values.mean(), abs=1e-12)
    assert found.low == pytest.approx(values.mean() - half, abs=1e-9)
    assert found.high == pytest.approx(values.mean() + half, abs=1e-9)


def test_one_pair_has_no_interval_and_none_has_no_mean():
    one, none = Difference.of([0.5]), Difference.of([])
    assert one == (0.5, -math.inf, math.inf, 1)
    assert (math.isnan(none.mean), none.n) == (True, 0)
    assert not one.is_above_zero
    assert not none.is_above_zero


def test_an_interval_that_touches_zero_is_not_above_it():
    assert Difference(0.1, 0.001, 0.2, 3).is_above_zero
    assert not Difference(0.1, 0.0, 0.2, 3).is_above_zero


def test_seeds_are_paired_and_the_iterate_shown_is_compared():
    runs = [
        *(make_run("ppd-sg", 0.9 + 0.01 * seed, seed) for seed in (0, 1, 2)),
        *(make_run("sgd", 0.8 + 0.03 * seed, seed) for seed in (2, 1, 3)),
    ]
    found = only(AUC_WINS.compare(runs))
    assert found.by_seed == pytest.approx({1: 0.91 - 0.83, 2: 0.92 - 0.86})
    assert (found.line, found.rival, found.seeds, found.steps) == ("PPD-SG", "SGD", 4, 400)
    assert (found.protocol, found.dataset, found.ratio) == ("paper", "cifar10", "91/9")
    assert found.difference().mean == pytest.approx(0.07)
    row = cells_of(claims_page.page(runs, None), -1)[1]
    assert row[6] == "2 of 4"  # the page tells what is missing


def test_a_diverged_run_makes_no_pair_but_is_counted():
    runs = make_pairs("ppd-adagrad", "ppd-sg", [0.01, 0.02, 0.03])
    lost = {"result": None, "error": "training diverged"}
    runs[2] = make_run("ppd-adagrad", seed=1, **lost)
    for claim, lines in ((ADAGRAD_FASTER, PPD), (FASTER_BY_SECONDS, ("ppd-adagrad", "pga"))):
        chosen = [r if r.line in lines else make_run("pga", 0.8, r.seed) for r in runs]
        found = only(claim.compare(chosen))
        assert found.by_seed == pytest.approx({0: 0.01, 2: 0.03})
        assert found.seeds == 3
    all_lost = [make_run("ppd-adagrad", **lost), make_run("ppd-sg")]
    found = only(ADAGRAD_FASTER.compare(all_lost))
    assert (found.by_seed, found.seeds) == ({}, 1)
    assert judge([found]).verdict == NOT_MEASURED


def test_lines_of_other_lengths_are_not_compared():
    runs = [make_run("ppd-sg"), make_run("sgd", steps=800)]
    with pytest.raises(ValueError, match=r"steps must be the same .* found 400 of ppd-sg and 800"):
        AUC_WINS.compare(runs)


# ---- The course of training ----------------------------------------------------------------------


def test_evaluations_that_lie_close_do_not_count_more():
    """The mean is over steps: trapezoids by hand, of steps that are not evenly spaced."""
    steps = (100, 110, 120, 500)
    one, other = (
        make_run(
            line,
            history=[
                {"step": step, "phase": line, "test_auc_average": x}
                for step, x in zip(steps, aucs, strict=True)
            ],
        )
        for line, aucs in (("ppd-sg", (0.5, 0.9, 0.9, 0.9)), ("pga", (0.5, 0.5, 0.5, 0.9)))
    )
    expected = (10 * 0.4 / 2 + 10 * 0.4 + 380 * 0.4 / 2) / 400
    assert claims.course_gain(one, other) == pytest.approx(expected)
    later = make_run("pga", history=other.history[1:])
    assert claims.course_gain(one, later) == pytest.approx((10 * 0.4 + 380 * 0.4 / 2) / 390)
    assert math.isnan(claims.course_gain(make_run(history=one.history[:1]), later))
    assert math.isnan(claims.course_gain(make_run(result=None), other))


def by_seconds(run, rival):
    return claims.course_gain(run, rival, by="seconds")


def test_faster_is_by_the_course_and_better_by_the_end():
    early, late = [0.8, 0.9, 0.9, 0.9], [0.5, 0.6, 0.7, 1.0]
    course = (0.3 / 2 + 0.3 + 0.2 - 0.1 / 2) / 3
    for one, other, by_course, by_end in (
        ("ppd-adagrad", "ppd-sg", [ADAGRAD_FASTER], []),
        ("ppd-sg", "pga", [FASTER], [PPD_WINS]),
    ):
        runs = [make_run(one, 0.9, curve=early), make_run(other, 1.0, curve=late)]
        for claim in by_course:
            assert only(claim.compare(runs)).by_seed == pytest.approx({0: course})
        for claim in by_end:
            assert only(claim.compare(runs)).by_seed == pytest.approx({0: -0.1})


def test_by_seconds_the_slower_line_is_compared_as_far_as_the_faster_one_goes():
    """Against integrals on a fine grid."""
    rising, other = [0.5, 0.8, 0.85, 0.95], [0.6, 0.65, 0.8, 0.9]
    one = make_run(curve=rising, seconds_per_step=0.01)  # at 1, 2, 3, 4 seconds
    slow = make_run("pga", curve=other, seconds_per_step=0.015)  # at 1.5, 3, 4.5, 6
    grid = np.linspace(1.5, 4.0, 250_001)
    gaps = np.interp(grid, [1, 2, 3, 4], rising) - np.interp(grid, [1.5, 3, 4.5, 6], other)
    found = by_seconds(one, slow)
    assert found == pytest.approx(gaps.mean(), abs=1e-6)
    assert by_seconds(slow, one) == pytest.approx(-found)


def test_by_seconds_equal_times_and_no_overlap():
    one, other = make_run(curve=[0.5, 0.8, 0.9, 0.9]), make_run("pga", curve=[0.5] * 4)
    trapezoids = (0.3 / 2 + (0.3 + 0.4) / 2 + 0.4) / 3
    assert by_seconds(one, other) == pytest.approx(trapezoids)
    slow = make_run("pga", seconds_per_step=0.05)  # first evaluated after the other's end
    assert math.isnan(by_seconds(one, slow))
    assert math.isnan(by_seconds(one, make_run("pga", history=[])))


def test_only_lines_timed_alone_are_compared_by_seconds():
    shared = make_pairs("ppd-sg", "pga", [0.01, 0.02], at_once=8)
    assert FASTER_BY_SECONDS.compare(shared) == []
    assert len(FASTER.compare(shared)) == 1
    timeless = make_pairs("ppd-sg", "pga", [0.01, 0.02], seconds_per_step=math.nan)
    assert FASTER_BY_SECONDS.compare(timeless) == []
    alone = make_pairs("ppd-sg", "pga", [0.01, 0.02])
    found = only(FASTER_BY_SECONDS.compare(alone))
    assert found.by_seed == pytest.approx({0: 0.01, 1: 0.02})


# ---- Which runs and lines a claim is about -------------------------------------------------------


def test_validation_at_the_end_chooses_the_lines_and_not_the_test():
    runs = [
        make_run("ppd-sg", 0.95, valid=0.7),
        make_run("pga", 0.85, valid=0.8),
        make_run("sgd", 0.92, valid=0.6),
        make_run("adagrad", 0.8, valid=0.7),
    ]
    found = only(AUC_WINS.compare(runs))
    assert (found.line, found.rival) == ("PGA", "ADAGRAD")
    assert found.by_seed == pytest.approx({0: 0.05})


def test_lines_are_chosen_over_the_seeds_that_all_have():
    """PGA has the higher mean, since a seed on which both are low is missing."""
    runs = [
        *(make_run("ppd-sg", 0.9, seed, valid=x) for seed, x in enumerate((0.8, 0.7, 0.1))),
        *(make_run("pga", 0.8, seed, valid=x) for seed, x in enumerate((0.7, 0.7))),
        *(make_run("sgd", 0.7, seed) for seed in range(3)),
    ]
    assert only(AUC_WINS.compare(runs)).line == "PPD-SG"
    apart = [r for r in runs if r.line != "ppd-sg" or r.seed == 2]  # no seed is shared
    assert only(AUC_WINS.compare(apart)).line == "PGA"


@pytest.mark.parametrize("claim", [PPD_WINS, FASTER, FASTER_BY_SECONDS])
@pytest.mark.parametrize("rival", ["pga", "oauc", "sgd", "adagrad", "sgd-staged"])
def test_every_baseline_can_be_the_one_to_beat(claim, rival):
    rivals = ("pga", "oauc", "sgd", "adagrad", "sgd-staged")
    runs = [
        make_run("ppd-sg", 0.95, valid=0.7),
        make_run("ppd-adagrad", 0.85, valid=0.8),
        *(make_run(line, 0.7, valid=0.65 if line == rival else 0.6) for line in rivals),
    ]
    found = only(claim.compare(runs))
    assert (found.line, found.rival) == ("PPD-ADAGRAD", rival.upper())
    assert found.by_seed == pytest.approx({0: 0.15})


@pytest.mark.parametrize("claim", [AUC_WINS, PPD_WINS, FASTER, FASTER_BY_SECONDS])
@pytest.mark.parametrize(("protocol", "line"), [("paper", "PPD-SG"), ("strong", "PPD-SG-NO-PROX")])
def test_variants_of_auc_methods_count_under_the_strong_protocol_alone(claim, protocol, line):
    aucs = {"ppd-sg": 0.8, "ppd-sg-no-prox": 0.9, "sgd": 0.6, "sgd-staged": 0.7}
    found = only(claim.compare([make_run(x, auc, protocol=protocol) for x, auc in aucs.items()]))
    assert (found.line, found.rival) == (line, "SGD-STAGED")
    on_balanced = [make_run(x, auc, protocol=protocol, ratio="50/50") for x, auc in aucs.items()]
    assert only(SGD_WINS_BALANCED.compare(on_balanced)).rival == line


@pytest.mark.parametrize(
    ("choice", "gain"), [*zip((AS_JUDGED, *OTHERWISE), (-0.1, 0.04, 0.05, 0.08), strict=True)]
)
def test_other_choices_take_the_weights_kept_and_variants(choice, gain):
    ends_and_kept = {"ppd-sg": (0.7, 0.89), "ppd-sg-normalized": (0.85, 0.93), "sgd": (0.8, 0.85)}
    runs = [
        make_run(line, end, seed, result=Reached({"average": end, "last": end}, kept_weights(kept)))
        for line, (end, kept) in ends_and_kept.items()
        for seed in range(2)
    ]
    (found,) = AUC_WINS.compare(runs, choice)
    assert found.difference().mean == pytest.approx(gain)
    (other,) = PRETRAINING.compare(pretrained := make_pretrained(), choice)
    assert other.difference().mean == pytest.approx(0.0 if choice.kept else 0.01)
    page = claims_page.page([*runs, *pretrained], None)
    changed = "claims 1 (to: holds), 2 (to: holds) and 5 (to: does not hold here)"
    where = f"under the paper protocol on {changed} and under the strong protocol on none."
    assert f"Some choice would change the verdict {where}" in page
    assert "Claims 1 and 2 have the same numbers: validation data prefers the same lines." in page
    undecided = "| **does not hold here**: undecided"
    rows = {row[0]: [cell.split("\n")[0] for cell in row[2:]] for row in cells_of(page, 2)[1:]}
    assert rows == {
        "1": ["| **does not hold here**: the opposite is shown", *["| **holds**"] * 3],
        "2": ["| **does not hold here**: the opposite is shown", *["| **holds**"] * 3],
        "5": ["| **holds**", undecided, "as judged", undecided],
    }


def kept_weights(auc):
    return Chosen(300, "average", auc, auc)


def make_pretrained():
    return make_pairs("ppd-sg-pretrained", "ppd-sg", [0.01, 0.01], experiment="figure2")


def test_a_claim_that_names_both_lines_has_these_under_either_protocol():
    lines = "ppd-adagrad", "ppd-sg", "ppd-sg-no-prox"
    for protocol in claims.JUDGED:
        found = only(ADAGRAD_FASTER.compare([make_run(x, protocol=protocol) for x in lines]))
        assert (found.line, found.rival) == ("PPD-ADAGRAD", "PPD-SG")


def test_pretraining_is_judged_by_figure_2_alone():
    lines = "ppd-sg-pretrained", "ppd-sg"
    second = make_pairs(*lines, [0.01, 0.03], experiment="figure2")
    first = make_pairs(*lines, [0.5], experiment="figure1")
    found = only(PRETRAINING.compare([*first, *second]))
    assert found.by_seed == pytest.approx({0: 0.01, 1: 0.03})
    assert [claim for claim in CLAIMS if claim.compare(second)] == [PRETRAINING]


def test_longer_runs_of_the_same_ratio_are_a_setting_of_their_own():
    short = make_pairs("ppd-sg", "sgd", [0.01, 0.03])
    long = make_pairs("ppd-sg", "sgd", [-0.05], experiment="figure1-long", steps=800)
    found = AUC_WINS.compare([*short, *long])
    assert [(x.steps, len(x.by_seed)) for x in found] == [(400, 2), (800, 1)]
    pooled = judge(found).difference
    assert (pooled.n, pooled.mean) == (2, pytest.approx(((0.01 - 0.05) / 2 + 0.03) / 2))


COURSES = [FASTER, FASTER_BY_SECONDS]
UNBALANCED = [AUC_WINS, PPD_WINS, *COURSES]


@pytest.mark.parametrize(
    ("ratio", "dataset", "expected"),
    [
        ("91/9", "cifar10", UNBALANCED),
        ("20:1", "cifar100", UNBALANCED),
        ("91/9", "digits", []),
        ("50/50", "digits", []),
        ("50/50", "cifar10", [SGD_WINS_BALANCED, *COURSES]),
        ("50/50", "catdog", [SGD_WINS_BALANCED, *COURSES]),
        ("50/50", "cifar100", [*COURSES, AUC_WINS_BALANCED]),
        ("50/50", "stl10", [*COURSES, AUC_WINS_BALANCED]),
    ],
)
def test_ratio_and_data_set_decide_which_claim_is_asked(ratio, dataset, expected):
    runs = make_pairs("ppd-sg", "sgd", [0.01, 0.02], ratio=ratio, dataset=dataset)
    assert [claim for claim in CLAIMS if claim.compare(runs)] == expected
    for claim in expected:
        sign = -1 if claim is SGD_WINS_BALANCED else 1
        gains = only(claim.compare(runs)).by_seed
        assert gains == pytest.approx({0: 0.01 * sign, 1: 0.02 * sign})


def test_figures_1_and_3_count_together_and_other_experiments_not():
    third = make_pairs("ppd-sg", "sgd", [0.03], experiment="figure3", ratio="20:1")
    first = make_pairs("ppd-sg", "sgd", [0.01, 0.02])
    others = make_pairs("ppd-sg", "sgd", [0.5], experiment="readings")
    unknown = make_pairs("ppd-sg", "sgd", [0.5], protocol="paper-none")
    found = AUC_WINS.compare([*third, *others, *first, *unknown])
    assert [(x.ratio, len(x.by_seed)) for x in found] == [("91/9", 2), ("20:1", 1)]


def test_a_setting_with_one_side_alone_is_not_compared():
    assert AUC_WINS.compare([make_run("ppd-sg"), make_run("sgd", ratio="83/17")]) == []
    assert ADAGRAD_FASTER.compare([make_run("ppd-sg"), make_run("pga")]) == []
    assert PPD_WINS.compare([make_run(line) for line in PPD]) == []
    assert PPD_WINS.compare([make_run(line) for line in BASELINES]) == []
    assert AUC_WINS.compare([]) == []


# ---- Verdicts ------------------------------------------------------------------------------------

CLEAR = (0.09, 0.10, 0.11)
LEVEL = (-0.10, 0.0, 0.10)
BEHIND = (-0.11, -0.10, -0.09)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ([], NOT_MEASURED),
        ([()], NOT_MEASURED),
        ([CLEAR], HOLDS),
        ([CLEAR, CLEAR, (-0.01, -0.011)], HOLDS),  # two thirds
        # The interval over all is above zero, but half of the settings are not.
        ([(0.5, 0.6, 0.5, 0.6), (-0.001, -0.001)], IN_PART),
        ([CLEAR, BEHIND, BEHIND], IN_PART),  # clear somewhere, although behind in the mean
        ([(0.3, 0.01)], NOT_HERE),  # the mean alone
        ([(0.1,)], NOT_HERE),  # one pair has no interval
        ([LEVEL], NOT_HERE),
        ([(0.1, -0.05), BEHIND], NOT_HERE),  # above zero somewhere, not clearly
        ([BEHIND], NOT_HERE),
    ],
)
def test_the_rule(settings, expected):
    found = judge(settings_of(*settings))
    assert found.verdict == expected
    assert found.difference.n == sum(map(len, settings))
    assert found.settings == sum(map(bool, settings))
    assert found.above == sum(np.mean(one) > 0 for one in settings if one)


def test_a_part_is_what_either_interval_shows():
    """The overall interval alone is above zero in the first, that of a setting in the second."""
    wide = [(0.3, 0.01)] * 8
    assert not any(x.difference().is_above_zero for x in settings_of(*wide))
    assert judge(settings_of(*wide)).verdict == HOLDS
    assert judge(settings_of(*wide, *[(-0.01, 0.001)] * 5)).verdict == IN_PART
    assert not judge(settings_of(CLEAR, BEHIND)).difference.is_above_zero
    assert judge(settings_of(CLEAR, BEHIND)).verdict == IN_PART


def test_consistently_is_in_all_settings():
    assert [claim for claim in CLAIMS if claim.needs == "all"] == [SGD_WINS_BALANCED]
    settings = settings_of(CLEAR, CLEAR, (-0.01, -0.011))
    assert judge(settings).verdict == HOLDS
    assert judge(settings, "all").verdict == IN_PART
    assert judge(settings[:2], "all").verdict == HOLDS


def test_ratios_of_a_seed_are_one_unit():
    """Three seeds at four ratios that say the same are not twelve pairs."""
    gains = (0.02, 0.01, 0.03)
    same = [setting(*gains, ratio=ratio) for ratio in ("50/50", "71/29", "83/17", "91/9")]
    found = judge(same)
    assert found.difference == pytest.approx(Difference.of(gains))
    assert (found.difference.n, found.settings, found.above) == (3, 4, 4)
    other = setting(0.04, 0.06, dataset="catdog")
    ratio = setting(0.04, 0.05, ratio="20:1")
    expected = [0.03, 0.03, 0.03, 0.04, 0.06]  # (0.02 + 0.04) / 2, (0.01 + 0.05) / 2
    found = judge([setting(*gains), ratio, other]).difference
    assert found == pytest.approx(Difference.of(expected))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ([CLEAR, BEHIND, BEHIND], HOLDS),
        ([(0.1, -0.05), BEHIND], NOT_HERE),
        ([(0.3, 0.01)], NOT_HERE),
        # The interval over all settings is above zero, that of none is.
        ([(0.30, 0.01)] * 8, IN_PART),
        ([], NOT_MEASURED),
    ],
)
def test_the_rule_of_a_claim_of_certain_cases(settings, expected):
    assert judge(settings_of(*settings), "some").verdict == expected
    assert [claim for claim in CLAIMS if claim.needs == "some"] == [ADAGRAD_FASTER]


def test_one_of_many_settings_must_be_clearer_than_one():
    """An interval that is just above zero by itself is not if it is one of three."""
    just = (0.06, 0.10, 0.14)
    assert judge(settings_of(just), "some").verdict == HOLDS
    found = judge(settings_of(BEHIND, just, BEHIND), "some")
    assert found.verdict == IN_PART
    half = stats.t.ppf(1 - 0.05 / 3 / 2, 2) * np.std(just, ddof=1) / math.sqrt(3)
    assert found.difference == pytest.approx((0.1, 0.1 - half, 0.1 + half, 3))
    assert found.decided_by.dataset == "set 1"
    assert judge(settings_of((0.9,), just), "some").decided_by.dataset == "set 1"


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (-1.1, -0.95, HOLDS),
        (-1.3, -1.2, HOLDS),
        (-0.99, -0.91, HOLDS),
        (-1.1, -0.9, NOT_HERE),
        (-1.8, -0.2, NOT_HERE),  # a wide interval is no help
    ],
)
def test_the_rate_holds_if_the_whole_interval_is_steep(low, high, expected):
    assert Rate((low + high) / 2, low, high, 1000, 8).verdict == expected


def test_the_rate_is_read_by_its_name():
    ours = {"name": "PPD-SG, stage average", "iterations": 300}
    numbers = {"slope": -1.0, "low": -1.1, "high": -0.9}
    pga = {"name": "PGA, stage drawn at random", "slope": -0.3}
    last = {"name": "PGA, last stage average", "slope": -1.4}
    content = {"runs": 8, "rates": [pga, {**ours, **numbers}, last]}
    full = Rate(-1.0, -1.1, -0.9, 300, 8, -0.3, -1.4)
    assert claims.parse_rate(content, "rates.json") == full
    alone = claims.parse_rate({"runs": 8, "rates": content["rates"][1:2]}, "rates.json")
    assert alone[:5] == full[:5]
    assert all(map(math.isnan, alone[5:]))
    with pytest.raises(ValueError, match=r"rates\.json must have a rate of 'PPD-SG.*found PGA$"):
        claims.parse_rate({"runs": 8, "rates": [{"name": "PGA"}]}, "rates.json")
    content["rates"][1]["low"] = None
    with pytest.raises(ValueError, match=r"low must be a number, rates\.json has None"):
        claims.parse_rate(content, "rates.json")


# ---- The page ------------------------------------------------------------------------------------


def cells_of(page, table):
    """The cells of each line of one of the page's tables."""
    text = page.split(".. list-table::")[table].split("\n\n", 1)[1].split("\n\n")[0]
    lines = text.split("   * - ")[1:]
    return [[cell.strip() for cell in line.split("\n     - ")] for line in lines]


def test_the_page_has_a_row_per_claim_and_what_it_rests_on():
    runs = [
        *make_pairs("ppd-sg", "sgd", CLEAR),
        *make_pairs("ppd-sg", "sgd", BEHIND, protocol="strong"),
    ]
    runs[0] = make_run("ppd-sg", seed=0, valid=0.9, result=None, error="diverged")
    page = claims_page.page(runs, Rate(-1.04, -1.1, -0.98, 1000, 8))
    heads, *rows = cells_of(page, 1)
    assert heads == ["No.", "Claim", "Measured", "Paper's protocol", "Strong protocol"]
    assert [row[0] for row in rows] == [str(i) for i in range(1, len(CLAIMS) + 2)]
    assert all(claim.quote in row[1] for claim, row in zip(CLAIMS, rows, strict=False))
    paper, strong = (cell.replace("\xa0", " ").split("\n       ") for cell in rows[0][3:])
    half = stats.t.ppf(0.975, 1) * np.std([0.1, 0.11], ddof=1) / math.sqrt(2)
    assert paper == [
        "| **holds**",
        "| +0.1050",
        f"| (+{0.105 - half:.4f} to +{0.105 + half:.4f})",
        "| 2 seeds in 1 setting,",
        "| 1 above zero",
    ]
    assert strong[:2] == ["| **does not hold here**: the opposite is shown", "| −0.1000"]
    assert strong[3:] == ["| 3 seeds in 1 setting,", "| 0 above zero"]
    unmeasured = [row[0] for row in rows if row[3:] == ["| not measured here"] * 2]
    assert unmeasured == ["3", "4", "5", "8"]
    assert rows[-1][3].startswith("| **holds**\n       | slope −1.04")
    assert rows[-1][4] == "–"
    heads, *rows = cells_of(page, -1)
    where = ["1", "CIFAR-10", "91/9", "400"]
    lines = "| PPD-SG\n       | minus SGD"
    assert [row[:8] for row in rows if row[0] == "1"] == [
        [*where, "paper", lines, "2 of 3", "+0.1050"],
        [*where, "strong", lines, "3", "−0.1000"],
    ]


def test_the_page_begins_with_how_many_claims_hold():
    runs = [
        *make_pairs("ppd-sg", "sgd", CLEAR),
        *make_pairs("ppd-sg", "sgd", BEHIND, protocol="strong", ratio="50/50"),
    ]
    page = claims_page.page(runs, Rate(-1.04, -1.1, -0.98, 1000, 8))
    assert (
        "Of the paper's 9 claims, under the paper's own protocol 5 hold and 4 are not measured "
        "here; under the strong protocol, where the theory is not judged, 1 holds, 2 do not hold "
        "here and 5 are not measured here." in page
    )
    assert "The runs are on CIFAR-10 and have 400 steps; the paper's have 80,000." in page
    assert "aucmax reproduce figure1 --dataset cifar100 --data DIR --removed 0\n" in page


def test_on_the_page_one_setting_is_enough_for_certain_cases():
    runs = [
        *make_pairs("ppd-adagrad", "ppd-sg", CLEAR),
        *make_pairs("ppd-adagrad", "ppd-sg", BEHIND, ratio="83/17"),
    ]
    row = cells_of(claims_page.page(runs, None), 1)[4]
    half = stats.t.ppf(1 - 0.025 / 2, 2) * np.std(CLEAR, ddof=1) / math.sqrt(3)
    assert row[3].replace("\xa0", " ").split("\n       ") == [
        "| **holds**",
        "| +0.1000",
        f"| (+{0.1 - half:.4f} to +{0.1 + half:.4f}, 97.5 %)",
        "| on CIFAR-10 at 91/9,",
        "| of 2 settings",
    ]


def test_the_slopes_of_pga_stand_beside_the_rate():
    def measured(*slopes):
        page = claims_page.page([], Rate(-1.04, -1.1, -0.98, 1000, 8, *slopes))
        return cells_of(page, 1)[-1][2]

    assert "PGA is −0.34 for the stage" in measured(-0.34, -1.36)
    assert "it is −1.36: on this problem steeper than that of PPD-SG." in measured(-0.34, -1.36)
    assert "it is −0.90: on this problem not steeper" in measured(-0.34, -0.9)
    assert "PGA" not in measured()


def test_it_is_said_if_first_stages_are_longer_than_the_papers():
    def page(share, line="ppd-sg", **changes):
        run = make_run(line, configuration={"first_stage": share}, steps=20_000, **changes)
        return claims_page.page([run, make_run("oauc", steps=20_000)], None)

    said = "paper's protocol PPD-SG have first stages of up to 10,000 iterations"
    assert said in page(0.5)
    assert "up to 2,500 iterations" in page(0.125)
    assert "up to 2,001 iterations" in page(2001)
    for other in (
        page(0.1),
        page(2000),
        page(0.5, protocol="strong"),
        page(0.5, dataset="digits"),
        page(0.5, "ppd-sg-normalized"),
    ):
        assert "first stages" not in other


def test_commands_are_given_for_what_is_not_measured_alone():
    runs = make_pairs("ppd-sg", "sgd", CLEAR, dataset="stl10", ratio="50/50")
    page = claims_page.page(runs, None)
    assert "claim 8 is measured by" not in page
    assert "claim 3 is measured by" in page
    assert cells_of(page, 1)[8][3].startswith("| **holds**")


@pytest.mark.parametrize(
    ("claim", "command"), [(claim, x) for claim in CLAIMS for x in claim.to_measure]
)
def test_a_command_gives_the_runs_that_its_claim_needs(claim, command):
    program, verb, figure, *options = command.split()
    assert [program, verb, options[0], *options[2:4]] == [
        "aucmax", "reproduce", "--dataset", "--data", "DIR",
    ]  # fmt: skip
    more = options[4:]
    assert more in ([], ["--removed", "0"], ["--time-alone"])
    plan = make_plan(figure, options[1], removed=[0.0] if "--removed" in more else None)
    runs = [
        make_run(
            run.line, 0.7 if is_a(run.line, CROSS_ENTROPY) else 0.8, run.seed,
            experiment=figure, protocol=run.protocol, dataset=run.dataset, ratio=run.ratio,
            at_once=1 if "--time-alone" in more else 8, iterate=run.options["iterate"],
        )
        for run in plan.runs
    ]  # fmt: skip
    found = claim.compare(runs)
    assert {x.protocol for x in found} == {"paper", "strong"}
    assert {x.ratio for x in found} == {run.ratio for run in plan.runs}  # none in vain
    assert all(len(x.by_seed) == plan.wanted.seeds for x in found)


def test_claims_that_are_not_measured_yet_have_commands():
    assert [CLAIMS.index(claim) + 1 for claim in CLAIMS if claim.to_measure] == [3, 5, 7, 8]


def test_the_page_of_nothing_says_so():
    page = claims_page.page([], None)
    assert "paper's own protocol 9 are not measured here" in page
    assert "where the theory is not judged, 8 are not measured here." in page
    assert "There are no runs yet." in page
    assert "There is nothing to compare yet." in page
    assert not any(f"**{verdict}**" in page for verdict in VERDICTS)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.01234, "+0.0123"), (-0.01234, "−0.0123"), (-0.00001, "0.0000"), (math.nan, "–")],
)
def test_differences_have_a_sign(value, expected):
    assert claims_page.signed(value) == expected
