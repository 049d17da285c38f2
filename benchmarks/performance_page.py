"""The tables of the site's performance page, from the newest results of the CPU and of a GPU.

``make bench`` writes them anew when it has measured; after a new result of a GPU
``python benchmarks/performance_page.py`` does.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from performance_rows import CPU_ROWS, GPU_ROWS, Row
from performance_users import costs

HERE = Path(__file__).parent
RESULTS = HERE / "results"
TABLE = HERE.parent / "docs" / "_tables" / "performance.rst"
OTHERS = ("LibAUC", "torchmetrics", "scikit-learn")
Found = dict[str, Any]


def newest(kind: str) -> Found:
    """The latest result of "cpu" or "cuda"; nothing if there is none."""
    files = sorted(RESULTS.glob(f"*-{kind}.json"))
    found: Found = json.loads(files[-1].read_text(encoding="utf-8")) if files else {}
    return found


def page(cpu: Found, gpu: Found) -> str:
    """All tables, as reStructuredText."""
    parts = [heading("What a fit costs", "-"), COSTS, costs_table(cpu, gpu)]
    parts += [heading("Beside other libraries", "-"), RATIOS]
    parts += [peers_table("On a CPU", cpu, CPU_ROWS), peers_table("On a GPU", gpu, GPU_ROWS)]
    parts += [heading("Every figure and its goal", "-")]
    parts += [verdict([*judged(cpu, CPU_ROWS), *judged(gpu, GPU_ROWS)]), GOALS]
    parts += [heading("On a CPU", "~"), table(cpu, CPU_ROWS), measured(cpu)]
    if any(True for _ in shown(gpu, GPU_ROWS)):
        parts += [heading("On a GPU", "~"), table(gpu, GPU_ROWS), measured(gpu)]
    if "profile" in gpu:
        parts += [heading("The kernels of a training step", "-"), *profiles(gpu["profile"])]
    return "\n".join(parts)


COSTS = """\
Wall-clock time, on two cores of a CPU unless it says otherwise, beside what you may know.
"""
RATIOS = """\
Ratios of times to the same peer, all timed in turn in one process: below 1 is faster than the peer.
"""
GOALS = """\
A figure stands beside the goal that was set before measuring, where one was set.
"""


def costs_table(cpu: Found, gpu: Found) -> str:
    """What users do, how long it takes, and beside what."""
    lines = [list(cost) for cost in costs(RESULTS, cpu, gpu)]
    return list_table(["what", "aucmax", "beside it"], lines, (44, 14, 42))


def peers_table(title: str, found: Found, rows: Iterable[Row]) -> str:
    """The ratios that other libraries were timed for too; nothing where there is none."""
    lines = []
    for row, value in shown(found, rows):
        others = tuple(peer for peer in row.beside if peer[0].startswith(OTHERS))
        theirs = beside(found, row._replace(beside=others))
        if row.place[-1] == "ratio" and theirs:
            lines.append([row.title, said(value, "ratio"), theirs])
    if not lines:
        return ""
    return f"{title}:\n\n{list_table(['time of', 'aucmax', 'others'], lines, (48, 14, 38))}"


def look(found: Found, place: tuple[str, ...]) -> Any:
    """What is at a place of nested dictionaries; None if there is nothing."""
    for key in place:
        if not isinstance(found, dict) or key not in found:
            return None
        found = found[key]
    return found


def shown(found: Found, rows: Iterable[Row]) -> Iterator[tuple[Row, float]]:
    """The rows that were measured."""
    for row in rows:
        value = look(found, row.place)
        if value is not None:
            yield row, value


def judged(found: Found, rows: Iterable[Row]) -> list[bool]:
    """Of each goal whether it is reached."""
    return [row.goal.reached(value) for row, value in shown(found, rows) if row.goal is not None]


def verdict(reached: list[bool]) -> str:
    """How many goals are reached."""
    return f"{sum(reached)} of {len(reached)} goals are reached.\n"


def table(found: Found, rows: Iterable[Row]) -> str:
    """What was measured, the goal, whether it is reached, and the peers beside it."""
    head = ["what", "measured", "to reach", "reached", "beside it"]
    lines = [
        [
            row.title,
            said(value, row.place[-1]),
            "" if row.goal is None else str(row.goal),
            "" if row.goal is None else ("yes" if row.goal.reached(value) else "**no**"),
            beside(found, row),
        ]
        for row, value in shown(found, rows)
    ]
    return list_table(head, lines, (44, 12, 14, 10, 20))


def beside(found: Found, row: Row) -> str:
    """The peers' figures."""
    values = [(name, place, look(found, place)) for name, place in row.beside]
    return ", ".join(f"{n} {said(x, place[-1])}" for n, place, x in values if x is not None)


def said(value: float, unit: str) -> str:
    """A number with four digits, and its unit."""
    if unit == "seconds":
        return f"{1e3 * value:.4g} ms"
    return f"{value / 1e12:.4g} TB/s" if unit == "bytes_per_second" else f"{value:.4g}"


def measured(found: Found) -> str:
    """When, where and with what; sections may have been measured at different times."""
    told: dict[str, list[str]] = {}
    for name, section in found.items():
        told.setdefault(described(section["machine"]), []).append(name)
    many = len(told) > 1
    lines = [f"{', '.join(names)}: {about}" if many else about for about, names in told.items()]
    return "\n\n".join([*lines, *failures(found)]) + "\n"


def described(about: Found) -> str:
    """A machine in words."""
    commit = f", commit {about['commit']}" if about["commit"] else ""
    return (
        f"Measured on {about['date']}: {about['device']}, {about['cores']} CPU cores, Python "
        f"{about['python']}, torch {about['torch']}{commit}."
    )


def failures(found: Found) -> Iterator[str]:
    """What could not be measured."""
    for name, section in found.items():
        for what, error in section.get("errors", {}).items():
            yield f"Not measured: {name}, {what} ({error.splitlines()[0][:200]})."


def profiles(found: Found) -> Iterator[str]:
    """Of each step that was profiled: its kernels, those that take longest first."""
    for title, seen in found.items():
        if title not in ("machine", "errors"):
            yield heading(title, "~")
            count, total = seen["kernels"], seen["microseconds"]
            yield f"{count:.0f} kernels and copies in one step, {total:,.0f} µs together.\n"
            lines = [
                [f"``{x['name'][:90].strip()}``", f"{x['count']:.0f}", f"{x['microseconds']:.1f}"]
                for x in seen["longest"]
            ]
            yield list_table(["kernel", "times", "µs"], lines, (70, 12, 18))


def heading(text: str, line: str) -> str:
    """A section's title."""
    return f"{text}\n{line * len(text)}\n"


def list_table(head: list[str], lines: list[list[str]], widths: tuple[int, ...]) -> str:
    """A table of reStructuredText."""
    out = [".. list-table::", "   :header-rows: 1"]
    out += [f"   :widths: {' '.join(map(str, widths))}", ""]
    for cells in [head, *lines]:
        out += [f"   {'*' if k == 0 else ' '} - {cell}".rstrip() for k, cell in enumerate(cells)]
    return "\n".join([*out, ""])


def write() -> None:
    """The newest results on the page."""
    TABLE.write_text(page(newest("cpu"), newest("cuda")), encoding="utf-8")


if __name__ == "__main__":
    write()
    print(f"wrote {TABLE}")
