"""Search a line's settings by a rule that is fixed beforehand, then repeat and report the best.

A part of a plan with a table ``search`` is searched, line by line::

    [parts.A]
    set = {kind = "image", dataset = "cifar10", seed = 6}
    each = {line = ["sgd", "ppd-sg"]}
    search = {again = 7, best = 3, most = [16, 9], report = [10, 11]}
    [rules]
    sgd = [{key = "lr", values = [0.1, 0.3, 1], extend = true}, {key = "lr", times = [0.58, 1.73]}]

Each step of a line's rule varies one thing at the best point so far, by validation AUC of what the
line returns. The ``best`` points are run again with a second seed, and the mean of both chooses.
What is wanted next depends on the records alone, not on the order in which runs end.

A search around another one begins at the points that its lines have chosen there, by rules of its
own. Without a second seed the first one chooses::

    [parts.B]
    set = {kind = "image", seed = 6}
    each = {dataset = ["catdog"], line = ["sgd", "ppd-sg"]}
    search = {around = "A", rules = "narrow", most = [9], report = [10, 11]}
    [narrow]
    sgd = [{key = "lr", times = [0.333, 1, 3], extend = true}]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.plan import Plan, Run

Point = dict[str, Any]
Records = Mapping[str, Mapping[str, Any]]


def wanted(plan: Plan, part: str, records: Records) -> list[Run]:
    """List the runs of a part that can be trained now and have no record yet."""
    return [run for run in part_runs(plan, part, records) if run.id not in records]


def part_runs(plan: Plan, part: str, records: Records) -> list[Run]:
    """List the runs of a part, in order; of a search those that the records ask for so far."""
    runs = plan.runs(part, records)
    if "search" in plan.content["parts"][part]:
        lines = starts(plan, part, records)
        runs = [run for line in lines for run in line_runs(plan, part, line, records)]
    return list(dict.fromkeys(runs))


def starts(plan: Plan, part: str, records: Records) -> list[Run]:
    """List the first point of every line of a search.

    Raises:
        ValueError: if the search that this one is around is not complete.
    """
    lines, around = plan.runs(part), plan.content["parts"][part]["search"].get("around")
    if around is None:
        return lines
    how, chosen = plan.content["parts"][around]["search"], {}
    for line in starts(plan, around, records):
        points, _ = explore(plan, line, records, how)
        if any(run.id not in records for run in line_runs(plan, around, line, records)):
            raise ValueError(f"records must hold all of {around}, which is to be run first")
        chosen[line.settings["line"]] = choose(plan, points, records, how)
    begin = []
    for line in lines:
        name = line.settings["line"]
        own = {k: x for k, x in line.settings.items() if k not in plan.content["lines"][name]}
        begin.append(plan.run({**chosen[name], **own}))
    return begin


def line_runs(plan: Plan, part: str, line: Run, records: Records) -> list[Run]:
    """List the runs of one line that its records ask for, in order."""
    how = plan.content["parts"][part]["search"]

    def run(point: Point, seed: int) -> Run:
        return plan.run({**point, "seed": seed})

    points, complete = explore(plan, line, records, how)
    runs = [run(point, line.settings["seed"]) for point in points]
    if not complete:
        return runs
    for most in how["most"]:
        again = []
        if "again" in how:
            ranking = rank(plan, points[:most], records, [line.settings["seed"]])
            again = [run(point, how["again"]) for point in ranking[: how["best"]]]
        runs += again
        if all(one.id in records for one in again):
            chosen = choose(plan, points[:most], records, how)
            runs += [run(chosen, seed) for seed in how["report"]]
    return runs


def explore(
    plan: Plan, line: Run, records: Records, how: Mapping[str, Any]
) -> tuple[list[Point], bool]:
    """Walk a line's rule as far as the records go.

    Returns:
        The points in the order in which the rule asks for them, and whether these are all.
    """
    points: list[Point] = []
    best, limit = line.settings, max(how["most"])

    def score(point: Point) -> float | None:
        return validation(plan, plan.run({**point, "seed": line.settings["seed"]}), records)

    for step in plan.content[how.get("rules", "rules")][line.settings["line"]]:
        candidates = vary(best, step)
        while fresh := [point for point in candidates if point not in points]:
            points += fresh[: limit - len(points)]
            if any(score(point) is None for point in points):
                return points, False
            best = max(points, key=lambda point: score(point) or -math.inf)
            candidates = extend(points, best, step) if len(points) < limit else []
    return points, True


def vary(best: Point, step: Mapping[str, Any]) -> list[Point]:
    """List the points of one step of a rule: the best so far, changed in one thing."""
    if "choices" in step:  # each sets several keys, and unsets those of the others
        keys = {key for choice in step["choices"] for key in choice}
        kept = {key: value for key, value in best.items() if key not in keys}
        return [kept | choice for choice in step["choices"]]
    key = step["key"]
    values = step.get("values") or [scale(best[key], times, step) for times in step["times"]]
    return [best | {key: value} for value in values]


def scale(value: float, times: float, step: Mapping[str, Any]) -> float:
    """Multiply a value, to at most ``at_most`` of the step."""
    return (
        value if times == 1 else min(float(f"{value * times:.3g}"), step.get("at_most", math.inf))
    )


def extend(points: Sequence[Point], best: Point, step: Mapping[str, Any]) -> list[Point]:
    """Return the points to try beyond those of a step.

    Of given values: what is missing until two above the best and one below are tried. Of multiples:
    the next beyond an end at which the best lies.
    """
    if not step.get("extend"):
        return []
    key = step["key"]
    tried = sorted(point[key] for point in points if {**point, key: 0} == {**best, key: 0})
    if "times" in step:
        ends = {tried[0]: min(step["times"]), tried[-1]: max(step["times"])}
        return [best | {key: scale(x, times, step)} for x, times in ends.items() if x == best[key]]
    at, new = tried.index(best[key]), []
    above = tried[-1]
    for _ in range(at + 2 - (len(tried) - 1)):
        above = neighbour(above, up=True)
        new.append(above)
    if at == 0:
        new.append(neighbour(tried[0], up=False))
    return [best | {key: value} for value in new]


def neighbour(value: float, *, up: bool) -> float:
    """Return the next number of the series 1, 3, 10, 30, ... above or below one of it."""
    begins_with_one = f"{value:e}".startswith("1")
    factor = (3 if begins_with_one else 10 / 3) if up else (0.3 if begins_with_one else 1 / 3)
    return float(f"{value * factor:.1g}")


def validation(plan: Plan, run: Run, records: Records) -> float | None:
    """Return the final validation AUC of what the line returns.

    None if the run has no record, minus infinity if it diverged.
    """
    record = records.get(run.id)
    if record is None:
        return None
    returned = plan.content["lines"][run.settings["line"]]["returns"]
    found = record["final"][f"valid_{returned}"] if record.get("final") else math.nan
    return -math.inf if math.isnan(found) else float(found)


def mean_validation(plan: Plan, records: Records, seeds: Sequence[int]) -> Callable[[Point], float]:
    """Return a function of a point: its mean validation AUC over seeds that all have records."""

    def mean(point: Point) -> float:
        runs = [plan.run({**point, "seed": seed}) for seed in seeds]
        return sum(validation(plan, run, records) or -math.inf for run in runs) / len(seeds)

    return mean


def rank(
    plan: Plan, points: Sequence[Point], records: Records, seeds: Sequence[int]
) -> list[Point]:
    """Sort points by their mean validation AUC, the best first; ties stay in order."""
    return sorted(points, key=mean_validation(plan, records, seeds), reverse=True)


def choose(plan: Plan, points: Sequence[Point], records: Records, how: Mapping[str, Any]) -> Point:
    """Return the point of the highest mean over both seeds, of those that ran with both."""
    seeds = [points[0]["seed"]]
    ranking = rank(plan, points, records, seeds)
    if "again" in how:
        ranking = rank(plan, ranking[: how["best"]], records, [*seeds, how["again"]])
    return ranking[0]
