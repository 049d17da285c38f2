"""From a file to a model folder, with options that suit the table."""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from aucmax import checks, disk
from aucmax._version import __version__
from aucmax.checks import NotFiniteError
from aucmax.judge.peers import compare as compare_scores
from aucmax.progress import ProgressBar
from aucmax.search import require_optuna
from aucmax.tables import fit
from aucmax.tables.classifier import AUCClassifier
from aucmax.tables.fit import Fitted, Source
from aucmax.tables.labeled import Labeled
from aucmax.tables.search import FOLDS, Search, defaults_of, prepared, space_of
from aucmax.train import DivergedError
from aucmax.train._options import find_device
from aucmax.train._signals import saying_so

ON_GPU = 3
"""Trials at a time there: nine networks of a table's size."""


class Tuned(NamedTuple):
    """What :func:`tune_file` has made.

    Attributes:
        fitted: as of :func:`aucmax.tables.fit_file`.
        tuning: what is in ``tuning.json``: ``best`` and ``defaults`` with their options,
            ``validation_auc`` and ``test_auc``, and all ``trials``.
    """

    fitted: Fitted
    tuning: dict[str, Any]


def tune_file(
    data: str | Path,
    target: str,
    *,
    positive: str | None = None,
    out: str | Path | None = None,
    drop: Sequence[str] = (),
    trials: int = 30,
    workers: int | None = None,
    test_share: float = 0.2,
    time_limit: float | None = None,
    seed: int = 0,
    compare: bool = True,
    command: str = "",
    progress: bool = True,
    **options: Any,
) -> Tuned:
    """Search for options, fit a model with the best, and write it as ``fit_file`` does.

    A trial's worth is the mean AUC over three folds of the training rows, each scored by a model
    of the other two. The rows to judge by are those of ``fit_file``, and have no part in the
    search. The first trial is that of the defaults. Killed, the same call goes on: the trials
    are in ``OUT.unfinished`` until the model is written. With one worker it then does the same
    trials as if it had not been killed.

    Args:
        data: CSV, Parquet or Arrow.
        target: the column to predict.
        positive: its positive label; None finds it.
        out: folder for the model; None for the file's name with "-model".
        drop: columns to leave out.
        trials: how many options are tried, the defaults among them.
        workers: trials at a time, each in a process of one thread; None for one per core. On a GPU
            their folds take turns in this process, see :func:`aucmax.sweep`; None for three.
        test_share: share of the rows kept apart to judge by.
        time_limit: seconds after which no further trial begins.
        seed: of everything.
        compare: whether to train logistic regression and gradient boosting too.
        command: what was typed, for the report.
        progress: whether to show how far it is.
        options: more arguments of :class:`AUCClassifier`, which are not searched.

    Returns:
        The model's folder and the trials.

    Raises:
        ValueError: for what cannot be right; nothing is written then.
    """
    trials, workers = checks.count("trials", trials), _workers(workers, options)
    limit = math.inf if time_limit is None else time_limit
    deadline = time.monotonic() + checks.positive("time_limit", limit, infinite=True)
    share = fit.checked_share(test_share)
    require_optuna()
    _check_fixed(options)
    source = Source(str(data), target, positive, tuple(drop), share, seed)
    folder = (Path(out) if out is not None else fit.default_folder(data)).resolve()
    work = folder.with_name(folder.name + ".unfinished")
    _clear(folder, work)
    fit.free_folder(folder)
    digest = disk.sha256(Path(data))
    train, test, _ = prepared(source, digest)
    space = space_of(len(train.labels), options)
    with saying_so(), _taken(work, _settings(source, digest, options)):
        search = Search(work / "study.log", source, digest, options, space)
        try:
            _run(search, trials, workers, deadline, progress)
            tuning = _tuning(search)
        except ValueError:  # the options' or the data's: the same search would end so again
            shutil.rmtree(work)
            raise
        found = _finish(folder, tuning, source, (train, test), compare, command, progress)
        search.path.unlink()  # before the settings: without these it would be somebody else's
        shutil.rmtree(work)
    return found


def _check_fixed(options: dict[str, Any]) -> None:
    """Refuse at once what would end the search later, or has no part in it."""
    own = {"threshold", "random_state", "time_limit", "method", "backbone", "hidden"} & {*options}
    if own:
        raise ValueError(
            f"options must be those of TabM, AdamW and the rows, found {', '.join(sorted(own))}"
        )
    AUCClassifier(**options)._check_options()


def _workers(workers: int | None, options: dict[str, Any]) -> int:
    if workers is not None:
        return checks.count("workers", workers)
    on_gpu = find_device(options.get("device", "auto")).type == "cuda"
    return ON_GPU if on_gpu else os.cpu_count() or 1


def _settings(source: Source, digest: str, options: dict[str, Any]) -> dict[str, Any]:
    """What must be the same for a search to go on, as JSON gives it back."""
    about = {**source._asdict(), "data": digest, "options": options, "aucmax": __version__}
    try:
        return dict(json.loads(json.dumps(about)))
    except TypeError as error:
        raise ValueError(f"options must be plain values to be searched with: {error}") from None


def _clear(folder: Path, work: Path) -> None:
    """Remove what a search that was killed while it wrote its model left beside the folder."""
    fresh, before = (folder.with_name(folder.name + x) for x in (".partial", ".before"))
    if not (work / "settings.json").exists():
        return
    with _locked(work):
        if before.exists() and not folder.exists():
            before.rename(folder)
        for path in (fresh, before):
            shutil.rmtree(path, ignore_errors=True)


def _taken(work: Path, settings: dict[str, Any]) -> IO[str]:
    """The folder for this process alone; a search of other settings in it is an error."""
    path = work / "settings.json"
    if path.exists():
        before = disk.read_json(path)
        other = [key for key in settings if before.get(key) != settings[key]]
        if other:
            raise ValueError(
                f"out must be free of other searches, found one with another {', '.join(other)} "
                f"in {work}: remove it, or choose another out"
            )
    elif work.exists() and {x.name for x in work.iterdir()} - {".lock", "settings.json.tmp"}:
        raise ValueError(f"out must leave {work} free, found something else in it: remove it")
    work.mkdir(parents=True, exist_ok=True)
    lock = _locked(work)
    disk.write_json(path, settings)
    return lock


def _locked(work: Path) -> IO[str]:
    return disk.lock_folder(work, f"out must be the folder of one command, found another in {work}")


def _run(search: Search, trials: int, workers: int, deadline: float, progress: bool) -> None:
    with Progress(trials, progress) as show:
        show.begin(search.done())
        for found in search.run(trials, workers, deadline):
            show.ended(found, search.done())
        if search.begun() < trials:
            show.say(f"the time limit is reached after {search.begun()} of {trials} trials")


def _tuning(search: Search) -> dict[str, Any]:
    """The trials, with the best and that of the defaults apart."""
    done = search.done()
    good = [trial for trial in done if trial["validation_auc"] is not None]
    if not good:
        raise ValueError(f"data must allow a training, found none of {len(done)} trials that "
                         f"ended well: {done[0]['error']}")  # fmt: skip
    best = max(good, key=lambda trial: trial["validation_auc"])
    own = {**search.fixed, **defaults_of(search.space)}
    defaults = next((trial for trial in done if trial["options"] == own), {"options": own})
    parts = {"best": dict(best), "defaults": dict(defaults)}
    return {**parts, "searched": list(search.space), "folds": FOLDS, "trials": done}


def _finish(
    folder: Path,
    tuning: dict[str, Any],
    source: Source,
    parts: tuple[Labeled, Labeled],
    compare: bool,
    command: str,
    progress: bool,
) -> Tuned:
    """Fit the best options and the defaults to all training rows, judge both, and write."""
    train, test = parts
    began = time.perf_counter()
    best, defaults = tuning["best"], tuning["defaults"]
    model = fit.trained(train, source.seed, **{"verbose": progress, **best["options"]})
    seconds = round(time.perf_counter() - began, 3)
    evaluation = fit.judged(model, train, test, compare, source.target, command, seconds)
    best["test_auc"] = evaluation.auc.value
    if defaults["options"] == best["options"]:
        defaults["test_auc"] = best["test_auc"]
    elif defaults.get("validation_auc") is not None:
        defaults |= _compared(defaults["options"], source.seed, train, model, test)
    return Tuned(fit.write(folder, model, evaluation, tuning), tuning)


def _compared(
    options: dict[str, Any], seed: int, train: Labeled, model: AUCClassifier, test: Labeled
) -> dict[str, Any]:
    """How other options do on the rows to judge by, with DeLong's paired test."""
    try:
        other = fit.trained(train, seed, **options)
    except (DivergedError, NotFiniteError):
        return {}
    score = "predict_proba" if len(test.labels) > 2 else "decision_function"
    theirs, ours = (getattr(x, score)(test.table) for x in (other, model))
    peer = compare_scores("the defaults", theirs, test.classes, ours)
    return {"test_auc": peer.auc, "p_value": peer.p_value}


class Progress:
    """A bar over the trials in a terminal, elsewhere a line for each.

    Args:
        total: how many trials there will be.
        show: False is silent.
    """

    def __init__(self, total: int, show: bool) -> None:
        self.total = total
        self.bar = ProgressBar(show, "count", "time left", "note", width=24)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.close()

    def begin(self, done: list[dict[str, Any]]) -> None:
        """So many trials are done already."""
        self.bar.begin("tuning", self.total, len(done), note=_best(done))
        if done:
            self.say(f"{len(done)} of {self.total} trials were done before")

    def ended(self, found: dict[str, Any], done: list[dict[str, Any]]) -> None:
        """One more is done: say how it went."""
        auc = f"validation AUC {np.mean(found['folds']):.4f}" if "folds" in found else "diverged"
        self.say(f"{len(done):>4}/{self.total}  {auc}, {found['seconds']:,.0f} s, {_best(done)}")
        self.bar.update(len(done), note=_best(done))

    def say(self, text: str) -> None:
        """A line of its own."""
        self.bar.say(text)


def _best(done: list[dict[str, Any]]) -> str:
    aucs = [x for trial in done if (x := trial["validation_auc"]) is not None]
    return f"best {max(aucs):.4f}" if aucs else ""
