"""From an experiment's TOML file to the list of its runs."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from aucmax import checks, stages
from aucmax.checks import choice

HERE = Path(__file__).parent
EXPERIMENTS = ("figure1", "figure1-long", "figure2", "figure3", "readings")


@dataclass(frozen=True)
class MethodSettings:
    """What of the settings a training method makes use of.

    Attributes:
        optimizer: the options that its optimizer has.
        stages: the rule by which one stage follows another; None if it has no stages of its own.
        loss: the options that its loss has.
        fixed: more options of its optimizer, the same in every experiment.
    """

    optimizer: tuple[str, ...] = ()
    stages: Callable[..., list[stages.Stage]] | None = None
    loss: tuple[str, ...] = ("normalize",)
    fixed: Mapping[str, Any] = field(default_factory=dict)


METHOD_SETTINGS = {
    "ppd-sg": MethodSettings(("momentum", "weight_decay", "gamma"), stages.geometric),
    "ppd-adagrad": MethodSettings(("gamma",), stages.geometric),
    "pga": MethodSettings(("gamma",), stages.polynomial, fixed={"output": "last"}),
    "oauc": MethodSettings(),
    "sgd": MethodSettings(("momentum", "weight_decay"), loss=()),
    "adagrad": MethodSettings(("weight_decay",), loss=()),
    "libauc": MethodSettings(),
}
"""The methods that a line of ``settings.toml`` may name."""


class LineKey(NamedTuple):
    """What the runs of one line share that differ in their seed alone."""

    protocol: str
    dataset: str
    ratio: str
    line: str

    @property
    def setting(self) -> tuple[str, str, str]:
        """What lines must share to be compared."""
        return self[:3]

    @property
    def file_name(self) -> str:
        """The key as part of a file's name."""
        return "-".join(self).replace("/", "-").replace(":", "-")

    def __str__(self) -> str:
        return f"{self.line} ({self.protocol}, {self.dataset}, {self.ratio})"


@dataclass(frozen=True)
class Run:
    """One training run: everything that decides its result, as plain values.

    Attributes:
        experiment: such as "figure1".
        protocol: such as "paper" or "strong".
        dataset: such as "cifar10".
        partition: "halves" or "random": which classes are positive.
        removed: fraction of the training negatives that is removed.
        line: the curve that the run belongs to.
        seed: of the data's thinning and split, the weights and the batches.
        options: what the settings say of data set, protocol and line, the later ones above all.
        trial: what tells a trial of a search from the others of its line; "" for no trial.
    """

    experiment: str
    protocol: str
    dataset: str
    partition: str
    removed: float
    line: str
    seed: int
    options: dict[str, Any]
    trial: str = ""

    @property
    def ratio(self) -> str:
        """Positives to negatives of the training data."""
        return ratio_of(self.partition, self.removed)

    @property
    def key(self) -> LineKey:
        """What the runs of all seeds share, which are tuned and timed together."""
        return LineKey(self.protocol, self.dataset, self.ratio, self.line)

    @property
    def name(self) -> str:
        """Of its files."""
        return f"{self.key.file_name}-seed{self.seed}{self.trial and '-'}{self.trial}"

    @property
    def place(self) -> str:
        """The folder of its files, in that of the experiment."""
        return "trials" if self.trial else "runs"

    @property
    def method_settings(self) -> MethodSettings:
        """What its training method makes use of."""
        return METHOD_SETTINGS[self.options["method"]]

    def __str__(self) -> str:
        return self.name

    def with_options(self, **options: Any) -> Run:
        """The same run with some options replaced."""
        return replace(self, options={**self.options, **options})


class Wanted(NamedTuple):
    """What a whole experiment has: so many seeds of a line, so many steps, all these ratios."""

    seeds: int
    steps: int
    ratios: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """The runs of an experiment on one data set, what is said about it, and grids by protocol."""

    title: str
    runs: list[Run]
    wanted: Wanted
    grids: dict[str, dict[str, list[Any]]]


def make_plan(
    experiment: str,
    dataset: str,
    *,
    protocols: Sequence[str] | None = None,
    removed: Sequence[float] | None = None,
    lines: Sequence[str] | None = None,
    seeds: int | None = None,
    steps: int | None = None,
    tuned: bool = True,
) -> Plan:
    """The runs that the experiment's file lists, or those of them that are asked for.

    The arguments are those of :func:`aucmax.paper.reproduce`; ``tuned`` says whether the runs have
    what earlier searches found.

    Example:
        >>> plan = make_plan("figure1", "digits", protocols=["strong"], seeds=1)
        >>> len(plan.runs), plan.runs[0].name
        (28, 'strong-digits-91-9-ppd-sg-seed0')
    """
    choice("experiment", experiment, EXPERIMENTS)
    settings = {**_read("settings"), "tuned": _read("tuned") if tuned else {}}
    own = _read(experiment)
    choice("dataset", dataset, tuple(settings["datasets"]))
    about = settings["datasets"][dataset]
    count = own["seeds"] if seeds is None else checks.count("seeds", seeds)
    steps = about["steps"] if steps is None else checks.count("steps", steps)
    for name in protocols or ():
        choice("protocols", name, tuple(own["lines"]))
    fractions = [
        checks.number("removed", x, "a fraction from 0 up to but not 1", lambda x: 0 <= x < 1)
        for x in removed or own["removed"]
    ]
    runs = [
        Run(experiment, protocol, dataset, own["partition"], fraction, line, seed, options)
        for protocol in protocols or own["lines"]
        for line in lines or own["lines"][protocol]
        for options in [_options(settings, dataset, protocol, line, steps)]
        for fraction in fractions
        for seed in range(count)
    ]  # fmt: skip
    # All lines of a seed before the next seed: whatever is done so far can be compared.
    runs.sort(key=lambda run: (-run.removed, run.seed))
    names = [run.name for run in runs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"lines and removed must name every run once, found more of {twice[0]}")
    title = f"{own['title']}, {about['title']}"
    ratios = tuple(ratio_of(own["partition"], fraction) for fraction in own["removed"])
    wanted = Wanted(own["seeds"], about["steps"], ratios)
    grids = {
        protocol: {
            name: values
            for part in (settings["grid"], settings["grid"].get(protocol, {}))
            for name, values in part.items()
            if isinstance(values, list)
        }
        for protocol in own["lines"]
    }
    return Plan(title, runs, wanted, grids)


def dataset_titles() -> dict[str, str]:
    """What the data sets are called, by their names in the settings."""
    return {name: about["title"] for name, about in _read("settings")["datasets"].items()}


def ratio_of(partition: str, removed: float) -> str:
    """Positives to negatives, from balanced classes: "91/9", of random partitions "10:1"."""
    if partition == "random":
        return f"{round(1 / (1 - removed))}:1"
    positives = round(100 / (2 - removed))
    return f"{positives}/{100 - positives}"


def _options(
    settings: dict[str, Any], dataset: str, protocol: str, line: str, steps: int
) -> dict[str, Any]:
    """Data set, protocol, it on the data set, line, what a search found; the last word counts."""
    choice("lines", line, tuple(settings["lines"]))
    data, about = settings["datasets"][dataset], settings["lines"][line]
    own = settings["protocols"][protocol]
    base = own.get("like", protocol)
    layers = (
        data, settings["protocols"][base], own, data.get(base, {}),
        about, about.get(base, {}), settings["tuned"].get(dataset, {}).get(f"{base}-{line}", {}),
    )  # fmt: skip
    merged = {
        key: value
        for layer in layers
        for key, value in layer.items()
        if key not in ("title", "like") and not isinstance(value, dict)
    }
    merged |= {"steps": steps, "eval_every": min(merged["eval_every"], max(1, steps // 20))}
    if METHOD_SETTINGS[merged["method"]].stages is None and not merged.get("staged"):
        del merged["first_stage"], merged["factor"]
    return merged


@cache
def _read(name: str) -> dict[str, Any]:
    with (HERE / f"{name}.toml").open("rb") as file:
        return tomllib.load(file)
