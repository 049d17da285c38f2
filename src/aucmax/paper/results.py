"""The result of a run: one record, and the JSON file that it is written to and read from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from aucmax.disk import read_json, write_json
from aucmax.history import Record
from aucmax.paper.settings import LineKey, Run
from aucmax.train.metrics import ITERATES

FORMAT = 1


@dataclass(frozen=True)
class Chosen:
    """The weights that did best on validation data.

    Attributes:
        step: after which they were reached.
        iterate: "last" or "average".
        valid_auc: their AUC on validation data.
        test_auc: their AUC on test data.
    """

    step: int
    iterate: str
    valid_auc: float
    test_auc: float


@dataclass(frozen=True)
class Reached:
    """What a run reached; nan is an AUC that is not known.

    Attributes:
        final: test AUC of each iterate at the end.
        chosen: the weights that validation data chose.
    """

    final: Mapping[str, float]
    chosen: Chosen | None


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """What came of a run, and everything that decided it, as its file has it.

    Attributes:
        experiment: such as "figure1".
        protocol: "paper" or "strong".
        dataset: such as "cifar10".
        ratio: positives to negatives, such as "91/9".
        line: the curve that the run belongs to.
        label: the line's name as it is shown.
        seed: of data, weights and batches.
        steps: of the training.
        iterate: "last" or "average", the one that the curve shows.
        precision: "float32" or "bf16".
        configuration: every other option of the run.
        error: how the run diverged, if it did.
        history: a record per evaluation.
        result: what it reached; None if it diverged.
        seconds_per_step: in the median, evaluations left out; nan if it is not known.
        seconds: in all.
        counts: positives and negatives of each part of the data.
        at_once: how many runs shared the machine.
        commit: of the code.
        versions: of Python and packages.
        hardware: that it ran on.
        date: of its end.
    """

    experiment: str
    protocol: str
    dataset: str
    ratio: str
    line: str
    label: str
    seed: int
    steps: int
    iterate: str
    precision: str | None = None
    configuration: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None
    history: list[Record]
    result: Reached | None = None
    seconds_per_step: float = math.nan
    seconds: float = math.nan
    counts: Mapping[str, list[int]] = field(default_factory=dict)
    at_once: int = 1
    commit: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    hardware: str | None = None
    date: str | None = None

    @property
    def key(self) -> LineKey:
        """What the results of all seeds share."""
        return LineKey(self.protocol, self.dataset, self.ratio, self.line)

    @property
    def has_diverged(self) -> bool:
        """Whether the run ended with an error instead of a result."""
        return self.result is None

    def differences(self, run: Run, device: str) -> list[str]:
        """In which fields this is the result of another run than the one that is wanted."""
        wanted = settings_of(run, device)
        return [name for name in wanted if getattr(self, name) != wanted[name]]

    def write(self, path: Path) -> None:
        """Write the file, in one piece; its folder is made if it is not there."""
        content = {"format": FORMAT, **_null_for_nan(asdict(self))}
        if self.error is None:
            del content["error"]
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, content)


def settings_of(run: Run, device: str) -> dict[str, Any]:
    """The fields of a result that are known before the run begins."""
    apart = ("label", "steps", "iterate")
    options = {key: value for key, value in run.options.items() if key not in apart}
    return {
        "experiment": run.experiment,
        **run.key._asdict(),
        "seed": run.seed,
        **{key: run.options[key] for key in apart},
        "precision": "bf16" if device.startswith("cuda") else "float32",
        "configuration": {"partition": run.partition, "removed": run.removed, **options},
    }


def read_results(folder: str | Path) -> list[RunResult]:
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
    contents = ((path, _load(path)) for path in paths)
    return [parse_result(content, str(path)) for path, content in contents if "format" in content]


def read_result(path: Path) -> RunResult:
    """The result in a file."""
    return parse_result(_load(path), str(path))


def parse_result(content: Mapping[str, Any], where: str) -> RunResult:
    """The result that the content of the file ``where`` stands for."""
    if content.get("format") != FORMAT:
        raise ValueError(f"{where} must have format {FORMAT}, found {content.get('format')!r}")
    needed = [f.name for f in fields(RunResult) if f.default is f.default_factory is MISSING]
    if missing := [name for name in needed if name not in content]:
        raise ValueError(f"{where} must be the result of a run, found no {', '.join(missing)}")
    if content["iterate"] not in ITERATES:
        raise ValueError(f"iterate must be 'last' or 'average', {where} has {content['iterate']!r}")
    names = [f.name for f in fields(RunResult)]
    known = {name: content[name] for name in names if content.get(name) is not None}
    for name in {"seconds_per_step", "seconds"} & known.keys():
        known[name] = number(known[name], name)
    if "result" in known:
        known["result"] = _parse_reached(known["result"])
    return RunResult(**known)


def _parse_reached(content: Mapping[str, Any]) -> Reached:
    final, chosen = content.get("final") or {}, content.get("chosen")
    aucs = {which: number(final.get(which), f"result.final.{which}") for which in ITERATES}
    if chosen is None:
        return Reached(aucs, None)
    judged = {x: number(chosen.get(x), f"result.chosen.{x}") for x in ("valid_auc", "test_auc")}
    return Reached(aucs, Chosen(chosen.get("step", 0), chosen.get("iterate", ""), **judged))


def number(value: Any, name: str) -> float:
    """A number of a file; null and infinity are nan."""
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} must be a number or null, found {value!r}")
    return float(value) if math.isfinite(value) else math.nan


def _null_for_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _null_for_nan(x) for key, x in value.items()}
    return None if isinstance(value, float) and math.isnan(value) else value


def _load(path: Path) -> dict[str, Any]:
    """The content of a JSON file; nothing if it is another thing than an object."""
    try:
        content = read_json(path)
    except ValueError as error:
        raise ValueError(f"{path} must be a JSON file: {error}") from None
    return content if isinstance(content, dict) else {}
