"""A network for pictures as scikit-learn's estimators are: paths in, probabilities out."""

from __future__ import annotations

import math
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from aucmax import checkpoint, checks, distributed, metrics
from aucmax.images.augment import Chain, ColorJitter, CropAndFlip, MixWithinClass
from aucmax.images.duplicates import same_pictures
from aucmax.images.networks import Factory, head_of, make_network, moments, training_size
from aucmax.images.reading import BrokenPicture, Pixels, read_picture
from aucmax.images.split import Rows, join, keep_apart, kinds
from aucmax.images.store import Store, StoredPictures, build_store
from aucmax.judge import calibration
from aucmax.judge.interval import Interval
from aucmax.judge.threshold import Rule
from aucmax.judge.training import Point
from aucmax.row_groups import number_groups
from aucmax.stages import Stage
from aucmax.threads import cores, threads
from aucmax.train import FitResult, fit
from aucmax.train.metrics import ROC_AUC, Metric, Scored, find_metric
from aucmax.train.objectives import names_of
from aucmax.train.options import find_device
from aucmax.version import __version__

EPOCHS = {"fast": 20, "good": 80, "best": 250}
"""How often every picture is seen, by quality; but never fewer steps than these."""
LEAST_STEPS = {"fast": 100, "good": 400, "best": 1000}
BEGUN_WITH_CE = 0.5
"""The share of the steps that are cross-entropy's."""
FROZEN = 0.1
"""Of weights that were trained before: the share of the steps that only move the last layer."""
DROP = 3.0
"""What the step size is divided by when the objective takes over."""
SCORED, MOST_AVERAGED = 256, 4000
Calibration = calibration.Platt | calibration.Temperature | calibration.PerLabel
FITTED_BY: dict[str, Callable[..., Calibration]] = {
    "binary": calibration.fit_platt,
    "multiclass": calibration.fit_temperature,
    "multilabel": calibration.fit_labels,
}
"""What makes probabilities of scores, by task."""
MOST_BYTES = 4 * 2**30
"""Of training pictures that are taken into memory, or onto the GPU; more are read as they come."""


class _Chosen(NamedTuple):
    """Weights, where in the history they are, and the validation pictures as they score them."""

    point: Point
    rows: Scored
    weights: dict[str, Tensor]


class ImageClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""Ranks pictures: a network trained on the AUC, after cross-entropy.

    Half of the steps are cross-entropy's, the other half those of ``objective``, from the weights
    that validation pictures chose; that is the paper's pre-training. The average of the steps is
    kept unless a paired test sees it behind that of an earlier evaluation. Pictures are decoded
    once and scaled to a square, whole and with black around them. Those that show the same, exactly
    or nearly, are never on both sides of a split, nor are those of a group.

    Args:
        model: "resnet20", a name that timm knows where it is installed, or a function that makes a
            network of so many scores per picture, which takes bytes (N, 3, size, size).
        size: the pixels of a side; None for the model's own, of ResNet-20 32 or 64 by the pictures.
        weights: a file of weights to begin with, .safetensors or .pth. First the last layer is
            trained alone, then all with a tenth of the step size.
        quality: "fast", "good" or "best": how often every picture is seen.
        objective: a name in :data:`aucmax.train.objectives.OBJECTIVES`, or a sum of them.
        metric: what weights are chosen by, as in :func:`aucmax.fit`.
        threshold: from which probability the second of two classes is predicted, as in
            :class:`aucmax.AUCClassifier`.
        lr: the first step size of SGD with momentum 0.9.
        weight_decay: of all weights.
        batch_size: pictures per step, fewer if there are few; under ``torchrun`` as many of each
            process.
        color_jitter: by how much training pictures are made brighter or darker, their contrast and
            colours stronger or weaker, at random: :class:`aucmax.images.augment.ColorJitter`. 0 for
            not at all, as where brightness or colour tell the classes apart.
        mixup: how much training pictures are blended with others of their class, which leaves their
            labels as pairs need them: :class:`aucmax.images.augment.MixWithinClass`. 0 for not at
            all.
        validation_fraction: share of the pictures to choose weights by.
        time_limit: seconds for the training.
        skip_broken: whether ``fit`` leaves out files that cannot be read; otherwise, and in
            predictions, they are an error.
        depth: bits of the values in files of 16 bits.
        store: a folder for the decoded pictures, which other fits of the same files share; None
            for one that is removed.
        workers: processes that decode; None for one per core.
        device: "auto" is the GPU if there is one.
        random_state: a whole number.
        verbose: whether to show bars.

    Attributes:
        classes_: the labels; of two, the second is the positive one. Of a table of several labels,
            the names of its columns.
        task_: "binary", "multiclass" or "multilabel".
        network_: the trained ``torch.nn.Module``.
        size_: the pixels of a side.
        history_: a record per evaluation.
        kept_: the evaluation whose weights were kept: its step, value and iterate.
        validation_score_: the metric of the chosen weights on the validation pictures, scored as
            in predictions; while it trains, their mirror images are not looked at.
        calibration_: from scores to probabilities.
        threshold_: the probability from which the second class is predicted; of several labels one
            for each.
        counts_: how many pictures of each class were trained on ("train") and chosen by ("valid");
            of several labels the positives of each, then the negatives.

    Example:
        >>> import tempfile, numpy as np, aucmax
        >>> from pathlib import Path
        >>> from PIL import Image
        >>> folder, random = Path(tempfile.mkdtemp()), np.random.default_rng(0)
        >>> y = np.arange(40) % 2
        >>> for number, label in enumerate(y):
        ...     pixels = random.integers(0, 200 + 55 * label, (8, 8, 3)).astype(np.uint8)
        ...     Image.fromarray(pixels).save(folder / f"{number}.png")
        >>> paths = [folder / f"{number}.png" for number in range(40)]
        >>> model = aucmax.ImageClassifier(size=8, time_limit=1, random_state=0).fit(paths, y)
        >>> model.predict_proba(paths[:3]).shape
        (3, 2)
    """

    def __init__(
        self,
        model: str | Factory = "resnet20",
        *,
        size: int | None = None,
        weights: str | Path | None = None,
        quality: str = "good",
        objective: str = "auc+ce",
        metric: str | None = None,
        threshold: str | float = "proba",
        lr: float = 0.1,
        weight_decay: float = 0.001,
        batch_size: int = 128,
        color_jitter: float = 0.0,
        mixup: float = 0.0,
        validation_fraction: float = 0.15,
        time_limit: float | None = None,
        skip_broken: bool = False,
        depth: int = 16,
        store: str | Path | None = None,
        workers: int | None = None,
        device: str = "auto",
        random_state: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.model = model
        self.size = size
        self.weights = weights
        self.quality = quality
        self.objective = objective
        self.metric = metric
        self.threshold = threshold
        self.lr = lr
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.color_jitter = color_jitter
        self.mixup = mixup
        self.validation_fraction = validation_fraction
        self.time_limit = time_limit
        self.skip_broken = skip_broken
        self.depth = depth
        self.store = store
        self.workers = workers
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    classes_: NDArray[Any]
    network_: nn.Module
    size_: int
    task_: str
    calibration_: Calibration
    threshold_: float | NDArray[np.float64]

    # --- training -------------------------------------------------------------------------------

    def fit(
        self,
        X: Sequence[str | Path],
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: Sequence[Any] | None = None,
    ) -> Self:
        """Train on picture files; under ``torchrun`` all processes do so together.

        Args:
            X: N paths.
            y: N labels of any type; or a table (N, L) of several labels that a picture may have at
                once, 0 or 1, and NaN where that is not known. Its columns may have names.
            sample_weight: N numbers, none negative.
            groups: N values, such as patients: those of one are never on both sides of a split. A
                paired test would take their pictures as drawn one by one, and see too much: the
                highest average is kept instead.
        """
        files = _paths(X)
        read = _label_columns if np.ndim(y) == 2 else _class_numbers
        self.classes_, classes = read(y, len(files))
        weight = _weights(sample_weight, len(files))
        group = None
        if groups is not None:
            group = number_groups(groups, "groups", rows=len(files)).numpy()
        with (
            distributed.process_group(find_device(self.device)),
            self.opened_store(files) as store,
        ):
            used = usable(store, files, self.skip_broken)
            if store.streamed:
                warnings.warn(store.streamed, UserWarning, stacklevel=2)
            if classes.ndim == 2:
                used = _some_known(used, classes)
            if weight is not None:
                used = used[weight[used] > 0]
                weight = weight[used]
            together = join(same(store, used), None if group is None else group[used])
            given = store.pixels, used, classes[used], weight, together
            self.train_on(*given, is_grouped=groups is not None)
        return self

    @contextmanager
    def opened_store(self, files: Sequence[Path]) -> Iterator[Store]:
        """The pictures of the files, decoded; a folder that nobody named is removed afterwards."""
        self.check_options()
        self.size_ = self.size or training_size(self.model, longest_sides(files))
        folder = self.store
        if folder is None:
            folder = tempfile.mkdtemp(prefix="aucmax-") if distributed.rank() == 0 else None
            folder = distributed.broadcast_object(folder)
        try:
            yield build_store(
                Path(folder), files, self.size_, depth=self.depth, workers=self.workers,
                progress=self.verbose and distributed.rank() == 0,
            )  # fmt: skip
        finally:
            if self.store is None:
                shutil.rmtree(folder, ignore_errors=True)

    def check_options(self) -> None:
        """Raise for what cannot be right, before anything is read."""
        checks.choice("quality", self.quality, tuple(EPOCHS))
        names_of(self.objective)
        checks.positive("lr", self.lr)
        checks.non_negative("weight_decay", self.weight_decay)
        checks.count("batch_size", self.batch_size)
        allowed = "a number from 0 to 1"
        checks.number("color_jitter", self.color_jitter, allowed, lambda x: 0 <= x <= 1)
        checks.non_negative("mixup", self.mixup)
        share = self.validation_fraction
        allowed = "a share between 0 and 1"
        checks.number("validation_fraction", share, allowed, lambda x: 0 < x < 1)
        checks.number("depth", self.depth, "bits from 8 to 16", lambda x: 8 <= x <= 16)
        if self.size is not None:
            checks.count("size", self.size, least=8)
        if self.time_limit is not None:
            checks.positive("time_limit", self.time_limit)
        if not isinstance(self.metric, str | None):
            raise ValueError(f"metric must be a name, found {self.metric!r}")
        find_metric(self.metric or "roc_auc")
        Rule.read(self.threshold)
        find_device(self.device)
        if self.weights is not None and not Path(self.weights).is_file():
            raise ValueError(f"weights must be a file, found none at {self.weights}")
        training_size(self.model, [0])  # whether there is such a model

    def train_on(
        self,
        pixels: Pixels,
        rows: Rows,
        classes: NDArray[Any],
        weight: NDArray[np.float64] | None,
        together: Rows,
        work: Path | None = None,
        *,
        is_grouped: bool,
    ) -> Self:
        """Train on rows of decoded pictures, whose classes are numbers, and go on from ``work``.

        Of groups no paired test is asked, which takes rows as drawn one by one.
        """
        seed = checks.count("random_state", self.random_state or 0, least=0)
        self.task_ = "binary" if len(self.classes_) == 2 else "multiclass"
        if classes.ndim == 2:
            self.task_ = "multilabel"
            if self.mixup:
                raise ValueError(f"mixup must be 0 for several labels, found {self.mixup}")
        has, labels = kinds(classes, [str(label) for label in self.classes_])
        train, valid = keep_apart(has, together, self.validation_fraction, seed, labels)
        self.counts_ = {
            name: has[part].sum(axis=0).tolist()
            for name, part in (("train", train), ("valid", valid))
        }
        data = {
            name: _data(pixels, rows, part, classes, weight)
            for name, part in (("train", train), ("valid", valid))
        }
        known = classes[valid], None if weight is None else weight[valid]
        some = rows[train][:: -(-len(train) // MOST_AVERAGED)]
        mean, std = moments(torch.from_numpy(pixels[some]).permute(0, 3, 1, 2))
        std = [max(x, 1.0) for x in std]  # of a colour that is nowhere
        generator = torch.Generator().manual_seed(seed)
        weights = None if self.weights is None else Path(self.weights)
        self.network_ = make_network(self.model, self._outputs, mean, std, generator, weights)

        def scored() -> Scored:
            scores = torch.from_numpy(self.score_rows(pixels, rows[valid]))
            counts = None if weight is None else torch.from_numpy(weight[valid])
            return Scored(scores, torch.from_numpy(classes[valid]), counts)

        measure = find_metric(self.metric or ROC_AUC)
        if is_grouped:
            measure = replace(measure, has_test=False)
        with threads(None):
            scores = self._train_network(data, len(train), scored, measure, seed, work)
        self.seconds_ = float(self.history_[-1]["seconds"])
        self.network_.eval()
        self.calibration_ = FITTED_BY[self.task_](scores, *known)
        self.threshold_, p, rule = 0.5, self.calibration_(scores), Rule.read(self.threshold)
        if self.task_ == "binary":
            self.threshold_ = rule.threshold(p, *known)
        elif self.task_ == "multilabel":
            of_labels = calibration.columns_known(p, *known)
            self.threshold_ = np.array([rule.threshold(*rows) for rows in of_labels])
        return self

    def _train_network(
        self,
        data: Mapping[str, Any],
        count: int,
        scored: Callable[[], Scored],
        measure: Metric,
        seed: int,
        work: Path | None,
    ) -> NDArray[np.float64]:
        """Phase after phase, each from the weights that validation pictures chose until then.

        A phase is undone if a paired test sees it behind the one before, or without such a test if
        its value is lower.

        Args:
            data: "train" and "valid".
            count: of the training pictures.
            scored: gives the validation pictures as the network scores them.
            measure: what weights are chosen by.
            seed: of the first phase.
            work: a folder to go on from.

        Returns:
            The scores of the weights that were chosen.
        """
        ranks = distributed.world_size()
        batch = max(1, min(self.batch_size, max(16, count // 8)) // ranks) * ranks
        epochs, least = EPOCHS[self.quality], LEAST_STEPS[self.quality]
        phases = self._phases(max(least, epochs * count // batch))
        on_gpu = find_device(self.device).type == "cuda"
        trainable = [p for p in self.network_.parameters() if p.requires_grad]
        chosen = None
        self.history_ = history = list[dict[str, Any]]()
        for number, (objective, lr, length, only_head) in enumerate(phases):
            steps, spent = (history[-1][x] if history else 0 for x in ("step", "seconds"))
            limit = None
            if self.time_limit is not None:
                share = length / sum(x[2] for x in phases[number:])
                limit = max(0.1, (self.time_limit - spent) * share)
                limit = distributed.broadcast_object(limit)  # each process has its own clock
            _train_only(trainable, head_of(self.network_) if only_head else self.network_)
            result: FitResult = fit(
                self.network_, **data, method="sgd", objective=objective, steps=length,
                stages=[Stage(index=1, lr=lr, steps=length, dual_samples=0)], metric=measure,
                optimizer_options={"momentum": 0.9, "weight_decay": self.weight_decay},
                batch_size=batch, positives=0.5 if self.task_ == "binary" else None,
                task=self.task_, seed=seed + number, augment=self._augmentation(), choose="steady",
                eval_every=max(20, length // 10), amp="bf16" if on_gpu else None,
                workers=min(4, cores()) if isinstance(data["train"], StoredPictures) else 0,
                time_limit=limit, out=None if work is None else work / str(number + 1),
                device=self.device, progress=self.verbose,
            )  # fmt: skip
            history += [
                {**x, "step": x["step"] + steps, "seconds": x["seconds"] + spent}
                for x in result.history
            ]
            rows = scored()
            if chosen is not None:
                seen = measure.compare(rows, chosen.rows.scores, self.task_)
                if seen == -1 or (seen is None and result.score < chosen.point.score):
                    self.network_.load_state_dict(chosen.weights)
                    continue
            weights = {name: x.clone() for name, x in self.network_.state_dict().items()}
            point = Point(steps + result.step, result.score, result.iterate)
            chosen = _Chosen(point, rows, weights)
        _train_only(trainable, self.network_)
        self._ended_early = ""
        taken, planned = history[-1]["step"], sum(x[2] for x in phases)
        if self.time_limit is not None and taken < planned:
            self._ended_early = (
                f"the time limit of {self.time_limit:g} s ended the training after {taken:,} of "
                f"{planned:,} steps"
            )
        assert chosen is not None
        self.metric_, self.kept_ = result.metric, chosen.point
        self.validation_score_ = measure(chosen.rows, self.task_)
        return chosen.rows.scores.numpy()

    def _phases(self, steps: int) -> list[tuple[str, float, int, bool]]:
        """Of each its objective, step size, length, and whether only the last layer is trained."""
        lr, first = self.lr, round(BEGUN_WITH_CE * steps)
        phases = [("ce", lr, first, False), (self.objective, lr / DROP, steps - first, False)]
        if self.weights is None:
            return phases
        head = max(1, round(FROZEN * steps))
        return [("ce", lr, head, True), *((x, y / 10, n, False) for x, y, n, _ in phases)]

    def _augmentation(self) -> Callable[..., Tensor]:
        """What is done to training pictures, at random."""
        crop = CropAndFlip(padding=max(1, self.size_ // 8))
        color = [ColorJitter(self.color_jitter)] if self.color_jitter else []
        mix = [MixWithinClass(self.mixup)] if self.mixup else []
        return Chain(crop, *color, *mix) if color or mix else crop

    @property
    def _outputs(self) -> int:
        """Scores per picture."""
        return 1 if self.task_ == "binary" else len(self.classes_)

    # --- use --------------------------------------------------------------------------------------

    def score_rows(self, pixels: Pixels, rows: Rows) -> NDArray[np.float64]:
        """Raw scores, (N,) of two classes or (N, c), of some rows of decoded pictures."""
        parts = [rows[k : k + SCORED] for k in range(0, len(rows), SCORED)]
        return self._joined([self._score(np.asarray(pixels[part])) for part in parts])

    def _score(self, pixels: NDArray[np.uint8]) -> Tensor:
        """The mean over a picture and its mirror image."""
        device = find_device(self.device)
        x = torch.from_numpy(pixels).permute(0, 3, 1, 2).to(device)
        network = self.network_.to(device).eval()
        with torch.inference_mode():
            scores: Tensor = (network(x) + network(x.flip(3))) / 2
        return scores.double().cpu().reshape(len(x), -1)

    def _joined(self, scores: Sequence[Tensor]) -> NDArray[np.float64]:
        empty = torch.empty(0, self._outputs, dtype=torch.float64)
        whole = torch.cat([empty, *scores])
        numbers: NDArray[np.float64] = whole.numpy()
        return numbers[:, 0] if numbers.shape[1] == 1 else numbers

    def decision_function(self, X: Sequence[str | Path]) -> NDArray[np.float64]:
        """Raw scores of picture files: (N,) of two classes, (N, c) of more."""
        files = _paths(X)
        scores, broken = self.score_files(files)
        if broken:
            named = in_words({files[k]: reason for k, reason in broken.items()})
            raise ValueError(f"X must be pictures that can be read, found {named}")
        return scores

    def score_files(self, files: Sequence[Path]) -> tuple[NDArray[np.float64], dict[int, str]]:
        """Raw scores of the files that can be read, and by their number why others cannot."""
        check_is_fitted(self, "network_")
        scores, broken = [], dict[int, str]()
        for first in range(0, len(files), SCORED):
            pixels = []
            for number, path in enumerate(files[first : first + SCORED], first):
                try:
                    pixels.append(read_picture(path, self.size_, depth=self.depth).pixels)
                except BrokenPicture as error:
                    broken[number] = str(error)
            if pixels:
                scores.append(self._score(np.stack(pixels)))
        return self._joined(scores), broken

    def predict_proba(self, X: Sequence[str | Path]) -> NDArray[np.float64]:
        """Of each picture the probability of every class, (N, c), or of every label, (N, L)."""
        return self.probabilities(self.decision_function(X))

    def probabilities(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Of scores, (N, c)."""
        p = self.calibration_(scores)
        return p if p.ndim == 2 else np.stack([1 - p, p], axis=1)

    def predict(self, X: Sequence[str | Path]) -> NDArray[Any]:
        """A label for each picture; of several labels 0 or 1 for each, (N, L)."""
        return self.labels_of(self.decision_function(X))

    def labels_of(self, scores: NDArray[np.float64]) -> NDArray[Any]:
        """Of scores."""
        p = self.calibration_(scores)
        if self.task_ == "multilabel":
            return (p >= self.threshold_).astype(np.int64)
        places = (p >= self.threshold_).astype(int) if p.ndim == 1 else p.argmax(axis=1)
        labels: NDArray[Any] = self.classes_[places]
        return labels

    def score(
        self, X: Sequence[str | Path], y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> float:
        """The AUC, of more than two classes Hand and Till's mean over pairs of classes.

        Of several labels it is the mean of :meth:`auc_by_label`.
        """
        check_is_fitted(self, "network_")
        if self.task_ == "multilabel":
            found = self.auc_by_label(X, y, sample_weight)
            return math.fsum(auc.value for auc in found.values()) / len(found)
        scores = self.decision_function(X)
        place = {label: number for number, label in enumerate(self.classes_.tolist())}
        numbers = np.array([place.get(label, -1) for label in np.asarray(y).tolist()])
        if len(numbers) != len(scores) or (numbers < 0).any():
            raise ValueError(
                f"y must have a label of {[*place]} per picture, found {len(numbers)} for "
                f"{len(scores)} pictures, {(numbers < 0).sum()} of them others"
            )
        weight = _weights(sample_weight, len(scores))
        if scores.ndim == 1:
            return metrics.roc_auc(scores, numbers, weight)
        return metrics.hand_till(self.probabilities(scores), numbers, weight)

    def auc_by_label(
        self, X: Sequence[str | Path], y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> dict[Any, Interval]:
        """Of several labels the AUC of each, with its interval, over the pictures that know it.

        Columns of ``y`` that have names must have those of the labels, in any order. The AUC of a
        label that no picture has, or every one, is nan, with a warning.
        """
        check_is_fitted(self, "network_")
        if self.task_ != "multilabel":
            raise ValueError(f"the model must be one of several labels, found a {self.task_} one")
        scores = self.decision_function(X)
        names, target = _label_columns(y, len(scores), needs_both=False)
        labels = self.classes_.tolist()
        if target.shape != scores.shape:
            raise ValueError(
                f"y must have a column for each of {scores.shape[1]} labels, found "
                f"{target.shape[1]}"
            )
        if hasattr(y, "columns"):
            given = names.tolist()
            if {*given} != {*labels}:
                raise ValueError(f"y must have the columns {labels}, found {given}")
            target = target[:, [given.index(label) for label in labels]]
        rows = calibration.columns_known(scores, target, _weights(sample_weight, len(scores)))
        return {
            label: Interval.of_auc(own, known, weight=weight)
            for label, (own, known, weight) in zip(labels, rows, strict=True)
        }

    # --- files ------------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> None:
        """Write ``model.json`` and ``model.safetensors``, which hold no code."""
        check_is_fitted(self, "network_")
        Path(folder).mkdir(parents=True, exist_ok=True)
        known = isinstance(self.model, str)
        options = {**self.get_params(), "model": self.model if known else None}
        options |= {"store": None, "weights": None}
        options = {k: x.item() if isinstance(x, np.generic) else x for k, x in options.items()}
        notes = {
            "classifier": "images",
            "options": options,
            "task": self.task_,
            "classes": [x.item() if isinstance(x, np.generic) else x for x in self.classes_],
            "size": self.size_,
            "calibration": self.calibration_.to_dict(),
            "threshold": np.asarray(self.threshold_).tolist(),
            "metric": self.metric_,
            "validation_score": None
            if math.isnan(self.validation_score_)
            else self.validation_score_,
            "counts": self.counts_,
        }
        state = {k: x.detach().cpu().contiguous() for k, x in self.network_.state_dict().items()}
        checkpoint.save_tensors(Path(folder), "model", state, notes)

    @classmethod
    def load(cls, folder: str | Path, model: Factory | None = None) -> ImageClassifier:
        """The classifier that :meth:`save` wrote.

        Args:
            folder: of the model.
            model: the function that makes the network, if it was one of your own.
        """
        if not (Path(folder) / "model.json").exists():
            raise ValueError(
                f"model must be a folder that fit-images made, found no model.json in {folder}"
            )
        tensors, notes = checkpoint.load_tensors(Path(folder), "model")
        if notes.get("classifier") != "images":
            raise ValueError(f"model must be one of pictures, found another in {folder}")
        options = dict(notes["options"])
        if options["model"] is None and model is None:
            raise ValueError("model must be given: the network was made by a function of your own")
        options["model"] = model or options["model"]
        if unknown := sorted({*options} - {*cls().get_params()}):
            writer = notes.get("aucmax", "another version")
            raise ValueError(
                f"model must have options that aucmax {__version__} knows, found "
                f"{unknown}, of aucmax {writer}, in {folder}"
            )
        self = cls(**options)
        self.classes_ = np.array(notes["classes"])
        self.task_, self.size_, self.threshold_ = notes["task"], notes["size"], notes["threshold"]
        if isinstance(self.threshold_, list):
            self.threshold_ = np.array(self.threshold_)
        several = self.task_ == "multilabel"
        read = calibration.PerLabel.from_dict if several else calibration.from_dict
        self.calibration_ = read(notes["calibration"])
        self.metric_, score = notes["metric"], notes["validation_score"]
        self.validation_score_ = math.nan if score is None else score
        self.counts_, self.history_ = notes["counts"], []
        generator = torch.Generator().manual_seed(0)
        self.network_ = make_network(self.model, self._outputs, [0.0] * 3, [1.0] * 3, generator)
        self.network_.load_state_dict(tensors)
        self.network_.eval()
        return self


# ---- Pictures as training data -------------------------------------------------------------------


def usable(store: Store, files: Sequence[Path], skip_broken: bool) -> Rows:
    """Rows of the pictures that could be read; an error, or a warning, names the others."""
    if store.broken:
        named = in_words({files[row]: reason for row, reason in store.broken.items()})
        if not skip_broken or len(store.broken) == len(files):
            raise ValueError(
                f"X must be pictures that can be read, found {named}; skip_broken leaves them out"
            )
        warnings.warn(f"left out: {named}", UserWarning, stacklevel=3)
    return np.setdiff1d(np.arange(len(files)), [*store.broken])


def in_words(broken: Mapping[Path, str]) -> str:
    """How many, and the first three."""
    some = "; ".join(f"{path}: {reason}" for path, reason in [*broken.items()][:3])
    more = f" and {len(broken) - 3:,} more" if len(broken) > 3 else ""
    return f"{len(broken):,} broken ({some}{more})"


def same(store: Store, rows: Rows) -> Rows:
    """Numbers of the sets of pictures that show the same."""
    return same_pictures(store.digests, store.hashes, store.pixels, store.broken)[rows]


def longest_sides(files: Sequence[Path], most: int = 200) -> list[int]:
    """Of some of the pictures that can be opened, without decoding them."""
    from PIL import Image

    found = []
    for path in files[:: max(1, len(files) // most)]:
        try:
            with warnings.catch_warnings(action="ignore"), Image.open(path) as picture:
                found.append(max(picture.size))
        except Exception:  # whatever is wrong with it is said when it is read
            continue
    return found or [0]


def _data(
    pixels: Pixels,
    rows: Rows,
    part: Rows,
    classes: NDArray[Any],
    weight: NDArray[np.float64] | None,
) -> Any:
    """As :func:`aucmax.fit` takes it: arrays, or what reads batches from the store."""
    weights = None if weight is None else weight[part]
    if len(part) * math.prod(pixels.shape[1:]) > MOST_BYTES:
        return StoredPictures(pixels, rows[part], classes[part], weights)
    x = torch.from_numpy(np.asarray(pixels[rows[part]])).permute(0, 3, 1, 2)
    y = torch.from_numpy(classes[part])
    return (x, y) if weights is None else (x, y, torch.from_numpy(weights).float())


def _train_only(trainable: Sequence[nn.Parameter], part: nn.Module) -> None:
    """Let those of the weights be trained that are in a part of the network."""
    own = {id(p) for p in part.parameters()}
    for p in trainable:
        p.requires_grad_(id(p) in own)


def _paths(X: Any) -> list[Path]:
    """As they can be opened."""
    given = None if isinstance(X, str | Path) or np.ndim(X) > 1 else list(X)
    if given is None or not all(isinstance(path, str | Path) for path in given):
        raise ValueError(
            f"X must be a list of paths, or another column of them, found {type(X).__name__} "
            f"{str(X)[:40]!r}"
        )
    return [Path(path) for path in given]


def _class_numbers(y: ArrayLike, count: int) -> tuple[NDArray[Any], Rows]:
    """The labels, and of each picture the place of its own."""
    labels = np.asarray(y)
    if labels.shape != (count,):
        raise ValueError(f"y must have a label per picture, found shape {labels.shape}")
    missing = sum(x is None or x != x or x == "" for x in labels.tolist())
    if missing:
        raise ValueError(f"y must have no missing labels, found {missing} of {count}")
    classes = number_groups(labels, "y").numpy()
    names = np.array([labels[classes == k][0] for k in range(classes.max() + 1)])
    if len(names) < 2:
        raise ValueError(f"y must hold two labels or more, found {names.tolist()}")
    return names, classes


def _label_columns(
    y: Any, count: int, needs_both: bool = True
) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """The names of several labels, and of each picture 0, 1 or NaN for each."""
    names = getattr(y, "columns", None)
    try:
        values = np.asarray(y, np.float32)
    except (TypeError, ValueError):
        raise ValueError("y must hold 0, 1 or NaN for each of several labels") from None
    if values.ndim != 2 or len(values) != count or values.shape[1] < 2:
        raise ValueError(
            f"y must have a row per picture and two columns of labels or more, found shape "
            f"{values.shape} for {count} pictures"
        )
    names = np.arange(values.shape[1]) if names is None else np.array([*names])
    for name, column in zip(names.tolist(), values.T, strict=True):
        found = np.unique(column[~np.isnan(column)]).tolist()
        if not {*found} <= {0, 1} or (needs_both and len(found) < 2):
            raise ValueError(
                f"y must hold 0 and 1, and NaN where that is not known, found {found[:5]} in "
                f"column {name!r}"
            )
    return names, values


def _some_known(rows: Rows, values: NDArray[Any]) -> Rows:
    """Without the pictures that know no label, of which a warning says how many."""
    unknown = np.isnan(values[rows]).all(axis=1)
    if unknown.any():
        warnings.warn(f"left out: {unknown.sum():,} without a label", UserWarning, stacklevel=3)
    return np.delete(rows, unknown)


def _weights(weight: ArrayLike | None, count: int) -> NDArray[np.float64] | None:
    if weight is None:
        return None
    numbers = np.asarray(weight, np.float64)
    if numbers.shape != (count,) or not np.isfinite(numbers).all() or (numbers < 0).any():
        raise ValueError(
            f"sample_weight must have a finite number >= 0 per picture, found shape "
            f"{numbers.shape} for {count} pictures, the smallest {numbers.min(initial=0):g}"
        )
    return numbers
