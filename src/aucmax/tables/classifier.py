"""``AUCClassifier``: a scikit-learn classifier for raw tables."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from aucmax import checks, metrics
from aucmax.data.labels import has_pairs
from aucmax.judge import calibration
from aucmax.judge.calibration import Platt, Temperature, softmax
from aucmax.judge.threshold import RULES, Rule
from aucmax.row_groups import number_groups
from aucmax.signals import saying_so
from aucmax.tables import inputs, network, store
from aucmax.tables.columns import Columns
from aucmax.tables.encoder import Encoded, TableEncoder
from aucmax.tables.ensemble.base import Setting, TableModel
from aucmax.tables.ensemble.combined import Ensemble, Standing, combine, score_of
from aucmax.tables.ensemble.fitting import FittedModels, Fitting, fit_all, named
from aucmax.tables.ensemble.kinds import NETWORKS, QUALITIES, check_models
from aucmax.tables.ensemble.networks import CLIP_NORM, Networks, Recipe
from aucmax.tables.folds import Folds, held_out, judged_by, make_folds
from aucmax.tables.hints import one_label_groups
from aucmax.tables.importance import JudgedRows
from aucmax.tables.online import Online
from aucmax.tables.scoring import Rows, calibrate
from aucmax.threads import threads
from aucmax.train import Candidate, FitResult, fit
from aucmax.train.metrics import ROC_AUC, Metric, Scored, default_metric, find_metric
from aucmax.train.objectives import compares_rows, names_of, parts_of
from aucmax.train.options import find_device

FOLDS = {"good": 5, "best": 8}
"""Into which rows are cut, by quality; with "fast" there is one fit."""
FEW = 60
"""Rows of the rarest class below which folds are cut twice, but not in a small table."""
SMALL = 200
"""Rows of a table to which fewer networks are fitted, since nobody waits long for it."""


class AUCClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""A classifier that is trained to rank, on tables as they are.

    Columns of numbers, categories, booleans and dates, with values missing, become numbers inside
    (:class:`aucmax.tables.TableEncoder`). Several models are fitted to them: networks on the AUC
    objective and on cross-entropy, gradient boosting, a forest and logistic regression. The rows
    are cut into folds, and every row is scored by fits that have not seen it. By these scores
    networks stop when the AUC, or another ``metric``, rises no more; each model gets its weight in
    the mean, and one that adds nothing is left out; and ``predict_proba`` is calibrated, because
    scores that rank well mean nothing as probabilities. Calibration keeps the ranking.

    Rows may carry groups, such as patients, sites or queries (``fit(..., groups=)``): they are then
    ranked within their groups, and whole groups are held out. Predictions need no groups.

    Args:
        quality: "good", with five folds; "best", with eight, cut twice; "fast", one network, and
            one share of the rows held out. Of fewer than 60 rows of a class "good" cuts twice too,
            since what few rows say depends on where they lie; of fewer than 200 rows in all it cuts
            once, and has one kind of networks.
        models: instead of those of the quality: a list of "network", "ce-network" (on
            cross-entropy), "boosting", "forest", "logistic", and scikit-learn's classifiers, with
            which the model cannot be saved.
        objective: of "network": "auc", "ce" for cross-entropy, or any other of
            :data:`aucmax.train.objectives.OBJECTIVES`, or a sum such as "auc+ce". Of several in a
            list, or "auto" for those that suit the metric, all are trained, from the same weights,
            and the held-out rows choose: see ``candidates_``.
        loss_options: more arguments of its loss, such as ``{"margin": 0.5}``; in a sum those of the
            first part, any part's may be a mapping under its name, and must be where several
            objectives are chosen from. With the metric "partial_auc@0.1" the objective "partial"
            trains for that range unless they name one.
        method: the optimizer: "adamw", or any other of :func:`aucmax.fit`'s methods.
        backbone: "tabm", or a function of the numbers of numeric columns, of codes per categorical
            column, and of scores, which gives a ``torch.nn.Module`` that takes (numeric, codes).
        hidden: widths of the layers of a plain MLP instead of TabM.
        members: networks in TabM's ensemble; None for 8, and about 16 of all folds together.
        width: of its hidden layers.
        blocks: how many hidden layers it has.
        dropout: the share of hidden units left out in training.
        lr: step size; None for 0.002 with AdamW, and else what :func:`aucmax.fit` takes.
        weight_decay: of AdamW and SGD.
        batch_size: rows per step, fewer for small tables.
        max_steps: the most optimizer steps.
        max_epochs: the most times that every row is seen, on average.
        patience: stop after so many evaluations without a better validation score.
        validation_fraction: the share of the rows that "fast" holds out, in [0, 1). With 0, or
            where a class has fewer than four rows that differ, one model is all there is, and
            probabilities are calibrated on the training rows and too sure of themselves.
        metric: what decides, on held-out rows, when networks stop, and whether equal weights of
            the models are better: a name of :data:`aucmax.train.metrics.METRICS`, such as
            "roc_auc" or "average_precision", or a function of scores, labels and weights, of which
            more is better. None is "roc_auc", and "grouped_auc" for rows that carry groups.
        balanced: whether half of each batch is positive; two classes only, and not where batches
            are of whole groups.
        threshold: from which probability on the second of two classes is predicted. "proba" is one
            half (``aucmax fit`` takes "balanced" by default), a number is itself, "cost=5" is 1/6,
            where expected costs are least if a missed row of the second class costs as much as 5
            false alarms. Rows held out choose "balanced", the best balanced accuracy,
            "recall=0.9", the highest threshold with that recall, and "precision=0.5", the lowest
            with that precision.
        time_limit: seconds, of all models and objectives together. Training stops then, and what
            no longer fits is left out: a warning and ``standings_`` say so.
        n_jobs: threads; -1 for all cores that may be used, None for no more than these of the
            threads that torch is set to.
        device: "auto" is the GPU if there is one.
        random_state: seed of weights, batches and the held-out rows.
        verbose: whether to show a progress bar.

    Attributes:
        classes_: the labels, sorted.
        n_features_in_: columns seen in fit.
        feature_names_in_: their names, if they are all strings.
        models_: what is averaged, by name.
        weights_: of each model its share in what moves the mean: its weight times the spread of
            its log-odds, over the sum; 0 for those left out.
        standings_: of each model that share, its score out of fold, the p value of a paired test
            against the best, the seconds that it took, and why it was left out.
        oof_scores_: of each model the raw scores (N, 1), or (N, c) of c classes, that the rows got
            from fits that have not seen them, rows of ``eval_set`` after the others; NaN for rows
            that none was judged by. Not saved.
        feature_importances_: by how much the metric falls out of fold when a column is shuffled.
        history_: a record per evaluation of the network: step, seconds, validation score and more.
        objective_: what it was trained on: ``objective``, or the one that was chosen.
        candidates_: :class:`aucmax.train.Candidate`, those that were chosen from, the best first.
        metric_: the name of the metric.
        validation_score_: the metric of the weighted mean, of rows that its fits have not seen: a
            little too high, as they chose the weights; NaN if nothing was held out.
        validation_auc_: the same if the metric is the AUC, else NaN.
        rows_: how many rows of each class were trained on, "train", and held out, "valid", if not
            each was both.
        network_: the trained ``torch.nn.Module``, if one network is all there is.
        encoder_: from columns to numbers.
        calibration_: from scores to probabilities.
        threshold_: the probability from which the second class is predicted.

    Example:
        >>> from sklearn.datasets import make_classification
        >>> import aucmax
        >>> X, y = make_classification(400, weights=[0.9], random_state=0)
        >>> model = aucmax.AUCClassifier(max_steps=60, random_state=0).fit(X[:300], y[:300])
        >>> model.score(X[300:], y[300:]) > 0.8
        True
        >>> model.predict_proba(X[300:]).shape
        (100, 2)
    """

    def __init__(
        self,
        *,
        quality: str = "good",
        models: Sequence[Any] | None = None,
        objective: str | Sequence[str] = "auc+ce",
        loss_options: Mapping[str, Any] | None = None,
        method: str = "adamw",
        backbone: str | Callable[..., Any] = "tabm",
        hidden: int | Sequence[int] | None = None,
        members: int | None = None,
        width: int = 128,
        blocks: int = 2,
        dropout: float = 0.3,
        lr: float | None = None,
        weight_decay: float = 0.01,
        batch_size: int = 256,
        max_steps: int = 3000,
        max_epochs: int = 100,
        patience: int = 12,
        validation_fraction: float = 0.15,
        metric: str | Callable[..., float] | None = None,
        balanced: bool = False,
        threshold: str | float = "proba",
        time_limit: float | None = None,
        n_jobs: int | None = None,
        device: str = "auto",
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.quality = quality
        self.models = models
        self.objective = objective
        self.loss_options = loss_options
        self.method = method
        self.backbone = backbone
        self.hidden = hidden
        self.members = members
        self.width = width
        self.blocks = blocks
        self.dropout = dropout
        self.lr = lr
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.max_steps = max_steps
        self.max_epochs = max_epochs
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.metric = metric
        self.balanced = balanced
        self.threshold = threshold
        self.time_limit = time_limit
        self.n_jobs = n_jobs
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    # --- training -----------------------------------------------------------------------------

    calibration_: Platt | Temperature
    objective_: str
    candidates_: tuple[Candidate, ...]
    ensemble_: Ensemble
    _judged: JudgedRows | None = None
    _importances: NDArray[np.float64] | None = None
    standings_: tuple[Standing, ...]
    online_: Online

    def fit(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: Any = None,
        *,
        eval_set: Any = None,
        time: Any = None,
    ) -> Self:
        """Train on a table.

        Args:
            X: (N, d) numbers, NumPy or scipy sparse, or a pandas, polars or Arrow table.
            y: N labels of any type.
            sample_weight: N numbers, none negative.
            groups: N values of any type, none missing, such as patients, sites or queries: only
                rows of the same group are compared, in training and by the metric, and a group is
                held out whole or not at all. Not needed to predict.
            eval_set: rows that decide when to stop, the weights, calibration and threshold, none of
                X being held out then: (X, y), (X, y, weight) or (X, y, weight, groups), or a list
                of one of these.
            time: N numbers or dates, none missing: fits are judged by rows that are later than
                those that they are trained on. Not needed to predict.
        """
        fitting = self._prepare(X, y, sample_weight, groups, eval_set=eval_set, time=time)
        if (group := fitting.rows.group) is not None:
            rows = np.flatnonzero(fitting.folds.used.any(axis=1) | fitting.folds.held.any(axis=1))
            if said := one_label_groups(group[rows], fitting.rows.classes[rows], "groups"):
                warnings.warn(said, UserWarning, stacklevel=2)
        self._train(fitting)
        failed = [x for x in self.standings_ if math.isnan(x.seconds)]
        if failed:
            reasons = "; ".join(f"{x.name}: {x.left_out}" for x in failed)
            warnings.warn(f"models are left out ({reasons})", UserWarning, stacklevel=2)
        return self

    def _prepare(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: Any = None,
        labels: Sequence[str] | None = None,
        *,
        eval_set: Any = None,
        time: Any = None,
    ) -> Fitting:
        """What comes before training: rows as numbers, cut into folds.

        Where ``labels`` are given, in their order, each ``y`` holds a row's place among them.
        """
        if hasattr(self, "online_"):
            del self.online_
        table = inputs.checked_columns(self, X, reset=True)
        if labels is None:
            self.classes_, numbers = inputs.class_numbers(y, table.rows)
        else:
            self.classes_, numbers = np.array(labels, dtype=object), np.asarray(y, np.int64)
        weight = inputs.row_weights(sample_weight, table)
        if weight is not None:
            inputs.check_every_class("sample_weight must leave", numbers, weight, self.classes_)
        self._check_options()
        times = inputs.row_times(time, table.rows)
        if eval_set is not None and times is not None:
            raise ValueError("time must not be given with eval_set, which is held out already")
        group = self._group_numbers(groups, numbers, weight)
        metric = self._chosen_by(group is not None)
        self.metric_ = metric.name
        seed = self._draw_seed()
        self.encoder_ = TableEncoder().fit(table)
        rows = Rows.of(self.encoder_.transform(table), numbers, weight, group)
        if eval_set is None:
            folds = self._cut(rows, seed, times)
        else:
            given = self._rows_to_stop_by(eval_set, group is not None, labels is not None)
            rows = rows.followed_by(given)
            folds = judged_by(np.arange(len(rows)) >= table.rows, rows.weight)
        if self._has_candidates and not len(folds.judged):
            raise ValueError(
                f"objective must be one where no rows are held out to choose by, found "
                f"{self.objective!r}"
            )
        parts = {"train": folds.whole}
        if folds.count == 1:  # else rows are both
            parts["train"], parts["valid"] = folds.rows(0)
        self.rows_ = {
            name: np.bincount(rows.classes[part], minlength=len(self.classes_)).tolist()
            for name, part in parts.items()
        }
        return Fitting(rows, folds, self._setting(metric, seed), self._recipe())

    def _rows_to_stop_by(self, eval_set: Any, grouped: bool, has_places: bool) -> Rows:
        """Rows of ``eval_set``, encoded as those of training; ``y`` may hold places of labels."""
        X, y, sample_weight, groups = inputs.parts_of_eval_set(eval_set)
        try:
            table = inputs.checked_columns(self, X, reset=False)
            if has_places:
                numbers = np.asarray(y, np.int64)
            else:
                numbers = inputs.numbers_of(y, self.classes_, table.rows)
                for note in self.encoder_.reading_notes(table):
                    warnings.warn(f"eval_set: {note}", stacklevel=4)
            weight = inputs.row_weights(sample_weight, table)
            inputs.check_every_class("it must have", numbers, weight, self.classes_)
            if grouped != (groups is not None):
                found = "none" if grouped else "some"
                raise ValueError(f"it must have groups if X has, found {found}")
            return Rows.of(
                self.encoder_.transform(table), numbers, weight,
                self._group_numbers(groups, numbers, weight),
            )  # fmt: skip
        except ValueError as error:
            raise ValueError(f"eval_set: {error}") from None

    def _setting(self, metric: Metric, seed: int) -> Setting:
        limit = math.inf
        if self.time_limit is not None:
            limit = checks.positive("time_limit", self.time_limit, infinite=True)
        return Setting(
            cardinalities=self.encoder_.cardinalities,
            outputs=self._outputs,
            metric=metric,
            seed=seed,
            device=find_device(self.device),
            deadline=time.monotonic() + limit,
            work=None,
            progress=self.verbose,
        )

    def _cut(self, rows: Rows, seed: int, times: NDArray[Any] | None) -> Folds:
        """Which rows each fit is trained on, and judged by."""
        encoded, about = rows.encoded, (rows.classes, rows.weight)
        share = float(self.validation_fraction)
        if self.quality != "fast":
            counts = np.bincount(rows.classes)
            few = counts[counts > 0].min() < FEW and len(rows) >= SMALL
            folds = make_folds(
                encoded, *about, count=FOLDS[self.quality],
                repeats=2 if few or self.quality == "best" else 1,
                seed=seed, group=rows.group, time=times,
            )  # fmt: skip
            if folds.count:
                return folds
            share = 0.0
        folds = held_out(encoded, *about, share, seed, rows.group, times)
        wanted, group = share or self.quality != "fast", rows.group
        if wanted and not len(folds.judged) and (group is not None or times is not None):
            what, within = "the latest rows and those before", ""
            if group is not None:
                within = " and a group to compare within"
                if times is None:
                    what = f"{len(np.unique(group))} groups, none of which may be cut,"
            warnings.warn(
                f"no rows are held out: {what} leave no two parts with rows of every class"
                f"{within}; training does not stop early, and probabilities are too sure of "
                f"themselves",
                UserWarning, stacklevel=5,
            )  # fmt: skip
        return folds

    def _train(self, fitting: Fitting, work: Path | None = None) -> Self:
        """Fit the models; with a folder for the work, going on from what is in it."""
        fitting = fitting._replace(setting=fitting.setting._replace(work=work))
        with threads(self.n_jobs), saying_so("nothing was saved" if work is None else ""):
            return self._finish(fitting, fit_all(self._kinds(fitting.folds), fitting))

    def _kinds(self, folds: Folds) -> dict[str, Any]:
        """The models' names, each with its kind or the classifier itself: the quickest first."""
        kinds = named(QUALITIES[self.quality] if self.models is None else self.models)
        if not len(folds.judged):  # nothing to weigh several by
            name = next((x for x, kind in kinds.items() if kind == "network"), next(iter(kinds)))
            kinds = {name: kinds[name]}
        small = self.models is None and len(folds.used) < SMALL
        if small or self.objective == "ce":
            kinds = {name: kind for name, kind in kinds.items() if kind != "ce-network"} or kinds
        return dict(sorted(kinds.items(), key=lambda item: item[1] in NETWORKS))

    def _recipe(self) -> Recipe:
        return Recipe(**{field.name: getattr(self, field.name) for field in fields(Recipe)})

    def _finish(self, fitting: Fitting, fitted: FittedModels) -> Self:
        """What comes after fits: weights, calibration and threshold, by scores out of fold."""
        rows, folds, setting, _ = fitting
        self.ensemble_, standings = combine(fitted.models, rows, setting.metric)
        missing = [Standing(x, 0.0, math.nan, left_out=why) for x, why in fitted.left_out.items()]
        self.standings_ = (*standings, *missing)
        self._set_outcome(fitted.network)
        judged = folds.judged
        self._judged = JudgedRows.sample(rows, folds, setting.seed) if len(judged) else None
        self._importances = None
        self.oof_scores_ = {name: each.scores for name, each in fitted.models.items()}
        scores = self.ensemble_.combine(self.oof_scores_)[judged]
        self._set_score(score_of(scores, rows.select(judged), setting.metric))
        if not len(judged):
            judged = np.flatnonzero(folds.used.any(axis=1))
            scores = self.ensemble_.score(rows.select(judged).encoded)
        self.calibration_, self.threshold_ = calibrate(scores, rows.select(judged), self.threshold)
        return self

    def _set_outcome(self, network: FitResult | None) -> None:
        """What a person may want to know of the training of the network, if there is one."""
        self.history_ = [] if network is None else network.history
        self.objective_ = "" if network is None else str(network.objective)
        self.candidates_ = () if network is None else network.candidates

    def _group_numbers(
        self, groups: Any, classes: NDArray[np.int64], weight: NDArray[Any] | None
    ) -> NDArray[np.int64] | None:
        """The rows' groups from 0 on, checked; None if rows carry none."""
        if groups is None:
            return None
        group: NDArray[np.int64] = number_groups(groups, "groups", len(classes)).numpy()
        counted = np.ones(len(group), bool) if weight is None else weight > 0
        if not has_pairs(group[counted], classes[counted]).any():
            raise ValueError(
                f"groups must have one with rows of two classes, found {group.max() + 1} with rows "
                f"of one class each"
            )
        compared = [compares_rows(name) for name in names_of(self.objective)] or [True]
        if self.balanced and len(self.classes_) == 2 and any(compared):
            raise ValueError(
                f"balanced must be False for rows in groups with the objective "
                f"{self.objective!r}, whose batches are of whole groups, found True"
            )
        return group

    def _chosen_by(self, grouped: bool) -> Metric:
        """The metric of rows with or without groups."""
        metric = find_metric(default_metric(grouped) if self.metric is None else self.metric)
        if metric.name == "grouped_auc" and not grouped:
            raise ValueError(f"groups must be given for the metric {metric.name!r}, found none")
        return metric

    @property
    def _has_candidates(self) -> bool:
        return len(names_of(self.objective)) != 1

    def _set_score(self, score: float) -> None:
        self.validation_score_ = score
        self.validation_auc_ = score if self.metric_ == ROC_AUC.name else math.nan

    def _begin_stream(self, sample: Columns, labels: Sequence[str], seed: int) -> None:
        """Learn from some rows how columns become numbers, and build the network."""
        self.classes_ = np.array(labels, dtype=object)
        self._check_options()
        if self.quality != "fast" or self.models is not None:
            found = self.quality if self.models is None else self.models
            raise ValueError(
                f"quality must be 'fast' for streaming, which trains one network, found {found!r}"
            )
        if self._has_candidates:
            raise ValueError(
                f"objective must be one for streaming, where rows are read as they are needed, "
                f"found {self.objective!r}"
            )
        self.metric_ = self._chosen_by(grouped=False).name
        self._build(inputs.checked_columns(self, sample, reset=True), seed)

    def _fit_stream(
        self,
        batches: Any,
        valid: Rows,
        *,
        rows: dict[str, list[int]],
        shares: list[float],
        **arguments: Any,
    ) -> Self:
        """Train on batches ``((numeric, codes), classes)`` after :meth:`_begin_stream`.

        Of two classes the share is estimated as rows come; of more the ``shares`` are needed.
        """
        self.rows_ = rows
        usual = self._recipe().method_arguments(self._outputs, arguments["steps"])
        options = {**usual, **arguments}
        if len(shares) > 2 and "auc" in dict(parts_of(str(self.objective))):
            own = options["loss_options"]
            options["loss_options"] = {**own, "auc": {"priors": shares, **own.get("auc", {})}}
        with threads(self.n_jobs):
            result = fit(
                self.network_, batches, valid.for_fit(), probe=0, device=self.device,
                clip_norm=CLIP_NORM, time_limit=self.time_limit, **options,
            )  # fmt: skip
            self._set_outcome(result)
            self._set_score(result.score)
            scores = self.ensemble_.score(valid.encoded)
            self.calibration_, self.threshold_ = calibrate(scores, valid, self.threshold)
            return self

    def _can_learn_on(self) -> bool:
        """Whether it is not fitted yet, or one network; else an error that says so."""
        return not hasattr(self, "ensemble_") or self.network_ is not None

    @available_if(_can_learn_on)  # type: ignore[untyped-decorator]
    def partial_fit(
        self, X: Any, y: ArrayLike, classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:  # fmt: skip
        """Learn from rows as they come, once each, the classes' shares unknown (Algorithm 4).

        One network that is fitted or loaded goes on from where it is; a model of several has no
        ``partial_fit``. Else the first call fixes how columns become numbers, so let it have some
        hundred rows. Each row is scored before it
        is learned from: ``validation_score_`` is the metric of these scores. The latest rows
        calibrate the probabilities. AdamW on both objectives is the method, whatever the options
        say.

        Args:
            X: the next rows.
            y: their labels.
            classes: all labels that will ever come; needed in the first call, if it lacks some.
            sample_weight: of the rows.
        """
        is_new = not hasattr(self, "ensemble_")
        table = inputs.checked_columns(self, X, reset=is_new)
        if not hasattr(self, "online_"):
            self._check_options()
            if not is_new:
                self._set_network(*self.models_.values())
            else:
                known = np.unique(np.asarray(y if classes is None else classes))
                self.classes_, _ = inputs.class_numbers(known, len(known))
                self._build(table, self._draw_seed())
            lr = self._recipe().step_size
            count, decay = len(self.classes_), float(self.weight_decay)
            metric = self._chosen_by(grouped=False)
            self.metric_ = metric.name
            self.online_ = Online(self.network_.cpu(), count, lr, decay, metric)
        numbers = inputs.numbers_of(y, self.classes_, table.rows)
        weight = inputs.row_weights(sample_weight, table)
        with threads(self.n_jobs):
            encoded = self.encoder_.transform(table)
            self.online_.learn(Rows.of(encoded, numbers, weight), self.batch_size)
        self.history_ = self.online_.history
        self.objective_, self.candidates_ = "auc+ce", ()
        self._set_score(self.online_.score())
        self.calibration_, self.threshold_ = self.online_.calibrated(self.threshold)
        return self

    def _check_options(self) -> None:
        rule = Rule.read(self.threshold)
        if rule.kind in RULES and len(getattr(self, "classes_", ())) > 2:
            raise ValueError(f"threshold must be left to two classes, found {str(rule)!r} for more")
        names_of(self.objective)
        if self.metric is not None:
            find_metric(self.metric)
        if not callable(self.backbone):
            checks.choice("backbone", self.backbone, ("tabm",))
        for name in ("validation_fraction", "dropout"):
            checks.number(name, getattr(self, name), "in [0, 1)", lambda x: 0 <= x < 1)
        checks.number("weight_decay", self.weight_decay, ">= 0", lambda x: x >= 0)
        if self.lr is not None:
            checks.positive("lr", self.lr)
        if self.members is not None:
            checks.count("members", self.members)
        for name in ("width", "blocks", "batch_size", "max_steps", "max_epochs", "patience"):
            checks.count(name, getattr(self, name))
        checks.choice("quality", self.quality, tuple(QUALITIES))
        if self.models is not None:
            check_models(self.models)
        if not isinstance(self.loss_options, Mapping | None):
            raise ValueError(
                f"loss_options must be a mapping of the loss's arguments or None, "
                f"found {self.loss_options!r}"
            )

    @property
    def _outputs(self) -> int:
        """Scores per row."""
        return 1 if len(self.classes_) == 2 else len(self.classes_)

    def _draw_seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31))

    def _build(self, table: Columns, seed: int) -> None:
        """Learn how columns become numbers, and build one network, not trained yet."""
        self.encoder_ = TableEncoder().fit(table)
        numeric = torch.from_numpy(self.encoder_.transform(table).numeric)
        recipe = self._recipe()
        shape = recipe.describe(numeric, self.encoder_.cardinalities, self._outputs)
        generator = torch.Generator().manual_seed(seed)
        built = network.build(shape, recipe.factory, generator)
        self._set_network(Networks("network", [built], shape, recipe.factory))

    def _set_network(self, only: TableModel) -> None:
        """One network is all there is, and no rows have judged it as it is to be."""
        self._judged = self._importances = None
        self.__dict__.pop("oof_scores_", None)
        self.ensemble_ = Ensemble({only.name: only}, {only.name: 1.0}, {})
        self.standings_ = (Standing(only.name, 1.0, math.nan),)

    @property
    def models_(self) -> dict[str, TableModel]:
        """The models whose scores are averaged, by name."""
        return dict(self.ensemble_.models)

    @property
    def weights_(self) -> dict[str, float]:
        """How much each model moves the mean; 0 for those that were left out."""
        return {each.name: each.weight for each in self.standings_}

    @property
    def feature_importances_(self) -> NDArray[np.float64]:
        """By how much the metric falls out of fold when a column is shuffled; 0 if it is not used.

        Of up to 1,000 rows, each scored by fits that have not seen it, as the mean over shuffles.
        It is computed at the first use, and saved if it was.
        """
        check_is_fitted(self, "ensemble_")
        if self._importances is None:
            if self._judged is None:
                raise AttributeError(
                    "feature_importances_ needs rows that fits were judged by, found none: they "
                    "are not saved with a model, so use it before"
                )
            metric = self._chosen_by(self._judged.rows.group is not None)
            with threads(self.n_jobs):
                self._importances = self._judged.importances(
                    self.encoder_,
                    self._outputs,
                    self.ensemble_.score,
                    lambda s, rows: score_of(s, rows, metric),
                )
        return self._importances.copy()

    @property
    def network_(self) -> torch.nn.Module:
        """The network, of a model that is one network alone."""
        found = list(self.ensemble_.models.values())
        if len(found) == 1 and isinstance(found[0], Networks) and len(found[0].networks) == 1:
            return found[0].networks[0]
        raise AttributeError(
            f"network_ is there if one network is all there is, as with quality='fast', found "
            f"{', '.join(self.weights_)}: see models_"
        )

    # --- prediction ---------------------------------------------------------------------------

    def _raw_scores(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self, "ensemble_")
        table = inputs.checked_columns(self, X, reset=False)
        for note in self.encoder_.reading_notes(table):
            warnings.warn(note, stacklevel=3)
        return self.score_encoded(self.encoder_.transform(table))

    def score_encoded(self, encoded: Encoded) -> NDArray[np.float64]:
        """Raw scores of rows that ``encoder_`` has encoded already, (N,) or (N, c)."""
        device = find_device(self.device)
        for each in self.ensemble_.models.values():
            each.device = device
        with threads(self.n_jobs):
            scores = self.ensemble_.score(encoded)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Log-odds of the second class less those of the threshold, or (N, c) of more classes.

        They rank as the models' raw scores do, and are positive where ``predict`` says the
        second class.
        """
        return self._decisions(self._raw_scores(X))

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Calibrated probabilities of the classes (N, c), which rank as the scores do."""
        return self._probabilities(self._raw_scores(X))

    def predict(self, X: Any) -> NDArray[Any]:
        """The labels that ``threshold`` says."""
        return self._labels(self._raw_scores(X))

    # From raw scores, so that rows need be scored only once for all three.

    def _decisions(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        logits = self.calibration_.logit(scores)
        if scores.ndim == 2:
            return logits
        return logits - math.log(self.threshold_ / (1 - self.threshold_))

    def _probabilities(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        probabilities = self.calibration_(scores)
        if scores.ndim == 2:
            return probabilities
        return np.stack([1 - probabilities, probabilities], axis=1)

    def _labels(self, scores: NDArray[np.float64]) -> NDArray[Any]:
        decisions = self._decisions(scores)
        binary = decisions.ndim == 1
        places = (decisions > 0).astype(np.int64) if binary else decisions.argmax(axis=1)
        return np.asarray(self.classes_[places])

    def score(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None, groups: Any = None
    ) -> float:
        """The AUC, of more than two classes Hand and Till's mean over pairs of classes.

        With groups it is that of pairs within a group, of more than two classes the mean over the
        classes, each against the rest.
        """
        scores = self.decision_function(X)
        numbers = inputs.numbers_of(y, self.classes_, len(scores))
        weight = None if sample_weight is None else np.asarray(sample_weight, np.float64)
        if groups is not None:
            group = number_groups(groups, "groups", len(scores))
            weights = None if weight is None else torch.tensor(weight)
            rows = Scored(torch.from_numpy(scores), torch.from_numpy(numbers), weights, group)
            task = "binary" if scores.ndim == 1 else "multiclass"
            return find_metric("grouped_auc")(rows, task)
        if scores.ndim == 1:
            return metrics.roc_auc(scores, numbers, weight)
        return metrics.hand_till(softmax(scores), numbers, weight)

    # --- files --------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> Path:
        """Write the model as safetensors and JSON, without pickle; see :meth:`load`.

        A ``metric`` of one's own is kept by its name, and of ``models`` those that have one.

        Args:
            folder: is made if it is not there; a model in it is replaced.
        """
        check_is_fitted(self, "ensemble_")
        names = getattr(self, "feature_names_in_", None)
        options = self.get_params(deep=False)
        if self.metric is not None:
            del options["metric"]
        if self.models is not None:
            options["models"] = [x for x in self.models if isinstance(x, str)] or None
        seed = options["random_state"]
        options["random_state"] = int(seed) if isinstance(seed, (int, np.integer)) else None
        if callable(self.backbone):
            options["backbone"] = "tabm"
        record = store.Record(
            options={name: store.plain_number(value) for name, value in options.items()},
            classes={
                "dtype": "object" if self.classes_.dtype == object else self.classes_.dtype.str,
                "values": self.classes_.tolist(),
            },
            columns=self.n_features_in_,
            names=None if names is None else list(names),
            encoder=self.encoder_.to_dict(),
            calibration=self.calibration_.to_dict(),
            threshold=self.threshold_,
            rows=getattr(self, "rows_", None),
            validation_auc=store.plain_number(self.validation_auc_),
            history=[{k: store.plain_number(v) for k, v in r.items()} for r in self.history_],
            metric=self.metric_,
            validation_score=store.plain_number(self.validation_score_),
            objective=self.objective_,
            candidates=[candidate.to_dict() for candidate in self.candidates_],
            standings=[
                {key: store.plain_number(value) for key, value in each._asdict().items()}
                for each in self.standings_
            ],
            importances=None if self._importances is None else self._importances.tolist(),
        )
        return store.write(record, self.ensemble_, Path(folder))

    @classmethod
    def load(
        cls,
        folder: str | Path,
        backbone: network.Factory | None = None,
        metric: Callable[..., float] | None = None,
    ) -> AUCClassifier:
        """Read a model that :meth:`save` or ``aucmax fit`` wrote.

        Args:
            folder: of the model.
            backbone: the function that made the network, if it was not one of aucmax's.
            metric: the function that the model was judged by, if it was not one of aucmax's:
                training on needs it, scoring does not.

        Raises:
            ValueError: if a file is missing or altered, or was written by a later version.
        """
        record, ensemble = store.read(Path(folder), backbone)
        options = {"metric": record.metric, **record.options}
        options |= {"metric": metric} if metric else {}
        model = cls(**options | ({"backbone": backbone} if backbone else {}))
        model.metric_ = record.metric
        model.objective_ = str(record.objective or model.objective)
        model.candidates_ = tuple(map(Candidate.from_dict, record.candidates))
        model.classes_ = np.array(record.classes["values"], dtype=record.classes["dtype"])
        model.n_features_in_ = record.columns
        if record.names is not None:
            model.feature_names_in_ = np.array(record.names, dtype=object)
        model.encoder_ = TableEncoder.from_dict(record.encoder)
        model.ensemble_ = ensemble
        model.standings_ = tuple(Standing.from_dict(each) for each in record.standings) or tuple(
            Standing(name, weight, math.nan) for name, weight in ensemble.weights.items()
        )
        if record.importances is not None:
            model._importances = np.array(record.importances)
        model.calibration_ = calibration.from_dict(record.calibration)
        model.threshold_, model.history_ = record.threshold, record.history
        if record.rows is not None:
            model.rows_ = record.rows
        auc, score = record.validation_auc, record.validation_score
        model.validation_auc_ = math.nan if auc is None else auc
        model.validation_score_ = model.validation_auc_ if score is None else score
        return model

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        return tags
