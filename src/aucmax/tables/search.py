"""From a file to a model folder, with options that a search has found to suit the table."""

from __future__ import annotations

import functools
import itertools
import math
import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields, replace
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any, NamedTuple

import numpy as np
import torch

from aucmax import checks, disk
from aucmax.checks import NotFiniteError
from aucmax.judge.interval import are_enough
from aucmax.judge.peers import compare as compare_scores
from aucmax.processes import WorkerPool
from aucmax.progress import ProgressBar
from aucmax.report import model_folder
from aucmax.report.model_folder import Fitted
from aucmax.report.unfinished import work_folder
from aucmax.search import open_journal, require_optuna
from aucmax.signals import Stopped, saying_so
from aucmax.tables.classifier import AUCClassifier
from aucmax.tables.encoder import TableEncoder
from aucmax.tables.ensemble.fitting import FittedModels
from aucmax.tables.ensemble.networks import LEARNING_RATE, MEMBERS
from aucmax.tables.evaluate import ScoredRows
from aucmax.tables.fit import TableFile, fit_rows, groups_in_words, judge
from aucmax.tables.folds import Folds, make_folds
from aucmax.tables.labeled import Labeled
from aucmax.tables.read_options import ReadOptions
from aucmax.tables.several import Paths, as_paths, model_folder_of
from aucmax.threads import cores
from aucmax.train import DivergedError, Outcome, Sweep
from aucmax.train.metrics import FORMS, ROC_AUC, Metric, Scored, default_metric, find_metric
from aucmax.train.objectives import names_of
from aucmax.train.options import find_device

FOLDS = 3
"""Into which the training rows are cut: each is scored by a model of the others."""
AT_RANDOM = 10
"""Trials before the sampler learns from what it has seen."""
SUITED = {
    "partial_auc": ("partial+ce",),
    "tpr_at_fpr": ("partial+ce",),
    "average_precision": ("ap+ce",),
    "precision_at": ("ap+ce",),
    "grouped_auc": ("pairwise", "pairwise+ce"),
}
"""Objectives that are tried too, of two classes, where trials are compared by these metrics."""
ON_GPU = 3
"""Trials at a time there: nine networks of a table's size."""


@dataclass(frozen=True)
class Trial:
    """Options, and what came of them.

    Attributes:
        options: of the classifier.
        folds: the metric of each fold, scored by a model of the others; None if training diverged.
        error: how it diverged, if so.
        seconds: it took; None of options that were not tried.
        test_auc: on the rows to judge by, of a model of all training rows; within groups, if rows
            have some.
        p_value: of the difference to the best options there.
    """

    options: dict[str, Any]
    folds: list[float] | None = None
    error: str | None = None
    seconds: float | None = None
    test_auc: float | None = None
    p_value: float | None = None

    @property
    def validation_score(self) -> float | None:
        """The mean over the folds, by which trials are compared."""
        return None if self.folds is None else float(np.mean(self.folds))

    def to_dict(self) -> dict[str, Any]:
        """As in ``tuning.json``: what is not known is left out."""
        known = {name: value for name, value in vars(self).items() if value is not None}
        return {**known, "validation_score": self.validation_score}


@dataclass(frozen=True)
class Tuning:
    """What a search has found.

    Attributes:
        best: the trial of the best validation score.
        defaults: that of the classifier's own options.
        searched: names of the options that were chosen.
        trials: all of them, in the order in which they began.
    """

    best: Trial
    defaults: Trial
    searched: list[str]
    trials: list[Trial]

    @property
    def metric(self) -> Metric:
        """What the validation scores are."""
        return metric_of(self.best.options)

    def to_dict(self) -> dict[str, Any]:
        """The content of ``tuning.json``."""
        return {
            "best": self.best.to_dict(),
            "defaults": self.defaults.to_dict(),
            "searched": self.searched,
            "folds": FOLDS,
            "trials": [trial.to_dict() for trial in self.trials],
        }

    @classmethod
    def read(cls, folder: str | Path) -> Tuning:
        """That of a model's folder."""
        content = disk.read_json(Path(folder) / "tuning.json")

        def trial(about: Mapping[str, Any]) -> Trial:
            known = {field.name for field in fields(Trial)}
            return Trial(**{key: value for key, value in about.items() if key in known})

        best, defaults = trial(content["best"]), trial(content["defaults"])
        return cls(best, defaults, content["searched"], list(map(trial, content["trials"])))


class Tuned(NamedTuple):
    """What :func:`tune_file` has written: the model's folder, and the search."""

    fitted: Fitted
    tuning: Tuning


def tune_file(
    data: Paths,
    target: str,
    *,
    positive: str | None = None,
    out: str | Path | None = None,
    drop: Sequence[str] = (),
    weight: str | None = None,
    group: str | None = None,
    time: str | None = None,
    id_column: str | None = None,
    exact_labels: bool = False,
    reading: ReadOptions | None = None,
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

    A trial's worth is the mean AUC, or another ``metric`` that has a name, over three folds of the
    training rows, each scored by a model of the other two. The rows to judge by are those of
    ``fit_file``, and have no part in the search. The first trial is that of the defaults. Killed,
    the same call goes on: the trials are in ``OUT.unfinished`` until the model is written. With
    one worker it then does the same trials as if it had not been killed.

    Args:
        data: CSV, Parquet or Arrow, as in ``fit_file``.
        target: the column to predict.
        positive: its positive label; None finds it.
        out: folder for the model; None for the first file's name with "-model".
        drop: columns to leave out.
        weight: a column of numbers of at least 0, how much each row counts, as in ``fit_file``;
            folds are judged by weight too.
        group: a column of groups, as in ``fit_file``; folds do not cut them, and are judged within
            them.
        time: a column of times, as in ``fit_file``; folds are judged by what comes after what their
            models know.
        id_column: names a row. It is not trained on, and predictions carry it.
        exact_labels: whether labels that differ in case, blanks or the like are kept apart.
        reading: how the files are written, where it cannot be found out.
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
    trials = checks.count("trials", trials)
    if workers is None:
        on_gpu = find_device(options.get("device", "auto")).type == "cuda"
        workers = ON_GPU if on_gpu else cores()
    workers = checks.count("workers", workers)
    deadline = math.inf
    if time_limit is not None:
        deadline = monotonic() + checks.positive("time_limit", time_limit, infinite=True)
    paths = as_paths(data)
    file = TableFile(
        paths, target, positive=positive, drop=tuple(drop), test_share=test_share, seed=seed,
        exact_labels=exact_labels, weight=weight, group=group, time=time, id_column=id_column,
        reading=reading or ReadOptions(),
    )  # fmt: skip
    require_optuna()
    # Refused at once: what would end the search later, or has no part in it.
    own = {"random_state", "time_limit", "method", "backbone", "hidden"}
    if own := own & options.keys():
        raise ValueError(
            f"options must be those of TabM, AdamW and the rows, found {', '.join(sorted(own))}"
        )
    AUCClassifier(**options)._check_options()
    if len(names_of(options.get("objective", "auc+ce"))) != 1:
        raise ValueError(
            f"objective must be one, or left out for the search to choose it, found "
            f"{options['objective']!r}"
        )
    if options.get("metric") is None:
        options["metric"] = default_metric(group is not None)
    if not (metric := metric_of(options)).is_known:  # processes share its name
        raise ValueError(f"metric must be one of {', '.join(FORMS)}, found {metric.name!r}")
    if metric.needs_group and group is None:
        raise ValueError(f"group must be given for the metric {metric.name!r}, found none")
    folder = model_folder_of(out, paths[0])
    settings = file.settings("tune", file.digest, options)
    with saying_so(), work_folder(folder, settings, progress) as work:
        train, test, _ = read_folds(file, file.digest)
        counts = np.bincount(train.classes).tolist()
        if not are_enough(counts):
            few = f"{min(counts)} rows of {train.labels[counts.index(min(counts))]!r}"
            note = f"the options are chosen by {few} in all, too few to choose by: mostly by chance"
            train = train._replace(notes=[*train.notes, note])
        work.mkdir(exist_ok=True)
        if group is not None and len(train.labels) > 2 and "objective" not in options:
            raise ValueError(
                f"objective must be given for groups with several labels, where 'auc' is none to "
                f"choose, found {len(train.labels)} labels of {target!r}"
            )
        search = Search(work / "study.log", file, file.digest, options, len(train.labels))
        _run(search, trials, workers, deadline, progress)
        tuning = search.result()
        fitting = {"verbose": progress, **tuning.best.options}
        model = fit_rows(train, seed, work / "best", **fitting)
        scored = ScoredRows.of(model, model.encoder_.transform(test.table))
        evaluation = judge(model, train, test, scored, file=file, command=command, compare=compare)
        auc = evaluation.compared_auc.value
        tuning = replace(
            tuning,
            best=replace(tuning.best, test_auc=auc),
            defaults=_compared(tuning, auc, scored, train, test, file.seed, work),
        )
        fitted = model_folder.write(
            folder,
            model,
            evaluation,
            lambda x: disk.write_json(x / "tuning.json", tuning.to_dict()),
        )
        return Tuned(fitted, tuning)


def _run(search: Search, trials: int, workers: int, deadline: float, progress: bool) -> None:
    """Do the trials that are missing, and show how far it is."""

    def best() -> str:
        scores = [x for trial in search.done() if (x := trial.validation_score) is not None]
        return f"best {max(scores):.4f}" if scores else ""

    label = metric_of(search.fixed).label
    with ProgressBar(progress, "count", "time left", "note", width=24) as bar:
        done = len(search.done())
        bar.begin("tuning", trials, done, note=best())
        if done:
            bar.say(f"{done} of {trials} trials were done before")
        try:
            for trial in search.run(trials, workers, deadline):
                done, score = len(search.done()), trial.validation_score
                came = "diverged" if score is None else f"validation {label} {score:.4f}"
                bar.say(f"{done:>4}/{trials}  {came}, {trial.seconds:,.0f} s, {best()}")
                bar.update(done, note=best())
        except Stopped as stopped:
            stopped.at = f" after {done} of {trials} trials"
            raise
        if search.begun() < trials:
            bar.say(f"the time limit is reached after {search.begun()} of {trials} trials")


def _compared(
    tuning: Tuning,
    auc: float,
    scored: ScoredRows,
    train: Labeled,
    test: Labeled,
    seed: int,
    work: Path,
) -> Trial:
    """The defaults, with how a model of theirs does on the test rows beside the best."""
    defaults = tuning.defaults
    if defaults.options == tuning.best.options:
        return replace(defaults, test_auc=auc)
    if defaults.validation_score is None:
        return defaults
    try:
        model = fit_rows(train, seed, work / "defaults", **defaults.options)
        theirs = ScoredRows.of(model, model.encoder_.transform(test.table))
    except (DivergedError, NotFiniteError):
        return defaults
    peer = compare_scores(
        "the defaults", theirs.ranking, test.classes, scored.ranking, weight=test.weight,
        group=test.group,
    )  # fmt: skip
    return replace(defaults, test_auc=peer.compared_auc.value, p_value=peer.p_value)


# --- a trial --------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1)
def read_folds(file: TableFile, digest: str) -> tuple[Labeled, Labeled, Folds]:
    """Training rows, test rows, and the folds of the training rows; read once by each process.

    Args:
        file: of the rows.
        digest: of the file, so that another one of the same name is read again.
    """
    train, test, _ = file.split()
    encoded = TableEncoder().fit(train.table).transform(train.table)
    folds = make_folds(
        encoded, train.classes, None, count=FOLDS, seed=file.seed, group=train.group,
        time=train.time,
    )  # fmt: skip
    if folds.count < FOLDS and train.group is not None and train.time is None:
        raise ValueError(
            f"group must leave {FOLDS} parts of whole groups to train on, each with rows of "
            f"every label and a group with several, found {groups_in_words(train)} among them"
        )
    if folds.count < FOLDS and train.time is not None:
        raise ValueError(
            f"time must leave rows of every label in {FOLDS} parts of the later half of those to "
            f"train on, found too few"
        )
    if folds.count < FOLDS:
        counts = np.bincount(train.classes)
        raise ValueError(
            f"data must have enough rows of every label to cut those to train on in {FOLDS}, "
            f"found {counts.min()} of {train.labels[int(counts.argmin())]!r} among them"
        )
    return train, test, folds


def metric_of(options: Mapping[str, Any]) -> Metric:
    """What trials of these options are compared by."""
    return find_metric(options.get("metric", ROC_AUC))


class Fold:
    """A classifier of some rows, and the rows held out of it, which judge it."""

    def __init__(self, used: Labeled, held: Labeled, seed: int, options: dict[str, Any]) -> None:
        self._to_know: dict[str, Any] = {
            "X": used.table, "y": used.classes, "sample_weight": used.weight, "groups": used.group,
            "time": used.time,
        }  # fmt: skip
        self.held = held
        self.options = options
        own = {
            "random_state": seed,
            "n_jobs": 1,
            "verbose": False,
            "quality": "fast",
            "models": None,
        }
        self.model = AUCClassifier(**(options | own))

    def score(self) -> float:
        """Train it here and now."""
        self.model.fit(**self._to_know)
        return self._judged()

    def _judged(self) -> float:
        """The metric of the rows that are held."""
        scores = torch.from_numpy(self.model.decision_function(self.held.table))
        about = self.held.classes, self.held.weight, self.held.group
        columns = (None if x is None else torch.from_numpy(x) for x in about)
        task = "binary" if scores.ndim == 1 else "multiclass"
        return metric_of(self.options)(Scored(scores, *columns), task)  # type: ignore[arg-type]

    def begin(self) -> dict[str, Any]:
        """The arguments of a training elsewhere, which :meth:`end` takes up."""
        self.fitting = self.model._prepare(**self._to_know)
        self.fit = self.fitting.network_fit("network")
        return self.fit.arguments

    def end(self, outcome: Outcome) -> float | Exception:
        """The metric of what has been trained, or what went wrong."""
        try:
            if isinstance(outcome, DivergedError):
                return outcome
            fitted = {"network": self.fit.end(outcome)}
            self.model._finish(self.fitting, FittedModels(fitted, outcome))
            return self._judged()
        except NotFiniteError as error:
            return error.with_traceback(None)


def folds_of(train: Labeled, folds: Folds, seed: int, options: dict[str, Any]) -> Iterator[Fold]:
    """A classifier with these options for each fold."""
    for k in range(folds.count):
        used, held = map(train.select, folds.rows(k))
        yield Fold(used, held, seed, options)


def validate(file: TableFile, digest: str, options: dict[str, Any]) -> Trial:
    """Try options on each fold, by a model of the other folds; rows to judge by have no part."""
    train, _, folds = read_folds(file, digest)
    began = perf_counter()
    outcomes: list[float | Exception] = []
    try:
        outcomes += [fold.score() for fold in folds_of(train, folds, file.seed, options)]
    except (DivergedError, NotFiniteError) as error:
        outcomes.append(error)
    return trial_of(options, outcomes, began)


def trial_of(options: dict[str, Any], outcomes: Sequence[float | Exception], began: float) -> Trial:
    """A trial that began at that time, by the outcomes of its folds."""
    seconds = round(perf_counter() - began, 3)
    folds: list[float] = []
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            return Trial(options, error=" ".join(str(outcome).split()), seconds=seconds)
        folds.append(outcome)
    return Trial(options, folds, seconds=seconds)


def validate_in_turn(
    tasks: Iterator[Any], device: torch.device, at_once: int
) -> Iterator[tuple[str, Trial]]:
    """The names and trials of tasks as they end, folds taking turns on a GPU in this process.

    Args:
        tasks: (name, :func:`validate`, its arguments), or None to be asked again when one ended.
        device: of all of them.
        at_once: how many folds, of several trials, share it.
    """
    runs, under_way = itertools.count(), dict[int, tuple[str, int, Fold]]()
    began: dict[str, float] = {}
    outcomes: dict[str, dict[int, float | Exception]] = {}

    def configs() -> Iterator[dict[str, Any] | None]:
        for task in tasks:
            if task is None:
                yield None
                continue
            name, _, (file, digest, options) = task
            began[name], outcomes[name] = perf_counter(), {}
            train, _, folds = read_folds(file, digest)
            for k, fold in enumerate(folds_of(train, folds, file.seed, options)):
                under_way[next(runs)] = name, k, fold
                yield fold.begin()

    with closing(iter(Sweep(configs(), device, at_once))) as ended:
        for run, outcome in ended:
            name, k, fold = under_way.pop(run)
            outcomes[name][k] = fold.end(outcome)
            if len(outcomes[name]) == FOLDS:
                in_order = [outcomes[name][k] for k in range(FOLDS)]
                yield name, trial_of(fold.options, in_order, began[name])


# --- the study ------------------------------------------------------------------------------------


class Search:
    """A study in a file, which goes on where a killed process left it.

    Args:
        path: of the file, Optuna's journal.
        file: of the rows.
        digest: of that file.
        fixed: options that all trials share.
        classes: how many the target has.
    """

    def __init__(
        self, path: Path, file: TableFile, digest: str, fixed: dict[str, Any], classes: int
    ) -> None:
        self.path, self.file, self.digest, self.fixed = path, file, digest, fixed
        self.optuna = require_optuna()
        self.states = self.optuna.trial.TrialState
        self.space = self._space(classes)
        given = {**AUCClassifier().get_params(), "lr": LEARNING_RATE, "members": MEMBERS}
        defaults = {name: given[name] for name in self.space}
        self.defaults = {**fixed, **defaults}
        self.study = self.optuna.create_study(
            storage=open_journal(path), study_name="tune",
            direction="maximize", load_if_exists=True,
        )  # fmt: skip
        # The defaults come first; what was running when the process died comes again.
        if not self.study.trials:
            self.study.enqueue_trial(defaults)
        for trial in self.study.get_trials(states=(self.states.RUNNING,)):
            self.study.enqueue_trial({**trial.system_attrs.get("fixed_params", {}), **trial.params})
            self.study.tell(trial.number, state=self.states.FAIL)

    def _space(self, classes: int) -> dict[str, Any]:
        """The options to choose, each with its distribution, but for those that are fixed."""
        kinds = self.optuna.distributions
        by = metric_of(self.fixed).name.partition("@")[0]
        suited = SUITED.get(by, ()) if classes == 2 else ()
        space = {
            "objective": kinds.CategoricalDistribution(["auc+ce", "auc", "ce", *suited]),
            "lr": kinds.FloatDistribution(3e-4, 1e-2, log=True),
            "weight_decay": kinds.FloatDistribution(1e-3, 0.3, log=True),
            "dropout": kinds.FloatDistribution(0.0, 0.5),
            "width": kinds.CategoricalDistribution([64, 128, 256]),
            "blocks": kinds.IntDistribution(1, 3),
            "members": kinds.CategoricalDistribution([4, 8, 16]),
            "batch_size": kinds.CategoricalDistribution([64, 128, 256, 512]),
        }
        if classes == 2 and self.file.group is None:
            space["balanced"] = kinds.CategoricalDistribution([False, True])
        return {name: kind for name, kind in space.items() if name not in self.fixed}

    def begun(self) -> int:
        """How many trials are done or at work; not those that a kill ended."""
        counted = (self.states.COMPLETE, self.states.PRUNED, self.states.RUNNING)
        return len(self.study.get_trials(deepcopy=False, states=counted))

    def done(self) -> list[Trial]:
        """The trials that have ended, in the order in which they began."""
        ended = self.study.get_trials(states=(self.states.COMPLETE, self.states.PRUNED))
        return [Trial({**self.fixed, **trial.params}, **trial.user_attrs) for trial in ended]

    def result(self) -> Tuning:
        """The trials, with the best and that of the defaults apart."""
        done = self.done()
        scores = [-math.inf if (x := t.validation_score) is None else x for t in done]
        if max(scores) == -math.inf:
            raise ValueError(
                f"data must allow a training, found none of {len(done)} trials that ended well: "
                f"{done[0].error}"
            )
        best = done[scores.index(max(scores))]
        tried = (trial for trial in done if trial.options == self.defaults)
        return Tuning(best, next(tried, Trial(self.defaults)), list(self.space), done)

    def run(self, trials: int, workers: int, deadline: float) -> Iterator[Trial]:
        """Do what is missing of so many trials, and give each as it ends.

        None begins after the deadline, of ``time.monotonic()``, but the first.
        """
        at_work: dict[str, Any] = {}

        def tasks() -> Iterator[Any]:
            while (begun := self.begun()) < trials and (not begun or monotonic() < deadline):
                if len(at_work) == workers:
                    yield None
                    continue
                trial = self._ask(begun)
                at_work[name := f"trial {trial.number + 1}"] = trial
                yield name, validate, (self.file, self.digest, {**self.fixed, **trial.params})

        device = find_device(self.fixed.get("device", "auto"))
        workers = min(workers, max(1, trials - self.begun()))
        with closing(_results(tasks(), device, workers)) as results:
            for name, trial in results:
                self._tell(at_work.pop(name), trial)
                yield trial

    def _ask(self, begun: int) -> Any:
        """The next trial; a sampler that is new each time draws alike before and after a kill."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # older versions call two of these experimental
            self.study.sampler = self.optuna.samplers.TPESampler(
                seed=(self.file.seed + begun * 1_000_003) % 2**32, multivariate=True,
                constant_liar=True, n_startup_trials=AT_RANDOM,
            )  # fmt: skip
        return self.study.ask(self.space)

    def _tell(self, asked: Any, trial: Trial) -> None:
        for name in ("folds", "error", "seconds"):
            if (value := getattr(trial, name)) is not None:
                asked.set_user_attr(name, value)
        if trial.folds is None:
            self.study.tell(asked, state=self.states.PRUNED)  # which the sampler takes as bad
        else:
            self.study.tell(asked, trial.validation_score)


def _results(
    tasks: Iterator[Any], device: torch.device, workers: int
) -> Generator[tuple[str, Trial], None, None]:
    """Each task's name and trial, from processes of one thread each, or from this one."""
    if device.type == "cuda":
        yield from validate_in_turn(tasks, device, FOLDS * workers)
    elif workers == 1:
        for name, function, arguments in tasks:
            yield name, function(*arguments)
    else:
        with WorkerPool(workers, 1, lambda: None) as pool:
            yield from pool.run(tasks)
