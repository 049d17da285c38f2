"""From the study's TOML file to what is run."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from aucmax import checks

UNIMPORTANT = ("title", "grid", "ranks", "added", "changed", "beside")
"""What the file says of a line that no run depends on."""
OF_LOSS = ("link", "alpha_min", "q", "focus", "surrogate", "scale")
"""What it says of a line that is an option of the loss."""
PLAN = Path(__file__).parent / "study.toml"


class Setting(NamedTuple):
    """Where lines are compared: in all of this they are alike."""

    dataset: str
    condition: str
    model: str


@dataclass(frozen=True)
class Run:
    """One training: a line in a setting, a seed, and the point of the grid.

    Attributes:
        setting: where it belongs.
        line: what is trained on.
        seed: of the rows' split, the wrong labels, the weights and the batches.
        options: the values of the grid that it has.
        plan: a digest of what the file says of all of it, so that what was run by another plan is
            never taken for it.
    """

    setting: Setting
    line: str
    seed: int
    options: Mapping[str, Any]
    plan: str

    @property
    def key(self) -> str:
        """Which tells it from every other run of its regime."""
        values = ", ".join(f"{name}={value}" for name, value in self.options.items())
        return f"{'/'.join(self.setting)}/{self.line}/seed {self.seed}/{values}/{self.plan}"

    def __str__(self) -> str:
        return self.key


@dataclass(frozen=True)
class Regime:
    """A part of the study that can be run and read by itself.

    Attributes:
        name: such as "noise".
        title: such as "Wrong labels".
        short: the same in few words, as a user would say it of data.
        note: what a user should know of the comparison.
        instead: what a user should type where nothing helps; "" for the strongest likelihood.
        tried: a sentence on what was tried where an aim is refuted; "" if nothing was.
        metric: that models are chosen and compared by, a name that ``fit`` takes.
        goal: by how much ranking objectives are to be ahead, a line in the figure.
        aims: what was hoped for, as the file says it.
        datasets: tables or pictures, those for choosing first.
        conditions: what is done to the rows, by name.
        columns: of each data set the one with the groups, if rows are ranked within groups.
        models: what the file says of the regime's models, by name.
        lines: by model and name, what the file says of the lines.
        seeds: how many.
    """

    name: str
    title: str
    short: str
    note: str
    instead: str
    tried: str
    metric: str
    goal: float
    aims: Sequence[Mapping[str, Any]]
    datasets: tuple[str, ...]
    conditions: Mapping[str, Mapping[str, Any]]
    columns: Mapping[str, str]
    models: Mapping[str, Mapping[str, Any]]
    lines: Mapping[str, Mapping[str, Mapping[str, Any]]]
    seeds: int

    @property
    def planned(self) -> Regime:
        """Without what was added when results were known."""
        return self._with(lambda x: "added" not in x and "beside" not in x)

    @property
    def objectives(self) -> Regime:
        """Without the lines that stand beside those that are compared."""
        return self._with(lambda x: "beside" not in x)

    @property
    def of_pictures(self) -> bool:
        """Whether its data sets are pictures, not tables."""
        return set(self.datasets) <= named_pictures()

    def _with(self, keep: Callable[[Mapping[str, Any]], bool]) -> Regime:
        """Those of its models, lines and aims that are wanted."""
        models = {name: x for name, x in self.models.items() if keep(x)}
        lines = {
            model: {name: x for name, x in self.lines[model].items() if keep(x)} for model in models
        }
        return replace(self, models=models, lines=lines, aims=[x for x in self.aims if keep(x)])

    def trials(self, dataset: str) -> Iterator[Run]:
        """Every line at every point of its grid: seed 0, in the first condition."""
        first = next(iter(self.conditions))
        for model, lines in self.lines.items():
            for line, about in lines.items():
                for point in product(*about["grid"].values()):
                    options = dict(zip(about["grid"], point, strict=True))
                    yield self._run(Setting(dataset, first, model), line, 0, options)

    def runs(self, dataset: str, best: Mapping[tuple[str, str], Mapping[str, Any]]) -> list[Run]:
        """Those that are compared, with the options that are best of a model's line."""
        each = product(self.conditions, range(self.seeds), self.models)
        return [
            self._run(Setting(dataset, condition, model), line, seed, best[model, line])
            for condition, seed, model in each
            for line in self.lines[model]
            if (model, line) in best
        ]

    def _run(self, setting: Setting, line: str, seed: int, options: Mapping[str, Any]) -> Run:
        decides = {
            "metric": self.metric,
            "column": self.columns.get(setting.dataset),
            "condition": self.conditions[setting.condition],
            "model": {k: v for k, v in self.models[setting.model].items() if k != "lines"},
            "line": self.lines[setting.model][line],
            **{name: plan()[name] for name in ("rows", "test", "valid")},
        }
        if decides["line"].get("objective") == "auto":
            decides["candidates"] = plan()["auto"]["lines"][self.metric]
        if setting.dataset in named_pictures():
            decides["pictures"] = plan()["data"]["pictures"][setting.dataset], plan()["removed"]
        for name in ("condition", "model", "line"):
            about = decides[name].items()
            decides[name] = {k: v for k, v in about if k not in UNIMPORTANT}
        digest = hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:8]
        return Run(setting, line, seed, options, digest)


def loss_options(line: Mapping[str, Any]) -> dict[str, Any]:
    """Those that the file names for a line."""
    return {name: line[name] for name in OF_LOSS if name in line}


def regimes() -> tuple[str, ...]:
    """The names of all regimes."""
    return tuple(plan()["regimes"])


def made() -> frozenset[str]:
    """The data sets that are no files."""
    return frozenset(plan()["data"]["made"])


def named_pictures() -> frozenset[str]:
    """The data sets of pictures."""
    return frozenset(plan()["data"]["pictures"])


def find_regime(name: str, datasets: Sequence[str] | None = None) -> Regime:
    """The regime of that name, on all of its data sets or on some.

    Example:
        >>> regime = find_regime("small", ["haberman"])
        >>> len(list(regime.trials("haberman")))  # 8 points of 10, 8, 4 and 4 lines
        208
    """
    content = plan()
    own = content["regimes"][checks.choice("regime", name, regimes())]
    tables = [*content["data"]["choosing"], *content["data"]["confirming"]]
    listed = tuple(own.get("data", [x for x in tables if x not in named_pictures()]))
    if datasets is not None and not datasets:
        raise ValueError(f"datasets must name some of {', '.join(listed)}, found none")
    for dataset in datasets or ():
        checks.choice("datasets", dataset, listed)
    models = {model: content["models"][model] for model in own["models"]}
    return Regime(
        name,
        own["title"],
        own["short"],
        own["note"],
        own.get("instead", ""),
        own.get("tried", ""),
        own["metric"],
        own["goal"],
        own["aims"],
        tuple(x for x in listed if datasets is None or x in datasets),
        own["conditions"],
        own.get("columns", {}),
        models,
        {model: _lines(about, own) for model, about in models.items()},
        content["seeds"],
    )


def _lines(model: Mapping[str, Any], regime: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Those of the model's kind, its own, the regime's and beside, each with its kind and grid."""
    usual = {"kind": model["kind"], "grid": regime.get("grid", model["grid"])}
    parts = [plan()["lines"][model["kind"]], model.get("lines", {}), regime.get("lines", {})]
    if regime.get("beside"):
        parts.append(plan()["beside"][regime["metric"]])
    return {name: {**usual, **about} for part in parts for name, about in part.items()}


@cache
def plan() -> dict[str, Any]:
    """What the file says."""
    with PLAN.open("rb") as file:
        return tomllib.load(file)
