"""``aucmax fit``, ``tune``, ``predict``, ``evaluate``, ``report``, ``export``, ``demo``: tables."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from aucmax import checks, distributed
from aucmax.cli._reproduce import Count, Folder, Seconds
from aucmax.judge.binary import BinaryRows
from aucmax.judge.evaluation import Evaluation, Part, compare_aucs
from aucmax.judge.interval import Interval
from aucmax.judge.threshold import Rule
from aucmax.report import words
from aucmax.tables.read_options import ReadOptions
from aucmax.train.metrics import FORMS, ROC_AUC, MetricName, metric_in_records
from aucmax.train.objectives import ObjectiveName

if TYPE_CHECKING:
    from aucmax.judge.evaluation import Column as ColumnRecord
    from aucmax.tables import Fitted, Preview, Tuning


def _named(metavar: str) -> Any:
    """An option's value in the help, which says nothing of a default."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint="")


Files = Annotated[
    tuple[Path, ...],
    tyro.conf.Positional,
    tyro.conf.arg(metavar="FILE ...", help_behavior_hint="(required)"),
]
Model = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
Label = Annotated[str | None, _named("LABEL")]
Target = Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")]
Column = Annotated[str | None, _named("COLUMN")]
Id = Annotated[str | None, tyro.conf.arg(name="id", metavar="COLUMN", help_behavior_hint="")]
Threshold = Annotated[
    str | None,
    _named("VALUE|cost=R|recall=S|precision=S"),
]
Names = Annotated[tuple[str, ...], _named("COLUMN ...")]
Quality = Literal["fast", "good", "best"]
Kinds = tuple[Literal["network", "ce-network", "boosting", "forest", "logistic"], ...]
More = Annotated[tuple[Path, ...], _named("FILE ...")]
Metric = Annotated[MetricName | None, _named("|".join(FORMS))]


@dataclass(frozen=True)
class Reading(ReadOptions):
    # The same, with words for the help.
    __doc__ = ReadOptions.__doc__

    separator: Annotated[str | None, _named("CHARACTER")] = None
    decimal: Annotated[str | None, _named("CHARACTER")] = None
    encoding: Annotated[str | None, _named("NAME")] = None
    na_values: Annotated[tuple[str, ...], _named("TEXT ...")] = ()
    categories: Annotated[tuple[str, ...], _named("COLUMN ...")] = ()


AS_FOUND = Reading()
TEST_SHARE = 0.2


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
    quality: Annotated[Quality | None, _named("{fast,good,best}")] = None,
    models: Annotated[Kinds, _named("MODEL ...")] = (),
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
            is found at one (tpr_at_fpr@0.01), precision of the first rows (precision_at@100 or
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
    with _cores(threads):
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
        _say_all(fitted, summary(fitted.evaluation), quiet)


@contextmanager
def _cores(count: int | None) -> Iterator[None]:
    """At most so many for torch, Arrow and scikit-learn; None leaves them what they take."""
    import pyarrow
    from threadpoolctl import threadpool_limits

    from aucmax.threads import threads

    if count is None:
        with threads(None):
            yield
        return
    before = pyarrow.cpu_count()
    with threadpool_limits(checks.count("threads", count)), threads(count):
        pyarrow.set_cpu_count(count)
        try:
            yield
        finally:
            pyarrow.set_cpu_count(before)


def _say_all(fitted: Fitted, text: str, quiet: bool) -> None:
    where = f"The model is in {fitted.folder}, its report is {fitted.report}"
    if quiet:
        evaluation = fitted.evaluation
        print(*_aucs_in_words(evaluation), where, sep="\n")
        return
    print(text)
    if fitted.replaced:
        print(f"note: the model that was in {fitted.folder} before is replaced")
    print(f"\n{where}")


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

    with _cores(None):
        fitted, tuning = tune_file(
            data, target, positive=positive, out=out, drop=drop, weight=weight, group=group,
            time=time, id_column=id_column, exact_labels=exact_labels, reading=reading,
            quality=quality, metric=metric, threshold=threshold or "balanced", trials=trials,
            workers=workers, test_share=test_share, time_limit=time_limit, seed=seed,
            device=device, progress=not quiet,
            command=shlex.join(["aucmax", *sys.argv[1:]]),
        )  # fmt: skip
    within = fitted.evaluation.compared_auc is not fitted.evaluation.auc
    _say_all(fitted, f"{summary(fitted.evaluation)}\n\n{in_words(tuning, within)}", quiet)
    if not quiet:
        print(f"The trials are {fitted.folder / 'tuning.json'}")


def predict(
    model: Model,
    data: Files,
    out: Target = None,
    id_column: Id = None,
    keep: Names = (),
    threshold: Threshold = None,
    explain: Annotated[int, _named("N")] = 0,
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

    with _cores(threads):
        text, notes = predict_file(
            model, data, out, keep, id_column=id_column, threshold=threshold, explain=explain,
            device=device, reading=reading,
        )  # fmt: skip
    *notes, counts = notes
    _tell(() if quiet else notes)
    if text is not None:
        print(text, end="", flush=True)
    elif not quiet:
        print(f"The predictions are in {out}")
    if not quiet:
        print(counts, file=sys.stderr)


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

    with _cores(threads):
        evaluation = evaluate_file(
            model, data, weight=weight, group=group, device=device, reading=reading
        )
    if quiet:
        print(*_aucs_in_words(evaluation), sep="\n")
        return
    _tell(evaluation.notes)
    rows, labels = evaluation.rows, evaluation.labels
    counts = ", ".join(f"{n:,} {label!r}" for n, label in zip(rows.counts, labels, strict=True))
    print(f"{sum(rows.counts):,} rows: {counts}")
    print(*_aucs_in_words(evaluation), sep="\n")
    if isinstance(rows, BinaryRows):
        at, (negatives, positives) = rows.at_threshold, rows.counts
        found, alone = f"{at.hits:,} of {positives:,}", f"{at.left_alone:,} of {negatives:,}"
        if rows.weight is not None:
            found = alone = "by weight"
        print(f"average precision {rows.average_precision:.4f}")
        of_model = metric_in_records(evaluation.metric)
        if "@" in of_model.name and evaluation.score is not None:
            print(f"{of_model.label} {evaluation.score:.4f}, which the model was chosen by")
        print(
            f"at the model's threshold: recall {at.recall:.3f} ({found}), "
            f"specificity {at.specificity:.3f} ({alone})"
        )
    if not evaluation.is_enough:
        print(words.too_few(evaluation, repr))


def report(model: Model) -> None:
    """Write a model's report again.

    Args:
        model: The folder that aucmax fit made.
    """
    from aucmax.tables import write_report

    print(f"The report is {write_report(model)}")


def export(model: Model, onnx: Annotated[Path, tyro.conf.arg(metavar="FILE")]) -> None:
    """Write a model as ONNX, which other runtimes compute without torch.

    The file takes columns that are encoded already, numeric (float32) and codes (int64), as
    model.encoder_.transform(table) gives them in Python, and gives the probabilities of aucmax
    predict. Its metadata holds the names of columns and classes, the threshold and the encoder.

    Args:
        model: The folder that aucmax fit or tune made.
        onnx: The .onnx file to write.
    """
    from aucmax.tables import export_onnx

    print(f"The model is in {export_onnx(model, onnx)}")


def demo(out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("demo-model")) -> None:
    """Fit a model on a table that comes along, and show what it made.

    Args:
        out: Folder for model and report.
    """
    from aucmax.tables.files import write_demo_table

    table = write_demo_table(out.with_name(out.name + "-data.csv"))
    print(f"aucmax fit {table} --target malignant --out {out}\n")
    fit((table,), "malignant", out=out)


def summary(evaluation: Evaluation) -> str:
    """What a person wants to know first."""
    parts = {"valid": Part(0), **evaluation.parts}
    train, valid, test = (parts[part].rows for part in ("train", "valid", "test"))
    described = train + valid if evaluation.parts["train"].counts else None
    which = "some of the" if described is None else f"the {described:,}"
    lines = [f"columns of {which} rows to train on{' and to stop by' if valid else ''}:"]
    lines += columns_in_words(evaluation.columns[:MOST_LISTED], described)
    if (more := len(evaluation.columns) - MOST_LISTED) > 0:
        lines.append(f"and {more} more columns: --dry-run lists all")
    lines += ["", *(f"note: {note}" for note in evaluation.notes)]
    lines += [
        f"note: objective {x.objective!r} was chosen from {len(evaluation.candidates)} by the rows "
        f"to stop by"
        for x in evaluation.candidates
        if x.chosen
    ]
    stop = f", {valid:,} to stop by" if valid else ""
    lines.append(f"{train:,} rows to train on{stop}, {test:,} to judge by")
    rows, auc = evaluation.rows, evaluation.compared_auc
    within = auc is not evaluation.auc
    if isinstance(rows, BinaryRows):
        share = words.percent(rows.base_rate).replace(words.NO_BREAK, "")
        about = f"{rows.counts[1]:,} of {test:,}"
        by = "" if rows.weight is None else ", by weight,"
        lines.append(f"{share} of the rows to judge by{by} are {rows.yes!r} ({about})")
    lines += [*models_in_words(evaluation), *_aucs_in_words(evaluation)]
    if (promised := evaluation.promised) is not None:
        held = words.promise_held(promised, auc)
        said = _auc_in_words(promised, within=within)
        lines.append(f"promised before: {said}; the test rows {held}")
    if evaluation.metric != ROC_AUC.name and evaluation.score is not None:
        peers = "".join(f", of {x.name} {x.score:.4f}" for x in evaluation.peers)
        label = metric_in_records(evaluation.metric).label
        lines.append(f"{label} {evaluation.score:.4f}{peers}")
    for x in evaluation.peers:
        if x.p_value is None:
            lines.append(f"{x.name}: {_auc_in_words(x.compared_auc, within=within)}")
        else:
            aucs = auc.value, x.compared_auc.value
            lines.append(_against(x.name, *aucs, x.p_value, within))
    if not evaluation.is_enough:
        lines.append(words.too_few(evaluation, repr))
    if isinstance(rows, BinaryRows):
        by = f"rows to {'stop by' if valid else 'train on'}"
        by += ", out of fold" * evaluation.is_cross_fitted
        lines.append(_threshold_in_words(rows, Rule.read(evaluation.threshold_rule), by))
    if evaluation.doubtful:
        first, count = evaluation.doubtful[0], words.plural(len(evaluation.doubtful), "label")
        lines.append(
            f"{count} worth checking: see the report; the first is {first.label!r} of row "
            f"{first.row:,}"
        )
    return "\n".join(lines)


MOST_LISTED = 30
"""Columns that are listed after training; --dry-run lists all."""


def columns_in_words(columns: Sequence[ColumnRecord], rows: int | None) -> list[str]:
    """What each column was taken for, in lines below each other.

    Args:
        columns: to list.
        rows: how many they describe; None if that is unknown.
    """
    table = [("column", "taken as", "missing", "values", "most often")]
    for x in columns:
        kind = f"{x.kind}, written {x.written}" if x.written else x.kind
        missing = f"{x.missing:.1%}"
        if rows is not None:
            missing = f"{round(x.missing * rows):,} ({missing})" if x.missing else "0"
        table.append((x.name, kind, missing, f"{x.distinct:,}", x.typical))
    return _aligned([[words.short(cell, 32) for cell in line] for line in table], "<<>><")


def models_in_words(evaluation: Evaluation) -> list[str]:
    """What each is worth, in lines below each other; nothing of one alone."""
    if len(evaluation.models) < 2:
        return []
    within = WITHIN * (evaluation.compared_auc is not evaluation.auc)
    judged = "out of fold" if evaluation.is_cross_fitted else "of the rows to stop by"
    lines = [["model", "weight", f"AUC{within} {judged}", ""]]
    for x in evaluation.models:
        auc = "" if x.auc is None else f"{x.auc.value:.4f}, {x.auc.low:.4f} to {x.auc.high:.4f}"
        weight = f"{x.weight:.0%}" if x.weight else ""
        left_out = f"left out: {words.short(x.left_out, 200)}" if x.left_out else ""
        lines.append([words.short(x.name, 32), weight, auc, left_out])
    return _aligned(lines, "<><<")


def _aligned(lines: Sequence[Sequence[str]], sides: str) -> list[str]:
    """Cells below each other, of each column at its left or right side."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(f"{x:{side}{n}}" for x, side, n in zip(line, sides, widths, strict=True)).rstrip()
        for line in lines
    ]


def preview_in_words(preview: Preview) -> str:
    """What is understood of a file."""
    rows = sum(preview.labels.values())
    counts = ", ".join(f"{n:,} {label!r}" for label, n in preview.labels.items())
    lines = [*columns_in_words(preview.columns, rows), "", f"{rows:,} rows: {counts}"]
    return "\n".join([*lines, *(f"note: {note}" for note in preview.notes)])


def in_words(tuning: Tuning, within: bool = False) -> str:
    """The best options, and how they do beside the defaults, perhaps within groups."""
    best, defaults, trials = tuning.best, tuning.defaults, len(tuning.trials)
    chosen = {name: best.options[name] for name in tuning.searched}
    shown = ", ".join(
        f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in chosen.items()
    )
    if best.options == defaults.options:
        return f"of {trials} trials the defaults were the best: {shown}"
    known = defaults.validation_score
    before = "the defaults diverged" if known is None else f"of the defaults {known:.4f}"
    lines = [
        f"the best of {trials} trials: {shown}",
        f"validation {tuning.metric.label}, mean of {len(best.folds or [])} folds: "
        f"{best.validation_score:.4f}, "
        f"{before} (the best of many looks better than it is)",
    ]
    ours, theirs, p_value = best.test_auc, defaults.test_auc, defaults.p_value
    if ours and theirs:
        if p_value is None:
            lines.append(f"the defaults: AUC{WITHIN * within} {theirs:.4f}")
        else:
            lines.append(_against("the defaults", ours, theirs, p_value, within))
    return "\n".join(lines)


def _aucs_in_words(evaluation: Evaluation) -> list[str]:
    """A line on the AUC, and one on that within groups if rows have some."""
    groups, labels = evaluation.groups, evaluation.labels
    which = ", the mean over pairs of classes (Hand and Till)" if len(labels) > 2 else ""
    lines = [_auc_in_words(evaluation.auc) + which]
    if groups is not None and groups.auc is not None:
        has = "has" if groups.compared == 1 else "have"
        lines.append(
            f"{_auc_in_words(groups.auc, within=True)}: how often a {labels[1]!r} is ranked above "
            f"a {labels[0]!r} of the same {groups.column!r}; {groups.compared:,} of "
            f"{words.plural(groups.count, 'group')} {has} both"
        )
    return lines


def _auc_in_words(auc: Interval, within: bool = False) -> str:
    interval = f"{auc.level:.0%} interval {auc.low:.4f} to {auc.high:.4f}"
    return f"AUC{WITHIN * within} {auc.value:.4f}, {interval}"


WITHIN = " within groups"


def _threshold_in_words(rows: BinaryRows, rule: Rule, by: str) -> str:
    how = {"balanced": "the best balanced accuracy", "proba": "one half", "value": "as said"}
    chosen = how.get(rule.kind, str(rule)) + (f" of the {by}" if rule.needs_rows else "")
    at = rows.at_threshold
    precision = "none flagged" if at.precision is None else f"precision {at.precision:.3f}"
    return (
        f"{rows.yes!r} from {rows.threshold:.4g} on ({chosen}): recall {at.recall:.3f}, "
        f"{precision} of the rows to judge by"
    )


def _against(name: str, ours: float, theirs: float, p_value: float, within: bool = False) -> str:
    said = compare_aucs(ours, theirs, p_value)
    return (
        f"against {name}, AUC{WITHIN * within} {theirs:.4f}: {ours - theirs:+.4f}, "
        f"p = {p_value:.2g}, {'no clear difference' if said == 'same' else said}"
    )


def _tell(notes: Sequence[str]) -> None:
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
