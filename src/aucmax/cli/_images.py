"""``aucmax fit-images``, ``predict-images`` and ``evaluate-images``."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import tyro

from aucmax import distributed
from aucmax.cli._cores import limited_cores
from aucmax.cli._options import (
    TEST_SHARE,
    Column,
    Count,
    Folder,
    Label,
    Metric,
    Model,
    Names,
    Quality,
    Seconds,
    Target,
    Threshold,
    named,
)
from aucmax.cli._words import (
    pictures_in_words,
    say_all,
    say_evaluation,
    say_predictions,
    summary,
)
from aucmax.train.objectives import ObjectiveName

Source = Annotated[
    Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR|TABLE", help_behavior_hint="(required)")
]
Pictures = Annotated[
    Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR|FILE", help_behavior_hint="(required)")
]
Weights = Annotated[Path | None, named("FILE")]
Test = Annotated[Path | None, named("DIR|TABLE")]


def fit_images(
    source: Source,
    images: Folder = None,
    path: Annotated[str, named("COLUMN")] = "file",
    target: Names = (),
    positive: Label = None,
    group: Column = None,
    weight: Column = None,
    out: Folder = None,
    store: Folder = None,
    model: Annotated[str, named("NAME")] = "resnet20",
    weights: Weights = None,
    size: Count = None,
    depth: int = 16,
    skip_broken: bool = False,
    quality: Quality = "good",
    objective: ObjectiveName = "auc+ce",
    metric: Metric = None,
    color_jitter: float = 0.0,
    mixup: float = 0.0,
    threshold: Threshold = None,
    test: Test = None,
    test_share: float = TEST_SHARE,
    time_limit: Seconds = None,
    seed: int = 0,
    device: str = "auto",
    threads: Count = None,
    quiet: bool = False,
    dry_run: bool = False,
) -> None:
    """Train a model on pictures and say how good it is.

    Stopped or killed, the same command goes on.

    Args:
        source: A folder that holds a folder of pictures per class, or a table (.csv) that names
            files and their labels.
        images: The folder that the table's files are in; by default the table's own.
        path: The table's column of files.
        target: The table's column of labels; or several columns, of labels that a picture may have
            at once: 1 and 0, or yes and no, and nothing where that is not known.
        positive: The positive label; by default the rarer one.
        group: The table's column of what belongs together, such as patients: no split cuts one.
        weight: The table's column of how much each picture counts.
        out: Folder for model and report; by default the source's name with "-model".
        store: Folder for the decoded pictures, which other fits share; by default the source's
            name with "-pictures", beside it.
        model: resnet20, for small pictures, or any name of timm where that is installed.
        weights: A file of weights to begin with, .safetensors or .pth: first the last layer is
            trained alone, then all with a tenth of the step size.
        size: Pixels of a side that pictures are scaled to, whole and with black around them; by
            default the model's own, of resnet20 32 or 64.
        depth: Bits that files of 16 bits use.
        skip_broken: Leave out files that cannot be read; otherwise they are an error.
        quality: fast sees every picture 20 times, good 80, best 250.
        objective: What training makes small in its second half, the first being cross-entropy's;
            as in aucmax fit.
        metric: What weights are chosen by, as in aucmax fit.
        color_jitter: By how much training pictures are made brighter or darker, more or less
            colourful and rich in contrast, at random, from 0 to 1; 0.4 is usual for photos.
        mixup: How much training pictures are blended with others of their class: 0.2 a little, 1
            evenly, 0 not at all.
        threshold: From which probability on a picture gets the positive label, as in aucmax fit.
        test: Pictures to judge the model by, as the source is: a folder, or a table with the same
            columns. None of the source are then kept apart, and those of it that show the same as
            one of these, or are of one's group, are not trained on.
        test_share: Share of the pictures kept apart to judge the model by, without --test.
        time_limit: Seconds for training; decoding and the report come on top.
        seed: Of everything that is random.
        device: cpu, cuda, cuda:1 or auto, which takes the GPU if there is one.
        threads: At most so many cores; by default those that it may use.
        quiet: Show no progress and no notes, only the AUC and where the model is.
        dry_run: Only say what is understood of the pictures. They are read, but nothing is kept.
    """
    from aucmax.images import fit_images as fit
    from aucmax.images import preview_images

    given: dict[str, Any] = {
        "images": images, "path": path, "target": target, "positive": positive, "group": group,
        "weight": weight, "test": test, "model": model, "weights": weights, "size": size,
        "depth": depth, "skip_broken": skip_broken, "workers": threads, "progress": not quiet,
        "quality": quality, "objective": objective, "metric": metric, "color_jitter": color_jitter,
        "mixup": mixup, "threshold": threshold or "balanced", "test_share": test_share,
        "time_limit": time_limit, "seed": seed, "device": device,
    }  # fmt: skip
    with limited_cores(threads):
        if dry_run:
            preview = preview_images(source, **given)
            if distributed.is_first():
                print(pictures_in_words(preview))
            return
        command = shlex.join(["aucmax", *sys.argv[1:]])
        fitted = fit(source, **given, out=out, store=store, command=command)
    if distributed.is_first():
        say_all(fitted, summary(fitted.evaluation), quiet)


def predict_images(
    model: Model,
    source: Pictures,
    out: Target = None,
    threshold: Threshold = None,
    skip_broken: bool = False,
    device: str = "auto",
    quiet: bool = False,
) -> None:
    """Predict pictures.

    Args:
        model: The folder that aucmax fit-images made.
        source: A folder, whose pictures at any depth are predicted, or one picture.
        out: A .csv or .parquet file; by default CSV on standard output.
        threshold: From which probability on a picture gets the positive label, instead of the one
            that fit-images chose and printed, as in aucmax predict.
        skip_broken: Leave the predictions of files that cannot be read empty; otherwise they are
            an error.
        device: cpu, cuda, cuda:1 or auto, which takes the GPU if there is one.
        quiet: Show no notes.
    """
    from aucmax.images import predict_images as predict

    with limited_cores(None):
        text, notes = predict(
            model, source, out, threshold=threshold, skip_broken=skip_broken, device=device
        )
    say_predictions(text, notes, out, quiet)


def evaluate_images(
    model: Model,
    source: Source,
    images: Folder = None,
    path: Annotated[str, named("COLUMN")] = "file",
    target: Names = (),
    group: Column = None,
    weight: Column = None,
    skip_broken: bool = False,
    device: str = "auto",
    threads: Count = None,
    quiet: bool = False,
) -> None:
    """Judge a model on pictures with known labels.

    Args:
        model: The folder that aucmax fit-images made.
        source: A folder that holds a folder of pictures per class, or a table (.csv) that names
            files and their labels.
        images: The folder that the table's files are in; by default the table's own.
        path: The table's column of files.
        target: The table's column of labels; by default the one that fit-images was told, of
            several all of them.
        group: The table's column of what belongs together, such as patients: the interval takes
            them as drawn whole.
        weight: The table's column of how much each picture counts; by default all count alike.
        skip_broken: Leave out files that cannot be read; otherwise they are an error.
        device: cpu, cuda, cuda:1 or auto, which takes the GPU if there is one.
        threads: At most so many cores; by default those that it may use.
        quiet: Say nothing but the AUC.
    """
    from aucmax.images import evaluate_images as evaluate

    with limited_cores(threads):
        evaluation = evaluate(
            model, source, images=images, path=path, target=target, group=group, weight=weight,
            skip_broken=skip_broken, device=device,
        )  # fmt: skip
    say_evaluation(evaluation, quiet)
