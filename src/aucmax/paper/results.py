"""The result of a run: one record, and the JSON file that it is written to and read from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from aucmax.disk import read_json, write_json
from aucmax.history import Record
from aucmax.paper.provenance import Provenance
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


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """What came of a run, and everything that decided it; nan is a number that is not known.

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
        history: a record per evaluation.
        error: how the run diverged, if it did.
        final: test AUC of each iterate at the end.
        chosen: the weights that validation data chose.
        seconds_per_step: in the median, evaluations left out.
        seconds: in all.
        counts: positives and negatives of each part of the data.
        at_once: how many runs shared the machine.
        origin: commit, versions, hardware and day.
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
    history: list[Record]
    error: str | None = None
    final: Mapping[str, float] = field(default_factory=dict)
    chosen: Chosen | None = None
    seconds_per_step: float = math.nan
    seconds: float = math.nan
    counts: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    at_once: int = 1
    origin: Provenance = field(default_factory=Provenance)

    @property
    def key(self) -> LineKey:
        """What the results of all seeds share."""
        return LineKey(self.protocol, self.dataset, self.ratio, self.line)

    @property
    def has_diverged(self) -> bool:
        """Whether the run ended with an error."""
        return bool(self.error)

    def differences(self, run: Run, device: str) -> list[str]:
        """In which fields this is the result of another run than the one that is wanted."""
        wanted = settings_of(run, device)
        return [name for name in wanted if getattr(self, name) != wanted[name]]

    def write(self, path: Path) -> None:
        """Write the file, in one piece; its folder is made if it is not there."""
        chosen = None if self.chosen is None else _nan_as_null(asdict(self.chosen))
        content = {
            "format": FORMAT,
            **{name: getattr(self, name) for name in (*NEEDED, "precision", "configuration")},
            **({} if self.error is None else {"error": self.error}),
            "history": self.history,
            "result": {"final": _nan_as_null(self.final), "chosen": chosen} if self.final else None,
            "seconds_per_step": self.seconds_per_step,
            "seconds": self.seconds,
            "counts": self.counts,
            "at_once": self.at_once,
            **asdict(self.origin),
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, _nan_as_null(content))


NEEDED = (
    "experiment", "protocol", "dataset", "ratio", "line", "label", "seed", "steps", "iterate",
)  # fmt: skip
"""Fields without which a file is no result; the history is another."""


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
    return [
        parse_result(content, str(path))
        for path, content in contents
        if isinstance(content, dict) and "format" in content
    ]


def read_result(path: Path) -> RunResult:
    """The result in a file."""
    return parse_result(_load(path), str(path))


def parse_result(content: Any, where: str) -> RunResult:
    """The result that a file's content stands for.

    Args:
        content: of the JSON file.
        where: the file, for messages.

    Raises:
        ValueError: if it has another format or lacks something.
    """
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        found = content.get("format") if isinstance(content, dict) else type(content).__name__
        raise ValueError(f"{where} must have format {FORMAT}, found {found!r}")
    result = content.get("result") or {}
    final, chosen = result.get("final") or {}, result.get("chosen") or {}
    missing = [name for name in (*NEEDED, "history") if name not in content]
    missing += [f"chosen {name}" for name in ("step", "iterate") if chosen and name not in chosen]
    if missing:
        raise ValueError(f"{where} must be the result of a run, found no {', '.join(missing)}")
    if content["iterate"] not in ITERATES:
        raise ValueError(f"iterate must be 'last' or 'average', {where} has {content['iterate']!r}")
    return RunResult(
        **{name: content[name] for name in (*NEEDED, "history")},
        precision=content.get("precision"),
        configuration=content.get("configuration") or {},
        error=content.get("error"),
        final={name: number(value, f"result.final.{name}") for name, value in final.items()},
        chosen=None
        if not chosen
        else Chosen(
            step=chosen["step"],
            iterate=chosen["iterate"],
            valid_auc=number(chosen.get("valid_auc"), "result.chosen.valid_auc"),
            test_auc=number(chosen.get("test_auc"), "result.chosen.test_auc"),
        ),
        seconds_per_step=number(content.get("seconds_per_step"), "seconds_per_step"),
        seconds=number(content.get("seconds"), "seconds"),
        counts={name: (pair[0], pair[1]) for name, pair in (content.get("counts") or {}).items()},
        at_once=content.get("at_once") or 1,
        origin=Provenance(
            commit=content.get("commit"),
            versions=content.get("versions") or {},
            hardware=content.get("hardware"),
            date=content.get("date"),
        ),
    )


def number(value: Any, name: str) -> float:
    """A number of a file; null and infinity are nan."""
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} must be a number or null, found {value!r}")
    return float(value) if math.isfinite(value) else math.nan


def _nan_as_null(content: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: None if isinstance(value, float) and math.isnan(value) else value
        for key, value in content.items()
    }


def _load(path: Path) -> Any:
    try:
        return read_json(path)
    except ValueError as error:
        raise ValueError(f"{path} must be a JSON file: {error}") from None
