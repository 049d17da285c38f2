"""From a plan, a TOML file, to a list of immutable runs.

A plan has named groups of settings and parts, which are run and frozen one by one::

    [datasets.digits]             # a group: what dataset = "digits" stands for
    batch_size = 32
    [lines.sgd]
    label = "SGD"                 # read by figures and tables alone, no setting
    method = "sgd"
    [parts.figure1-digits]
    set = {kind = "image", dataset = "digits", steps = 2000}
    each = {removed = [0.9, 0.0], seed = [0, 1], line = ["sgd"]}   # the last one changes fastest
    [parts.figure1-digits.lines.sgd]
    lr = 0.05                     # this part's own settings of a line

Wherever a setting names a group (``line = "sgd"`` and the table ``lines.sgd``), the group's
settings come with it, those of later names over those of earlier ones; then those that the part has
for the same names; then what ``set`` and ``each`` say themselves.

A part may take the best points of searches, which are parts that vary more options in ``each``::

    [parts.noise]
    best_of = ["noise-search"]
    each = {condition = ["even-25", "even-10"], seed = [0, 1, 2]}

Of every line of a search, the options with the highest ``valid`` of its records are taken.
"""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from pathlib import Path
from typing import Any

WORDS = ("title", "label", "returns", "ranks")
"""Keys of a group that figures and tables read, and no training depends on."""
CELL = ("dataset", "model", "line", "condition", "seed")
"""What ``each`` of a search may vary beside the options that it searches."""

OPTIONS = {
    # Images: the rows, the network, the batches.
    "kind=image": "kind dataset ratio? protocol? line seed partition removed valid hold_out model "
    "batch_size steps eval_every probe precision augment? positives? pretraining? method "
    "wrong? condition?",
    # The optimizers, each with its own options of fit. Any of them trains on any objective.
    "method=ppd-sg": "objective schedule gamma momentum? weight_decay? restart?",
    "method=ppd-adagrad": "objective schedule gamma delta restart?",
    "method=pga": "objective schedule gamma",
    "method=oauc": "objective schedule",
    "method=sgd": "objective schedule momentum? weight_decay? restart?",
    "method=adagrad": "objective schedule weight_decay? restart?",
    "method=libauc": "lr margin epoch_decay momentum weight_decay drops",
    # The objectives and the step sizes.
    "objective=auc": "normalize",
    "objective=ce": "",
    "schedule=geometric": "lr first_stage factor",
    "schedule=polynomial": "lr first_stage",
    "schedule=drops": "lr drops",
    "schedule=cosine": "lr",
    "schedule=power": "lr power",
    # The study: rows, wrong labels, groups; what is trained, and its loss.
    "kind=table": "kind trainer dataset model line condition seed metric rows test valid without? "
    "column? unseen? most? wrong? negatives?",
    "trainer=network": "loss hidden steps lr positives? decay? pretrained? offset?",
    "trainer=trees": "depth steps lr least surrogate? balanced?",
    "trainer=linear": "loss",
    "loss=auc": "link? alpha_min?",
    "loss=pairwise": "surrogate?",
    "loss=gce": "q?",
    "loss=focal": "focus?",
    "loss=logistic": "C balanced",
    "loss=squares": "penalty",
    "loss=hinge-pairs": "C",
}
"""The options that a run uses, by its other options: every line here that is true of a run adds
those that it lists. A run must have them, but for those with a question mark, and no others."""


@dataclass(frozen=True)
class Run:
    """One training: everything that decides its result.

    Attributes:
        text: the settings as JSON with sorted keys.
        code: hash of the code that trains, see :func:`experiments.provenance.code`.
        torch: version of torch.
    """

    text: str
    code: str
    torch: str

    @property
    def settings(self) -> dict[str, Any]:
        """The settings, a copy."""
        settings: dict[str, Any] = json.loads(self.text)
        return settings

    @cached_property
    def id(self) -> str:
        """The hash of settings, code and torch: the key of the run's record."""
        return hashlib.sha256(f"{self.text}\n{self.code}\n{self.torch}".encode()).hexdigest()[:16]


@cache
def checked_run(text: str, code: str, torch: str) -> Run:
    """Return the run of settings as text, which are checked once: searches ask again and again."""
    check(json.loads(text))
    return Run(text, code, torch)


@dataclass(frozen=True)
class Plan:
    """A plan's file, with the code and the version of torch that its runs are for."""

    content: Mapping[str, Any]
    code: str
    torch: str

    @classmethod
    def read(cls, path: str | Path, code: str, torch: str) -> Plan:
        """Read a TOML file."""
        return cls(tomllib.loads(Path(path).read_text(encoding="utf-8")), code, torch)

    def run(self, settings: Mapping[str, Any]) -> Run:
        """Return the run of these settings, which are checked."""
        return checked_run(json.dumps(settings, sort_keys=True), self.code, self.torch)

    def runs(self, part: str, records: Mapping[str, Any] | None = None) -> list[Run]:
        """List the runs of a part, in order.

        Args:
            part: its name.
            records: by id, those of the searches of a part with ``best_of``.
        """
        parts = self.content["parts"]
        if part not in parts:
            raise ValueError(f"part must be one of {', '.join(parts)}, found {part!r}")
        own = parts[part]
        if "best_of" not in own:
            return self._product(own)
        runs = []
        for name in own["best_of"]:
            search = parts[name]
            for point in self._best_points(name, records or {}):
                settings = {**search["set"], **point}
                runs += self._product({**search, "set": settings, "each": own["each"]})
        return runs

    def _product(self, own: Mapping[str, Any]) -> list[Run]:
        each = own.get("each", {})
        runs = []
        for values in product(*each.values()):
            named = {**own["set"], **dict(zip(each, values, strict=True))}
            settings: dict[str, Any] = {}
            for groups in (self.content, own):
                for key, value in named.items():
                    group = groups.get(f"{key}s", {}).get(value, {}) if type(value) is str else {}
                    settings |= {name: x for name, x in group.items() if name not in WORDS}
            runs.append(self.run({**settings, **named}))
        return runs

    def _best_points(self, search: str, records: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return, of every line of a search, what it varies at the best point; diverged runs lose.

        Ties go to the point that comes first.
        """
        names = [*self.content["parts"][search]["each"]]
        best: dict[tuple[Any, ...], tuple[float, dict[str, Any]]] = {}
        for run in self.runs(search):
            if run.id not in records:
                raise ValueError(f"records must hold all of {search}, which is to be run first")
            point = {name: run.settings[name] for name in names}
            line = tuple(point[name] for name in names if name in CELL)
            valid = validation_score(records[run.id])
            if valid == valid and (line not in best or valid > best[line][0]):  # not nan
                best[line] = valid, point
        return [point for _, point in best.values()]


def validation_score(record: Mapping[str, Any]) -> float:
    """Return what validation rows say of a finished run, nan if it diverged."""
    chosen = record.get("chosen", {})  # by image runs
    return float(record.get("valid", chosen.get("valid_auc", math.nan)))


def check(settings: Mapping[str, Any]) -> None:
    """Raise for an option that this run would not use, or one that it lacks."""
    used = {
        name
        for condition, names in OPTIONS.items()
        for key, value in [condition.split("=")]
        if settings.get(key) == value
        for name in names.split()
    }
    if unused := sorted({*settings} - {name.rstrip("?") for name in used}):
        found = {name: settings[name] for name in unused}
        raise ValueError(f"a run must have options that it uses, found {found} in {dict(settings)}")
    if missing := sorted(name for name in used if name[-1] != "?" and name not in settings):
        raise ValueError(f"a run must have {', '.join(missing)}, found {dict(settings)}")
