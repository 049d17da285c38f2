"""The rule that searches settings, on records that a formula gives."""

import math
from pathlib import Path

import pytest

pytest.importorskip("experiments.search")

from experiments.plan import Plan
from experiments.search import choose, explore, neighbour, wanted

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


def finish(plan, batch):
    """Train what is wanted, `batch` runs at a time, the last wanted first."""
    records, order = {}, []
    while runs := wanted(plan, "A", records):
        for run in runs[-batch:]:
            records[run.id] = record(run)
            order.append(run)
    return records, order


def points_of(plan, records, line):
    first = next(run for run in plan.runs("A") if run.settings["line"] == line)
    return explore(plan, first, records, plan.content["parts"]["A"]["search"])


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
