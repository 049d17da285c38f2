"""Results of runs: read, grouped by what they share, summed up as means and spreads."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from aucmax.paper.style import PROTOCOLS, in_order, positives_share

Run: TypeAlias = dict[str, Any]

FORMAT = 1
ITERATES = ("last", "average")
NEEDED = (
    "experiment",
    "protocol",
    "dataset",
    "ratio",
    "line",
    "label",
    "seed",
    "steps",
    "history",
    "iterate",
)


class Key(NamedTuple):
    """What the seeds of one curve share."""

    protocol: str
    dataset: str
    ratio: str
    line: str


@dataclass(frozen=True)
class Stat:
    """Mean and standard deviation (n - 1) of ``n`` numbers; nan where there are too few."""

    mean: float
    sd: float
    n: int
    by_seed: Mapping[int, float] = field(repr=False)

    @classmethod
    def of(cls, by_seed: Mapping[int, float]) -> Stat:
        """Sum up those that are not nan."""
        known = {seed: x for seed, x in by_seed.items() if not math.isnan(x)}
        values = list(known.values())
        mean = statistics.fmean(values) if values else math.nan
        sd = statistics.stdev(values) if len(values) > 1 else math.nan
        return cls(mean, sd, len(values), known)

    def is_near(self, best: Stat) -> bool:
        """Whether it is within one standard error of the difference; no if that is unknown.

        Lines share each seed's data, so the error is that of the differences seed by seed.
        """
        seeds = self.by_seed.keys() & best.by_seed.keys()
        if len(seeds) < 2:
            return False
        gaps = [best.by_seed[seed] - self.by_seed[seed] for seed in seeds]
        return statistics.fmean(gaps) <= statistics.stdev(gaps) / math.sqrt(len(gaps))


@dataclass(frozen=True)
class Row:
    """The seeds of one line under one protocol, on one dataset, at one ratio.

    Attributes:
        label: the line's name as it is shown.
        steps: of each run.
        seeds: how many runs there are, diverged ones among them.
        diverged: how many of them diverged; these count in no mean.
        iterate: "last" or "average", the one that the curve shows.
        last: final test AUC of the last iterate.
        average: final test AUC of the average.
        chosen: test AUC of the weights that did best on validation data.
        valid: their validation AUC.
    """

    protocol: str
    dataset: str
    ratio: str
    line: str
    label: str
    steps: int
    seeds: int
    diverged: int
    iterate: str
    last: Stat
    average: Stat
    chosen: Stat
    valid: Stat

    @property
    def block(self) -> tuple[str, str, str]:
        """What rows must share to be compared."""
        return self.protocol, self.dataset, self.ratio

    @property
    def shown(self) -> Stat:
        """The final test AUC of the iterate that the curve shows."""
        return self.last if self.iterate == "last" else self.average


def read_results(folder: str | Path) -> list[Run]:
    """Every result below a folder, sorted by name.

    JSON files without the key "format" are something else and left out.

    Args:
        folder: is searched with all folders in it for files that end in ".json".

    Raises:
        ValueError: for a file that is no JSON, has another format or lacks something.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"folder must be one with results, found no folder {str(folder)!r}")
    paths = sorted(folder.rglob("*.json"), key=lambda path: path.relative_to(folder).as_posix())
    read = ((path, _read(path)) for path in paths)
    return [_checked(run, str(path)) for path, run in read if run is not None]


def summarize(runs: Sequence[Run]) -> list[Row]:
    """A row per protocol, dataset, ratio and line, in the order in which they are shown.

    Args:
        runs: results of one experiment; the seeds of a row must have been run for as many steps.
    """
    shown = labels(runs)
    return [_row(key, group, shown[key.line]) for key, group in grouped(runs).items()]


def grouped(runs: Sequence[Run]) -> dict[Key, list[Run]]:
    """The runs of each row, sorted by seed; what does not fit together is refused."""
    _check_one_experiment(runs)
    groups: dict[Key, list[Run]] = {}
    for index, run in enumerate(runs):
        _checked(run, f"runs[{index}]")
        groups.setdefault(Key(*(run[name] for name in Key._fields)), []).append(run)
    for key, group in groups.items():
        group.sort(key=lambda run: run["seed"])
        _check_group(key, group)
    return {key: groups[key] for key in _ordered(list(groups))}


def timed_alike(runs: Sequence[Run]) -> list[Run]:
    """Of each protocol, dataset and ratio the runs whose times can be compared.

    A step takes longer where runs share the machine: if some lines were timed alone on it, only
    these are left.
    """

    def panel(run: Run) -> tuple[Any, ...]:
        return run["protocol"], run["dataset"], run["ratio"]

    alone = [run for run in runs if at_once(run) == 1]
    panels = {panel(run) for run in alone}
    return alone + [run for run in runs if panel(run) not in panels]


def at_once(run: Run) -> int:
    """How many runs shared the machine."""
    return int(run.get("at_once") or 1)


def labels(runs: Sequence[Run]) -> dict[str, str]:
    """What each line is called; two lines of one name get their keys behind it."""
    first: dict[str, str] = {}
    for run in runs:
        first.setdefault(run["line"], str(run["label"]))
    names = list(first.values())
    return {
        line: name if names.count(name) == 1 else f"{name} ({line})" for line, name in first.items()
    }


def has_diverged(run: Run) -> bool:
    """Whether the run ended with an error instead of a result."""
    return bool(run.get("error"))


def number(value: Any, name: str) -> float:
    """A number of a result; null and infinity are nan."""
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} must be a number or null, found {value!r}")
    return float(value) if math.isfinite(value) else math.nan


def _row(key: Key, group: list[Run], label: str) -> Row:
    finished = [run for run in group if not has_diverged(run)]

    def stat(part: str, name: str) -> Stat:
        return Stat.of({run["seed"]: _result(run, part, name) for run in finished})

    return Row(
        *key,
        label=label,
        steps=group[0]["steps"],
        seeds=len(group),
        diverged=len(group) - len(finished),
        iterate=group[0]["iterate"],
        last=stat("final", "last"),
        average=stat("final", "average"),
        chosen=stat("chosen", "test_auc"),
        valid=stat("chosen", "valid_auc"),
    )


def _result(run: Run, part: str, name: str) -> float:
    found = (run.get("result") or {}).get(part) or {}
    return number(found.get(name), f"result.{part}.{name}")


def _read(path: Path) -> Run | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} must be a JSON file: {error}") from None
    if not isinstance(found, dict) or "format" not in found:
        return None
    if found["format"] != FORMAT:
        raise ValueError(f"{path} must have format {FORMAT}, found {found['format']!r}")
    return found


def _checked(run: Run, where: str) -> Run:
    missing = [name for name in NEEDED if name not in run]
    if missing:
        raise ValueError(f"{where} must be the result of a run, found no {', '.join(missing)}")
    if run["iterate"] not in ITERATES:
        raise ValueError(f"iterate must be 'last' or 'average', {where} has {run['iterate']!r}")
    return run


def _check_one_experiment(runs: Sequence[Run]) -> None:
    if not runs:
        raise ValueError("runs must hold at least one result, found none")
    found = sorted({str(run.get("experiment")) for run in runs})
    if len(found) > 1:
        raise ValueError(f"runs must be of one experiment, found {', '.join(found)}")


def _check_group(key: Key, group: list[Run]) -> None:
    """A mean over seeds makes sense of different seeds that were run alike."""
    for name in ("steps", "iterate"):
        found = list(dict.fromkeys(run[name] for run in group))
        if len(found) > 1:
            values = ", ".join(map(str, found))
            raise ValueError(
                f"{name} must be the same for all seeds of {_say(key)}, found {values}"
            )
    seeds = [run["seed"] for run in group]
    twice = sorted({seed for seed in seeds if seeds.count(seed) > 1})
    if twice:
        raise ValueError(f"each seed of {_say(key)} must be there once, found more of {twice}")


def _say(key: Key) -> str:
    return f"{key.line} ({key.protocol}, {key.dataset}, {key.ratio})"


def _ordered(keys: list[Key]) -> list[Key]:
    """Known protocols and lines in their order; ratios from few positives to many."""
    protocols = list(dict.fromkeys([*PROTOCOLS, *(key.protocol for key in keys)]))
    datasets = list(dict.fromkeys(key.dataset for key in keys))
    lines = in_order(key.line for key in keys)

    def place(key: Key) -> tuple[int, int, float, str, int]:
        share = positives_share(key.ratio)
        where = protocols.index(key.protocol), datasets.index(key.dataset)
        return *where, share, key.ratio, lines.index(key.line)

    return sorted(keys, key=place)
