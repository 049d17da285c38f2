"""What to type to get results again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aucmax.paper.results import RunResult
from aucmax.paper.settings import make_plan
from aucmax.paper.tune import OPTIONS


def command_of(results: Sequence[RunResult]) -> str:
    """The commands that repeat results, one in a line; they say what is not the experiment's own.

    Lines that differ in their steps or their search have commands of their own, and so have
    protocols that do not show the experiment's lines.
    """
    alike: dict[tuple[int, str], dict[str, list[RunResult]]] = {}
    for result in results:
        key = result.steps, _search(result)
        alike.setdefault(key, {}).setdefault(result.protocol, []).append(result)
    commands = []
    for (_, search), by_protocol in alike.items():
        groups = list(by_protocol.values())
        if {name: _lines(group) for name, group in by_protocol.items()} == _own_lines(results[0]):
            commands.append(_command([result for group in groups for result in group], search, {}))
        else:
            commands += [_command(group, search, _only(group)) for group in groups]
    return "\n".join(commands)


def _command(group: Sequence[RunResult], search: str, only: dict[str, list[Any]]) -> str:
    first, seeds = group[0], len({result.seed for result in group})
    wanted = make_plan(first.experiment, first.dataset).wanted
    fractions = {result.ratio: result.configuration["removed"] for result in group}
    options: dict[str, list[Any]] = {
        "dataset": [first.dataset],
        **only,
        "removed": [] if {*fractions} == {*wanted.ratios} else sorted(fractions.values()),
        "seeds": [] if seeds == wanted.seeds else [seeds],
        "steps": [] if first.steps == wanted.steps else [first.steps],
    }
    given = [f"--{name} {' '.join(map(str, values))}" for name, values in options.items() if values]
    return " ".join([f"aucmax reproduce {first.experiment}", *given, search]).strip()


def _only(group: Sequence[RunResult]) -> dict[str, list[Any]]:
    """The options that ask for the one protocol of a group, and for its lines."""
    protocol, lines = group[0].protocol, list(dict.fromkeys(result.line for result in group))
    is_own = {*lines} == _own_lines(group[0]).get(protocol)
    return {"protocol": [protocol], "lines": [] if is_own else lines}


def _search(result: RunResult) -> str:
    """The options that ask for the search for its step size; "" if the settings have it."""
    (own,) = make_plan(
        result.experiment, result.dataset, protocols=[result.protocol], lines=[result.line],
        removed=[result.configuration["removed"]], seeds=1, steps=result.steps,
    ).runs  # fmt: skip
    found = result.configuration
    is_known = all(own.options.get(name) == found.get(name) for name in OPTIONS)
    return "" if is_known else str(found.get("tuned", ""))


def _lines(results: Sequence[RunResult]) -> set[str]:
    return {result.line for result in results}


def _own_lines(result: RunResult) -> dict[str, set[str]]:
    """Those of the experiment's plan, by protocol."""
    lines: dict[str, set[str]] = {}
    for run in make_plan(result.experiment, result.dataset, seeds=1).runs:
        lines.setdefault(run.protocol, set()).add(run.line)
    return lines
