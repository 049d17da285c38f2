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
Where ``seeds`` are given, every point runs with all of them and their mean decides instead.
What is wanted next depends on the records alone, not on the order in which runs end.

A search around others begins at the points that its lines have chosen there on the same data set,
or else in the first of them, by rules of its own. With the rules "none" these points are reported
as they are. ``scale`` carries them over to another share of positives, and ``like`` says which line
an added one follows::

    [parts.B]
    set = {kind = "image", seed = 6}
    each = {dataset = ["catdog"], line = ["sgd", "ppd-sg"]}
    search = {around = ["A"], rules = "narrow", most = [9], report = [10, 11]}
    [narrow]
    sgd = [{key = "lr", times = [0.333, 1, 3], extend = true}]

    [parts.F]
    set = {kind = "image", seed = 6}
    each = {dataset = ["cifar10", "catdog"], removed = [0.8], line = ["sgd", "ppd-sg"]}
    search = {around = ["A", "B"], rules = "none", scale = true, report = [10, 11, 12]}
    [scaling]
    ppd-sg = {lr = 1, gamma = 1}    # powers of the ratio of p (1 - p), from there to here
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.plan import Plan, Run

Point = dict[str, Any]
Records = Mapping[str, Mapping[str, Any]]


class IncompleteError(ValueError):
    """The search that another one is around has runs without a record."""


def wanted(plan: Plan, part: str, records: Records) -> list[Run]:
    """List the runs of a part that can be trained now and have no record yet."""
    return [run for run in roles(plan, part, records) if run.id not in records]


def roles(plan: Plan, part: str, records: Records) -> dict[Run, list[str]]:
    """Return the runs of a part, in order, each with what it is for if the part is a search.

    Of a search these are the runs that the records ask for so far:

    - ``search``: a point with a seed that searches; ``again``: with the second seed;
    - ``chosen``: a run that searched or repeated the point that was chosen;
    - ``report``: the chosen point with a seed that reports.

    The last two are of all points; those of the first 9 alone are ``chosen-9`` and ``report-9``.
    """
    if "search" not in plan.content["parts"][part]:
        return {run: [] for run in plan.runs(part, records)}
    found: dict[Run, list[str]] = {}
    for line in starts(plan, part, records):
        for run, role in line_roles(plan, part, line, records):
            found.setdefault(run, []).append(role)
    return {run: list(dict.fromkeys(names)) for run, names in found.items()}


def starts(plan: Plan, part: str, records: Records) -> list[Run]:
    """List the first point of every line of a search.

    Raises:
        IncompleteError: if a search that this one is around is not complete.
    """
    how, lines = plan.content["parts"][part]["search"], plan.runs(part)
    if "around" not in how:
        return lines
    chosen: dict[tuple[str | None, str], Point] = {}
    for around in how["around"]:
        other = plan.content["parts"][around]["search"]
        for line in starts(plan, around, records):
            runs = [run for run, _ in line_roles(plan, around, line, records)]
            if any(run.id not in records for run in runs):
                raise IncompleteError(f"records must hold all of {around}, to be run first")
            points, _ = explore(plan, line, records, other)
            point, name = choose(plan, points, records, other), line.settings["line"]
            chosen[line.settings["dataset"], name] = point
            chosen.setdefault((None, name), point)
    begin = []
    for line in lines:
        name, dataset = line.settings["line"], line.settings["dataset"]
        name = how.get("like", {}).get(name, name)
        own = {k: x for k, x in line.settings.items() if k not in plan.content["lines"][name]}
        point = chosen.get((dataset, name)) or chosen[None, name]
        if how.get("scale"):
            point = carry(point, own["removed"], plan.content["scaling"].get(name, {}))
        begin.append(plan.run({**point, **own}))
    return begin


def carry(point: Point, removed: float, powers: Mapping[str, float]) -> Point:
    """Carry settings over to another share of negatives removed, of equally large classes.

    The gradient of F is p (1 - p) times that of the normalized objective, whose settings stay. p is
    the share of rows labelled positive, wrong labels included.
    """
    wrong = point.get("wrong", (0.0, 0.0))

    def spread(share: float) -> float:
        p = (1 - wrong[1] + (1 - share) * wrong[0]) / (2 - share)
        return float(p * (1 - p))

    ratio = spread(point["removed"]) / spread(removed)
    finite = {key: power for key, power in powers.items() if point[key] != "inf"}
    return point | {key: scale(point[key], ratio**power, {}) for key, power in finite.items()}


def line_roles(plan: Plan, part: str, line: Run, records: Records) -> list[tuple[Run, str]]:
    """List the runs of one line that its records ask for, in order, each with one role."""
    how = plan.content["parts"][part]["search"]
    searching = how.get("seeds", [line.settings["seed"]])

    def runs(points: Sequence[Point], seeds: Sequence[int], role: str) -> list[tuple[Run, str]]:
        return [(plan.run({**point, "seed": seed}), role) for point in points for seed in seeds]

    points, complete = explore(plan, line, records, how)
    if how.get("rules") == "none":
        return runs([line.settings], how["report"], "report")
    found = runs(points, searching, "search")
    if not complete:
        return found
    for place, most in enumerate(how["most"]):
        again, seeds = [], searching
        if "again" in how:
            best = rank(plan, points[:most], records, searching)[: how["best"]]
            again, seeds = runs(best, [how["again"]], "again"), [*searching, how["again"]]
        found += again
        if all(run.id in records for run, _ in again):
            chosen = [choose(plan, points[:most], records, how)]
            for suffix in ([""] if place == 0 else []) + ([f"-{most}"] if most == 9 else []):
                found += runs(chosen, seeds, f"chosen{suffix}")
                found += runs(chosen, how["report"], f"report{suffix}")
    return found


def explore(
    plan: Plan, line: Run, records: Records, how: Mapping[str, Any]
) -> tuple[list[Point], bool]:
    """Walk a line's rule as far as the records go.

    Returns:
        The points in the order in which the rule asks for them, and whether these are all.
    """
    if how.get("rules") == "none":
        return [line.settings], True
    points: list[Point] = []
    best, limit = line.settings, max(how["most"])
    score = mean_validation(plan, records, how.get("seeds", [line.settings["seed"]]))
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


def mean_validation(
    plan: Plan, records: Records, seeds: Sequence[int]
) -> Callable[[Point], float | None]:
    """Return a function of a point: its mean validation AUC over seeds, None if one is missing."""

    def mean(point: Point) -> float | None:
        runs = [plan.run({**point, "seed": seed}) for seed in seeds]
        scores = [validation(plan, run, records) for run in runs]
        known = [score for score in scores if score is not None]
        return sum(known) / len(seeds) if len(known) == len(seeds) else None

    return mean


def rank(
    plan: Plan, points: Sequence[Point], records: Records, seeds: Sequence[int]
) -> list[Point]:
    """Sort points by their mean validation AUC, the best first; ties stay in order."""
    score = mean_validation(plan, records, seeds)
    return sorted(points, key=lambda point: score(point) or -math.inf, reverse=True)


def choose(plan: Plan, points: Sequence[Point], records: Records, how: Mapping[str, Any]) -> Point:
    """Return the point of the highest mean over the seeds that search, or over both if repeated."""
    seeds = how.get("seeds", [points[0]["seed"]])
    ranking = rank(plan, points, records, seeds)
    if "again" in how:
        ranking = rank(plan, ranking[: how["best"]], records, [*seeds, how["again"]])
    return ranking[0]
