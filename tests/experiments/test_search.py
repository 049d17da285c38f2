"""The rule that searches settings, on records that a formula gives."""

import math
from itertools import product
from pathlib import Path

import pytest

pytest.importorskip("experiments.search")

from experiments.plan import Plan
from experiments.search import carry, choose, explore, neighbour, roles, starts, wanted

CLAIMS = Path(__file__).parents[2] / "experiments" / "claims.toml"
LINES = ["ppd-sg", "ppd-adagrad", "pga", "oauc", "sgd", "adagrad"]
BEST_LR = {"ppd-sg": 30.0, "sgd": 0.01, "pga": 1.7, "oauc": 1.0, "adagrad": 0.003}


def read_plan():
    return Plan.read(CLAIMS, "code", "torch")


def auc(settings):
    """A smooth peak in the step size, and small effects of everything else and of the seed."""
    distance = math.log10(settings["lr"] / BEST_LR.get(settings["line"], 0.3))
    if distance > 1.6:
        return math.nan
    other = 0.004 * (settings.get("first_stage") == 0.5) + 0.003 * (settings.get("gamma") == 200)
    schedule = 0.005 * (settings.get("schedule") == "cosine")
    return 0.8 - 0.03 * distance**2 + other + schedule + 0.0001 * (settings["seed"] % 3)


def record(run):
    value = auc(run.settings)
    if math.isnan(value):
        return {"settings": run.settings, "error": "diverged"}
    return {"settings": run.settings, "final": dict.fromkeys(FINAL, value)}


FINAL = ("valid_last", "valid_average")


def finish(plan, batch, part="A", records=()):
    """Train what is wanted, `batch` runs at a time, the last wanted first."""
    records, order = dict(records), []
    while runs := wanted(plan, part, records):
        for run in runs[-batch:]:
            records[run.id] = record(run)
            order.append(run)
    return records, order


def points_of(plan, records, line, part="A"):
    first = next(run for run in plan.runs(part) if run.settings["line"] == line)
    return explore(plan, first, records, plan.content["parts"][part]["search"])


@pytest.mark.parametrize("line", LINES)
def test_search_tries_two_step_sizes_above_the_best_and_one_below(line):
    plan = read_plan()
    records, _ = finish(plan, 16)
    points, complete = points_of(plan, records, line)
    assert complete
    assert 8 <= len(points) <= 16
    scores = {}
    for point in points:
        if point["lr"] == float(f"{point['lr']:.0e}") and {**points[0], "lr": 0} == {
            **point,
            "lr": 0,
        }:
            scores[point["lr"]] = auc({**point, "seed": 6})
    best = max(scores, key=lambda lr: -math.inf if math.isnan(scores[lr]) else scores[lr])
    assert sum(lr > best for lr in scores) >= 2
    assert sum(lr < best for lr in scores) >= 1


def test_search_finds_the_best_of_what_its_rule_varies():
    plan = read_plan()
    records, _ = finish(plan, 16)
    points, _ = points_of(plan, records, "ppd-sg")
    chosen = choose(plan, points, records, plan.content["parts"]["A"]["search"])
    assert (chosen["lr"], chosen["first_stage"], chosen["gamma"]) == (30, 0.5, 200)
    points, _ = points_of(plan, records, "sgd")
    chosen = choose(plan, points, records, plan.content["parts"]["A"]["search"])
    assert chosen["schedule"] == "cosine"
    assert "drops" not in chosen


def test_order_in_which_runs_end_changes_nothing():
    plan = read_plan()
    one, _ = finish(plan, 5)
    many, _ = finish(plan, 50)
    assert set(one) == set(many)


def test_report_follows_the_second_seed_and_uses_other_seeds():
    plan = read_plan()
    _, order = finish(plan, 16)
    seeds = [run.settings["seed"] for run in order if run.settings["line"] == "sgd"]
    assert seeds.index(7) > max(i for i, seed in enumerate(seeds) if seed == 6)
    assert seeds.index(10) > max(i for i, seed in enumerate(seeds) if seed == 7 and i < 14)
    assert set(seeds) == {6, 7, 10, 11, 12, 13, 14}


def test_neighbours_go_through_the_series():
    values = [0.003]
    for _ in range(6):
        values.append(neighbour(values[-1], up=True))
    assert values == [0.003, 0.01, 0.03, 0.1, 0.3, 1, 3]
    assert [neighbour(value, up=False) for value in values[1:]] == values[:-1]


def test_narrow_search_begins_at_the_best_point_of_another_part():
    plan = read_plan()
    with pytest.raises(ValueError, match="must hold all of A"):
        wanted(plan, "B", {})
    records, _ = finish(plan, 16)
    records, order = finish(plan, 16, "B", records)
    how = plan.content["parts"]["B"]["search"]
    begins = [run for run in starts(plan, "B", records) if run.settings["line"] == "ppd-sg"]
    assert [run.settings["dataset"] for run in begins] == ["catdog", "cifar100"]
    first = begins[0].settings
    assert (first["lr"], first["first_stage"], first["gamma"]) == (30, 0.5, 200)
    assert first["valid"] == plan.content["datasets"]["catdog"]["valid"]
    points, complete = explore(plan, begins[0], records, how)
    assert complete
    tried = [(point["lr"], point["first_stage"]) for point in points]
    assert tried == [(9.99, 0.5), (30, 0.5), (90, 0.5), (30, 0.25), (30, 1)]
    assert {run.settings["seed"] for run in order} == {6, 10, 11, 12, 13, 14}


def test_narrow_search_goes_on_at_an_end_and_stops_at_a_limit():
    plan = read_plan()
    records, _ = finish(plan, 16)
    begin = next(run for run in starts(plan, "B", records) if run.settings["line"] == "ppd-sg")
    how = plan.content["parts"]["B"]["search"]

    def tried(value):
        """Explore with records that prefer large step sizes, and later first stages."""
        known = {}
        while True:
            points, complete = explore(plan, begin, known, how)
            if complete:
                return [(point["lr"], point["first_stage"]) for point in points]
            for point in points:
                known[plan.run(point).id] = {"final": dict.fromkeys(FINAL, value(point))}

    rising = tried(lambda point: min(point["lr"], 300) / 1000 + point["first_stage"] / 10)
    assert rising[2:6] == [(90, 0.5), (270, 0.5), (810, 0.5), (2430, 0.5)]
    assert rising[6:] == [(810, 0.25), (810, 1)]  # 2 is more than all of the steps
    assert len(tried(lambda point: point["lr"])) == how["most"][0]


@pytest.fixture(scope="module")
def study():
    """Records of all parts, in the plan's order."""
    plan, records = read_plan(), {}
    for part in plan.content["parts"]:
        records, _ = finish(plan, 64, part, records)
    return plan, records


def test_every_part_expands_to_runs_that_its_code_accepts(study):
    plan, records = study
    for part in plan.content["parts"]:
        assert not wanted(plan, part, records)
        if "search" not in plan.content["parts"][part]:
            continue
        reports = {}
        for run, names in roles(plan, part, records).items():
            assert run.id in records
            if "report" in names:
                cell = (run.settings["dataset"], run.settings["removed"], run.settings["line"])
                reports.setdefault(cell, []).append(run.settings["seed"])
        expected = plan.content["parts"][part]["search"]["report"]
        assert set(map(tuple, reports.values())) == {tuple(expected)}


def test_scopes_get_all_their_cells_from_their_parts(study):
    plan, records = study
    for scope in plan.content["scopes"].values():
        cells = {
            tuple(run.settings[key] for key in ("dataset", "removed", "line", "seed"))
            for part in scope["parts"]
            for run, names in roles(plan, part, records).items()
            if "report" in names
        }
        wanted_cells = product(scope["dataset"], scope["removed"], LINES, scope["seed"])
        assert {*wanted_cells} <= cells


def test_settings_at_another_ratio_are_those_of_the_normalized_objective(study):
    plan, records = study
    (known,) = (x for x in starts(plan, "E-catdog", records) if x.settings["line"] == "ppd-sg")
    points = [x for x in starts(plan, "B", records) if x.settings["dataset"] == "catdog"]
    how = plan.content["parts"]["B"]["search"]
    (best,) = (
        choose(plan, explore(plan, x, records, how)[0], records, how)
        for x in points
        if x.settings["line"] == "ppd-sg"
    )
    ratio = (10 / 11 / 11) / 0.25  # p (1 - p) at 91/9 and at 50/50
    assert known.settings["lr"] == pytest.approx(best["lr"] * ratio, rel=0.01)
    assert known.settings["gamma"] == pytest.approx(best["gamma"] * ratio, rel=0.01)
    assert known.settings["first_stage"] == best["first_stage"]
    (adagrad,) = (x for x in starts(plan, "E-catdog", records) if x.settings["line"] == "adagrad")
    assert "gamma" not in adagrad.settings


def test_wrong_labels_count_in_the_share_of_positives():
    clean = {"removed": 0.9, "lr": 1.0, "gamma": "inf"}
    assert carry(clean, 0.0, {"lr": 1, "gamma": 1}) == {**clean, "lr": 0.331}
    p, q = 0.94 / 1.1 + 0.2 * 0.1 / 1.1, 0.94 / 2 + 0.2 / 2
    found = carry({**clean, "wrong": [0.2, 0.06]}, 0.0, {"lr": 1})
    assert found["lr"] == pytest.approx(p * (1 - p) / (q * (1 - q)), rel=0.01)


def test_added_line_begins_where_the_one_that_it_is_like_has_ended(study):
    plan, records = study
    both = {x.settings["line"]: x.settings for x in starts(plan, "H-cifar10", records)}
    assert both["ppd-sg-pretrained"].pop("pretraining") == 2000
    del both["ppd-sg"]["line"], both["ppd-sg-pretrained"]["line"]
    assert both["ppd-sg"] == both["ppd-sg-pretrained"]


def test_part_taken_as_it_is_changes_what_it_says_and_searches_nothing(study):
    plan, records = study
    how = plan.content["parts"]["A"]["search"]
    points, _ = points_of(plan, records, "pga")
    best = choose(plan, points, records, how)
    runs = [x for x in roles(plan, "C-float32", records) if x.settings["line"] == "pga"]
    expected = [{**best, "precision": "float32", "seed": seed} for seed in (10, 11, 12)]
    assert [run.settings for run in runs] == expected


def test_three_seeds_score_every_point():
    plan = read_plan()
    records, order = finish(plan, 16, "A-digits")
    searched = [run for run in order if run.settings["line"] == "sgd"]
    seeds = [run.settings["seed"] for run in searched]
    assert seeds.count(6) == seeds.count(7) == seeds.count(8) > 8
    known = roles(plan, "A-digits", records)
    assert sum("chosen" in names for names in known.values()) == 6 * 3
