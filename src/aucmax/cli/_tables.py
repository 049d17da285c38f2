"""``aucmax fit``, ``tune``, ``predict``, ``evaluate``, ``report``, ``export``, ``demo``: tables."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from aucmax import distributed
from aucmax.cli._cores import limited_cores
from aucmax.cli._options import (
    TEST_SHARE,
    Column,
    Count,
    Files,
    Folder,
    Id,
    Kinds,
    Label,
    Metric,
    Model,
    More,
    Names,
    Quality,
    Seconds,
    Target,
    Threshold,
    named,
)
from aucmax.cli._words import (
    in_words,
    preview_in_words,
    say_all,
    say_evaluation,
    say_predictions,
    summary,
)
from aucmax.disk import read_json
from aucmax.tables.read_options import ReadOptions
from aucmax.train.objectives import ObjectiveName


@dataclass(frozen=True)
class Reading(ReadOptions):
    # The same, with words for the help.
    __doc__ = ReadOptions.__doc__

    separator: Annotated[str | None, named("CHARACTER")] = None
    decimal: Annotated[str | None, named("CHARACTER")] = None
    encoding: Annotated[str | None, named("NAME")] = None
    na_values: Annotated[tuple[str, ...], named("TEXT ...")] = ()
    categories: Annotated[tuple[str, ...], named("COLUMN ...")] = ()


AS_FOUND = Reading()


def fit(
    data: Files,
    target: Annotated[str, tyro.conf.arg(metavar="COLUMN")],
    positive: Label = None,
    out: Folder = None,
    drop: Names = (),
    weight: Column = None,
    group: Column = None,
    time: Column = None,
    id_column: Id = None,
    exact_labels: bool = False,
    reading: Reading = AS_FOUND,
    valid: More = (),
    quality: Annotated[Quality | None, named("{fast,good,best}")] = None,
    models: Annotated[Kinds, named("MODEL ...")] = (),
    objective: ObjectiveName = "auc+ce",
    metric: Metric = None,
    threshold: Threshold = None,
    test_share: float = TEST_SHARE,
    time_limit: Seconds = None,
    seed: int = 0,
    device: str = "auto",
    threads: Count = None,
    quiet: bool = False,
    streaming: bool = False,
    passes: float = 1.0,
    dry_run: bool = False,
) -> None:
    """Train a model on a table and say how good it is.

    Stopped or killed, the same command goes on.

    Args:
        data: A .csv, .csv.gz, .tsv, .parquet, .arrow or .feather file, several with the same
            columns, a folder of them, or a pattern in quotes such as 'part-*.parquet'.
        target: The column to predict.
        positive: Its positive label; by default 1, true or yes, else the rarer one.
        out: Folder for model and report; by default the file's or folder's name with "-model".
        drop: Columns to leave out.
        weight: How much each row counts, a number of at least 0: in training, and in every AUC,
            share and cost. It is not trained on, and predict does not need it.
        group: Which rows belong together, such as those of a patient, a site or a query: only rows
            of the same group are compared, and none is cut when rows are kept apart. It is not
            trained on, and predict does not need it.
        time: When each row was, a date or a number: the model is trained on the past and judged by
            the latest rows, --test-share of them; those to stop by are later than what is trained
            on, too. It is not trained on, and predict does not need it.
        id_column: Names a row. It is not trained on, and predict carries it.
        exact_labels: Keep labels apart that differ in case or blanks alone, such as yes and Yes.
        reading: How the files are written.
        valid: Rows that decide when to stop, the models' weights, probabilities and threshold, with
            the same columns; none of the others are then held out for that.
        quality: fast is one network; good, the default, is the weighted mean of networks, gradient
            boosting, a forest and logistic regression, each fitted to folds of the rows and
            weighed by the others; best has more folds. With --streaming there is fast alone.
        models: Those to fit instead of the quality's: network, ce-network (on cross-entropy),
            boosting, forest, logistic.
        objective: What training of the network makes small. For the AUC: auc, pairwise, ce
            (cross-entropy); for the top of the list: partial (with --metric partial_auc@0.1 that
            part of it), and ap for average precision. Compare with ce in any case. Sums too, such
            as pairwise+0.5*ce. auto trains for each that suits the metric, and the rows to stop by
            choose.
        metric: What decides when to stop, on rows that are not trained on, and whether the models
            count alike: the AUC, or its part up to a false positive rate (partial_auc@0.1), what
            is found at one (tpr_at_fpr@0.01), precision of the first rows (precision_at@k=100 or
            @0.05) or average precision. By default the AUC, with --group that within groups.
        threshold: From which probability on a row gets the positive label: a number; cost=5, if a
            missed one costs as much as 5 false alarms; recall=0.9 or precision=0.5, if so much is
            wanted of the rows that stop the training; proba for 0.5; or balanced, the default,
            for their best balanced accuracy.
        test_share: Share of the rows kept apart to judge the model by; with --streaming a tenth of
            the sample.
        time_limit: Seconds for training: the quick models come first, and what no longer fits is
            left out. Reading, the comparison and the report come on top.
        seed: Of everything that is random.
        device: cpu, cuda, cuda:1 or auto, which takes the GPU if there is one.
        threads: At most so many cores; by default those that it may use.
        quiet: Show no progress and no notes, only the AUC and where the model is.
        streaming: Read the rows from disk as they are needed, for files larger than memory.
        passes: With --streaming, how often every row is seen.
        dry_run: Only say what is understood of the files, column by column.
    """
    from aucmax.tables import fit_file, fit_stream, preview_file, preview_stream

    given: dict[str, Any] = {
        "positive": positive, "out": out, "drop": drop, "weight": weight, "group": group,
        "time": time, "id_column": id_column, "exact_labels": exact_labels, "reading": reading,
        "time_limit": time_limit, "seed": seed, "objective": objective, "metric": metric,
        "quality": quality or ("fast" if streaming else "good"), "models": list(models) or None,
        "threshold": threshold or "balanced", "device": device, "progress": not quiet,
        "command": shlex.join(["aucmax", *sys.argv[1:]]),
    }  # fmt: skip
    if streaming:
        refused = {
            "group": (group, "whose batches are rows as they come, not whole groups"),
            "time": (time, "whose rows come in random order"),
            "valid": (" ".join(map(str, valid)), "which keeps rows of the files to stop by"),
            "quality": (None if quality == "fast" else quality, "which trains one network"),
            "models": (" ".join(models), "which trains one network"),
            "test-share": (test_share != TEST_SHARE and test_share, "which keeps a tenth apart"),
        }
        for option, (value, why) in refused.items():
            if value:
                raise ValueError(
                    f"--{option} must not be given with --streaming, {why}, found {value!r}"
                )
        del given["group"], given["time"]
    with limited_cores(threads):
        if dry_run:
            about = given.keys() & {
                "positive", "drop", "weight", "group", "time", "id_column", "exact_labels",
                "reading",
            }  # fmt: skip
            look = preview_stream if streaming else preview_file
            print(preview_in_words(look(data, target, **{x: given[x] for x in about})))
            return
        if streaming:
            fitted = fit_stream(data, target, passes=passes, **given)
        else:
            fitted = fit_file(data, target, valid=valid, test_share=test_share, **given)
    if distributed.is_first():
        say_all(fitted, summary(fitted.evaluation), quiet)


def tune(
    data: Files,
    target: Annotated[str, tyro.conf.arg(metavar="COLUMN")],
    positive: Label = None,
    out: Folder = None,
    drop: Names = (),
    weight: Column = None,
    group: Column = None,
    time: Column = None,
    id_column: Id = None,
    exact_labels: bool = False,
    reading: Reading = AS_FOUND,
    quality: Quality = "good",
    metric: Metric = None,
    threshold: Threshold = None,
    trials: int = 30,
    workers: Count = None,
    test_share: float = TEST_SHARE,
    time_limit: Seconds = None,
    seed: int = 0,
    device: str = "auto",
    quiet: bool = False,
) -> None:
    """Search for options that suit a table, and fit a model with the best.

    Options are judged by folds of the training rows; the rows to judge the model by are those of
    aucmax fit, and have no part in the search. Killed or stopped, the same command goes on.

    Args:
        data: A .csv, .csv.gz, .tsv, .parquet, .arrow or .feather file, several with the same
            columns, a folder of them, or a pattern in quotes such as 'part-*.parquet'.
        target: The column to predict.
        positive: Its positive label; by default 1, true or yes, else the rarer one.
        out: Folder for model and report; by default the file's or folder's name with "-model".
        drop: Columns to leave out.
        weight: How much each row counts, a number of at least 0: in training, and in every AUC,
            share and cost. It is not trained on, and predict does not need it.
        group: Which rows belong together, as in aucmax fit; folds do not cut a group either.
        time: When each row was, as in aucmax fit; folds are judged by what came later, too.
        id_column: Names a row. It is not trained on, and predict carries it.
        exact_labels: Keep labels apart that differ in case or blanks alone, such as yes and Yes.
        reading: How the files are written.
        quality: Of the model with the best options, as in aucmax fit; trials are fast.
        metric: What options are chosen by, on rows that they do not train on, as in aucmax fit.
        threshold: From which probability on a row gets the positive label, as in aucmax fit.
        trials: How many options are tried; the defaults come first.
        workers: Trials at a time; by default one per core, or three on a GPU.
        test_share: Share of the rows kept apart to judge the model by.
        time_limit: Begin no further trial after so many seconds.
        seed: Of everything that is random.
        device: cpu, cuda, cuda:1 or auto, which takes the GPU if there is one.
        quiet: Show no progress and no notes, only the AUC and where the model is.
    """
    from aucmax.tables import tune_file

    with limited_cores(None):
        fitted, tuning = tune_file(
            data, target, positive=positive, out=out, drop=drop, weight=weight, group=group,
            time=time, id_column=id_column, exact_labels=exact_labels, reading=reading,
            quality=quality, metric=metric, threshold=threshold or "balanced", trials=trials,
            workers=workers, test_share=test_share, time_limit=time_limit, seed=seed,
            device=device, progress=not quiet,
            command=shlex.join(["aucmax", *sys.argv[1:]]),
        )  # fmt: skip
    within = fitted.evaluation.compared_auc is not fitted.evaluation.auc
    say_all(fitted, f"{summary(fitted.evaluation)}\n\n{in_words(tuning, within)}", quiet)
    if not quiet:
        print(f"The trials are {fitted.folder / 'tuning.json'}")


def predict(
    model: Model,
    data: Files,
    out: Target = None,
    id_column: Id = None,
    keep: Names = (),
    threshold: Threshold = None,
    explain: Annotated[int, named("N")] = 0,
    reading: Reading = AS_FOUND,
    device: str = "auto",
    threads: Count = None,
    quiet: bool = False,
) -> None:
    """Predict the rows of a table.

    Columns are matched by name. A category that training has not seen counts as a rare one.

    Args:
        model: The folder that aucmax fit made.
        data: A file with the columns that the model was trained on, several, a folder or a pattern.
        out: A .csv or .parquet file; by default CSV on standard output.
        id_column: Names a row, and is copied; by default the one that fit was told, if it is there.
        keep: More columns to copy.
        threshold: From which probability on a row gets the positive label, instead of the one that
            fit chose and printed: a number; cost=5, if a missed one costs as much as 5 false
            alarms, which is 1/6; recall=0.9 or precision=0.5, as the rows that judged the model in
            fit had it; proba for 0.5; or balanced, for the best balanced accuracy of those rows.
            New rows may have less than these; fit --threshold chooses by others, and judges it.
        explain: Name the N columns that moved each row's log-odds most, and by how much (Shapley
            values, compared with other rows of the file). Takes up to 32 scorings per row and
            column.
        reading: How the files are written.
        device: cpu, cuda, cuda:1 or auto, which takes the GPU if there is one.
        threads: At most so many cores; by default those that it may use.
        quiet: Say nothing but the predictions.
    """
    from aucmax.tables import predict_file

    with limited_cores(threads):
        text, notes = predict_file(
            model, data, out, keep, id_column=id_column, threshold=threshold, explain=explain,
            device=device, reading=reading,
        )  # fmt: skip
    say_predictions(text, notes, out, quiet)


def evaluate(
    model: Model,
    data: Files,
    weight: Column = None,
    group: Column = None,
    reading: Reading = AS_FOUND,
    device: str = "auto",
    threads: Count = None,
    quiet: bool = False,
) -> None:
    """Judge a model on rows with a known target.

    Args:
        model: The folder that aucmax fit made.
        data: A file with the target's column, several, a folder or a pattern.
        weight: How much each row counts, a number of at least 0; by default all count alike.
        group: Which rows belong together; by default the column that fit was told, if it is there.
        reading: How the files are written.
        device: cpu, cuda, cuda:1 or auto, which takes the GPU if there is one.
        threads: At most so many cores; by default those that it may use.
        quiet: Say nothing but the AUC.
    """
    from aucmax.tables import evaluate_file

    with limited_cores(threads):
        evaluation = evaluate_file(
            model, data, weight=weight, group=group, device=device, reading=reading
        )
    say_evaluation(evaluation, quiet)


def report(model: Model) -> None:
    """Write a model's report again.

    Args:
        model: The folder that aucmax fit or fit-images made.
    """
    from aucmax import images, tables

    of_kind = images if _is_of_pictures(model) else tables
    print(f"The report is {of_kind.write_report(model)}")


def _is_of_pictures(model: Path) -> bool:
    """Whether a folder holds a model of pictures; whoever reads it says what is wrong with it."""
    try:
        content = read_json(model / "model.json")
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and content.get("classifier") == "images"


def export(model: Model, onnx: Annotated[Path, tyro.conf.arg(metavar="FILE")]) -> None:
    """Write a model as ONNX, which other runtimes compute without torch.

    The file takes columns that are encoded already, numeric (float32) and codes (int64), as
    model.encoder_.transform(table) gives them in Python, and gives the probabilities of aucmax
    predict. Its metadata holds the names of columns and classes, the threshold and the encoder. Of
    fit-images it takes pixels (float32, from 0 to 255) of pictures that are scaled as in training.

    Args:
        model: The folder that aucmax fit, tune or fit-images made.
        onnx: The .onnx file to write.
    """
    from aucmax import images, tables

    of_kind = images if _is_of_pictures(model) else tables
    print(f"The model is in {of_kind.export_onnx(model, onnx)}")


def demo(out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("demo-model")) -> None:
    """Fit a model on a table that comes along, and show what it made.

    Args:
        out: Folder for model and report.
    """
    from aucmax.tables.files import write_demo_table

    table = write_demo_table(out.with_name(out.name + "-data.csv"))
    print(f"aucmax fit {table} --target malignant --out {out}\n")
    fit((table,), "malignant", out=out)
