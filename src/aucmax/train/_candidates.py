"""objective="auto": candidates side by side, of which validation chooses one."""

from __future__ import annotations

import copy
import math
from contextlib import ExitStack
from dataclasses import fields, replace
from typing import Any

from aucmax import distributed
from aucmax.data.batches import BatchFormat, as_data, evaluation_batches, has_groups
from aucmax.data.labels import find_task, known_labels
from aucmax.train._evaluate import model_dtype, score
from aucmax.train._fingerprint import FORMAT
from aucmax.train._folder import RunFolder
from aucmax.train._reporter import Reporter
from aucmax.train._result import Candidate, DivergedError, FitResult
from aucmax.train._run import run
from aucmax.train._step import autocast
from aucmax.train._sweep import Outcome, sweep
from aucmax.train.metrics import Scored
from aucmax.train.objectives import parts_of
from aucmax.train.options import Options

RANKS_ALL = ("ce", "auc", "auc+ce", "pairwise")
RANKS_THE_TOP = ("ce", "ap", "ap+ce", "pairwise")
CANDIDATES = {
    "partial_auc": RANKS_THE_TOP,
    "tpr_at_fpr": RANKS_THE_TOP,
    "precision_at": RANKS_THE_TOP,
    "average_precision": RANKS_THE_TOP,
    "grouped_auc": ("ce", "auc", "pairwise"),
}
"""What "auto" tries, by the metric that chooses; :data:`RANKS_ALL` for any other.

For a partial AUC it does not try "partial", whose mean over tables was below that of "ap".
"""


def candidates_of(options: Options, task: str, grouped: bool) -> tuple[str, ...]:
    """Those given, or what suits the metric, the task and rows that carry groups."""
    given = options.objective
    if given is not None and not isinstance(given, str):
        return tuple(given)
    if task == "binary":
        return CANDIDATES.get(options.measure.name.partition("@")[0], RANKS_ALL)
    return tuple(x for x in RANKS_ALL if not (grouped and "auc" in dict(parts_of(x))))


def fit_candidates(options: Options) -> FitResult:
    """Train a copy of the model on each candidate, and keep the one that validation likes best."""
    if options.valid is None:
        raise ValueError("valid must be given: several objectives are chosen from by its metric")
    options.check_model()
    train = as_data("train", options.train)
    task = find_task(options.task, known_labels(train, options.labels))
    names = candidates_of(options, task, has_groups(train))
    reporter = Reporter(options.steps, options.measure, options.progress, None)
    with ExitStack() as opened:
        if options.folder is not None:
            config = {"format": FORMAT, "objective": list(names), "metric": options.measure.name}
            folder = RunFolder(options.folder, config, reporter.note, None)
            opened.callback(folder.close)
            opened.callback(_abandon_unless_begun, folder)
            folder.open()
        configs = [_config(options, name, len(names)) for name in names]
        if distributed.world_size() > 1:
            outcomes = [_one_of_several(options, config) for config in configs]
        else:
            outcomes = sweep(configs, device=options.where, progress=options.progress)
        result = _chosen(options, dict(zip(names, outcomes, strict=True)), task)
        if options.folder is not None:
            folder.save_result(result)
    for candidate in result.candidates:
        reporter.note(str(candidate))
    return result


def _abandon_unless_begun(folder: RunFolder) -> None:
    """Leave nothing behind of what was refused before any candidate began."""
    if not folder.is_finished() and not any(folder.path.glob("*/config.json")):
        folder.abandon()


def _config(options: Options, name: str, count: int) -> dict[str, Any]:
    """The arguments of fit for one of so many candidates."""
    given = {field.name: getattr(options, field.name) for field in fields(options)}
    del given["device"], given["progress"]
    own = {part for part, _ in parts_of(name)}
    # In a sweep on a GPU they share the time as they share the device.
    in_turn = options.where.type != "cuda" or distributed.world_size() > 1
    limit = options.time_limit
    return given | {
        "model": copy.deepcopy(options.model),
        "objective": name,
        "loss_options": {k: v for k, v in (options.loss_options or {}).items() if k in own},
        "time_limit": limit / count if limit is not None and in_turn else limit,
        "out": None if options.folder is None else options.folder / name,
    }


def _one_of_several(options: Options, config: dict[str, Any]) -> Outcome:
    """Under a process group, where a sweep cannot be: one after the other."""
    try:
        return run(Options(**config, device=options.where, progress=options.progress))
    except DivergedError as error:
        return error.with_traceback(None)


def _chosen(options: Options, outcomes: dict[str, Outcome], task: str) -> FitResult:
    """The best, its weights in the caller's model, with what the others came to."""
    results = {name: x for name, x in outcomes.items() if isinstance(x, FitResult)}
    usable = {name: x for name, x in results.items() if not math.isnan(x.score)}
    if not usable:
        told = "; ".join(
            f"{name}: {'nan' if name in results else x}" for name, x in outcomes.items()
        )
        raise DivergedError(f"no objective came to a validation {options.measure.label}: {told}")
    best = max(usable, key=lambda name: usable[name].score)
    scored = {name: _scored(options, x, task) for name, x in usable.items()}
    candidates = []
    for name, outcome in outcomes.items():
        value = outcome.score if isinstance(outcome, FitResult) else math.nan
        p_value = math.nan
        if name in usable and name != best and task == "binary":
            _, target, weight, group = scored[best]
            first, second = (scored[x].scores.reshape(-1) for x in (best, name))
            is_paired = target.equal(scored[name].target)  # not by a loader that shuffles
            test = options.measure.test(first, second, target, weight, group) if is_paired else None
            p_value = math.nan if test is None else test.p_value
        failed = str(outcome) if isinstance(outcome, DivergedError) else ""
        gap = usable[best].score - value
        history = [] if failed else results[name].history
        seconds = history[-1]["seconds"] if history else math.nan
        candidates.append(Candidate(name, value, gap, p_value, name == best, failed, seconds))
    chosen = usable[best]
    options.model.to(options.where).load_state_dict(chosen.model.state_dict())
    options.model.eval()
    ranked = sorted(candidates, key=lambda x: (math.isnan(x.score), -x.score))
    return replace(chosen, model=options.model, out=options.folder, candidates=tuple(ranked))


def _scored(options: Options, result: FitResult, task: str) -> Scored:
    form = BatchFormat(options.where, model_dtype(result.model), task)
    size = max(256, 4 * options.batch_size)
    with autocast(options):
        rows = evaluation_batches(as_data("valid", options.valid), form, size, options.workers)
        return score(result.model, rows)
