"""The paper's claims: differences and intervals are those of the formulas, verdicts of the rule."""

import math

import numpy as np
import pytest
from scipy import stats

from aucmax.paper import claims, claims_page
from aucmax.paper.claims import (
    BASELINES,
    CLAIMS,
    HOLDS,
    IN_PART,
    NOT_HERE,
    NOT_MEASURED,
    PPD,
    VERDICTS,
    Comparison,
    Difference,
    Rate,
    judge,
)
from aucmax.paper.results import Chosen, Reached, RunResult

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

    The curve has four evaluations; it is level unless it is given.
    """
    iterate = "last" if line in ("sgd", "adagrad") else "average"
    other = {"last": "average", "average": "last"}[iterate]
    aucs = [auc] * len(STEPS) if curve is None else curve
    history = [
        {"step": step, "phase": line, f"test_auc_{iterate}": x, f"test_auc_{other}": 0.1}
        for step, x in zip(STEPS, aucs, strict=True)
    ]
    chosen = Chosen(300, iterate, auc if valid is None else valid, 0.2)
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


def setting(*gains, protocol="paper"):
    return Comparison(
        protocol, "cifar10", "91/9", "A", "B", dict(enumerate(gains)), len(gains), 400
    )


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
    assert (one.mean, one.n, none.n) == (0.5, 1, 0)
    assert all(map(math.isnan, (one.low, one.high, none.mean, none.low, none.high)))
    assert not one.is_above_zero


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
    assert (found.line, found.rival, found.seeds, found.steps) == ("PPD-SG", "SGD", 2, 400)
    assert (found.protocol, found.dataset, found.ratio) == ("paper", "cifar10", "91/9")
    assert found.difference.mean == pytest.approx(0.07)


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


def test_the_course_is_the_mean_over_the_evaluations_that_both_have():
    one = make_run(curve=[0.5, 0.8, 0.9, 0.9])
    other = make_run("pga", curve=[0.5, 0.6, 0.7, 0.9])
    assert claims.course_gain(one, other) == pytest.approx((0.0 + 0.2 + 0.2 + 0.0) / 4)
    later = make_run("pga", history=other.history[1:])
    assert claims.course_gain(one, later) == pytest.approx((0.2 + 0.2 + 0.0) / 3)
    with pytest.raises(ValueError, match=r"same steps .* ppd-sg \(paper, .* no step in common"):
        claims.course_gain(make_run(history=one.history[:1]), later)


def test_faster_is_by_the_course_and_better_by_the_end():
    early, late = [0.8, 0.9, 0.9, 0.9], [0.5, 0.6, 0.7, 1.0]
    course = (0.3 + 0.3 + 0.2 - 0.1) / 4
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
    found = claims.course_gain_by_seconds(one, slow)
    assert found == pytest.approx(gaps.mean(), abs=1e-6)
    assert claims.course_gain_by_seconds(slow, one) == pytest.approx(-found)


def test_by_seconds_equal_times_and_no_overlap():
    one, other = make_run(curve=[0.5, 0.8, 0.9, 0.9]), make_run("pga", curve=[0.5] * 4)
    trapezoids = (0.3 / 2 + (0.3 + 0.4) / 2 + 0.4) / 3
    assert claims.course_gain_by_seconds(one, other) == pytest.approx(trapezoids)
    slow = make_run("pga", seconds_per_step=0.05)  # first evaluated after the other's end
    assert math.isnan(claims.course_gain_by_seconds(one, slow))
    assert math.isnan(claims.course_gain_by_seconds(one, make_run("pga", history=[])))


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


def test_validation_chooses_the_lines_and_not_the_test():
    runs = [
        make_run("ppd-sg", 0.95, valid=0.7),
        make_run("pga", 0.85, valid=0.8),
        make_run("ppd-sg-normalized", 0.9, valid=0.9),
        make_run("sgd", 0.92, valid=0.6),
        make_run("adagrad", 0.8, valid=0.7),
    ]
    found = only(AUC_WINS.compare(runs))
    assert (found.line, found.rival) == ("PPD-SG-NORMALIZED", "ADAGRAD")
    assert found.by_seed == pytest.approx({0: 0.1})


def test_the_algorithms_are_judged_without_their_variants():
    runs = [
        make_run("ppd-sg", 0.95, valid=0.7),
        make_run("ppd-adagrad", 0.85, valid=0.8),
        make_run("ppd-sg-no-prox", 0.9, valid=0.99),
        make_run("pga", 0.7, valid=0.6),
        make_run("oauc", 0.75, valid=0.5),
    ]
    for claim in (PPD_WINS, FASTER, FASTER_BY_SECONDS):
        found = only(claim.compare(runs))
        assert (found.line, found.rival) == ("PPD-ADAGRAD", "PGA")
        assert found.by_seed == pytest.approx({0: 0.15})


def test_pretraining_is_judged_by_figure_2_alone():
    lines = "ppd-sg-pretrained", "ppd-sg"
    second = make_pairs(*lines, [0.01, 0.03], experiment="figure2")
    first = make_pairs(*lines, [0.5], experiment="figure1")
    found = only(PRETRAINING.compare([*first, *second]))
    assert found.by_seed == pytest.approx({0: 0.01, 1: 0.03})
    assert [claim for claim in CLAIMS if claim.compare(second)] == [PRETRAINING]


@pytest.mark.parametrize(
    ("ratio", "dataset", "expected"),
    [
        ("91/9", "cifar10", [AUC_WINS]),
        ("20:1", "cifar100", [AUC_WINS]),
        ("91/9", "digits", []),
        ("50/50", "digits", []),
        ("50/50", "cifar10", [SGD_WINS_BALANCED]),
        ("50/50", "catdog", [SGD_WINS_BALANCED]),
        ("50/50", "cifar100", [AUC_WINS_BALANCED]),
        ("50/50", "stl10", [AUC_WINS_BALANCED]),
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
    assert [(x.ratio, x.difference.n) for x in found] == [("91/9", 2), ("20:1", 1)]
    assert judge(found).difference.mean == pytest.approx(0.02)


def test_a_setting_with_one_side_alone_is_not_compared():
    assert AUC_WINS.compare([make_run("ppd-sg"), make_run("sgd", ratio="83/17")]) == []
    assert ADAGRAD_FASTER.compare([make_run("ppd-sg"), make_run("pga")]) == []
    assert PPD_WINS.compare([make_run(line) for line in (*PPD, "sgd")]) == []
    assert PPD_WINS.compare([make_run(line) for line in (*BASELINES, "sgd")]) == []
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
        ([(0.5, 0.5, 0.5, 0.5), (-0.001, -0.001)], IN_PART),
        ([(0.3, 0.01)], IN_PART),  # the mean alone
        ([(0.1,)], IN_PART),  # one pair has no interval
        ([CLEAR, BEHIND, BEHIND], IN_PART),  # clear somewhere, although behind in the mean
        ([LEVEL], NOT_HERE),  # a mean of zero is not above it
        ([(0.1, -0.05), BEHIND], NOT_HERE),  # above zero somewhere, not clearly
        ([BEHIND], NOT_HERE),
    ],
)
def test_the_rule(settings, expected):
    found = judge([setting(*gains) for gains in settings])
    assert found.verdict == expected
    gains = [gain for one in settings for gain in one]
    assert found.difference.n == len(gains)
    assert found.settings == sum(map(bool, settings))
    assert found.above == sum(np.mean(one) > 0 for one in settings if one)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ([CLEAR, BEHIND, BEHIND], HOLDS),
        ([(0.1, -0.05), BEHIND], NOT_HERE),
        ([(0.3, 0.01)], IN_PART),
        # The interval over all settings is above zero, that of none is.
        ([(0.30, 0.01)] * 8, IN_PART),
        ([], NOT_MEASURED),
    ],
)
def test_the_rule_of_a_claim_of_certain_cases(settings, expected):
    assert judge([setting(*gains) for gains in settings], existential=True).verdict == expected
    assert ADAGRAD_FASTER.existential
    assert sum(claim.existential for claim in CLAIMS) == 1


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(-1.1, -0.9, HOLDS), (-1.3, -1.2, HOLDS), (-1.0, -0.9, HOLDS), (-0.95, -0.8, NOT_HERE)],
)
def test_the_rate_holds_if_it_can_be_one_over_iterations(low, high, expected):
    assert Rate((low + high) / 2, low, high, 1000, 8).verdict == expected


def test_the_rate_is_read_by_its_name():
    ours = {"name": "PPD-SG, stage average", "iterations": 300}
    numbers = {"slope": -1.0, "low": -1.1, "high": -0.9}
    content = {"runs": 8, "rates": [{"name": "PGA"}, {**ours, **numbers}]}
    assert claims.parse_rate(content, "rates.json") == Rate(-1.0, -1.1, -0.9, 300, 8)
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
        "| 2 pairs in 1 setting,",
        "| 1 above zero",
    ]
    assert strong[:2] == ["| **does not hold here**", "| −0.1000"]
    assert strong[3:] == ["| 3 pairs in 1 setting,", "| 0 above zero"]
    assert [row[3:] for row in rows[1:-1]] == [["| not measured here"] * 2] * 7
    assert rows[-1][3].startswith("| **holds**\n       | slope −1.04")
    assert rows[-1][4] == "–"
    heads, *rows = cells_of(page, 2)
    where = ["1", "CIFAR-10", "91/9"]
    lines = "| PPD-SG\n       | minus SGD"
    assert [row[:7] for row in rows] == [
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
        "Of the 9 claims below, under the paper's own protocol 2 hold and 7 are not measured here; "
        "under the strong protocol, where the theory is not judged, 1 holds and 7 are not measured "
        "here." in page
    )
    assert "The runs are on CIFAR-10 and have 400 steps; the paper's have 80,000." in page
    assert "aucmax reproduce figure1 --dataset cifar100 --data DIR\n" in page


def test_on_the_page_one_setting_is_enough_for_certain_cases():
    runs = [
        *make_pairs("ppd-adagrad", "ppd-sg", CLEAR),
        *make_pairs("ppd-adagrad", "ppd-sg", BEHIND, ratio="83/17"),
    ]
    row = cells_of(claims_page.page(runs, None), 1)[4]
    assert row[3].startswith("| **holds**\n       | 0.0000")
    assert "6 pairs in 2 settings,\n       | 1 above zero" in row[3]


def test_commands_are_given_for_what_is_not_measured_alone():
    runs = make_pairs("ppd-sg", "sgd", CLEAR, dataset="stl10", ratio="50/50")
    page = claims_page.page(runs, None)
    assert "claim 8 is measured by" not in page
    assert "claim 7 is measured by" in page
    assert cells_of(page, 1)[8][3].startswith("| **holds**")


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
