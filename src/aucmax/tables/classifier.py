"""``AUCClassifier``: a scikit-learn classifier for raw tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state

from aucmax import checks, metrics
from aucmax.judge.calibration import Platt, Temperature, softmax
from aucmax.stages import Stage
from aucmax.tables import inputs, network, online, store
from aucmax.tables.columns import Columns
from aucmax.tables.encoder import Encoded, TableEncoder
from aucmax.tables.holdout import hold_out
from aucmax.tables.scoring import Rows, calibrate, score_rows, threads
from aucmax.train import FitResult, fit
from aucmax.train._options import find_device

LEARNING_RATE = 2e-3
EVALUATIONS, LEAST_EVALUATIONS, LEAST_STEPS = 60, 30, 20
"""The most evaluations that a training of ``max_steps`` has, the fewest, and the steps between them
at least; once a round if in between. Small tables would stop too soon otherwise."""


class AUCClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""A classifier that is trained to rank, on tables as they are.

    Columns of numbers, categories, booleans and dates, with values missing, become numbers inside
    (:class:`aucmax.tables.TableEncoder`). A share of the rows is held out: training stops
    when their AUC rises no more, and ``predict_proba`` is calibrated on them, because scores that
    rank well mean nothing as probabilities. Calibration keeps the ranking.

    Args:
        objective: "auc", "ce" for cross-entropy, or "auc+ce" for their sum.
        method: the optimizer: "adamw", or any other of :func:`aucmax.fit`'s methods.
        backbone: "tabm", or a function of the numbers of numeric columns, of codes per categorical
            column, and of scores, which gives a ``torch.nn.Module`` that takes (numeric, codes).
        hidden: widths of the layers of a plain MLP instead of TabM.
        members: networks in TabM's ensemble.
        width: of its hidden layers.
        blocks: how many hidden layers it has.
        dropout: the share of hidden units left out in training.
        lr: step size; None for 0.002 with AdamW, and else what :func:`aucmax.fit` takes.
        weight_decay: of AdamW and SGD.
        batch_size: rows per step, fewer for small tables.
        max_steps: the most optimizer steps.
        max_epochs: the most times that every row is seen, on average.
        patience: stop after so many evaluations without a better validation AUC.
        validation_fraction: the share of the rows that is held out, in [0, 1). With 0, or where a
            class has fewer than four rows that differ, probabilities are calibrated on the
            training rows and too sure of themselves.
        balanced: whether half of each batch is positive; two classes only.
        threshold: "proba" predicts the class of the largest probability, "balanced" cuts the
            probability where balanced accuracy on the held-out rows is best; two classes only.
        time_limit: stop training after so many seconds.
        n_jobs: threads; None leaves torch's setting.
        device: "auto" is the GPU if there is one.
        random_state: seed of weights, batches and the held-out rows.
        verbose: whether to show a progress bar.

    Attributes:
        classes_: the labels, sorted.
        n_features_in_: columns seen in fit.
        feature_names_in_: their names, if they are all strings.
        history_: a record per evaluation: step, seconds, validation AUC and more.
        validation_auc_: of the weights that were chosen; NaN if nothing was held out.
        rows_: how many rows of each class were trained on, "train", and held out, "valid".
        network_: the trained ``torch.nn.Module``.
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
        objective: str = "auc+ce",
        method: str = "adamw",
        backbone: str | Callable[..., Any] = "tabm",
        hidden: int | Sequence[int] | None = None,
        members: int = 8,
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
        balanced: bool = False,
        threshold: str = "proba",
        time_limit: float | None = None,
        n_jobs: int | None = None,
        device: str = "auto",
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.objective = objective
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
        self.balanced = balanced
        self.threshold = threshold
        self.time_limit = time_limit
        self.n_jobs = n_jobs
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    # --- training -----------------------------------------------------------------------------

    calibration_: Platt | Temperature
    network_: torch.nn.Module
    online_: online.Online

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train on a table.

        Args:
            X: (N, d) numbers, NumPy or scipy sparse, or a pandas, polars or Arrow table.
            y: N labels of any type.
            sample_weight: N numbers, none negative.
        """
        arguments, judged = self._begin_fit(X, y, sample_weight)
        with threads(self.n_jobs):
            result = fit(**arguments, device=self.device, progress=self.verbose)
            return self._end_fit(result, judged)

    def _begin_fit(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> tuple[dict[str, Any], Rows]:
        """What comes before training: the arguments of fit, and the rows to calibrate on.

        With :meth:`_end_fit` it is :meth:`fit` in two parts, for a sweep to train between them.
        """
        if hasattr(self, "online_"):
            del self.online_
        table = inputs.checked_columns(self, X, reset=True)
        self.classes_, numbers = inputs.class_numbers(y, table.rows)
        weight = inputs.row_weights(sample_weight, table)
        self._check_options()
        seed = int(check_random_state(self.random_state).randint(2**31))
        encoded = self._prepare(table, seed)
        train, valid = hold_out(encoded, numbers, weight, float(self.validation_fraction), seed)
        rows = Rows.of(encoded, numbers, weight)
        self.rows_ = {
            name: np.bincount(numbers[part], minlength=len(self.classes_)).tolist()
            for name, part in (("train", train), ("valid", valid))
        }
        used, held = rows.take(train), rows.take(valid) if len(valid) else None
        return self._arguments(used, held, seed), used if held is None else held

    def _end_fit(self, result: FitResult, rows: Rows) -> Self:
        """What comes after it."""
        self.history_, self.validation_auc_ = result.history, result.auc
        self._calibrate(rows)
        return self

    def partial_fit(
        self, X: Any, y: ArrayLike, classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:  # fmt: skip
        """Learn from rows as they come, once each, the classes' shares unknown (Algorithm 4).

        A model that is fitted or loaded goes on from where it is. Otherwise the first call fixes
        how columns become numbers, so let it have some hundred rows. Each row is scored before it
        is learned from: ``validation_auc_`` is the AUC of these scores. The latest rows calibrate
        the probabilities. AdamW on both objectives is the method, whatever the options say.

        Args:
            X: the next rows.
            y: their labels.
            classes: all labels that will ever come; needed in the first call, if it lacks some.
            sample_weight: of the rows.
        """
        table = inputs.checked_columns(self, X, reset=not hasattr(self, "network_"))
        if not hasattr(self, "online_"):
            self._begin_online(table, y, classes)
        numbers = inputs.numbers_of(y, self.classes_, table.rows)
        weight = inputs.row_weights(sample_weight, table)
        with threads(self.n_jobs):
            encoded = self.encoder_.transform(table)
            self.online_.learn(Rows.of(encoded, numbers, weight), self.batch_size)
        self.history_ = self.online_.history
        self.validation_auc_ = self.online_.auc()
        self.calibration_, self.threshold_ = self.online_.calibrated(self.threshold)
        return self

    def _begin_online(self, table: Columns, y: ArrayLike, classes: ArrayLike | None) -> None:
        self._check_options()
        if not hasattr(self, "network_"):
            known = np.unique(np.asarray(y if classes is None else classes))
            self.classes_, _ = inputs.class_numbers(known, len(known))
            seed = int(check_random_state(self.random_state).randint(2**31))
            self._prepare(table, seed)
        lr = LEARNING_RATE if self.lr is None else self.lr
        self.network_.cpu()
        self.online_ = online.Online(
            self.network_, len(self.classes_), lr, float(self.weight_decay)
        )

    def _check_options(self) -> None:
        checks.choice("threshold", self.threshold, ("proba", "balanced"))
        checks.choice("objective", self.objective, ("auc", "auc+ce", "ce"))
        if not callable(self.backbone):
            checks.choice("backbone", self.backbone, ("tabm",))
        checks.number(
            "validation_fraction", self.validation_fraction, "in [0, 1)", lambda x: 0 <= x < 1
        )
        checks.number("dropout", self.dropout, "in [0, 1)", lambda x: 0 <= x < 1)
        checks.number("weight_decay", self.weight_decay, ">= 0", lambda x: x >= 0)
        if self.lr is not None:
            checks.positive("lr", self.lr)
        counts = ("members", "width", "blocks", "batch_size", "max_steps", "max_epochs", "patience")
        for name in counts:
            checks.count(name, getattr(self, name))

    def _prepare(self, table: Columns, seed: int) -> Encoded:
        """Learn how columns become numbers, make the network, and encode the table."""
        self.encoder_ = TableEncoder().fit(table)
        encoded = self.encoder_.transform(table)
        outputs = 1 if len(self.classes_) == 2 else len(self.classes_)
        sizes = {name: getattr(self, name) for name in ("members", "width", "blocks", "dropout")}
        self.network_spec_ = network.describe(
            torch.from_numpy(encoded.numeric), self.encoder_.cardinalities, outputs, self.hidden,
            sizes,
        )  # fmt: skip
        generator = torch.Generator().manual_seed(seed)
        self.network_ = network.build(self.network_spec_, self._factory(), generator)
        return encoded

    def _factory(self) -> network.Factory | None:
        return self.backbone if callable(self.backbone) else None

    def _arguments(self, train: Rows, valid: Rows | None, seed: int) -> dict[str, Any]:
        """How to train: the arguments of fit, but for device and progress."""
        batch = min(self.batch_size, max(2, len(train) // 4))
        per_epoch = max(1, len(train) // batch)
        steps = min(self.max_steps, self.max_epochs * per_epoch)
        least = max(LEAST_STEPS, steps // EVALUATIONS)
        return {
            "model": self.network_,
            "train": train.for_fit(),
            "valid": None if valid is None else valid.for_fit(),
            "method": self.method,
            "objective": self.objective,
            "steps": steps,
            "batch_size": batch,
            "probe": 2,
            "eval_every": min(steps, max(least, min(per_epoch, steps // LEAST_EVALUATIONS))),
            "seed": seed,
            "patience": None if valid is None else self.patience,
            "time_limit": self.time_limit,
            **self._recipe(steps),
        }

    def _recipe(self, steps: int) -> dict[str, Any]:
        """What depends on the method and the number of classes."""
        binary, adamw = len(self.classes_) == 2, self.method == "adamw"
        link = {"link": "identity"} if binary and adamw and self.objective != "ce" else {}
        lr = LEARNING_RATE if self.lr is None else checks.positive("lr", self.lr)
        constant = {"stages": [Stage(1, lr, steps, 0)]}
        has_decay = self.method in ("adamw", "sgd")
        return {
            "task": "binary" if binary else "multiclass",
            "positives": 0.5 if binary and self.balanced else None,
            "loss_options": link,
            "optimizer_options": {"weight_decay": self.weight_decay} if has_decay else {},
            "clip_norm": 1.0,
            **(constant if adamw else {"lr": self.lr}),
        }

    def _calibrate(self, rows: Rows) -> None:
        """Fit the map from scores to probabilities, and the threshold."""
        self.calibration_, self.threshold_ = calibrate(
            self.network_, rows, self._where(), self.threshold
        )

    # --- prediction ---------------------------------------------------------------------------

    def _scores(self, X: Any) -> NDArray[np.float64]:
        inputs.require_fitted(self)
        table = inputs.checked_columns(self, X, reset=False)
        scores = self.score_encoded(self.encoder_.transform(table))
        return scores.reshape(len(scores), -1)

    def score_encoded(self, encoded: Encoded) -> NDArray[np.float64]:
        """Raw scores of rows that ``encoder_`` has encoded already, (N,) or (N, c)."""
        rows = Rows.of(encoded, np.zeros(len(encoded.numeric), np.int64), None)
        with threads(self.n_jobs):
            scores = score_rows(self.network_, rows, self._where())
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def _where(self) -> torch.device:
        return find_device(self.device)

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Log-odds of the second class less those of the threshold, or (N, c) of more classes.

        They rank as the network's raw scores do, and are positive where ``predict`` says the
        second class.
        """
        found = self._logits(X)
        if found.ndim == 2:
            return found
        return found - math.log(self.threshold_ / (1 - self.threshold_))

    def _logits(self, X: Any) -> NDArray[np.float64]:
        scores = self._scores(X)
        return self.calibration_.logit(scores[:, 0] if scores.shape[1] == 1 else scores)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Calibrated probabilities of the classes (N, c), which rank as the scores do."""
        scores = self._scores(X)
        if scores.shape[1] > 1:
            return self.calibration_(scores)
        found = self.calibration_(scores[:, 0])
        return np.stack([1 - found, found], axis=1)

    def predict(self, X: Any) -> NDArray[Any]:
        """The labels that ``threshold`` says."""
        found = self.decision_function(X)
        chosen = found.argmax(axis=1) if found.ndim == 2 else (found > 0).astype(np.int64)
        labels: NDArray[Any] = self.classes_[chosen]
        return labels

    def score(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """The AUC, of more than two classes Hand and Till's mean over pairs of classes."""
        scores = self.decision_function(X)
        numbers = inputs.numbers_of(y, self.classes_, len(scores))
        weight = None if sample_weight is None else np.asarray(sample_weight, np.float64)
        if scores.ndim == 1:
            return metrics.roc_auc(scores, numbers, weight)
        return metrics.hand_till(softmax(scores), numbers, weight)

    # --- files --------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> Path:
        """Write the model as safetensors and JSON, without pickle; see :meth:`load`.

        Args:
            folder: is made if it is not there; a model in it is replaced.
        """
        inputs.require_fitted(self)
        return store.save(self, Path(folder))

    @classmethod
    def load(cls, folder: str | Path, backbone: network.Factory | None = None) -> AUCClassifier:
        """Read a model that :meth:`save` or ``aucmax fit`` wrote.

        Args:
            folder: of the model.
            backbone: the function that made the network, if it was not one of aucmax's.

        Raises:
            ValueError: if a file is missing or altered, or was written by a later version.
        """
        model: AUCClassifier = store.load(cls, Path(folder), backbone)
        return model

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        return tags
