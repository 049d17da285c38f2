"""A classifier trained from a stream of batches, its held-out rows in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from aucmax.tables import inputs
from aucmax.tables.classifier import AUCClassifier
from aucmax.tables.columns import Columns
from aucmax.tables.scoring import Rows, threads
from aucmax.train import fit

EVALUATIONS = 40


def prepare(model: AUCClassifier, sample: Columns, classes: NDArray[Any], seed: int) -> None:
    """Learn from a sample how columns become numbers, and make the network.

    Args:
        model: not fitted yet.
        sample: some of the rows.
        classes: the two labels, the negative first.
        seed: of the weights.
    """
    model._check_options()
    model.classes_ = classes
    model._prepare(inputs.checked_columns(model, sample, reset=True), seed)


def train(
    model: AUCClassifier,
    batches: Any,
    valid: Rows,
    steps: int,
    seed: int,
    work: Path | None,
    progress: bool,
) -> None:
    """Train a prepared classifier, going on where an interrupted call was.

    Args:
        model: see :func:`prepare`.
        batches: gives ``((numeric, codes), classes)`` round after round.
        valid: rows to choose and to calibrate by.
        steps: of the training.
        seed: of what is random in it.
        work: a folder for checkpoints.
        progress: whether to show a bar.
    """
    with threads(model.n_jobs):
        result = fit(
            model.network_, batches, valid.for_fit(), method=model.method, steps=steps, probe=0,
            objective=model.objective, eval_every=max(1, steps // EVALUATIONS), seed=seed,
            time_limit=model.time_limit, device=model.device, progress=progress, out=work,
            **{**model._recipe(steps), "positives": None},
        )  # fmt: skip
        model.history_, model.validation_auc_ = result.history, result.auc
        model._calibrate(valid)
